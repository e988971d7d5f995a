package audit

import (
	"context"
	"errors"
	"math"
	"os"
	"testing"

	"github.com/dray-dev/dray"
)

// The log proves that it extends each of its earlier checkpoints, across restarts, to everybody who
// has that checkpoint and the public key (AU-06).
func TestConsistency(t *testing.T) {
	opts := options(t.TempDir())
	var earlier [][]byte
	for _, calls := range []int{0, 1, 200, 400} {
		s, _ := reopen(t, opts)
		recordCalls(t, s, calls)
		last, err := s.Checkpoint(context.Background())
		must(t, err)
		for _, old := range append(earlier, last) {
			size := sizeOf(t, s, old)
			data, err := s.Consistency(context.Background(), size)
			must(t, err)
			if _, after, err := s.Key().VerifyConsistency(data, old); err != nil || after.Size < size {
				t.Errorf("from %d: %+v, %v", size, after, err)
			}
		}
		earlier = append(earlier, last)
		for _, size := range []int64{-1, sizeOf(t, s, last) + 1, math.MaxInt64} {
			_, err := s.Consistency(context.Background(), size)
			if dray.CodeOf(err) != dray.CodeInvalidRequest {
				t.Errorf("from %d: %v", size, err)
			}
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

func sizeOf(t *testing.T, s *Store, signed []byte) int64 {
	t.Helper()
	c, err := s.Key().Open(signed)
	must(t, err)
	return c.Size
}

// A log whose history was changed by somebody with its key, who computed all hashes again and
// removed the stored checkpoints, starts, but cannot prove that it extends an earlier checkpoint
// (AU-06).
func TestChangedLogHasNoConsistencyProof(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, l *closedLog){
		"nothing":       func(*testing.T, *closedLog) {},
		"a body edited": func(t *testing.T, l *closedLog) { l.editBody(t); l.rehash(t, 1, l.last) },
		"a call deleted": func(t *testing.T, l *closedLog) {
			l.exec(t, deleteFirstCall)
			l.rehash(t, 1, l.last-2)
		},
		"all later events deleted": func(t *testing.T, l *closedLog) {
			l.exec(t, `DELETE FROM changed_files WHERE seq > 2; DELETE FROM labels WHERE seq > 2;
				DELETE FROM invocations WHERE seq > 2; DELETE FROM events WHERE seq > 2`)
			l.rehash(t, 1, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, checkpoint := newClosedLog(t)
			l := copyLog(t, dir)
			l.dropTriggers(t)
			change(t, l)
			l.close()
			err := errors.Join(os.RemoveAll(l.files.checkpoints), os.Chmod(l.files.key, 0o600))
			must(t, err)
			s, _ := reopen(t, l.opts)
			recordCalls(t, s, 300)
			data, err := s.Consistency(context.Background(), sizeOf(t, s, checkpoint))
			if err == nil {
				_, _, err = s.Key().VerifyConsistency(data, checkpoint)
			}
			if (err == nil) != (name == "nothing") {
				t.Errorf("the proof: %v", err)
			}
		})
	}
}

// Nothing is proven of what another program changed while the daemon ran (AU-06).
func TestConsistencyOfChangesWhileRunning(t *testing.T) {
	opts := options(t.TempDir())
	s := open(t, opts)
	recordCalls(t, s, 2)
	db := rawDB(t, opts.Path)
	mustExec(t, db, `DROP TRIGGER events_no_update`)
	mustExec(t, db, `UPDATE events SET leaf = zeroblob(32) WHERE seq = 2`)
	_, err := s.Consistency(context.Background(), 3)
	if dray.CodeOf(err) != dray.CodeAuditUnavailable {
		t.Errorf("the proof: %v", err)
	}
}
