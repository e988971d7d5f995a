package tool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

func TestEditFile(t *testing.T) {
	b := newFixture(t)
	b.write(t, "script", "#!/bin/sh\r\necho \xff one\r\n", 0o750)
	res := b.call(t, "edit_file", object{"path": "script", "edits": []object{{"old": "one", "new": "two"}, {"old": "o", "new": "0", "count": 2}}})
	succeeded(t, res)
	want := "#!/bin/sh\r\nech0 \xff tw0\r\n"
	full := filepath.Join(b.folder, "script")
	if got := output[editOutput](t, res); got != (editOutput{full, 3, sum(want)}) {
		t.Errorf("got %+v", got)
	}
	holds(t, full, want, 0o750)
	promised(t, b, "edit_file", res)

	res = b.call(t, "edit_file", object{"path": "script", "patch": "--- a/other\n+++ b/other\n@@ -1,1 +1,2 @@\n #!/bin/sh\r\n+set -e\r\n"})
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
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(name), ".dray-*")); err != nil || len(left) > 0 {
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
		{object{"path": "text", "edits": []object{{"old": "", "new": "x"}}}, dray.CodeInvalidInput, "/input/edits/0/old", ""},
		{object{"path": "text", "patch": "nonsense"}, dray.CodeInvalidInput, "/input/patch", "hunks"},
		{object{"path": "text", "edits": []object{edits[0], {"old": "a", "new": "x"}}}, dray.CodeInvalidInput, "/input/edits/1/old", "2 times"},
		{object{"path": "text", "patch": "@@ -1 +1 @@\n-z\n+y\n"}, dray.CodeInvalidInput, "/input/patch", "hunk 1"},
		{object{"path": "none", "edits": edits}, dray.CodePathInvalid, "", "does not exist"},
		{object{"path": "link", "edits": edits}, dray.CodePathInvalid, "", "link to text"},
		{object{"path": ".", "edits": edits}, dray.CodePathInvalid, "", "folder"},
		{object{"path": "large", "edits": edits}, dray.CodeLimitExceeded, "", "has more than 16 MiB"},
		{object{"path": "text", "edits": []object{{"old": "b", "new": strings.Repeat("x", maxEdited)}}}, dray.CodeLimitExceeded, "", "would have more than 16 MiB"},
	} {
		res := b.call(t, "edit_file", tt.input)
		failedWith(t, res, tt.code)
		if !strings.Contains(res.Error.Message, tt.says) || tt.pointer != "" && res.Error.Details[0].Pointer != tt.pointer || res.Metadata.Changes != nil {
			t.Errorf("%v: got %+v, %v", tt.input, res.Error, res.Metadata.Changes)
		}
	}
	holds(t, filepath.Join(b.folder, "text"), "a\nb\na\n", 0o644)
}

// An edit that changes nothing writes nothing.
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

// Somebody else's change between the read and the rename is noticed and stays.
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
			res := b.call(t, "edit_file", object{"path": "text", "edits": []object{{"old": "ours", "new": "x"}}})
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

// AU-11: what file tools change is told with its digests, and what they leave alone is not.
func TestChangesAreTold(t *testing.T) {
	b := newFixture(t)
	full := filepath.Join(b.folder, "file")
	change := func(action dray.FileAction, before, after string) []dray.FileChange {
		c := dray.FileChange{Environment: dray.KindHost, Path: full, Action: action, SHA256After: sum(after)}
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
		{"write_file", object{"path": "file", "content": "two!"}, change(dray.FileReplaced, "one", "two!")},
		{"write_file", object{"path": "file", "content": "two!", "mode": "0600"}, change(dray.FileReplaced, "two!", "two!")},
		{"edit_file", object{"path": "file", "edits": []object{{"old": "!", "new": "?"}}}, change(dray.FileReplaced, "two!", "two?")},
		{"read_file", object{"path": "file"}, nil},
		{"stat", object{"path": "file"}, nil},
	} {
		res := b.call(t, s.tool, s.input)
		succeeded(t, res)
		if len(res.Metadata.Changes) != len(s.want) || len(s.want) == 1 && res.Metadata.Changes[0] != s.want[0] {
			t.Errorf("step %d: got %+v, want %+v", i, res.Metadata.Changes, s.want)
		}
	}
}

// AU-11: where it is not known whether the file was replaced, that it may have been is told.
func TestChangesThatMayHaveHappened(t *testing.T) {
	b := newFixture(t)
	b.env = agentLossEnv{b.env}
	res := b.call(t, "write_file", object{"path": "file", "content": "x"})
	failedWith(t, res, dray.CodeAgentLost)
	if c := res.Metadata.Changes; len(c) != 1 || c[0].SHA256After != sum("x") {
		t.Errorf("got %+v", c)
	}
}
