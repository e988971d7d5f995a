package audit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// lockDatabase takes the write lock as another program would, until unlock is called.
func lockDatabase(t *testing.T, path string) (unlock func()) {
	t.Helper()
	tx, err := rawDB(t, path).BeginTx(context.Background(), nil)
	must(t, err)
	return func() {
		t.Helper()
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}

// impatient returns options with a short write timeout.
func impatient(dir string) Options {
	opts := options(dir)
	opts.WriteTimeout = 600 * time.Millisecond
	return opts
}

// refused makes a call that must not run, and returns its error.
func refused(t *testing.T, s *Store, inv dray.Invocation) *dray.Error {
	t.Helper()
	started := time.Now()
	_, err := s.Executor(mustNotRun(t)).Execute(context.Background(), dray.Call{Invocation: inv},
		dray.Discard)
	if took := time.Since(started); took > s.writeTimeout+5*time.Second {
		t.Errorf("refused after %v, the write timeout is %v", took, s.writeTimeout)
	}
	if e := dray.AsError(err); e == nil || e.Code != dray.CodeAuditUnavailable || e.Hint == "" {
		t.Fatalf("Execute returns %+v, want audit_unavailable with a hint", e)
	}
	return dray.AsError(err)
}

// With a locked database nothing runs, a refused call is never found later, and the store recovers
// by itself (AU-01).
func TestLockedDatabaseRefusesCalls(t *testing.T) {
	opts := impatient(t.TempDir())
	s := open(t, opts)
	unlock := lockDatabase(t, opts.Path)
	inv := newInvocation("exec")
	if e := refused(t, s, inv); !strings.Contains(e.Hint, "locked "+opts.Path) {
		t.Errorf("the hint is %q", e.Hint)
	}
	unlock()
	s.writeTimeout = 10 * time.Second
	run(t, s, newInvocation("exec"), exited(0))
	if _, err := s.Get(context.Background(), "", inv.ID); codeOf(err) != dray.CodeNotFound {
		t.Errorf("Get of the refused call returns %v", err)
	}
	checkLog(t, s)
}

// Ready fails while the database is locked or writes fail, with the reason, and succeeds afterwards
// (OP-01).
func TestReadyFailsWhileLocked(t *testing.T) {
	opts := impatient(t.TempDir())
	s := open(t, opts)
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	unlock := lockDatabase(t, opts.Path)
	for range 3 { // Ready must release the lock that it takes
		e := dray.AsError(s.Ready(t.Context()))
		if e == nil || e.Code != dray.CodeAuditUnavailable ||
			!strings.Contains(e.Hint, "locked "+opts.Path) {
			t.Errorf("Ready of a locked database returns %+v", e)
		}
	}
	_ = refused(t, s, newInvocation("exec"))
	unlock()
	for s.Ready(t.Context()) != nil { // the writer may not have tried again yet
		if t.Context().Err() != nil {
			t.Fatal("Ready does not succeed again")
		}
	}
	run(t, s, newInvocation("exec"), exited(0))
	checkLog(t, s)
}

// The default leaves time for the rest of a request, which must be answered within 25 s.
func TestDefaultWriteTimeout(t *testing.T) {
	opts := options(t.TempDir())
	opts.WriteTimeout = 0
	if s := open(t, opts); s.writeTimeout < 5*time.Second || s.writeTimeout >= 20*time.Second {
		t.Errorf("the write timeout is %v", s.writeTimeout)
	}
}

// With a full database nothing runs; calls run again when there is space (AU-01).
func TestFullDatabaseRefusesCalls(t *testing.T) {
	s := open(t, impatient(t.TempDir()))
	mustExec(t, s.write, `PRAGMA max_page_count = 1`) // the database cannot grow
	var e *dray.Error
	for e == nil { // until the free pages are used
		inv := newInvocation("exec")
		inv.Input = longJSON(maxInline)
		_, err := s.Executor(returning(exited(0))).
			Execute(context.Background(), dray.Call{Invocation: inv}, dray.Discard)
		e = dray.AsError(err)
	}
	inv := newInvocation("exec")
	inv.Input = longJSON(maxInline)
	if e := refused(t, s, inv); !strings.Contains(e.Hint, "full") {
		t.Errorf("the hint is %q", e.Hint)
	}
	mustExec(t, s.write, `PRAGMA max_page_count = 1000000`)
	s.writeTimeout = 10 * time.Second
	run(t, s, newInvocation("exec"), exited(0))
	checkLog(t, s)
}

// If only the disk of the captures is full, calls still have begin and end records, and a lost
// output is reported by its code. A call whose input cannot be stored does not run (AU-01, CA-01).
func TestFullCapturesDisk(t *testing.T) {
	dir := t.TempDir()
	opts := impatient(dir)
	opts.CapturesDir = filepath.Join(dir, "small")
	if err := os.Mkdir(opts.CapturesDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", opts.CapturesDir, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(opts.CapturesDir, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(t, opts)
	inv, res := newInvocation("exec"), exited(0)
	res.Output = longJSON(maxInline + 1)
	got, err := s.Executor(returning(res)).
		Execute(t.Context(), dray.Call{Invocation: inv}, dray.Discard)
	if err != nil || got.Error == nil || got.Error.Code != dray.CodeDiskFull || got.Error.Hint == "" ||
		got.Reason != dray.ReasonExited || got.Status != dray.StatusFailed {
		t.Errorf("got %+v, %v", got, err)
	}
	if rec := get(t, s, inv.ID); rec.Error == nil || rec.Error.Code != dray.CodeDiskFull {
		t.Errorf("the audit log has %+v", rec.Error)
	}
	long := newInvocation("exec")
	long.Input = longJSON(maxInline + 1)
	_ = refused(t, s, long)
	run(t, s, newInvocation("exec"), exited(0))
	checkLog(t, s)
}

// On a full disk nothing runs; calls run again when there is space (AU-01).
func TestFullDiskRefusesCalls(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(t, impatient(dir))
	filler, err := os.Create(filepath.Join(dir, "filler"))
	must(t, err)
	block := make([]byte, 4096)
	for err == nil {
		_, err = filler.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) || filler.Close() != nil {
		t.Fatal(err)
	}
	_ = refused(t, s, newInvocation("exec"))
	long := newInvocation("exec")
	long.Input = longJSON(maxInline + 1)
	_ = refused(t, s, long)
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	s.writeTimeout = 10 * time.Second
	run(t, s, newInvocation("exec"), exited(0))
	checkLog(t, s)
}

// obstacles make writes to the database fail until remove is called.
var obstacles = map[string]func(t *testing.T, s *Store) (remove func()){
	"locked": func(t *testing.T, s *Store) func() { return lockDatabase(t, s.path) },
	"full": func(t *testing.T, s *Store) func() {
		mustExec(t, s.write, `PRAGMA max_page_count = 1`)
		return func() { mustExec(t, s.write, `PRAGMA max_page_count = 1000000`) }
	},
}

// obstructedEnd makes a call that runs and whose end record cannot be written in time.
func obstructedEnd(t *testing.T, s *Store, obstacle string) (id string, unblock func()) {
	t.Helper()
	inv := newInvocation("exec")
	next := dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
		unblock = obstacles[obstacle](t, s)
		res := exited(7)
		res.Stdout.Text = strings.Repeat("needs new pages", 1000)
		return res, nil
	})
	res, err := s.Executor(next).Execute(context.Background(), dray.Call{Invocation: inv},
		dray.Discard)
	e := dray.AsError(err)
	if e == nil || e.Code != dray.CodeAuditUnavailable ||
		!strings.Contains(e.Message, "the call ran") ||
		res.Status != "" {
		t.Fatalf("Execute returns %+v, %+v; want audit_unavailable and no result", res, e)
	}
	if rec := get(t, s, inv.ID); rec.Status != dray.StatusRunning {
		t.Errorf("the status is %s before the end record", rec.Status)
	}
	return inv.ID, unblock
}

// An end record that missed its timeout is written as soon as possible (AU-01, AU-03).
func TestLateEndRecordIsWritten(t *testing.T) {
	for obstacle := range obstacles {
		t.Run(obstacle, func(t *testing.T) {
			opts := impatient(t.TempDir())
			s, _ := reopen(t, opts)
			id, unblock := obstructedEnd(t, s, obstacle)
			unblock()
			if err := s.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			s, found := reopen(t, opts)
			if rec := get(t, s, id); found != 0 || rec.Reason != dray.ReasonExited || *rec.ExitCode != 7 {
				t.Errorf("%d interrupted, the record is %+v", found, rec)
			}
			checkLog(t, s)
		})
	}
}

// A call whose end record could not be written before the daemon ended becomes interrupted (AU-03).
func TestUnwrittenEndRecordBecomesInterrupted(t *testing.T) {
	opts := impatient(t.TempDir())
	s, _ := reopen(t, opts)
	id, unlock := obstructedEnd(t, s, "locked")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(ctx); err == nil || !strings.Contains(err.Error(), "write 1 end records") {
		t.Errorf("Close returns %v", err)
	}
	unlock()
	s, found := reopen(t, opts)
	rec := get(t, s, id)
	if found != 1 || rec.Status != dray.StatusFailed || rec.Reason != dray.ReasonInterrupted ||
		rec.ExitCode != nil || rec.DurationMS != nil ||
		rec.EndedAt == nil || rec.Error == nil || rec.Error.Hint == "" {
		t.Errorf("%d interrupted, the record is %+v", found, rec)
	}
	if got := scan[string](t, s.read, `SELECT group_concat(kind, ' ') FROM events`); got != "begun interrupted" {
		t.Errorf("the events are %s", got)
	}
	checkLog(t, s)
}

// A begin record committed after its call was refused gets an end record that says that nothing ran
// (AU-03).
func TestLateBeginRecordIsCompensated(t *testing.T) {
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	inv := newInvocation("exec")
	j, err := s.beginEvent(dray.Call{Invocation: inv}, time.Now())
	must(t, err)
	// A commit that hangs until the caller has given up.
	if _, err := s.writer.commit(context.Background(), []*pendingEvent{j}); err != nil {
		t.Fatal(err)
	}
	if err := s.writer.abandon(j); !errors.Is(err, errTimedOut) {
		t.Errorf("abandon returns %v", err)
	}
	s.writer.settle(j, nil)
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	s, found := reopen(t, opts)
	rec := get(t, s, inv.ID)
	if found != 0 || rec.Status != dray.StatusFailed || rec.Reason != dray.ReasonUnavailable ||
		!strings.Contains(rec.Error.Message, "nothing ran") {
		t.Errorf("%d interrupted, the record is %+v", found, rec)
	}
	checkLog(t, s)
}

// An outcome that arrives while the caller gives up is returned.
func TestAbandonReturnsOutcome(t *testing.T) {
	s := open(t, options(t.TempDir()))
	j := &pendingEvent{done: make(chan error, 1)}
	s.writer.settle(j, errNotRunning)
	if err := s.writer.abandon(j); !errors.Is(err, errNotRunning) {
		t.Errorf("abandon returns %v, want the outcome", err)
	}
}

func TestClosedStoreRefusesCalls(t *testing.T) {
	s, _ := reopen(t, options(t.TempDir()))
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, err := s.Executor(returning(exited(0))).
		Execute(context.Background(), dray.Call{Invocation: newInvocation("exec")}, dray.Discard)
	if codeOf(err) != dray.CodeShuttingDown {
		t.Errorf("a call after Close returns %v", err)
	}
}

// Close commits what is queued.
func TestCloseCommitsQueue(t *testing.T) {
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	var jobs []*pendingEvent
	for range 3 * maxBatch {
		j, err := s.beginEvent(dray.Call{Invocation: newInvocation("exec")}, time.Now())
		must(t, err)
		jobs = append(jobs, j)
	}
	if !s.writer.enqueue(jobs) {
		t.Fatal("the store is closed")
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if err := <-j.done; err != nil {
			t.Fatal(err)
		}
	}
	if _, found := reopen(t, opts); found != len(jobs) {
		t.Errorf("%d calls were begun, want %d", found, len(jobs))
	}
}
