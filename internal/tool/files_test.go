package tool

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

func TestReadFile(t *testing.T) {
	b := newFixture(t)
	b.write(t, "text", "héllo", 0o644)
	b.write(t, "sub/binary", "\x00\xff\xfe", 0o644)
	b.write(t, "sub/mixed", "\xffh\xc3\xa9", 0o644)
	b.write(t, "empty", "", 0o644)
	b.write(t, "controls", "\x00\x1b[31m", 0o644)
	b.write(t, "zeros", strings.Repeat("\x00", 1200), 0o644)
	tests := []struct {
		name  string
		input object
		// want is the output with the path relative to the workspace.
		want string
	}{
		{"whole", object{"path": "text"}, `{"path":"text","content":"héllo","size":6,"truncated":false}`},
		{"absolute", object{"path": b.folder + "/text"}, `{"path":"text","content":"héllo","size":6,"truncated":false}`},
		{"empty", object{"path": "empty"}, `{"path":"empty","content":"","size":0,"truncated":false}`},
		{"not UTF-8", object{"path": "./sub//binary"}, `{"path":"sub/binary","content_base64":"AP/+","size":3,"truncated":false}`},
		{
			"not UTF-8, and cut where a character might be",
			object{"path": "sub/mixed", "limit": 3},
			`{"path":"sub/mixed","content_base64":"/2jD","size":4,"truncated":true,"next_offset":3}`,
		},
		{"exactly the limit", object{"path": "text", "limit": 6}, `{"path":"text","content":"héllo","size":6,"truncated":false}`},
		{"a part", object{"path": "text", "limit": 4}, `{"path":"text","content":"hél","size":6,"truncated":true,"next_offset":4}`},
		{
			"a cut character is left for later",
			object{"path": "text", "limit": 2},
			`{"path":"text","content":"h","size":6,"truncated":true,"next_offset":1}`,
		},
		{
			"and found there",
			object{"path": "text", "offset": 1.0, "limit": 2},
			`{"path":"text","content":"é","size":6,"truncated":true,"next_offset":3}`,
		},
		{
			"a limit that is too small for it still gets on",
			object{"path": "text", "offset": 1, "limit": 1},
			`{"path":"text","content_base64":"ww==","size":6,"truncated":true,"next_offset":2}`,
		},
		{
			"from within a character",
			object{"path": "text", "offset": 2},
			`{"path":"text","content_base64":"qWxsbw==","size":6,"truncated":false}`,
		},
		{"a few control characters", object{"path": "controls"}, `{"path":"controls","content":"\u0000\u001b[31m","size":6,"truncated":false}`},
		{
			"zeros, of which JSON would make six times as much",
			object{"path": "zeros"},
			`{"path":"zeros","content_base64":"` + strings.Repeat("AAAA", 400) + `","size":1200,"truncated":false}`,
		},
		{"behind the end", object{"path": "text", "offset": 99}, `{"path":"text","content":"","size":6,"truncated":false}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := b.call(t, "read_file", tt.input)
			succeeded(t, res)
			if got := strings.Replace(string(res.Output), b.folder+"/", "", 1); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// Paths in a file that is read are rewritten if the call requests it, and never in part (PM-10).
func TestReadFileRewritten(t *testing.T) {
	b := newFixture(t)
	text := "a " + b.folder + "/x.go:1, b" + b.folder + "/no " + b.folder + "\n" + b.folder + "-no\n"
	b.write(t, "log", text, 0o644)
	b.write(t, "binary", "\xff"+b.folder, 0o644)
	b.contain()
	yes := true
	asked := func(c *dray.Call) { c.Invocation.RewriteText = &yes }
	want := strings.Replace(strings.Replace(text, " "+b.folder+"/x", " /srv/app/x", 1),
		" "+b.folder+"\n", " /srv/app\n", 1)
	out := output[readOutput](t, b.call(t, "read_file", object{"path": "log"}, asked))
	if *out.Content != want || out.Rewritten == nil || *out.Rewritten != 2 ||
		out.Size != int64(len(text)) {
		t.Errorf("got %q, %v, want %q", *out.Content, out.Rewritten, want)
	}
	// reads in pieces that a path fits into yield the whole file
	for limit := 2 * len(b.folder); limit < len(text); limit += 7 {
		var all strings.Builder
		offset, count := int64(0), int64(0)
		for piece := (readOutput{Truncated: true}); piece.Truncated; offset = piece.NextOffset {
			piece = output[readOutput](t, b.call(t, "read_file",
				object{"path": "log", "offset": offset, "limit": limit}, asked))
			if piece.Truncated && piece.NextOffset <= offset {
				t.Fatalf("from %d it goes on at %d", offset, piece.NextOffset)
			}
			all.WriteString(*piece.Content)
			count += *piece.Rewritten
		}
		if all.String() != want || count != 2 {
			t.Fatalf("in pieces of %d: got %q, %d", limit, all.String(), count)
		}
	}
	if out := output[readOutput](t, b.call(t, "read_file", object{"path": "binary"},
		asked)); out.Content != nil || out.Rewritten != nil {
		t.Errorf("what is no text was rewritten: %+v", out)
	}
	if out := output[readOutput](t, b.call(t, "read_file",
		object{"path": "log"})); *out.Content != text || out.Rewritten != nil {
		t.Errorf("nobody asked for %q", *out.Content)
	}
	promised(t, b, "read_file", b.call(t, "read_file", object{"path": "log"}, asked))
}

func TestReadFileDefaultLimit(t *testing.T) {
	b := newFixture(t)
	b.write(t, "long", strings.Repeat("x", defaultLimit+1), 0o644)
	out := output[readOutput](t, b.call(t, "read_file", object{"path": "long"}))
	if len(*out.Content) != 1<<20 || !out.Truncated || out.Size != 1<<20+1 {
		t.Errorf("read %d bytes of %d", len(*out.Content), out.Size)
	}
}

// Paths are relative to the working directory of the call and stay in the workspace.
func TestLocate(t *testing.T) {
	p := fileScope{root: "/ws", dir: "/ws/sub"}
	for given, want := range map[string]target{
		"a":         {"sub/a", "/ws/sub/a"},
		".":         {"sub", "/ws/sub"},
		"./a//b/":   {"sub/a/b", "/ws/sub/a/b"},
		"/ws":       {".", "/ws"},
		"/ws/x/./y": {"x/y", "/ws/x/y"},
		"..a":       {"sub/..a", "/ws/sub/..a"},
	} {
		if got, err := p.locate(given); err != nil || got != want {
			t.Errorf("%q is %v, %v, want %v", given, got, err, want)
		}
	}
	for _, given := range []string{"..", "a/../b", "/ws/../etc", "/etc/passwd", "/wsx", "/", "a\x00"} {
		_, err := p.locate(given)
		if e := dray.AsError(err); e == nil || e.Code != dray.CodePathInvalid || e.Hint == "" {
			t.Errorf("%q gave %+v, want path_invalid and a hint", given, e)
		}
	}
	if got, err := (fileScope{root: "/", dir: "/home"}).locate("a"); err != nil ||
		got != (target{"home/a", "/home/a"}) {
		t.Errorf("beneath / it is %v, %v", got, err)
	}
	if _, err := (fileScope{root: "/ws", dir: "/elsewhere"}).
		locate("a"); dray.CodeOf(err) != dray.CodePathInvalid {
		t.Errorf("from a working folder outside: %v", err)
	}
}

func TestFileErrors(t *testing.T) {
	b := newFixture(t)
	b.write(t, "text", "x", 0o644)
	b.write(t, "sub/text", "x", 0o644)
	outside := realDir(t)
	for name, to := range map[string]string{
		"out": outside, "abs": b.folder + "/text",
		"link": "text",
	} {
		if err := os.Symlink(to, filepath.Join(b.folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(b.folder, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	write := func(path string) object { return object{"path": path, "content": "new"} }
	tests := []struct {
		tool  string
		input object
		says  string
	}{
		{"read_file", object{"path": "none"}, "no such file or directory"},
		{"read_file", object{"path": "none/text"}, "no such file or directory"},
		{"read_file", object{"path": "sub"}, "not a regular file"},
		{"read_file", object{"path": "pipe"}, "not a regular file"},
		{"read_file", object{"path": "text/x"}, "text/x"},
		{"read_file", object{"path": "out/x"}, "out/x"},
		{"read_file", object{"path": outside}, "outside"},
		{"list_dir", object{"path": "none"}, "no such file or directory"},
		{"list_dir", object{"path": "text"}, "text"},
		{"list_dir", object{"path": "out"}, "out"},
		{"write_file", write("none/new"), "no such file or directory"},
		{"write_file", write("sub"), "is a directory"},
		{"write_file", write("."), "is a directory"},
		{"write_file", write("pipe"), "is a pipe"},
		{"write_file", write("link"), "is a symlink to text"},
		{"write_file", write("out/new"), "out/new"},
		{"write_file", write("../new"), ".."},
		{"write_file", write("sub/" + strings.Repeat("x", 300)), "xxx"},
	}
	for _, tt := range tests {
		res := b.call(t, tt.tool, tt.input)
		failedWith(t, res, dray.CodePathInvalid)
		if !strings.Contains(res.Error.Message, tt.says) {
			t.Errorf("%s %v: %q does not say %q", tt.tool, tt.input, res.Error.Message, tt.says)
		}
	}
	for _, name := range []string{"text", "sub/text"} {
		holds(t, filepath.Join(b.folder, name), "x", 0o644)
	}
}

func TestWriteFile(t *testing.T) {
	b := newFixture(t)
	b.write(t, "script", "old", 0o750)
	for i, s := range []struct {
		path, input     string
		action, content string
		mode            os.FileMode
	}{
		{"new", `"content": "one"`, "created", "one", 0o644},
		{"new", `"content": "one"`, "unchanged", "one", 0o644},
		{"new", `"content": "two"`, "replaced", "two", 0o644},
		{"new", `"content": "two", "mode": "0600"`, "replaced", "two", 0o600},
		{"new", `"content": "two", "mode": "600"`, "unchanged", "two", 0o600},
		{"new", `"content": "three"`, "replaced", "three", 0o600},
		{"script", `"content": "#!/bin/sh"`, "replaced", "#!/bin/sh", 0o750},
		{"all", `"content": "", "mode": "0777"`, "created", "", 0o777},
		{"binary", `"content_base64": "AP/+"`, "created", "\x00\xff\xfe", 0o644},
	} {
		res := b.call(t, "write_file", `{"path": "`+s.path+`", `+s.input+`}`)
		succeeded(t, res)
		full := filepath.Join(b.folder, s.path)
		if got, want := output[writeOutput](t,
			res), (writeOutput{
			full, int64(len(s.content)), sum(s.content),
			dray.FileAction(s.action),
		}); got != want {
			t.Errorf("step %d: got %v, want %v", i, got, want)
		}
		got, err := os.ReadFile(full)
		info, statErr := os.Stat(full)
		if err != nil || statErr != nil || string(got) != s.content || info.Mode() != s.mode {
			t.Errorf("step %d left %q with mode %v, %v", i, got, info.Mode(), err)
		}
	}
	if entries, err := os.ReadDir(b.folder); err != nil || len(entries) != 4 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
}

// A reader with the file open keeps the old content: the file is replaced, not modified.
func TestWriteFileIsAtomic(t *testing.T) {
	b := newFixture(t)
	b.write(t, "file", "old content", 0o644)
	f, err := os.Open(filepath.Join(b.folder, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	succeeded(t, b.call(t, "write_file", object{"path": "file", "content": "new"}))
	got := make([]byte, 20)
	if n, _ := f.Read(got); string(got[:n]) != "old content" {
		t.Errorf("the open file reads %q", got[:n])
	}
}

func TestListDir(t *testing.T) {
	b := newFixture(t)
	b.write(t, "b", "four", 0o600)
	b.write(t, "a/x", "", 0o644)
	b.write(t, "c\xff\\", "", 0o644)
	if err := os.Symlink("/nowhere", filepath.Join(b.folder, "d")); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2024, 2, 29, 12, 0, 0, 123456789, time.FixedZone("", 3600))
	if err := os.Chtimes(filepath.Join(b.folder, "b"), at, at); err != nil {
		t.Fatal(err)
	}
	res := b.call(t, "list_dir", object{"path": "."})
	succeeded(t, res)
	out := output[listOutput](t, res)
	var got []string
	for _, e := range out.Entries {
		got = append(got, e.Name+" "+e.Type+" "+e.Mode)
		if e.Name == "b" && (e.Size != 4 || !strings.Contains(string(res.Output), `"modified":"2024-02-29T11:00:00.123456789Z"`)) {
			t.Errorf("b is %+v in %s", e, res.Output)
		}
	}
	want := []string{"a directory 0755", "b file 0600", `c\xff\ file 0644`, "d symlink 0777"}
	if !slices.Equal(got, want) || out.Path != b.folder || out.Truncated {
		t.Errorf("got %q of %s", got, out.Path)
	}
}

func TestListDirIsBounded(t *testing.T) {
	b := newFixture(t)
	b.write(t, "many/0000", "", 0o644)
	many := filepath.Join(b.folder, "many")
	for i := range maxEntries {
		if err := os.Link(filepath.Join(many, "0000"),
			filepath.Join(many, fmt.Sprintf("%04d", i+1))); err != nil {
			t.Fatal(err)
		}
	}
	out := output[listOutput](t, b.call(t, "list_dir", object{"path": "many"}))
	if len(out.Entries) != 1000 || !out.Truncated || out.Entries[0].Name != "0000" ||
		out.Entries[999].Name != "0999" {
		t.Errorf("listed %d, truncated %v", len(out.Entries), out.Truncated)
	}
}

// Files outside host.roots can be read and not written.
func TestFileTools_OutsideHostRoots(t *testing.T) {
	b := newFixture(t)
	other := newFixture(t)
	other.write(t, "file", "x", 0o644)
	elsewhere := renamedFolder{b.env, other.folder}
	b.env, b.folder = elsewhere, other.folder
	succeeded(t, b.call(t, "read_file", object{"path": "file"}))
	failedWith(t, b.call(t, "write_file", object{"path": "file", "content": "y"}), dray.CodeDenied)
}

// In a container without a workspace, file tools are refused before anything is requested of it,
// unless the call names a working directory (EX-17).
func TestFileTools_NoWorkspaceFolder(t *testing.T) {
	b := newFixture(t)
	b.contain()
	b.env = renamedFolder{b.env, ""}
	b.write(t, "sub/file", "x", 0o644)
	in := func(dir string) func(*dray.Call) { return func(c *dray.Call) { c.Invocation.Cwd = dir } }
	for _, given := range []string{".", "/etc"} {
		res := b.call(t, "list_dir", object{"path": given})
		failedWith(t, res, dray.CodePathInvalid)
		if !strings.Contains(res.Error.Message, "no workspace folder") ||
			!strings.Contains(res.Error.Hint, "cwd") {
			t.Errorf("%q: %+v", given, res.Error)
		}
	}
	failedWith(t, b.call(t, "list_dir", object{"path": "."}, in("sub")), dray.CodePathInvalid)
	for _, given := range []string{"sub/file", b.folder + "/sub/file"} {
		if out := output[readOutput](t, b.call(t, "read_file", object{"path": given},
			in(b.folder))); *out.Content != "x" || out.Path != "/srv/app/sub/file" {
			t.Errorf("%q gave %+v", given, out)
		}
	}
	for _, given := range []string{"../file", "/etc/passwd", b.folder} {
		failedWith(t, b.call(t, "read_file", object{"path": given}, in(b.folder+"/sub")),
			dray.CodePathInvalid)
	}
}

// renamedFolder is an environment with another workspace folder.
type renamedFolder struct {
	dray.Environment
	folder string
}

func (r renamedFolder) Capabilities() dray.Capabilities {
	caps := r.Environment.Capabilities()
	caps.WorkspaceFolder = r.folder
	return caps
}

// The result of a file tool reads like that of a program that exited with 0 and printed nothing.
func TestFileToolResult(t *testing.T) {
	b := newFixture(t)
	res := b.call(t, "list_dir", object{"path": "."})
	succeeded(t, res)
	if res.Reason != dray.ReasonExited || *res.ExitCode != 0 || res.Stdout.SHA256 != sum("") ||
		res.Stderr.TotalBytes != 0 {
		t.Errorf("got %+v", res)
	}
	promised(t, b, "list_dir", res)
}
