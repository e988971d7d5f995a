package audit

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit/proof"
)

// recordCalls records n calls, all pending at once.
func recordCalls(t testing.TB, s *Store, n int) {
	t.Helper()
	var events []*pendingEvent
	for range n {
		inv := newInvocation("exec")
		begin, err := s.beginEvent(dray.Call{Invocation: inv}, epoch)
		must(t, err)
		end, err := s.endEvent(inv, dray.NormalizeResult(exited(0), nil))
		must(t, err)
		events = append(events, begin, end)
	}
	if err := s.submit(context.Background(), events...); err != nil {
		t.Fatal(err)
	}
}

// openCheckpoint returns a checkpoint of a store.
func openCheckpoint(t *testing.T, s *Store) proof.Checkpoint {
	t.Helper()
	signed, err := s.Checkpoint(context.Background())
	must(t, err)
	c, err := s.Key().Open(signed)
	must(t, err)
	return c
}

// A checkpoint has the number of events and the root hash that tlog computes from all leaves,
// across restarts, and the last ones are stored outside of the database (AU-06).
func TestCheckpointsCoverTheLog(t *testing.T) {
	opts := options(t.TempDir())
	for _, calls := range []int{0, 1, 200, 400} {
		s, _ := reopen(t, opts)
		recordCalls(t, s, calls)
		c := openCheckpoint(t, s)
		if want := treeOfLeaves(t, s); c.Size != want.N || c.Root != want.Hash {
			t.Errorf("the checkpoint has %d events and root %v, the log %+v", c.Size, c.Root, want)
		}
		proveAll(t, s, c)
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := storedCheckpoints(filesOf(opts.Path).checkpoints)
	if err != nil || len(stored) != 3 {
		t.Errorf("stored: %q, %v", stored, err)
	}
}

// treeOfLeaves computes the tree from all leaves, as another program would.
func treeOfLeaves(t *testing.T, s *Store) tlog.Tree {
	t.Helper()
	leaves, err := selectAll(context.Background(), s.read,
		selectQuery{sql: `SELECT leaf FROM events ORDER BY seq`},
		func(b *[]byte) []any { return []any{b} })
	must(t, err)
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (found []tlog.Hash, _ error) {
		for _, i := range indexes {
			found = append(found, stored[i])
		}
		return found, nil
	})
	for i, leaf := range leaves {
		more, err := tlog.StoredHashesForRecordHash(int64(i), tlog.Hash(leaf), reader)
		must(t, err)
		stored = append(stored, more...)
	}
	root, err := tlog.TreeHash(int64(len(leaves)), reader)
	must(t, err)
	return tlog.Tree{N: int64(len(leaves)), Hash: root}
}

// proveAll proves the inclusion of every event, and the consistency with every earlier size.
func proveAll(t *testing.T, s *Store, c proof.Checkpoint) {
	t.Helper()
	reader := treeReader{context.Background(), s.read}
	for n := range c.Size {
		var leaf []byte
		err := s.read.QueryRowContext(context.Background(), `SELECT leaf FROM events WHERE seq = ?`, n+1).
			Scan(&leaf)
		must(t, err)
		inclusion, err := tlog.ProveRecord(c.Size, n, reader)
		if err == nil {
			err = tlog.CheckRecord(inclusion, c.Size, c.Root, n, tlog.Hash(leaf))
		}
		if err != nil {
			t.Fatalf("event %d of %d: %v", n+1, c.Size, err)
		}
	}
}

// The last checkpoints are stored, and no more (AU-06).
func TestStoredCheckpointsAreBounded(t *testing.T) {
	opts := options(t.TempDir())
	s := open(t, opts)
	for range retainedCheckpoints + 3 {
		recordCalls(t, s, 1)
		openCheckpoint(t, s)
	}
	stored, err := storedCheckpoints(filesOf(opts.Path).checkpoints)
	if err != nil || len(stored) != retainedCheckpoints ||
		filepath.Base(stored[len(stored)-1]) != "00000000000000000070.note" {
		t.Errorf("%d stored: %q, %v", len(stored), stored, err)
	}
}

// What the file has when another program changed it while the daemon ran is not signed (AU-06).
func TestChangesWhileRunningAreNotSigned(t *testing.T) {
	opts := options(t.TempDir())
	s := open(t, opts)
	recordCalls(t, s, 2)
	before := openCheckpoint(t, s)
	db := rawDB(t, opts.Path)
	mustExec(t, db, `DROP TRIGGER events_no_update`)
	mustExec(t, db, `UPDATE events SET leaf = zeroblob(32) WHERE seq = 2`)
	if after := openCheckpoint(t, s); after != before {
		t.Errorf("the checkpoint was %+v and is %+v", before, after)
	}
}

// The nodes of events that an older version committed are computed when the log is opened (AU-06).
func TestMissingNodesAreComputed(t *testing.T) {
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	recordCalls(t, s, 400)
	want := openCheckpoint(t, s)
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	mustExec(t, rawDB(t, opts.Path), `DELETE FROM merkle_nodes WHERE n > 0`)
	s = open(t, opts)
	if got := openCheckpoint(t, s); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	proveAll(t, s, want)
}

// keyDamage are changes of the key of an old log, each with a part of the error (AU-06).
var keyDamage = map[string]struct {
	change func(f stateFiles) error
	want   string
}{
	"missing":      {func(f stateFiles) error { return os.Remove(f.key) }, "audit.key is missing"},
	"all missing":  {removeProof, "audit.key is missing"},
	"open to all":  {func(f stateFiles) error { return os.Chmod(f.key, 0o644) }, "has mode 0644"},
	"open to some": {func(f stateFiles) error { return os.Chmod(f.key, 0o640) }, "has mode 0640"},
	"damaged":      {func(f stateFiles) error { return os.Truncate(f.key, 30) }, "is damaged"},
	"empty":        {func(f stateFiles) error { return os.Truncate(f.key, 0) }, "is damaged"},
	"another":      {makeKey, "is not the key of this log"},
	"directory": {func(f stateFiles) error {
		return firstError(os.Remove(f.key), os.Mkdir(f.key, 0o700))
	}, "is not a file"},
	"symlink": {func(f stateFiles) error {
		return firstError(os.Rename(f.key, f.key+"2"), os.Symlink(f.key+"2", f.key))
	}, "read the key"},
	"other public": {func(f stateFiles) error {
		return os.WriteFile(f.public, []byte("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW\n"), 0o600)
	}, "is not the public key"},
}

func removeProof(f stateFiles) error {
	return firstError(os.RemoveAll(f.keysDir), os.RemoveAll(f.checkpoints))
}

func firstError(all ...error) error {
	return all[max(0, slices.IndexFunc(all, func(err error) bool { return err != nil }))]
}

// Without its key an old log is not opened, and no other key is made (AU-06).
func TestKeyOfOldLog(t *testing.T) {
	for name, damage := range keyDamage {
		t.Run(name, func(t *testing.T) {
			opts := options(t.TempDir())
			s, _ := reopen(t, opts)
			recordCalls(t, s, 1)
			if err := s.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			if err := damage.change(filesOf(opts.Path)); err != nil {
				t.Fatal(err)
			}
			_, _, err := Open(context.Background(), opts)
			if codeOf(err) != dray.CodeAuditUnavailable || !strings.Contains(err.Error(), damage.want) ||
				dray.AsError(err).Hint == "" {
				t.Errorf("Open: %v", err)
			}
			if _, err := os.Stat(filesOf(opts.Path).key); strings.Contains(name, "missing") && err == nil {
				t.Error("another key was made")
			}
		})
	}
}

// A log that was cut, replaced by an older copy or changed is not opened (AU-06).
func TestLogThatDoesNotExtendItsCheckpoint(t *testing.T) {
	for name, tt := range map[string]struct{ statement, want string }{
		"cut":       {`DELETE FROM events WHERE seq > 3`, "it was cut or replaced by an older copy"},
		"all":       {`DELETE FROM events`, "it was cut or replaced by an older copy"},
		"leaf":      {`UPDATE events SET leaf = zeroblob(32) WHERE seq = 1`, "the log was changed"},
		"key table": {`DELETE FROM checkpoint_keys`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			opts := options(t.TempDir())
			s, _ := reopen(t, opts)
			recordCalls(t, s, 2)
			if err := s.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			db := rawDB(t, opts.Path)
			mustExec(t, db, `DROP TRIGGER events_no_update; DROP TRIGGER events_no_delete`)
			mustExec(t, db, `DELETE FROM invocations; `+tt.statement)
			s, _, err := Open(context.Background(), opts)
			if err == nil {
				_ = s.Close(context.Background())
			}
			if tt.want == "" && err != nil || tt.want != "" &&
				(err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Open: %v", err)
			}
		})
	}
}
