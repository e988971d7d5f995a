package python

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
	"github.com/dray-dev/dray/executor/files/stage"
)

// committing returns a run that has changed a.txt, removed b.txt and made the directory c, in a new
// directory.
func committing(t *testing.T) (*pyodideExecution, string) {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"a.txt", "b.txt"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte("one"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opened, err := files.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	c := newChanges(t.TempDir())
	tree := forge().file("a.txt", "two").removed("b.txt").dir("c").end()
	if _, err := c.in.w.Write([]byte(tree)); err != nil {
		t.Fatal(err)
	}
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	has := known{sum: sumOf("one"), size: 3, mode: 0o600}
	run := &pyodideExecution{execution: &execution{changes: c}, files: &staged{
		workerFiles: &workerFiles{root: root, known: map[string]known{"a.txt": has, "b.txt": has}},
		files:       opened, workspace: Workspace{CheckChange: func(string, bool) error { return nil }},
	}}
	t.Cleanup(run.Discard)
	return run, root
}

// The changes of a run are recorded before any is made: removed files too. Without the record
// nothing is changed (AU-11).
func TestCommitIsRecordedBefore(t *testing.T) {
	run, root := committing(t)
	var planned []dray.FileChange
	run.files.workspace.BeforeCommit = func(_ context.Context, list []dray.FileChange) error {
		planned = list
		for _, name := range []string{"a.txt", "b.txt"} {
			if b, err := os.ReadFile(filepath.Join(root, name)); string(b) != "one" {
				t.Errorf("%s has %q before the record, %v", name, b, err)
			}
		}
		return dray.Errorf(dray.CodeAuditUnavailable, "no record").WithHint("free disk space")
	}
	_, err := run.Commit(t.Context())
	if e := dray.AsError(err); e == nil || e.Code != dray.CodeAuditUnavailable || e.Hint == "" {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Lstat(filepath.Join(root, "c")); err == nil {
		t.Error("a part was written without a record")
	}
	want := map[string]dray.FileChange{
		"a.txt": {Action: dray.FileReplaced, SHA256Before: sumOf("one"), SHA256After: sumOf("two")},
		"b.txt": {Action: dray.FileDeleted, SHA256Before: sumOf("one")},
	}
	for _, got := range planned {
		name := strings.TrimPrefix(got.Path, root+"/")
		w := want[name]
		w.Environment, w.Path = dray.KindHost, got.Path
		if got != w {
			t.Errorf("recorded %+v, want %+v", got, w)
		}
		delete(want, name)
	}
	if len(want) != 0 {
		t.Errorf("not recorded: %+v", want)
	}
}

// unfinishedFiles has a commit that was neither completed nor rolled back.
type unfinishedFiles struct{ Directory }

func (unfinishedFiles) WriteTree(context.Context, dray.Tree, dray.WriteTreeOptions,
) ([]dray.WrittenFile, error) {
	return nil, dray.Errorf(dray.CodeDiskFull, "%w: no space", stage.ErrCommitIncomplete).
		WithHint("free disk space")
}

// A commit that is completed later does not report that nothing was changed (PY-18).
func TestIncompleteCommit(t *testing.T) {
	run, _ := committing(t)
	run.files.files = unfinishedFiles{run.files.files}
	_, err := run.Commit(t.Context())
	e := dray.AsError(err)
	if !errors.Is(err, stage.ErrCommitIncomplete) || e.Code != dray.CodeDiskFull || e.Hint == "" ||
		strings.Contains(e.Message, "no change") {
		t.Errorf("got %v", err)
	}
}

// A file whose staged content is not known is never expected to be absent (PY-10).
func TestUnknownExpectation(t *testing.T) {
	for _, name := range []string{"a.txt", "b.txt"} {
		run, _ := committing(t)
		run.files.known[name] = known{size: 3, mode: 0o600}
		_, err := run.Commit(t.Context())
		if e := dray.AsError(err); e == nil || e.Code != dray.CodeInternal ||
			!strings.Contains(e.Message, name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Changes that come although the run has no directory are refused (PY-08).
func TestChangesWithoutDirectory(t *testing.T) {
	run, root := committing(t)
	_ = run.files.files.Close()
	run.files.files = nil
	if _, err := run.Commit(t.Context()); dray.CodeOf(err) != dray.CodeDenied {
		t.Errorf("got %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "a.txt")); string(b) != "one" {
		t.Errorf("a.txt has %q, %v", b, err)
	}
}
