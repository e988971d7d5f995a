package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// A call that was interrupted during a sync has the files that the sync has changed, in its record
// and in the list of changed files, and what the daemon knows of its processes (AU-03, AU-11).
func TestInterruptedCallHasSyncedFiles(t *testing.T) {
	for _, written := range []int{0, 3, maxInlineEntries + 5} {
		t.Run(fmt.Sprintf("%d files", written), func(t *testing.T) {
			opts, dir := options(t.TempDir()), t.TempDir()
			s, _ := reopen(t, opts)
			inv := newInvocation("sync")
			inv.Context.PlanID = "p"
			_, err := s.begin(t.Context(), dray.Call{Invocation: inv}, time.Now())
			must(t, err)
			must(t, s.RecordSync(t.Context(), inv.ID, plannedFiles(dir, "refused attempt", written)))
			must(t, s.RecordSync(t.Context(), inv.ID, plannedFiles(dir, "new", written+1)))
			for i := range written {
				writeFile(t, filepath.Join(dir, fmt.Sprint(i)), "new")
			}
			writeFile(t, filepath.Join(dir, fmt.Sprint(written)), "of somebody else")
			must(t, s.Close(context.Background()))

			opts.Recover = func(_ context.Context, ids []string) map[string]dray.Metadata {
				if len(ids) != 1 || ids[0] != inv.ID {
					t.Errorf("recovered %v", ids)
				}
				kill := &dray.KillReport{Survivors: dray.Survivors{Proven: true, PIDs: []int{7}}}
				return map[string]dray.Metadata{inv.ID: {Kill: kill}}
			}
			s, interrupted := reopen(t, opts)
			rec := get(t, s, inv.ID)
			if interrupted != 1 || rec.Reason != dray.ReasonInterrupted ||
				len(rec.Metadata.Changes) != written || rec.Metadata.ChangesOmitted != 0 ||
				rec.Metadata.Kill == nil || len(rec.Metadata.Kill.Survivors.PIDs) != 1 {
				t.Errorf("%d interrupted: %+v", interrupted, rec.Metadata)
			}
			listed := listChanges(t, s, ChangeQuery{PlanID: "p", Limit: MaxLimit}).Items
			if len(listed) != written {
				t.Errorf("%d files are listed, %d were written", len(listed), written)
			}
			checkLog(t, s)
			checkNoFindings(t, mustVerify(t, opts, nil))
		})
	}
}

// plannedFiles are n files that get a content.
func plannedFiles(dir, content string, n int) (all []dray.FileChange) {
	sum := sha256.Sum256([]byte(content))
	for i := range n {
		all = append(all, dray.FileChange{
			Environment: dray.KindHost, Path: filepath.Join(dir, fmt.Sprint(i)),
			Action: dray.FileCreated, SHA256After: hex.EncodeToString(sum[:]),
		})
	}
	return all
}

// A deleted file of an interrupted call was deleted if no regular file has its path (AU-11).
func TestInterruptedCall_DeletedFiles(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "file"), "there")
	for name, deleted := range map[string]bool{
		"file": false, "gone": true, "file/below": true, ".": true,
	} {
		c := dray.FileChange{Path: filepath.Join(dir, name), Action: dray.FileDeleted}
		if got := wasMade(c); got != deleted {
			t.Errorf("%s: got %v, want %v", name, got, deleted)
		}
	}
}
