package audit

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit/proof"
)

const (
	// maxBatch bounds the events of a transaction, and so the time that a caller waits for others.
	maxBatch = 256
	// retryPause is the delay between two attempts to write to a locked or full database.
	retryPause = 50 * time.Millisecond
)

var (
	errClosed   = errors.New("the audit log is closed")
	errTimedOut = errors.New("the disk did not respond")
)

// rowWriter writes further rows in the transaction of an event.
type rowWriter interface {
	write(ctx context.Context, tx *sql.Conn, seq int64, invocation string) error
}

// pendingEvent is an event to append, with its change of the projection.
type pendingEvent struct {
	event event // the writer sets seq and at
	// projectionSQL changes exactly one row; its first argument is the seq. Empty means none.
	projectionSQL string
	args          []any
	extra         rowWriter // nil for none
	refusal       error     // why the call of a begin record must not run, nil if it may
	// compensate makes the end record for a begin record that is committed after its caller gave up.
	// It is nil for an end record, which is written whether its caller waits or not.
	compensate func() *pendingEvent

	done   chan error  // receives the outcome once
	caller callerState // guarded by writer.mu once the event is queued
}

// callerState is what the caller of a pending event does.
type callerState int

const (
	waits     callerState = iota // for the outcome
	answered                     // has the outcome
	gaveUp                       // has returned an error
	continued                    // has returned without the outcome, or never waits for it
)

// writer commits events on one goroutine, all that wait in one transaction with one fsync. A caller
// only waits, so that it can give up when the disk does not respond.
type writer struct {
	db      *sql.DB
	files   openedFiles
	disk    *disk
	log     *zap.Logger
	abort   chan struct{} // closed to stop before the queue is empty
	stopped chan struct{} // closed when the goroutine has ended
	// committed is sent after each commit.
	committed broadcast
	grown     chan struct{} // has a value after a commit

	unwritten int   // end records that were not written, valid once stopped is closed
	last      int64 // seq of the last event; 0 if it must be read. Only the goroutine uses it.

	mu           sync.Mutex
	edge         proof.Edge // of the committed events
	changed      *sync.Cond // signaled after a change of queue or closed; its lock is mu
	queue        []*pendingEvent
	closed       bool
	lastErr      error           // why the last attempt failed
	failingSince time.Time       // when lastErr was first set
	delayed      *RecordsDelayed // records that wait although their calls went on; nil for none
	late         int             // begin records among them
}

// newWriter starts the goroutine; close ends it. The end of ctx does not interrupt a write.
func newWriter(ctx context.Context, db *sql.DB, files openedFiles, edge proof.Edge,
	disk *disk, log *zap.Logger,
) *writer {
	w := &writer{
		db: db, files: files, disk: disk, log: log, edge: edge, abort: make(chan struct{}),
		stopped: make(chan struct{}), grown: make(chan struct{}, 1),
	}
	w.changed = sync.NewCond(&w.mu)
	go w.run(context.WithoutCancel(ctx))
	return w
}

// submit queues events in this order and blocks until they are committed or refused, or the timeout
// has elapsed. The end of ctx does not end the wait. It returns the first error. A begin record
// whose caller gives up is removed from the queue, or compensated if it is committed; such an end
// record stays queued.
func (w *writer) submit(ctx context.Context, timeout time.Duration, events ...*pendingEvent) error {
	if !w.enqueue(events) {
		return errClosed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	var first error
	for _, e := range events {
		if err := w.wait(ctx, e); first == nil {
			first = err
		}
	}
	return first
}

func (w *writer) wait(ctx context.Context, e *pendingEvent) error {
	select {
	case err := <-e.done:
		return err
	case <-ctx.Done():
	case <-w.stopped:
	}
	return w.abandon(e)
}

func (w *writer) enqueue(events []*pendingEvent) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	for _, e := range events {
		e.done = make(chan error, 1)
	}
	w.queue = append(w.queue, events...)
	w.changed.Signal()
	return true
}

// abandon stops the wait for an event. It returns the outcome if there is one, else the reason why
// the event is not written yet.
func (w *writer) abandon(e *pendingEvent) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.caller == answered {
		return <-e.done
	}
	e.caller = gaveUp
	w.queue = dropAbandoned(w.queue)
	switch {
	case w.lastErr != nil:
		return w.lastErr
	case w.closed:
		return errClosed
	default:
		return errTimedOut
	}
}

// writeError returns why events are not written: the last attempt failed, or the writer is closed.
func (w *writer) writeError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	return w.lastErr
}

// close refuses new events and blocks until the queue is empty. If ctx ends first, the rest is not
// written, and close returns an error if there are end records among them.
func (w *writer) close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.changed.Signal()
	w.mu.Unlock()
	select {
	case <-w.stopped:
		return nil
	case <-ctx.Done():
	}
	close(w.abort)
	<-w.stopped
	if w.unwritten > 0 {
		return fmt.Errorf("write %d end records: %w", w.unwritten, context.Cause(ctx))
	}
	return nil
}

// run commits what is queued, until the writer is closed and the queue is empty. While writes fail
// it tries again also without a queue, so that Ready finds out when they succeed.
func (w *writer) run(ctx context.Context) {
	defer close(w.stopped)
	for {
		batch, ok := w.next()
		if !ok {
			return
		}
		left := w.flushRecovered(ctx, batch)
		w.mu.Lock()
		w.queue = slices.Concat(dropAbandoned(left), w.queue)
		failing := w.lastErr != nil
		w.mu.Unlock()
		if failing && !w.pause() {
			w.logUnwritten()
			return
		}
	}
}

// next blocks until events are queued or writes fail, and takes a batch. It returns false if there
// will be none, because the writer is closed.
func (w *writer) next() (batch []*pendingEvent, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 && w.lastErr == nil && !w.closed {
		w.changed.Wait()
	}
	n := min(maxBatch, len(w.queue))
	batch = slices.Clone(w.queue[:n])
	w.queue = slices.Delete(w.queue, 0, n)
	return batch, n > 0 || !w.closed
}

// flush commits a batch and settles its events. It returns those to be tried again later. A batch
// that fails for good is written one by one, so that an event fails alone.
func (w *writer) flush(ctx context.Context, batch []*pendingEvent) (left []*pendingEvent) {
	seqWasCached := w.last > 0
	written, err := w.commit(ctx, batch)
	if err == nil {
		w.confirm(written)
		return nil
	}
	w.recordHealth(err)
	if isFull(err) {
		w.disk.release()
	}
	switch {
	case isRetryable(err):
		return batch
	case len(batch) == 1 && !seqWasCached:
		w.settle(batch[0], w.logPanic(err))
		return nil
	}
	for _, e := range batch {
		left = append(left, w.flush(ctx, []*pendingEvent{e})...)
	}
	return left
}

// confirm settles committed events once the files are in place: only then are they in the audit log
// that the next daemon opens. It returns early if the writer must stop.
func (w *writer) confirm(written []*pendingEvent) {
	for err := w.files.check(); err != nil; err = w.files.check() {
		w.recordHealth(err)
		if !w.pause() {
			return
		}
	}
	w.recordHealth(nil)
	for _, e := range written {
		w.settle(e, nil)
	}
	w.committed.send()
}

// dropAbandoned returns the events without the begin records that were given up. The caller holds
// the lock of the writer.
func dropAbandoned(events []*pendingEvent) []*pendingEvent {
	return slices.DeleteFunc(slices.Clone(events),
		func(e *pendingEvent) bool { return e.caller == gaveUp && e.compensate != nil })
}

// settle passes the outcome to the caller of submit. A begin record that is committed after its
// caller gave up is compensated.
func (w *writer) settle(e *pendingEvent, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := zap.String("invocation", e.event.invocation)
	switch {
	case e.caller == answered: // before a panic in the middle of the batch
	case e.caller == waits:
		e.caller = answered
		e.done <- err
	case err != nil:
		w.log.Error("event not recorded", id, zap.String("kind", string(e.event.kind)), zap.Error(err))
	case e.compensate != nil:
		w.log.Warn("begin record committed too late; nothing ran", id)
		end := e.compensate()
		end.caller = gaveUp
		w.queue = append(w.queue, end)
	case e.caller == gaveUp:
		w.log.Info("end record committed late", id)
	}
}

// recordHealth stores the error for callers that give up, and logs when writes begin to fail and
// when they succeed again.
func (w *writer) recordHealth(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !isRetryable(err) {
		err = nil
	}
	switch {
	case err != nil && w.lastErr == nil:
		w.failingSince = time.Now()
		w.log.Warn("audit log not writable", zap.Error(err))
	case err == nil && w.lastErr != nil:
		w.log.Info("audit log writable again", zap.Duration("after", time.Since(w.failingSince)))
	}
	w.lastErr = err
	if err == nil {
		w.reportDelay()
	}
}

// pause waits before the next attempt. It returns false if there must be none.
func (w *writer) pause() bool {
	timer := time.NewTimer(retryPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.abort:
		return false
	}
}

// logUnwritten logs the end records that are not written. The next start finds their calls without
// an end.
func (w *writer) logUnwritten() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.queue {
		if e.compensate == nil {
			w.unwritten++
			w.log.Error("end record not written before the daemon ended",
				zap.String("invocation", e.event.invocation))
		}
	}
}

// panicError is a panic of the writer's goroutine.
type panicError struct {
	value any
	stack []byte
}

// Error returns the value without the stack, which only the log shows.
func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// recoverTo turns a panic into an error. It must be deferred directly.
func recoverTo(err *error) {
	if v := recover(); v != nil {
		*err = &panicError{v, debug.Stack()}
	}
}

// logPanic logs a panic under an id and returns an error that names the id; it returns other errors
// unchanged (EX-18, AU-01).
func (w *writer) logPanic(err error) error {
	p, ok := errors.AsType[*panicError](err)
	if !ok {
		return err
	}
	id := rand.Text()
	w.log.Error("audit log writer panicked", zap.String("id", id),
		zap.String("panic", fmt.Sprint(p.value)), zap.ByteString("stack", p.stack))
	return dray.InternalError(dray.CodeAuditUnavailable, id, "writing the audit log")
}

// flushRecovered is flush that survives a panic outside the transaction. Events that were not
// settled by then fail.
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
	for _, e := range batch {
		w.settle(e, err)
	}
	return nil
}
