package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/executortest"
)

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree is a workspace to search.
func tree(t *testing.T) *fixture {
	b := newFixture(t)
	for name, content := range map[string]string{
		"main.go": "package main\n\nfunc main() {}\n", "a/x.go": "package a\n", "a/b/y_test.go": "package b\n// TODO\n", "a-b/z.ts": "todo()\n",
		".env": "TODO=1\n", ".github/ci.yml": "on: push\n", ".git/config": "TODO\n", "a/.git/HEAD": "TODO\n", "odd \xff\n.txt": "TODO \xff\n", "bin": "TODO\x00\n",
	} {
		b.write(t, name, content, 0o644)
	}
	for name, to := range map[string]string{"link": "main.go", "to-a": "a", "out": "/etc"} {
		if err := os.Symlink(to, filepath.Join(b.folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(b.folder, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGlob(t *testing.T) {
	b := tree(t)
	for _, tt := range []struct {
		input object
		want  []string
	}{
		{object{"pattern": "**/*.go"}, []string{"a/b/y_test.go", "a/x.go", "main.go"}},
		{object{"pattern": "*.go"}, []string{"main.go"}},
		{object{"pattern": "*"}, []string{".env", ".github", "a", "a-b", "bin", "link", "main.go", `odd \xff` + "\n.txt", "out", "pipe", "to-a"}},
		{object{"pattern": "**/*.{go,ts}", "path": "a"}, []string{"a/b/y_test.go", "a/x.go"}},
		{object{"pattern": "*", "path": b.folder + "/a/b"}, []string{"a/b/y_test.go"}},
		{object{"pattern": "**/"}, []string{".github", "a", "a/b", "a-b"}},
		{object{"pattern": ".git/*"}, []string{".git/config"}},
		{object{"pattern": "*", "path": "a/.git"}, []string{"a/.git/HEAD"}},
		{object{"pattern": "*.go", "path": "to-a"}, []string{"to-a/x.go"}},
		{object{"pattern": "to-a/*"}, nil},
		{object{"pattern": "nothing*"}, nil},
	} {
		res := b.call(t, "glob", tt.input)
		succeeded(t, res)
		out := output[globOutput](t, res)
		for i, p := range out.Paths {
			out.Paths[i] = strings.TrimPrefix(p, b.folder+"/")
		}
		if !slices.Equal(out.Paths, tt.want) || out.Truncated || out.Skipped != nil || out.Paths == nil {
			t.Errorf("%v: got %q, %v, %v", tt.input, out.Paths, out.Truncated, out.Skipped)
		}
		promised(t, b, "glob", res)
	}
}

// promised checks an output against the output schema of the tool.
func promised(t *testing.T, b *fixture, name string, res dray.Result) {
	t.Helper()
	if broken := defined(t, b.tools, name).checkOutput(res.Output, nil); broken != nil {
		t.Errorf("%s breaks its own schema: %v", name, broken.Details)
	}
}

func TestGrep(t *testing.T) {
	b := tree(t)
	for _, tt := range []struct {
		input object
		want  string
	}{
		{object{"pattern": "TODO"}, `.env:1:TODO=1|a/b/y_test.go:2:// TODO|odd \xff` + "\n.txt:1:TODO \uFFFD"},
		{object{"pattern": "(?i)todo", "glob": "*.ts"}, "a-b/z.ts:1:todo()"},
		{
			object{"pattern": "^package", "glob": "**/*.go"},
			"a/b/y_test.go:1:package b|a/x.go:1:package a|main.go:1:package main",
		},
		{object{"pattern": "^package", "glob": "a/*.go"}, "a/x.go:1:package a"},
		{object{"pattern": "^package", "path": "a", "glob": "b/*"}, "a/b/y_test.go:1:package b"},
		{object{"pattern": "TODO", "path": "a/b/y_test.go", "glob": "*.ts"}, "a/b/y_test.go:2:// TODO"},
		{object{"pattern": "main$", "path": "link"}, "link:1:package main"},
		{object{"pattern": "TODO", "glob": ".git/*"}, ".git/config:1:TODO"},
		{object{"pattern": "TODO", "path": ".git"}, ".git/config:1:TODO"},
		{object{"pattern": "TODO", "path": "bin"}, ""},
		{object{"pattern": "nowhere"}, ""},
	} {
		res := b.call(t, "grep", tt.input)
		succeeded(t, res)
		out := output[grepOutput](t, res)
		var lines []string
		for _, m := range out.Matches {
			lines = append(lines, fmt.Sprintf("%s:%d:%s", strings.TrimPrefix(m.Path, b.folder+"/"), m.Line,
				m.Text))
		}
		if got := strings.Join(lines, "|"); got != tt.want || out.Truncated || out.Skipped != nil ||
			out.Matches == nil {
			t.Errorf("%v: got %q, %v, %v", tt.input, got, out.Truncated, out.Skipped)
		}
		promised(t, b, "grep", res)
	}
}

func TestSearchRefuses(t *testing.T) {
	b := tree(t)
	for _, tt := range []struct {
		tool    string
		input   object
		code    dray.Code
		pointer string
	}{
		{"glob", object{"pattern": "["}, dray.CodeInvalidInput, "/input/pattern"},
		{"glob", object{"pattern": "/etc/*"}, dray.CodeInvalidInput, "/input/pattern"},
		{"glob", object{"pattern": "*", "path": "main.go"}, dray.CodePathInvalid, ""},
		{"glob", object{"pattern": "*", "path": "none"}, dray.CodePathInvalid, ""},
		{"glob", object{"pattern": "*", "path": "out"}, dray.CodePathInvalid, ""},
		{"glob", object{"pattern": "*", "path": "/etc"}, dray.CodePathInvalid, ""},
		{"grep", object{"pattern": "("}, dray.CodeInvalidInput, "/input/pattern"},
		{"grep", object{"pattern": "a", "glob": "["}, dray.CodeInvalidInput, "/input/glob"},
		{"grep", object{"pattern": "a", "path": "none"}, dray.CodePathInvalid, ""},
		{"grep", object{"pattern": "a", "path": "pipe"}, dray.CodePathInvalid, ""},
		{"grep", object{"pattern": "a", "path": "out"}, dray.CodePathInvalid, ""},
		{"grep", object{"pattern": "a", "path": "out/passwd"}, dray.CodePathInvalid, ""},
		{"stat", object{"path": "none"}, dray.CodePathInvalid, ""},
		{"stat", object{"path": "out/passwd"}, dray.CodePathInvalid, ""},
	} {
		res := b.call(t, tt.tool, tt.input)
		failedWith(t, res, tt.code)
		if tt.pointer != "" && (len(res.Error.Details) != 1 ||
			res.Error.Details[0].Pointer != tt.pointer) {
			t.Errorf("%s %v points at %v", tt.tool, tt.input, res.Error.Details)
		}
	}
}

func TestSearchesAreBounded(t *testing.T) {
	b := newFixture(t)
	for i := range maxPaths {
		b.write(t, fmt.Sprintf("f%04d", i), "", 0o644)
	}
	b.write(t, "z", strings.Repeat("ü\n", maxMatches), 0o644)
	for pattern, want := range map[string]bool{"f*": false, "*": true} {
		if out := output[globOutput](t, b.call(t, "glob",
			object{"pattern": pattern})); len(out.Paths) != maxPaths || out.Truncated != want {
			t.Errorf("%s gave %d paths, truncated %v", pattern, len(out.Paths), out.Truncated)
		}
	}
	out := output[grepOutput](t, b.call(t, "grep", object{"pattern": "ü"}))
	if len(out.Matches) != maxMatches || out.Truncated {
		t.Errorf("%d lines, truncated %v", len(out.Matches), out.Truncated)
	}
	b.write(t, "zz", "ü", 0o644)
	if out = output[grepOutput](t, b.call(t, "grep",
		object{"pattern": "ü"})); len(out.Matches) != maxMatches || !out.Truncated {
		t.Errorf("%d lines, truncated %v", len(out.Matches), out.Truncated)
	}
}

func TestGrepOfLongLinesAndLargeFiles(t *testing.T) {
	b := newFixture(t)
	b.write(t, "long", strings.Repeat("ä", 1000)+"needle"+strings.Repeat("b", 1000)+"\n", 0o644)
	b.write(t, "longer", "x\n"+strings.Repeat("y", maxLine)+"needle\nneedle\n", 0o644)
	b.write(t, "huge", "needle\n", 0o644)
	if err := os.Truncate(filepath.Join(b.folder, "huge"), maxSearched+1); err != nil {
		t.Fatal(err)
	}
	out := output[grepOutput](t, b.call(t, "grep", object{"pattern": "needle"}))
	if len(out.Matches) != 2 || out.Matches[1].Line != 3 || out.Matches[1].Truncated || out.Truncated {
		t.Fatalf("got %.300v", out)
	}
	if m := out.Matches[0]; !m.Truncated || len([]rune(m.Text)) != maxText ||
		!strings.HasPrefix(m.Text, strings.Repeat("ä", maxText/4)+"needle") {
		t.Errorf("got %+v", m)
	}
	if len(out.Skipped) != 2 || out.Skipped[0].Path != b.folder+"/huge" ||
		!strings.Contains(out.Skipped[1].Reason, "line 2") {
		t.Errorf("skipped %+v", out.Skipped)
	}
	if named := b.call(t, "grep", object{"pattern": "needle", "path": "huge"}); named.Error != nil ||
		len(output[grepOutput](t, named).Matches) != 0 {
		t.Errorf("named, it is a binary file like others: %+v", named.Error)
	}
}

// Unreadable files are reported and the others searched. The test runs as root, so a helper refuses
// the files.
func TestSearch_SkipsUnreadable(t *testing.T) {
	b := tree(t)
	b.env = failingCloseEnv{b.env}
	out := output[globOutput](t, b.call(t, "glob", object{"pattern": "**/*.go"}))
	if len(out.Paths) != 1 || len(out.Skipped) != 1 ||
		out.Skipped[0] != (skippedPath{b.folder + "/a", "closed"}) {
		t.Errorf("got %+v", out)
	}
	found := output[grepOutput](t, b.call(t, "grep", object{"pattern": "package|TODO"}))
	if len(found.Matches) != 2 || len(found.Skipped) != 2 ||
		found.Skipped[1].Path != b.folder+"/main.go" ||
		!strings.Contains(found.Skipped[1].Reason, "may not read") {
		t.Errorf("got %+v", found)
	}
	failedWith(t, b.call(t, "glob", object{"pattern": "*", "path": "a"}), dray.CodeDenied)
	failedWith(t, b.call(t, "grep", object{"pattern": "x", "path": "main.go"}), dray.CodeDenied)
}

func TestSearchesAreCancelled(t *testing.T) {
	b := tree(t)
	why := errors.New("the caller went")
	for tool, input := range map[string]string{"glob": `{"pattern": "**"}`, "grep": `{"pattern": "x"}`} {
		call := dray.Call{
			Invocation:  dray.Invocation{ID: "x", Tool: tool, Input: json.RawMessage(input)},
			Environment: b.env,
		}
		if _, err := b.exec.Execute(cancelled(why), call, dray.Discard); !errors.Is(err, why) {
			t.Errorf("%s: got %v", tool, err)
		}
	}
}

// Reading a FIFO without a writer ends with the context.
func TestRead_ContextEnds(t *testing.T) {
	for tool, input := range map[string]string{
		"grep": `{"pattern": "x"}`, "edit_file": `{"path": "file", "edits": [{"old": "x", "new": "y"}]}`, "write_file": `{"path": "file", "content": "y"}`,
		"read_file": `{"path": "file"}`,
	} {
		t.Run(tool, func(t *testing.T) {
			b := newFixture(t)
			b.write(t, "file", "x", 0o644)
			why := errors.New("the caller went")
			ctx, cancel := context.WithCancelCause(t.Context())
			b.env = stallingEnv{b.env, func() { cancel(why) }}
			call := dray.Call{Invocation: dray.Invocation{
				ID: "x", Tool: tool,
				Input: json.RawMessage(input),
			}, Environment: b.env}
			if _, err := b.exec.Execute(ctx, call, dray.Discard); !errors.Is(err, why) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestStat(t *testing.T) {
	b := tree(t)
	for name, want := range map[string]statOutput{
		"main.go":      {Type: "file", Size: 29, Mode: "0644"},
		"a":            {Type: "directory", Mode: "0755"},
		".":            {Type: "directory", Mode: "0755"},
		"link":         {Type: "symlink", Mode: "0777", Target: "main.go"},
		"to-a/x.go":    {Type: "file", Size: 10, Mode: "0644"},
		"pipe":         {Type: "other", Mode: "0644"},
		"out":          {Type: "symlink", Mode: "0777", Target: "/etc"},
		"a/b/../b":     {},
		"a/.git/HEAD/": {Type: "file", Size: 5, Mode: "0644"},
	} {
		res := b.call(t, "stat", object{"path": name})
		if want.Type == "" {
			failedWith(t, res, dray.CodePathInvalid)
			continue
		}
		succeeded(t, res)
		got := output[statOutput](t, res)
		if got.Modified.IsZero() {
			t.Errorf("%s has no time", name)
		}
		want.Path, want.Modified = filepath.Join(b.folder, name), got.Modified
		if want.Type != "file" {
			got.Size = 0
		}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		promised(t, b, "stat", res)
	}
}

// Paths of inputs and outputs are the caller's.
func TestSearchesAreMapped(t *testing.T) {
	b := tree(t)
	if err := os.Symlink(b.folder+"/a/x.go", filepath.Join(b.folder, "absolute")); err != nil {
		t.Fatal(err)
	}
	b.contain()
	in := func(d dray.Result, err *dray.Error) string { return string(d.Output) + fmt.Sprint(err) }
	res := b.call(t, "glob", object{"pattern": "*.go", "path": "/srv/app/a"})
	if got := in(res, res.Error); !strings.Contains(got, `["/srv/app/a/x.go"]`) {
		t.Errorf("glob: %s", got)
	}
	res = b.call(t, "grep", object{"pattern": "package a", "path": "/srv/app/a"})
	if got := in(res, res.Error); !strings.Contains(got, `"path":"/srv/app/a/x.go","line":1`) {
		t.Errorf("grep: %s", got)
	}
	res = b.call(t, "stat", object{"path": "/srv/app/absolute"})
	if got := in(res, res.Error); !strings.Contains(got, `"path":"/srv/app/absolute"`) || !strings.Contains(got, `"target":"/srv/app/a/x.go"`) {
		t.Errorf("stat: %s", got)
	}
	res = b.call(t, "edit_file", object{
		"path":  "/srv/app/a/x.go",
		"edits": []object{{"old": "a\n", "new": "b\n"}},
	})
	if got := in(res, res.Error); !strings.Contains(got, `"path":"/srv/app/a/x.go","replaced":1`) {
		t.Errorf("edit_file: %s", got)
	}
	missing := b.call(t, "stat", object{"path": "/srv/app/none"})
	if failedWith(t, missing,
		dray.CodePathInvalid); missing.Error.Message != "stat /srv/app/none: no such file or directory" {
		t.Errorf("it says %q", missing.Error.Message)
	}
	if c := res.Metadata.Changes; len(c) != 1 || c[0].Path != b.folder+"/a/x.go" ||
		c[0].Environment != dray.KindContainer {
		t.Errorf("metadata keeps the container's paths: %+v", c)
	}
}

// The results of a search among long names, which a container chose, are bounded in bytes.
func TestSearch_LongNames(t *testing.T) {
	b := newFixture(t)
	root := executortest.DeepDir(t, b.folder, strings.Repeat("\x01", 255), 15)
	for i := range 500 {
		if err := root.WriteFile(fmt.Sprint(i), []byte("found"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, pattern := range map[string]string{"glob": "**/*", "grep": "found"} {
		res := b.call(t, name, object{"pattern": pattern})
		if got := len(res.Output); got > 2*maxResult || !strings.Contains(string(res.Output),
			`"truncated":true`) {
			t.Errorf("%s returns %d bytes", name, got)
		}
	}
}
