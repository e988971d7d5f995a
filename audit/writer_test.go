package audit

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dray-dev/dray"
)

// column is a column value that runs a function during the transaction.
type column func()

func (c column) Value() (driver.Value, error) {
	c()
	return "exec", nil
}

func observed(t *testing.T) (*Store, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.ErrorLevel)
	opts := options(t.TempDir())
	opts.Log = zap.New(core)
	return open(t, opts), logs
}

// A panic in the transaction fails only its own event, with an id that the log has with the stack.
// The transaction is rolled back and the other events are written (EX-18, AU-01).
func TestPanicInTransactionFailsOnlyItsEvent(t *testing.T) {
	s, logs := observed(t)
	run(t, s, newInvocation("exec"), exited(0))
	bad := begin(t, s)
	bad.args[1] = column(func() { panic("panic in the transaction") })
	jobs := []*pendingEvent{begin(t, s), bad, begin(t, s)}
	var all sync.WaitGroup
	errs := make([]error, len(jobs))
	for i, j := range jobs {
		all.Go(func() { errs[i] = s.submit(context.Background(), j) })
	}
	all.Wait()
	failed := dray.AsError(errs[1])
	if failed == nil || failed.Code != dray.CodeAuditUnavailable {
		t.Fatalf("submit returns %v", errs[1])
	}
	if errs[0] != nil || errs[2] != nil {
		t.Errorf("submit of the other events returns %v", errs)
	}
	entry := logs.FilterMessage("audit log writer panicked").All()
	if len(entry) != 1 {
		t.Fatalf("the log has %v", logs.All())
	}
	fields := entry[0].ContextMap()
	if id, _ := fields["id"].(string); id == "" || !strings.Contains(failed.Hint, id) ||
		!strings.Contains(fmt.Sprint(fields["stack"]), "writer_test.go") {
		t.Errorf("the hint is %q, the log has %v", failed.Hint, fields)
	}
	if _, err := s.Get(t.Context(), "", bad.event.invocation); codeOf(err) != dray.CodeNotFound {
		t.Errorf("Get of the failed event returns %v", err)
	}
	run(t, s, newInvocation("exec"), exited(0))
}

// A panic outside the transaction, here while a late begin record is compensated, leaves no caller
// waiting, and the writer continues.
func TestPanicOutsideTransaction(t *testing.T) {
	s, logs := observed(t)
	late := begin(t, s)
	reached := make(chan struct{})
	late.compensate = func() *pendingEvent { panic("panic in compensate") }
	late.args[1] = column(func() {
		s.writer.mu.Lock()
		late.caller = gaveUp // its caller gives up now
		s.writer.mu.Unlock()
		close(reached)
	})
	if !s.writer.enqueue([]*pendingEvent{late}) {
		t.Fatal("the writer is closed")
	}
	<-reached
	run(t, s, newInvocation("exec"), exited(0))
	if entry := logs.FilterMessage("audit log writer panicked").All(); len(entry) != 1 {
		t.Errorf("the log has %v", logs.All())
	}
}

// A caller whose commit hangs gives up in time, also if no other call is being written. The record
// that is committed later says that nothing ran (AU-01, AU-03).
func TestHungCommitTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, options(t.TempDir()))
		hung, queued := begin(t, s), begin(t, s)
		resume := make(chan struct{})
		hung.args[1] = column(func() { <-resume })
		for _, e := range []*pendingEvent{hung, queued} {
			if err := s.submit(t.Context(), e); !errors.Is(err, errTimedOut) {
				t.Errorf("submit returns %v", err)
			}
		}
		close(resume)
		run(t, s, newInvocation("exec"), exited(0))
		rec := get(t, s, hung.event.invocation)
		if rec.Reason != dray.ReasonUnavailable || !strings.Contains(rec.Error.Message, "nothing ran") {
			t.Errorf("the record of the hung commit is %+v", rec)
		}
		if _, err := s.Get(t.Context(), "", queued.event.invocation); codeOf(err) != dray.CodeNotFound {
			t.Errorf("Get of the event that was given up in the queue returns %v", err)
		}
		checkLog(t, s)
	})
}

func begin(t *testing.T, s *Store) *pendingEvent {
	t.Helper()
	j, err := s.beginEvent(dray.Call{Invocation: newInvocation("exec")}, time.Now())
	must(t, err)
	return j
}
