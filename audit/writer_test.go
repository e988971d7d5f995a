package audit

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dray-dev/dray"
)

// column is a value that is asked for in the midst of the transaction.
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

// EX-18, AU-01: a panic of the writer ends neither the daemon nor the writer. What was being
// written is taken back and its caller refused, with an id that the log has with the stack; the
// jobs beside it are written.
func TestPanicOfTheWriter(t *testing.T) {
	s, logs := observed(t)
	run(t, s, newInvocation("exec"), exited(0))
	bad := begin(t, s)
	bad.args[1] = column(func() { panic("planted in the writer") })
	jobs := []*pendingEvent{begin(t, s), bad, begin(t, s)}
	var all sync.WaitGroup
	errs := make([]error, len(jobs))
	for i, j := range jobs {
		all.Go(func() { errs[i] = s.submit(context.Background(), j) })
	}
	all.Wait()
	told := dray.AsError(errs[1])
	if told == nil || told.Code != dray.CodeAuditUnavailable {
		t.Fatalf("the caller is told %v", errs[1])
	}
	if errs[0] != nil || errs[2] != nil {
		t.Errorf("the others are told %v", errs)
	}
	entry := logs.FilterMessage("the trail's writer panicked").All()
	if len(entry) != 1 {
		t.Fatalf("the log has %v", logs.All())
	}
	fields := entry[0].ContextMap()
	if id, _ := fields["id"].(string); id == "" || !strings.Contains(told.Hint, id) ||
		!strings.Contains(fmt.Sprint(fields["stack"]), "defect_test.go") {
		t.Errorf("the hint is %q, the log has %v", told.Hint, fields)
	}
	if _, err := s.Get(t.Context(), "", bad.event.invocation); codeOf(err) != dray.CodeNotFound {
		t.Errorf("the trail has it: %v", err)
	}
	run(t, s, newInvocation("exec"), exited(0))
}

// A panic beside the transaction, here in undoing a begin that came too late, leaves nobody
// waiting, and the writer goes on.
func TestPanicBesideTheTransaction(t *testing.T) {
	s, logs := observed(t)
	late := begin(t, s)
	reached := make(chan struct{})
	late.compensate = func() *pendingEvent { panic("planted in the undoing") }
	late.args[1] = column(func() {
		s.writer.mu.Lock()
		late.abandoned = true // its caller goes in this moment
		s.writer.mu.Unlock()
		close(reached)
	})
	if !s.writer.enqueue([]*pendingEvent{late}) {
		t.Fatal("the writer is closed")
	}
	<-reached
	run(t, s, newInvocation("exec"), exited(0))
	if entry := logs.FilterMessage("the trail's writer panicked").All(); len(entry) != 1 {
		t.Errorf("the log has %v", logs.All())
	}
}

func begin(t *testing.T, s *Store) *pendingEvent {
	t.Helper()
	j, unfit, err := s.beginJob(newInvocation("exec"), time.Now())
	if unfit != nil || err != nil {
		t.Fatal(unfit, err)
	}
	return j
}
