package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

// panicError is a panic of the writer: a defect of dray, which no call's own guard can catch.
type panicError struct {
	value any
	stack []byte
}

// Error tells the value alone; the stack is for the log.
func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// recoverTo makes a panic an error. It is to be deferred itself.
func recoverTo(err *error) {
	if v := recover(); v != nil {
		*err = &panicError{v, debug.Stack()}
	}
}

// logPanic logs a panic under an id and gives an error that names it; others stay as they are. The job whose writing panicked is not in the trail: its
// caller is refused, or gets no result (EX-18, AU-01).
func (w *writer) logPanic(err error) error {
	p, ok := errors.AsType[*panicError](err)
	if !ok {
		return err
	}
	id := rand.Text()
	w.log.Error("the trail's writer panicked", zap.String("id", id), zap.String("panic", fmt.Sprint(p.value)), zap.ByteString("stack", p.stack))
	return dray.InternalError(dray.CodeAuditUnavailable, id, "writing the trail")
}

// flushRecovered is flush, and outlives a panic around the commit: who waits for a job that was not settled by then gets an error, and the writer
// goes on with the next.
func (w *writer) flushRecovered(ctx context.Context, batch []*pendingEvent) (left []*pendingEvent) {
	var err error
	func() {
		defer recoverTo(&err)
		left = w.flush(ctx, batch)
	}()
	if err == nil {
		return left
	}
	err = w.logPanic(err)
	for _, j := range batch {
		w.settle(j, err)
	}
	return nil
}
