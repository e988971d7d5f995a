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

// lockDatabase holds the write lock as another program would, until the function it gives is
// called.
func lockDatabase(t *testing.T, path string) (unlock func()) {
	t.Helper()
	tx, err := rawDB(t, path).BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}

// impatient are options with which a test need not wait long.
func impatient(dir string) Options {
	opts := options(dir)
	opts.WriteTimeout = 600 * time.Millisecond
	return opts
}

// refused makes a call that must not run, and gives its error.
func refused(t *testing.T, s *Store, inv dray.Invocation) *dray.Error {
	t.Helper()
	next := dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
		t.Error("the call ran")
		return exited(0), nil
	})
	started := time.Now()
	_, err := s.Executor(next).Execute(context.Background(), dray.Call{Invocation: inv}, dray.Discard)
	if took := time.Since(started); took > s.writeTimeout+5*time.Second {
		t.Errorf("refused after %v, patience is %v", took, s.writeTimeout)
	}
	if e := dray.AsError(err); e == nil || e.Code != dray.CodeAuditUnavailable || e.Hint == "" {
		t.Fatalf("Execute gives %+v, want audit_unavailable with a hint", e)
	}
	return dray.AsError(err)
}

// AU-01: with a locked database nothing runs, a call that was refused is never found later, and the
// store goes on by itself.
func TestLockedDatabase(t *testing.T) {
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
		t.Errorf("the refused call gives %v", err)
	}
	checkTrail(t, s)
}

// OP-01: while the database is locked, or does not take what is written, the trail is not ready and
// says why; then it is again.
func TestReady(t *testing.T) {
	opts := impatient(t.TempDir())
	s := open(t, opts)
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	unlock := lockDatabase(t, opts.Path)
	for range 3 { // it must not use up what it asks for
		e := dray.AsError(s.Ready(t.Context()))
		if e == nil || e.Code != dray.CodeAuditUnavailable ||
			!strings.Contains(e.Hint, "locked "+opts.Path) {
			t.Errorf("locked, it says %+v", e)
		}
	}
	_ = refused(t, s, newInvocation("exec"))
	unlock()
	for s.Ready(t.Context()) != nil { // the writer may not have tried again yet
		if t.Context().Err() != nil {
			t.Fatal("it does not get ready again")
		}
	}
	run(t, s, newInvocation("exec"), exited(0))
	checkTrail(t, s)
}

// A request is answered within 25 s: the default leaves room for what is around it.
func TestDefaultPatience(t *testing.T) {
	opts := options(t.TempDir())
	opts.WriteTimeout = 0
	if s := open(t, opts); s.writeTimeout < 5*time.Second || s.writeTimeout >= 20*time.Second {
		t.Errorf("the patience is %v", s.writeTimeout)
	}
}

// AU-01: with a full database nothing runs, and when there is room again calls do.
func TestFullDatabase(t *testing.T) {
	s := open(t, impatient(t.TempDir()))
	mustExec(t, s.write, `PRAGMA max_page_count = 1`) // means: no more pages than there are
	var e *dray.Error
	for e == nil { // until the pages are used up
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
	checkTrail(t, s)
}

// AU-01, CA-01: where the disk of the captures alone is full the trail goes on: every call has its
// begin and end, and a long output that is lost is told by its code. What cannot be recorded before
// it runs does not run.
func TestFullCaptures(t *testing.T) {
	dir := t.TempDir()
	opts := impatient(dir)
	opts.CapturesDir = filepath.Join(dir, "small")
	if err := os.Mkdir(opts.CapturesDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", opts.CapturesDir, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("a small disk needs the right to mount: %v", err)
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
		t.Errorf("the trail has %+v", rec.Error)
	}
	long := newInvocation("exec")
	long.Input = longJSON(maxInline + 1)
	_ = refused(t, s, long)
	run(t, s, newInvocation("exec"), exited(0))
	checkTrail(t, s)
}

// AU-01: the same on a disk that is really full.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("a small disk needs the right to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(t, impatient(dir))
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
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
	checkTrail(t, s)
}

// obstacles keep a database from being written, until the function they give is called.
var obstacles = map[string]func(t *testing.T, s *Store) (remove func()){
	"locked": func(t *testing.T, s *Store) func() { return lockDatabase(t, s.path) },
	"full": func(t *testing.T, s *Store) func() {
		mustExec(t, s.write, `PRAGMA max_page_count = 1`)
		return func() { mustExec(t, s.write, `PRAGMA max_page_count = 1000000`) }
	},
}

// obstructedEnd makes a call during which the obstacle comes up: it ran, and its end cannot be
// recorded in time.
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
	if e == nil || e.Code != dray.CodeAuditUnavailable || !strings.Contains(e.Message, "did run") ||
		res.Status != "" {
		t.Fatalf("Execute gives %+v, %+v; want audit_unavailable and no result", res, e)
	}
	if rec := get(t, s, inv.ID); rec.Status != dray.StatusRunning {
		t.Errorf("the record says %s before its end is recorded", rec.Status)
	}
	return inv.ID, unblock
}

// AU-01, AU-03: an end that came too late for its caller is recorded as soon as it can be.
func TestLateEnd(t *testing.T) {
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
			checkTrail(t, s)
		})
	}
}

// AU-03: an end that could not be recorded until the daemon ended makes its call interrupted.
func TestEndThatNeverCame(t *testing.T) {
	opts := impatient(t.TempDir())
	s, _ := reopen(t, opts)
	id, unlock := obstructedEnd(t, s, "locked")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(ctx); err == nil || !strings.Contains(err.Error(), "could not be recorded: 1") {
		t.Errorf("Close gives %v", err)
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
	checkTrail(t, s)
}

// AU-03: a begin that was committed after its caller had been told that nothing runs gets an end
// that says so.
func TestBeginThatCameTooLate(t *testing.T) {
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	inv := newInvocation("exec")
	j, _, err := s.beginJob(inv, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	// What happens when a commit hangs beyond the patience of the caller.
	if _, err := commit(context.Background(), s.write, []*pendingEvent{j},
		s.writer.dropAbandoned); err != nil {
		t.Fatal(err)
	}
	if err := s.writer.abandon(j); !errors.Is(err, errTimedOut) {
		t.Errorf("giving up gives %v", err)
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
	checkTrail(t, s)
}

// A begin whose outcome came in the moment in which its caller gave up counts.
func TestOutcomeBeforeGivingUp(t *testing.T) {
	s := open(t, options(t.TempDir()))
	j := &pendingEvent{done: make(chan error, 1)}
	s.writer.settle(j, errNotRunning)
	if err := s.writer.abandon(j); !errors.Is(err, errNotRunning) {
		t.Errorf("giving up gives %v, want the outcome", err)
	}
}

func TestClosedStore(t *testing.T) {
	s, _ := reopen(t, options(t.TempDir()))
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, err := s.Executor(returning(exited(0))).
		Execute(context.Background(), dray.Call{Invocation: newInvocation("exec")}, dray.Discard)
	if codeOf(err) != dray.CodeShuttingDown {
		t.Errorf("a call after Close gives %v", err)
	}
}

// Close waits for what is queued.
func TestCloseDrains(t *testing.T) {
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	var jobs []*pendingEvent
	for range 3 * maxBatch {
		j, _, err := s.beginJob(newInvocation("exec"), time.Now())
		if err != nil {
			t.Fatal(err)
		}
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
