package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dray-dev/dray"
)

// Concurrent edits of one file are all applied.
func TestEdits_SameFileSerialized(t *testing.T) {
	b := newFixture(t)
	const edits = 40
	old, want := "", ""
	for i := range edits {
		old, want = old+fmt.Sprintf("old %d.\n", i), want+fmt.Sprintf("new %d.\n", i)
	}
	b.write(t, "text", old, 0o644)
	var all sync.WaitGroup
	failed := make(chan string, edits)
	for i := range edits {
		all.Go(func() {
			input := fmt.Sprintf(`{"path": "text", "edits": [{"old": "old %d.", "new": "new %d."}]}`, i, i)
			call := dray.Call{Invocation: dray.Invocation{
				ID: "x", Tool: "edit_file",
				Input: json.RawMessage(input),
			}, Environment: b.env}
			res, err := b.exec.Execute(t.Context(), call, dray.Discard)
			if err != nil || res.Error != nil {
				failed <- fmt.Sprintf("edit %d: %+v, %v", i, res.Error, err)
			}
		})
	}
	all.Wait()
	close(failed)
	for f := range failed {
		t.Error(f)
	}
	if got, err := os.ReadFile(filepath.Join(b.folder, "text")); err != nil || string(got) != want {
		t.Errorf("%d of %d are there, %v", strings.Count(string(got), "new"), edits, err)
	}
}

// A call that waits for a file lock stops waiting when its context ends, and leaves nothing behind.
func TestFileLock_ContextEnds(t *testing.T) {
	var ts fileLocks
	done, err := ts.lock(t.Context(), "/ws/a")
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the client went away")
	if _, err := ts.lock(cancelled(gone), "/ws/a"); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	other, err := ts.lock(t.Context(), "/ws/b")
	if err != nil {
		t.Errorf("another file: %v", err)
	}
	done()
	other()
	ts.files.Range(func(file, _ any) bool {
		t.Errorf("the lock of %s is retained", file)
		return true
	})
}
