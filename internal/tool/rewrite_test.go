package tool

import (
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// Text is rewritten if the call, or else the tool, requests it, in a container and without a
// terminal (PM-10).
func TestTextRewriting(t *testing.T) {
	asks := func(yes bool) func(*dray.Call) {
		return func(c *dray.Call) { c.Invocation.RewriteText = &yes }
	}
	says := func(c *commandTool) { c.RewriteText = true }
	b := newFixture(t, command("plain", `pwd; pwd >&2`), command("rewrites", `pwd; pwd >&2`, says), command("both", `echo "{\"p\":\"$PWD\"}"`, asJSON, says))
	onHost := *b
	b.contain()
	for _, c := range []struct {
		name   string
		bench  *fixture
		tool   string
		change func(*dray.Call)
		paths  int64
		want   string
	}{
		{"nobody asks", b, "plain", func(*dray.Call) {}, -1, b.folder},
		{"the call asks", b, "plain", asks(true), 1, "/srv/app"},
		{"the tool asks", b, "rewrites", func(*dray.Call) {}, 1, "/srv/app"},
		{"the call refuses", b, "rewrites", asks(false), -1, b.folder},
		{"on the host", &onHost, "rewrites", asks(true), -1, b.folder},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := c.bench.call(t, c.tool, object{}, c.change)
			succeeded(t, res)
			for _, got := range []dray.StreamSummary{res.Stdout, res.Stderr} {
				paths := int64(-1)
				if got.Rewritten != nil {
					paths = got.Rewritten.Paths
				}
				if got.Text != c.want+"\n" || paths != c.paths || got.SHA256 != sum(b.folder+"\n") {
					t.Errorf("%q, %d paths, %+v", got.Text, paths, got)
				}
			}
		})
	}
	res := b.call(t, "both", object{})
	succeeded(t, res)
	if string(res.Output) != `{"p":"/srv/app"}` || res.Stdout.Text != "{\"p\":\"/srv/app\"}\n" {
		t.Errorf("output %s, text %s", res.Output, res.Stdout.Text)
	}
	wantMapped(t, res, "/output/p "+b.folder+" -> /srv/app")
	terminal := func(c *dray.Call) { c.Invocation.Terminal = &dray.TerminalSize{Columns: 80, Rows: 24} }
	res = b.call(t, "exec", object{"argv": []string{"pwd"}}, asks(true), terminal)
	succeeded(t, res)
	if res.Stdout.Text != b.folder+"\r\n" || res.Stdout.Rewritten != nil {
		t.Errorf("on a terminal: %+v", res.Stdout)
	}
}

// With rewriting on, host paths in arguments and commands become the container's. With it off, the
// report of a call that fails explains them. The caller's form of the input stays (PM-16).
func TestArgumentRewriting(t *testing.T) {
	b := newFixture(t)
	b.contain()
	b.write(t, "a.txt", "found\n", 0o644)
	on := func(c *dray.Call) { c.Invocation.Paths = dray.PathsOfHost }
	for tool, input := range map[string]object{
		"exec":  {"argv": []string{"sh", "-c", "cat /srv/app/a.txt"}},
		"shell": {"command": "cat </srv/app/a.txt"},
	} {
		res := b.call(t, tool, input, on)
		succeeded(t, res)
		if res.Stdout.Text != "found\n" || len(res.Metadata.Mapping.Mapped) != 1 {
			t.Errorf("%s: %q, %+v", tool, res.Stdout.Text, res.Metadata.Mapping)
		}
		res = b.call(t, tool, input)
		report := res.Metadata.Mapping
		if res.Status == dray.StatusSucceeded || len(report.Mapped) > 0 || len(report.Unmapped) != 1 {
			t.Fatalf("%s: %+v, %+v", tool, res.Status, report)
		}
		got := report.Unmapped[0]
		if got.Path != "/srv/app/a.txt" || !strings.Contains(got.Reason, b.folder+"/a.txt") ||
			len(res.Metadata.Warnings) != 1 {
			t.Errorf("%s: %+v, %q", tool, got, res.Metadata.Warnings)
		}
	}
	res := b.call(t, "shell", object{"command": "echo /srv/app"})
	if succeeded(t, res); len(res.Metadata.Mapping.Unmapped) > 0 {
		t.Errorf("a success explains %+v", res.Metadata.Mapping)
	}
}

// A caller with the container's paths: nothing is mapped either way, file tools take and return
// them, and cwd is a path of the container (PM-17).
func TestContainerPaths(t *testing.T) {
	b := newFixture(t)
	b.contain()
	b.write(t, "sub/a.txt", "/srv/app\n", 0o644)
	in := func(cwd string) func(*dray.Call) {
		return func(c *dray.Call) {
			c.Invocation.Paths, c.Invocation.Cwd, c.Invocation.Workspace = dray.PathsOfContainer, cwd, "/srv/app"
		}
	}
	file := b.folder + "/sub/a.txt"
	for _, cwd := range []string{"sub", b.folder + "/sub"} {
		res := b.call(t, "shell", object{"command": "pwd; cat " + file + "; echo /srv/app"}, in(cwd))
		succeeded(t, res)
		if res.Stdout.Text != b.folder+"/sub\n/srv/app\n/srv/app\n" || res.Metadata.Mapping != nil {
			t.Errorf("%s: %q %+v", cwd, res.Stdout.Text, res.Metadata.Mapping)
		}
	}
	res := b.call(t, "read_file", object{"path": file}, in(""))
	succeeded(t, res)
	if got := output[readOutput](t, res); got.Path != file || *got.Content != "/srv/app\n" {
		t.Errorf("%+v", got)
	}
	for _, outside := range []string{"/srv/app/sub/a.txt", "/etc/passwd"} {
		res = b.call(t, "read_file", object{"path": outside}, in(""))
		if res.Error == nil || res.Error.Code != dray.CodePathInvalid {
			t.Errorf("%s: %+v", outside, res.Error)
		}
	}
}
