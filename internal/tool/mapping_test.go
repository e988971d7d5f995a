package tool

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// The caller's /srv/app reaches the tool as the directory of the container, and returns as
// /srv/app, through real processes and files (PM-01, PM-07, PM-09, PM-14).
func TestMappingBothWays(t *testing.T) {
	b := newFixture(t, command("report", `cat`, asJSON))
	b.contain()
	b.write(t, "src/main.go", "package main\n", 0o644)

	res := b.call(t, "exec", object{"argv": []string{"cat", "/srv/app/src/main.go"}})
	succeeded(t, res)
	if res.Stdout.Text != "package main\n" {
		t.Errorf("stdout %q", res.Stdout.Text)
	}
	wantMapped(t, res, "/input/argv/1 /srv/app/src/main.go -> "+b.folder+"/src/main.go")

	res = b.call(t, "read_file", object{"path": "/srv/app/src/main.go"})
	succeeded(t, res)
	if got := output[readOutput](t, res).Path; got != "/srv/app/src/main.go" {
		t.Errorf("the path came back as %s", got)
	}
	wantMapped(t, res, "/input/path /srv/app/src/main.go -> "+b.folder+"/src/main.go",
		"/output/path "+b.folder+"/src/main.go -> /srv/app/src/main.go")

	res = b.call(t, "report", object{"deep": []any{object{"/srv/app": "/srv/app/x"}}, "n": 1})
	succeeded(t, res)
	if got := string(res.Output); got != `{"deep":[{"/srv/app":"/srv/app/x"}],"n":1}` {
		t.Errorf("output %s", got)
	}
	// text stays raw (PM-10)
	if want := `{"deep":[{"/srv/app":"` + b.folder + `/x"}],"n":1}`; res.Stdout.Text != want {
		t.Errorf("stdout %s, want %s", res.Stdout.Text, want)
	}
}

func wantMapped(t *testing.T, res dray.Result, want ...string) {
	t.Helper()
	if res.Metadata.Mapping == nil {
		t.Fatal("there is no mapping report")
	}
	var got []string
	for _, m := range res.Metadata.Mapping.Mapped {
		got = append(got, m.Pointer+" "+m.From+" -> "+m.To)
	}
	if !slices.Equal(got, want) {
		t.Errorf("mapped %q, want %q", got, want)
	}
}

// The working directory of a call in each of its forms.
func TestMappingDir(t *testing.T) {
	host := dray.Capabilities{Kind: dray.KindHost, WorkspaceFolder: "/srv/app"}
	box := dray.Capabilities{
		Kind: dray.KindContainer, WorkspaceFolder: "/workspaces/app",
		Mounts: []dray.Mount{
			{Host: "/srv/app", Container: "/workspaces/app"},
			{Host: "", Container: "/workspaces/app/node_modules"},
		},
	}
	volume := dray.Capabilities{Kind: dray.KindContainer, WorkspaceFolder: "/workspaces/app"}
	nested := dray.Capabilities{
		Kind: dray.KindContainer, WorkspaceFolder: "/workspaces/ui", Mounts: []dray.Mount{{Host: "/srv/app/ui", Container: "/workspaces/ui"}},
	}
	tests := []struct {
		name                  string
		caps                  dray.Capabilities
		workspace, cwd, route string
		want                  string
		code                  dray.Code
		unmapped              bool
	}{
		{name: "host: none", caps: host, workspace: "/srv/app", want: "/srv/app"},
		{name: "host: relative", caps: host, workspace: "/srv/app", cwd: "sub", want: "/srv/app/sub"},
		{name: "host: relative to nothing", caps: host, cwd: "sub", want: "/srv/app/sub"},
		{name: "host: absolute", caps: host, workspace: "/srv/app", cwd: "/tmp", want: "/tmp"},
		{name: "none", caps: box, workspace: "/srv/app", want: "/workspaces/app"},
		{name: "relative", caps: box, workspace: "/srv/app", cwd: "sub/x", want: "/workspaces/app/sub/x"},
		{name: "relative, container alone", caps: box, cwd: "sub", want: "/workspaces/app/sub"},
		{
			name: "absolute", caps: box, workspace: "/srv/app", cwd: "/srv/app/sub",
			want: "/workspaces/app/sub",
		},
		{
			name: "the container's own", caps: box, workspace: "/srv/app", cwd: "/var/tmp", want: "/var/tmp",
			unmapped: true,
		},
		// PM-01
		{
			name: "not below a root", caps: box, workspace: "/srv/app", cwd: "/srv/application",
			want: "/srv/application", unmapped: true,
		},
		{
			name: "under a volume", caps: box, workspace: "/srv/app", cwd: "node_modules/x",
			want: "/workspaces/app/node_modules/x", unmapped: true,
		},
		{
			name: "workspace in a volume", caps: volume, workspace: "/srv/app", cwd: "sub",
			want: "/workspaces/app/sub", unmapped: true,
		},
		{
			name: "absolute, workspace in a volume", caps: volume, workspace: "/srv/app",
			cwd: "/srv/app/sub", want: "/workspaces/app/sub", unmapped: true,
		},
		{
			name: "through a link", caps: box, workspace: "/home/me/link", cwd: "/home/me/link/sub",
			want: "/workspaces/app/sub", unmapped: true,
		},
		{
			name: "nested", caps: nested, workspace: "/srv/app", cwd: "ui/src", route: "/srv/app/ui",
			want: "/workspaces/ui/src",
		},
		{
			name: "outside the nested one", caps: nested, workspace: "/srv/app", cwd: "src",
			route: "/srv/app/ui", code: dray.CodeBadCwd,
		},
		// PM-05
		{
			name: "dots", caps: box, workspace: "/srv/app", cwd: "/srv/app/../x",
			code: dray.CodePathInvalid,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			call := dray.Call{
				Invocation:  dray.Invocation{Tool: "exec", Input: json.RawMessage(`{"argv":["pwd"]}`), Workspace: tt.workspace, Cwd: tt.cwd},
				Route:       dray.Route{Workspace: tt.route},
				Environment: capabilities(tt.caps),
			}
			seen, res, err := through(t, call)
			if tt.code != "" {
				if e := dray.AsError(err); e == nil || e.Code != tt.code || e.Hint == "" || seen != nil {
					t.Fatalf("got %+v, want %s before anything starts", e, tt.code)
				}
				return
			}
			if err != nil || seen.WorkDir != tt.want {
				t.Fatalf("got %q, %v, want %q", seen.WorkDir, err, tt.want)
			}
			unmapped := res.Metadata.Mapping != nil &&
				slices.ContainsFunc(res.Metadata.Mapping.Unmapped, func(u dray.UnmappedPath) bool {
					return u.Pointer == "/cwd" && u.Reason != ""
				})
			if unmapped != tt.unmapped {
				t.Errorf("unmapped is %v: %+v", unmapped, res.Metadata.Mapping)
			}
		})
	}
}

// capabilities is an environment that has only a description.
type capabilities dray.Capabilities

func (c capabilities) Capabilities() dray.Capabilities { return dray.Capabilities(c) }

func (capabilities) Start(context.Context, dray.ProcessSpec) (dray.Process, error) {
	panic("nothing is started here")
}

func (capabilities) Files(context.Context, string) (dray.Files, error) {
	panic("nothing is opened here")
}

// through runs a call through the mapping alone and returns the call that the inner layer got, nil
// if none.
func through(t *testing.T, call dray.Call, output ...string) (*dray.Call, dray.Result, error) {
	t.Helper()
	d := defined(t, registry(t), call.Invocation.Tool,
		command("marked", "", func(c *commandTool) {
			c.InputSchema = json.RawMessage(`{"type":"object","properties":{"p":{"type":"string","format":"path"},"text":{"type":"string"}}}`)
		}),
		command("none", "", func(c *commandTool) { c.Mapping = dray.MapNone }),
	)
	var seen *dray.Call
	next := func(_ context.Context, c dray.Call, _ dray.Sink) (dray.Result, error) {
		seen = &c
		res := dray.Result{
			Reason:   dray.ReasonExited,
			Metadata: dray.Metadata{Warnings: []string{"from below"}},
		}
		if len(output) > 0 {
			res.Output = json.RawMessage(output[0])
		}
		return res, nil
	}
	res, err := replaced(d, next).Execute(t.Context(), call, dray.Discard)
	return seen, res, err
}

func inBox(tool, input string, mode dray.MappingMode) dray.Call {
	return dray.Call{
		Invocation: dray.Invocation{Tool: tool, Input: json.RawMessage(input), Mapping: mode},
		Environment: capabilities{
			Kind: dray.KindContainer, WorkspaceFolder: "/ws", Mounts: []dray.Mount{{
				Host:      "/srv/app",
				Container: "/ws",
			}},
		},
	}
}

// The mode of the call precedes that of the tool, which precedes the marks of its schema (PM-09).
func TestMappingModes(t *testing.T) {
	tests := []struct {
		tool  string
		mode  dray.MappingMode
		input string
		want  string
	}{
		{"exec", "", `{"argv":["/srv/app/a","--x=/srv/app/a"]}`, `{"argv":["/ws/a","--x=/srv/app/a"]}`},
		{"exec", dray.MapNone, `{"argv":["/srv/app/a"]}`, `{"argv":["/srv/app/a"]}`},
		{"exec", dray.MapSchema, `{"argv":["/srv/app/a"]}`, `{"argv":["/srv/app/a"]}`},
		{"marked", "", `{"p":"/srv/app/a b","text":"/srv/app/a"}`, `{"p":"/ws/a b","text":"/srv/app/a"}`},
		{"marked", dray.MapHeuristic, `{"p":"/srv/app/a","text":"/srv/app/a"}`, `{"p":"/ws/a","text":"/ws/a"}`},
		{"none", "", `{"p":"/srv/app/a"}`, `{"p":"/srv/app/a"}`},
		{"none", dray.MapHeuristic, `{"p":"/srv/app/a"}`, `{"p":"/ws/a"}`},
	}
	for _, tt := range tests {
		call := inBox(tt.tool, tt.input, tt.mode)
		seen, _, err := through(t, call)
		if err != nil || string(seen.MappedInput) != tt.want {
			t.Errorf("%s %s %q became %+v, %v", tt.tool, tt.input, tt.mode, seen, err)
			continue
		}
		if string(seen.Invocation.Input) != tt.input {
			t.Errorf("%s changed the invocation to %s", tt.tool, seen.Invocation.Input)
		}
	}
}

// An invalid input is refused before anything starts, on the host too (PM-05, PM-08, EX-17).
func TestMappingRefuses(t *testing.T) {
	deep := `{"p":` + nested(65) + `}`
	tests := []struct {
		tool, input string
		code        dray.Code
		pointer     string
	}{
		{"marked", `{"p":"/srv/app/../x"}`, dray.CodePathInvalid, "/input/p"},
		{"marked", `{"p":"../x"}`, dray.CodePathInvalid, "/input/p"},
		{"marked", `{"p":"a\u0000b"}`, dray.CodePathInvalid, "/input/p"},
		{"read_file", `{"path":"a/../b"}`, dray.CodePathInvalid, "/input/path"},
		{"exec", deep, dray.CodePathTooDeep, "/input"},
	}
	for _, tt := range tests {
		for _, kind := range []dray.EnvironmentKind{dray.KindHost, dray.KindContainer} {
			call := inBox(tt.tool, tt.input, "")
			caps := call.Environment.Capabilities()
			caps.Kind = kind
			call.Environment = capabilities(caps)
			seen, res, err := through(t, call)
			e := dray.AsError(err)
			if e == nil || e.Code != tt.code || len(e.Details) == 0 || e.Details[0].Pointer != tt.pointer ||
				seen != nil {
				t.Errorf("%s %s on %s gave %+v, want %s at %s", tt.tool, tt.input, kind, e, tt.code, tt.pointer)
			}
			if (res.Metadata.Mapping != nil) != (kind == dray.KindContainer) {
				t.Errorf("%s on %s reports %+v", tt.tool, kind, res.Metadata.Mapping)
			}
		}
	}
	if seen, _, err := through(t, inBox("exec", deep, dray.MapNone)); err != nil || seen == nil {
		t.Errorf("without mapping the depth is %v", err)
	}
}

// The work is done, so an invalid output stays raw, and its error is attached (PM-05, PM-08).
func TestMappingOutput(t *testing.T) {
	deep := `{"a":` + nested(65) + `}`
	for output, want := range map[string]struct {
		output, at string
	}{
		`{"p":"/ws/a"}`:              {`{"p":"/srv/app/a"}`, ""},
		`{"p":"/ws/../a","q":"/ws"}`: {`{"p":"/ws/../a","q":"/srv/app"}`, "/output/p"},
		deep:                         {deep, "/output"},
	} {
		_, res, err := through(t, inBox("exec", `{"argv":["a"]}`, ""), output)
		if err != nil || string(res.Output) != want.output {
			t.Errorf("%s became %s, %v", output, res.Output, err)
		}
		var at string
		for _, e := range res.Metadata.Mapping.Errors {
			at += e.Pointer
		}
		if at != want.at {
			t.Errorf("%s has errors at %q, want %q", output, at, want.at)
		}
	}
}

// On the host the paths are the caller's: nothing is rewritten or reported.
func TestMappingOnTheHost(t *testing.T) {
	call := inBox("exec", `{"argv":["/srv/app/a"]}`, "")
	call.Environment = capabilities{Kind: dray.KindHost, WorkspaceFolder: "/srv/app"}
	seen, res, err := through(t, call, `{"p":"/srv/app"}`)
	if err != nil || string(seen.MappedInput) != `{"argv":["/srv/app/a"]}` || string(res.Output) != `{"p":"/srv/app"}` || res.Metadata.Mapping != nil {
		t.Errorf("got %s, %s, %+v, %v", seen.MappedInput, res.Output, res.Metadata.Mapping, err)
	}
}

// A mount that cannot be mapped is skipped with a warning, beside those of the inner layers
// (PM-04).
func TestMappingWarns(t *testing.T) {
	call := inBox("exec", `{"argv":["/srv/app/a"]}`, "")
	caps := call.Environment.Capabilities()
	caps.Mounts = append(caps.Mounts, dray.Mount{Host: "/", Container: "/host"})
	call.Environment = capabilities(caps)
	seen, res, err := through(t, call)
	if err != nil || string(seen.MappedInput) != `{"argv":["/ws/a"]}` {
		t.Fatalf("got %+v, %v", seen, err)
	}
	if w := res.Metadata.Warnings; len(w) != 2 || !strings.Contains(w[0], `"/host"`) || w[1] != "from below" {
		t.Errorf("warnings %q", w)
	}
}

// A string with white space is prose unless that path exists on the host (PM-09).
func TestMapping_ExistsOnHost(t *testing.T) {
	dir := realDir(t)
	if err := os.WriteFile(filepath.Join(dir, "my file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	call := inBox("exec", string(js(t, object{"argv": []string{dir + "/my file", dir + "/my other"}})),
		"")
	caps := call.Environment.Capabilities()
	caps.Mounts = []dray.Mount{{Host: dir, Container: "/ws"}}
	call.Environment = capabilities(caps)
	seen, _, err := through(t, call)
	if want := string(js(t, object{"argv": []string{"/ws/my file", dir + "/my other"}})); err != nil ||
		string(seen.MappedInput) != want {
		t.Errorf("got %s, %v, want %s", seen.MappedInput, err, want)
	}
}

// An output that is nested too deep stays raw, with a mapping error (PM-08).
func TestMapping_OutputTooDeep(t *testing.T) {
	b := newFixture(t,
		command("deep", `printf '%070d' 0 | tr 0 '['; printf '%070d' 0 | tr 0 ']'`, asJSON),
		command("shallow", `printf '{"a":[]}'`, asJSON),
	)
	b.contain()
	res := b.call(t, "deep", `{}`)
	if m := res.Metadata.Mapping; m == nil || len(m.Errors) != 1 || m.Errors[0].Pointer != "/output" ||
		!strings.Contains(m.Errors[0].Message, "deeper than 64") {
		t.Errorf("the report is %+v", m)
	}
	if !strings.Contains(string(res.Output), `"raw_output":"[[[`) {
		t.Errorf("the output is %s", res.Output)
	}
	if m := b.call(t, "shallow", `{}`).Metadata.Mapping; m == nil || len(m.Errors) != 0 {
		t.Errorf("of a flat output: %+v", m)
	}
}
