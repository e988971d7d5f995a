package tool

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

func TestEditFile(t *testing.T) {
	b := newFixture(t)
	b.write(t, "script", "#!/bin/sh\r\necho \xff one\r\n", 0o750)
	res := b.call(t, "edit_file", object{
		"path":  "script",
		"edits": []object{{"old": "one", "new": "two"}, {"old": "o", "new": "0", "count": 2}},
	})
	succeeded(t, res)
	want := "#!/bin/sh\r\nech0 \xff tw0\r\n"
	full := filepath.Join(b.folder, "script")
	if got := output[editOutput](t, res); got != (editOutput{full, 3, sum(want)}) {
		t.Errorf("got %+v", got)
	}
	holds(t, full, want, 0o750)
	promised(t, b, "edit_file", res)

	res = b.call(t, "edit_file", object{
		"path":  "script",
		"patch": "--- a/other\n+++ b/other\n@@ -1,1 +1,2 @@\n #!/bin/sh\r\n+set -e\r\n",
	})
	succeeded(t, res)
	if got := output[editOutput](t, res); got.Replaced != 1 {
		t.Errorf("got %+v", got)
	}
	holds(t, full, "#!/bin/sh\r\nset -e\r\nech0 \xff tw0\r\n", 0o750)
}

func holds(t *testing.T, name, want string, mode fs.FileMode) {
	t.Helper()
	got, err := os.ReadFile(name)
	info, statErr := os.Stat(name)
	if err != nil || statErr != nil || string(got) != want || info.Mode() != mode {
		t.Errorf("%s holds %q with mode %v, %v", name, got, info.Mode(), err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(name), ".dray-*")); err != nil ||
		len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestEditFileErrors(t *testing.T) {
	b := newFixture(t)
	b.write(t, "text", "a\nb\na\n", 0o644)
	b.write(t, "large", "", 0o644)
	if err := os.Truncate(filepath.Join(b.folder, "large"), maxEdited+1); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("text", filepath.Join(b.folder, "link")); err != nil {
		t.Fatal(err)
	}
	edits := []object{{"old": "b", "new": "x"}}
	for _, tt := range []struct {
		input   object
		code    dray.Code
		pointer string
		says    string
	}{
		{object{"path": "text"}, dray.CodeInvalidInput, "/input", "either"},
		{object{"path": "text", "edits": edits, "patch": "x"}, dray.CodeInvalidInput, "/input", "either"},
		{object{"path": "text", "edits": []object{}}, dray.CodeInvalidInput, "/input/edits", ""},
		{
			object{"path": "text", "edits": []object{{"old": "", "new": "x"}}},
			dray.CodeInvalidInput,
			"/input/edits/0/old", "",
		},
		{object{"path": "text", "patch": "nonsense"}, dray.CodeInvalidInput, "/input/patch", "hunks"},
		{
			object{"path": "text", "edits": []object{edits[0], {"old": "a", "new": "x"}}},
			dray.CodeInvalidInput, "/input/edits/1/old", "2 times",
		},
		{
			object{"path": "text", "patch": "@@ -1 +1 @@\n-z\n+y\n"},
			dray.CodeInvalidInput, "/input/patch",
			"hunk 1",
		},
		{object{"path": "none", "edits": edits}, dray.CodePathInvalid, "", "no such file"},
		{object{"path": "link", "edits": edits}, dray.CodePathInvalid, "", "symlink to text"},
		{object{"path": ".", "edits": edits}, dray.CodePathInvalid, "", "is a directory"},
		{object{"path": "large", "edits": edits}, dray.CodeLimitExceeded, "", "has more than 16 MiB"},
		{
			object{"path": "text", "edits": []object{{"old": "b", "new": strings.Repeat("x", maxEdited)}}},
			dray.CodeLimitExceeded, "", "would have more than 16 MiB",
		},
	} {
		res := b.call(t, "edit_file", tt.input)
		failedWith(t, res, tt.code)
		if !strings.Contains(res.Error.Message, tt.says) || tt.pointer != "" &&
			res.Error.Details[0].Pointer != tt.pointer || res.Metadata.Changes != nil {
			t.Errorf("%v: got %+v, %v", tt.input, res.Error, res.Metadata.Changes)
		}
	}
	holds(t, filepath.Join(b.folder, "text"), "a\nb\na\n", 0o644)
}

// An edit without a change writes nothing.
func TestEditFileUnchanged(t *testing.T) {
	b := newFixture(t)
	b.write(t, "text", "a", 0o644)
	before, err := os.Stat(filepath.Join(b.folder, "text"))
	if err != nil {
		t.Fatal(err)
	}
	res := b.call(t, "edit_file", object{"path": "text", "edits": []object{{"old": "a", "new": "a"}}})
	succeeded(t, res)
	after, err := os.Stat(filepath.Join(b.folder, "text"))
	if err != nil || !os.SameFile(before, after) || res.Metadata.Changes != nil {
		t.Errorf("it was written again: %v, %v", err, res.Metadata.Changes)
	}
}

// A change by another process between the read and the rename is detected and kept.
func TestEditFileConflict(t *testing.T) {
	for name, change := range map[string]func(string) error{
		"content": func(name string) error { return os.WriteFile(name, []byte("theirs"), 0o600) },
		"mode":    func(name string) error { return os.Chmod(name, 0o600) },
		"link": func(name string) error {
			return errors.Join(os.Remove(name), os.Symlink("elsewhere", name))
		},
		"gone": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t)
			b.write(t, "text", "ours", 0o644)
			full := filepath.Join(b.folder, "text")
			b.env = racingWriteEnv{b.env, func() error { return change(full) }}
			res := b.call(t, "edit_file", object{
				"path":  "text",
				"edits": []object{{"old": "ours", "new": "x"}},
			})
			failedWith(t, res, dray.CodeConflict)
			if got, err := os.ReadFile(full); err == nil && string(got) == "x" {
				t.Error("their change is lost")
			}
			if res.Metadata.Changes != nil {
				t.Errorf("changes %v", res.Metadata.Changes)
			}
			if left, err := os.ReadDir(b.folder); err != nil || len(left) > 1 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// Changes by file tools are reported with their digests; unchanged files are not (AU-11).
func TestChangesAreReported(t *testing.T) {
	b := newFixture(t)
	full := filepath.Join(b.folder, "file")
	change := func(action dray.FileAction, before, after string) []dray.FileChange {
		c := dray.FileChange{
			Environment: dray.KindHost, Path: full, Action: action,
			SHA256After: sum(after),
		}
		if action != dray.FileCreated {
			c.SHA256Before = sum(before)
		}
		return []dray.FileChange{c}
	}
	for i, s := range []struct {
		tool  string
		input object
		want  []dray.FileChange
	}{
		{"write_file", object{"path": "file", "content": "one"}, change(dray.FileCreated, "", "one")},
		{"write_file", object{"path": "file", "content": "one"}, nil},
		{
			"write_file",
			object{"path": "file", "content": "two!"},
			change(dray.FileReplaced, "one", "two!"),
		},
		{
			"write_file",
			object{"path": "file", "content": "two!", "mode": "0600"},
			change(dray.FileReplaced, "two!", "two!"),
		},
		{
			"edit_file",
			object{"path": "file", "edits": []object{{"old": "!", "new": "?"}}},
			change(dray.FileReplaced, "two!", "two?"),
		},
		{"read_file", object{"path": "file"}, nil},
		{"stat", object{"path": "file"}, nil},
	} {
		res := b.call(t, s.tool, s.input)
		succeeded(t, res)
		if len(res.Metadata.Changes) != len(s.want) || len(s.want) == 1 &&
			res.Metadata.Changes[0] != s.want[0] {
			t.Errorf("step %d: got %+v, want %+v", i, res.Metadata.Changes, s.want)
		}
	}
}

// A change that may have happened is reported (AU-11).
func TestChange_AgentLostDuringRename(t *testing.T) {
	b := newFixture(t)
	b.env = agentLossEnv{b.env}
	res := b.call(t, "write_file", object{"path": "file", "content": "x"})
	failedWith(t, res, dray.CodeAgentLost)
	if c := res.Metadata.Changes; len(c) != 1 || c[0].SHA256After != sum("x") {
		t.Errorf("got %+v", c)
	}
}

func TestApplyEdits(t *testing.T) {
	for _, tt := range []struct {
		name, content string
		edits         []replacement
		want          string
		replaced      int
		// the error contains says, its hint contains hints
		says, hints string
	}{
		{"one", "a b c", []replacement{{"b", "x", 0}}, "a x c", 1, "", ""},
		{"removed", "a b c", []replacement{{" b", "", 1}}, "a c", 1, "", ""},
		{"all of a count", "a b a", []replacement{{"a", "x", 2}}, "x b x", 2, "", ""},
		{
			"each in what the one before left", "a",
			[]replacement{{"a", "bb", 1}, {"b", "c", 2}},
			"cc", 3,
			"", "",
		},
		{
			"over line ends of two bytes", "a\r\nb\r\n",
			[]replacement{{"a\r\nb", "x", 1}},
			"x\r\n", 1, "",
			"",
		},
		{
			"bytes that are not UTF-8 stay", "\xff a \xfe",
			[]replacement{{"a", "ü", 1}},
			"\xff ü \xfe", 1,
			"", "",
		},
		{
			"too often", "a\nb\na\n",
			[]replacement{{"a", "x", 0}},
			"", 0,
			"occurs 2 times, not once (in lines 1, 3)", "count to 2",
		},
		{
			"too seldom", "a\nb\n",
			[]replacement{{"a", "x", 3}},
			"", 0,
			"occurs once, not 3 times (in lines 1)", "count to 1",
		},
		{"many times", strings.Repeat("a\n", 20), []replacement{{"a", "x", 0}}, "", 0, "9, 10, ...)", ""},
		{"overlapping", "aaa", []replacement{{"aa", "x", 2}}, "", 0, "overlap", "surrounding"},
		{"not at all", "a", []replacement{{"b", "x", 0}}, "", 0, "old does not occur", ""},
		{
			"no longer", "a",
			[]replacement{{"a", "b", 0}, {"a", "x", 0}},
			"", 0,
			"old of edit 2 of 2 does not occur after the edits before it", "",
		},
		{"other line ends", "x\r\na\r\nb\r\n", []replacement{{"a\nb\n", "x", 0}}, "", 0, "does not occur", `\r\n`},
		{"other line ends in old", "x\na\nb\n", []replacement{{"a\r\nb", "x", 0}}, "", 0, "does not occur", `\r\n`},
		{
			"other white space", "x\nif a {\n\treturn\n}\n",
			[]replacement{{
				"if a {\n    return\n}", "x",
				0,
			}},
			"", 0, "does not occur", "line 2 differs from old only in white space",
		},
		{
			"another line behind", "x\nif a {\n\tgo\n}\n",
			[]replacement{{"if a {\n\treturn\n}", "x", 0}},
			"", 0, "does not occur", "occurs in line 2",
		},
		{"white space alone", "a\n", []replacement{{" \t", "x", 0}}, "", 0, "does not occur", ""},
		{
			"overlapping as often as there are bytes", strings.Repeat("a", 8<<20),
			[]replacement{{strings.Repeat("a", 4<<20), "x", 0}},
			"", 0, "overlap", "surrounding",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, replaced, err := applyEdits(t.Context(), []byte(tt.content), tt.edits)
			if tt.says == "" {
				if err != nil || string(got) != tt.want || replaced != tt.replaced {
					t.Errorf("got %q, %d, %v", got, replaced, err)
				}
				return
			}
			var m *mismatchError
			if !errors.As(err, &m) || !strings.Contains(m.message, tt.says) ||
				!strings.Contains(m.hint, tt.hints) || !strings.HasPrefix(m.pointer, "/input/edits/") {
				t.Errorf("got %+v, want %q and %q", err, tt.says, tt.hints)
			}
		})
	}
}

const ten = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"

func TestApplyPatch(t *testing.T) {
	for _, tt := range []struct {
		name, content, patch, want, says, hints string
	}{
		{
			"a diff", ten, "--- a/x\n+++ b/x\n@@ -2,3 +2,3 @@\n 2\n-3\n+three\n 4\n",
			strings.Replace(ten, "3", "three", 1), "", "",
		},
		{
			"of git", ten,
			"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -2,3 +2,3 @@ func\n " +
				"2\n-3\n+three\n 4\n", strings.Replace(ten, "3", "three", 1), "", "",
		},
		{
			"without a header", ten, "@@ -2,3 +2,3 @@\n 2\n-3\n+three\n 4\n",
			strings.Replace(ten, "3", "three", 1), "", "",
		},
		{
			"without its last line end", ten, "@@ -2,3 +2,3 @@\n 2\n-3\n+three\n 4",
			strings.Replace(ten, "3", "three", 1), "", "",
		},
		{
			"an empty line of context without its space", "a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n",
			"a\n\nc\n", "", "",
		},
		{
			"two hunks", ten, "@@ -1,2 +1,1 @@\n-1\n 2\n@@ -9,2 +8,2 @@\n 9\n-10\n+ten\n",
			"2\n3\n4\n5\n6\n7\n8\n9\nten\n", "", "",
		},
		{
			"two hunks, both moved alike", "0\n0\n" + ten,
			"@@ -1,2 +1,1 @@\n-1\n 2\n@@ -9,2 +8,2 @@\n 9\n-10\n+ten\n", "0\n0\n2\n3\n4\n5\n6\n7\n8\n9\nten\n", "", "",
		},
		{
			"at its own line among equals", "a\nb\na\nb\na\nb\n", "@@ -3,2 +3,2 @@\n a\n-b\n+x\n",
			"a\nb\na\nx\na\nb\n", "", "",
		},
		{
			"moved, and the only place", ten, "@@ -99,2 +99,2 @@\n 2\n-3\n+x\n",
			strings.Replace(ten, "3", "x", 1), "", "",
		},
		{
			"moved, and not the only place", "a\nb\na\nb\n", "@@ -9,2 +9,2 @@\n a\n-b\n+x\n", "",
			"hunk 1 of 1 are not at line 9; they occur more than once, first at line 1", "context",
		},
		{
			"an insertion by its line alone", ten, "@@ -2,0 +3,1 @@\n+x\n",
			strings.Replace(ten, "2\n", "2\nx\n", 1), "", "",
		},
		{"an insertion into nothing", "", "@@ -0,0 +1,2 @@\n+a\n+b\n", "a\nb\n", "", ""},
		{"an insertion behind the end", "a\n", "@@ -7,0 +8,1 @@\n+x\n", "", "no line 7", "context"},
		{
			"no line end at the end", "a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n",
			"a\nc\n", "", "",
		},
		{
			"a line end at the end is none", "a\nb\n",
			"@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n", "", "not in the file", "",
		},
		{
			"line ends of two bytes", "a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n", "a\r\nc\r\n", "",
			"",
		},
		{"the wrong line ends", "a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "", "not in the file", `\r\n`},
		{
			"other white space", "\ta\nb\n", "@@ -1,2 +1,2 @@\n     a\n-b\n+c\n", "",
			"hunk 1 of 1, near line 1, are not in the file", "only in white space",
		},
		{
			"one line of context is wrong", ten, "@@ -2,3 +2,3 @@\n 2\n-3\n+x\n five\n", "",
			"not in the file", "line 2",
		},
		{
			"out of order", ten, "@@ -8,1 +8,1 @@\n-8\n+x\n@@ -2,1 +2,1 @@\n-2\n+y\n", "", "hunk 2 of 2",
			"order",
		},
		{
			"the second does not fit", ten, "@@ -1,1 +1,1 @@\n-1\n+x\n@@ -8,1 +8,1 @@\n-z\n+y\n", "",
			"hunk 2 of 2", "",
		},
		{"far away", ten, "@@ -9223372036854775807,1 +1,1 @@\n-nope\n+y\n", "", "not in the file", ""},
		{
			"places that overlap", "a\nb\na\nb\na\n", "@@ -9,3 +9,3 @@\n a\n-b\n+x\n a\n", "",
			"occur more than once, first at line 1", "context",
		},
		{
			"behind what begins like it", "a\na\nb\na\na\na\nc\n", "@@ -9,3 +9,3 @@\n a\n a\n-c\n+x\n",
			"a\na\nb\na\na\na\nx\n", "", "",
		},
		{"lines that are all alike", strings.Repeat("a\n", 1<<20), "@@ -1,524289 +1,524288 @@\n" +
			strings.Repeat(" a\n", 1<<19) + "-b\n", "", "not in the file", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hunks, err := parsePatch(tt.patch)
			if err != nil {
				t.Fatal(err)
			}
			got, err := applyPatch(t.Context(), []byte(tt.content), hunks)
			if tt.says == "" {
				if err != nil || string(got) != tt.want {
					t.Errorf("got %q, %v", got, err)
				}
				return
			}
			var m *mismatchError
			if !errors.As(err, &m) || !strings.Contains(m.message, tt.says) ||
				!strings.Contains(m.hint, tt.hints) || m.pointer != "/input/patch" {
				t.Errorf("got %+v, want %q and %q", err, tt.says, tt.hints)
			}
		})
	}
}

// An edit ends with its context even if much work is left.
func TestEdits_ContextEnds(t *testing.T) {
	gone := errors.New("the client went away")
	if _, _, err := applyEdits(cancelled(gone), []byte("a"),
		[]replacement{{"a", "b", 0}}); !errors.Is(err, gone) {
		t.Errorf("edits: got %v", err)
	}
	if _, err := applyPatch(cancelled(gone), []byte("a\n"),
		[]hunk{{line: 1, old: []string{"a\n"}}}); !errors.Is(err, gone) {
		t.Errorf("a patch: got %v", err)
	}
}

func TestParsePatchRefuses(t *testing.T) {
	const change = "@@ -1,1 +1,1 @@\n-a\n+b\n"
	for name, tt := range map[string]struct{ patch, says string }{
		"prose":      {"replace a by b", "no hunks"},
		"nothing":    {"", "no hunks"},
		"miscounted": {"@@ -1,3 +1,1 @@\n-a\n+b\n", "miscounts"},
		"two files":  {"--- a\n+++ a\n" + change + "--- b\n+++ b\n" + change, "2 files"},
		"a new file": {"--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n", "write_file"},
		"a removal":  {"--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "write_file"},
		"a rename": {
			"diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n",
			"write_file",
		},
		"a mode": {"diff --git a/x b/x\nold mode 100644\nnew mode 100755\n--- a/x\n+++ b/x\n" +
			change, "write_file"},
		"binary": {"diff --git a/x b/x\nindex 1234567..7654321 100644\nBinary files a/x and " +
			"b/x differ\n", "write_file"},
		"changes not":  {"@@ -1,1 +1,1 @@\n a\n", "no changes"},
		"a bad header": {"@@ -x +1 @@\n-a\n", "unified diff"},
		"no line": {
			"@@ -1,2 +1 @@\n a\n-\n\\ No newline at end of file\n", "hunk 1 without text",
		},
		"no hunk lines": {"@@ -1,1 +1,1 @@\n", "unified diff"},
	} {
		if _, err := parsePatch(tt.patch); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got %v, want %q", name, err, tt.says)
		}
	}
}

// FuzzPatch: every patch is parsed or refused, and applied completely or not at all.
func FuzzPatch(f *testing.F) {
	f.Add("a\nb\nc\n", "@@ -1 +1 @@\n-a\n+b\n")
	f.Add("a\n", "--- a\n+++ b\n@@ -1,2 +1 @@\n a\n-b\n\\ No newline at end of file\n")
	f.Add("a\n", "@@ -0,2 +0 @@\n a\n-\n\\ No newline at end of file\n")
	f.Add("a\r\nb", "diff --git a/x b/x\nGIT binary patch\nliteral 1\nIcmZ\n")
	f.Add("", "@@ -9223372036854775807,0 +1 @@\n+a\n@@ -0,0 +1 @@\n+a\n")
	f.Fuzz(func(t *testing.T, content, patch string) {
		hunks, err := parsePatch(patch)
		if err != nil {
			return
		}
		var m *mismatchError
		if _, err := applyPatch(t.Context(), []byte(content), hunks); err != nil && !errors.As(err, &m) {
			t.Errorf("got %v", err)
		}
	})
}

// FuzzDiff: the output of diff for two texts turns the first into the second.
func FuzzDiff(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nx\nc")
	f.Add("", "a")
	f.Add("a\r\nb", "b\na\r\n")
	diff, err := exec.LookPath("diff")
	if err != nil {
		f.Skip("there is no diff to compare with")
	}
	f.Fuzz(func(t *testing.T, old, changed string) {
		if old == changed || strings.Contains(old+changed, "\x00") {
			return
		}
		dir := t.TempDir()
		write(t, filepath.Join(dir, "old"), old)
		write(t, filepath.Join(dir, "new"), changed)
		// exit code 1 means that they differ
		out, _ := exec.Command(diff, "-au", filepath.Join(dir, "old"), filepath.Join(dir, "new")).Output()
		hunks, err := parsePatch(string(out))
		if err != nil {
			t.Fatalf("%v in %q", err, out)
		}
		if got, err := applyPatch(t.Context(), []byte(old), hunks); err != nil || string(got) != changed {
			t.Errorf("got %q, %v, want %q by %q", got, err, changed, out)
		}
	})
}
