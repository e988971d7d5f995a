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
)

const (
	// maxBatch bounds a transaction, and so what one caller waits for the others.
	maxBatch = 256
	// retryPause is the time between two attempts on a database that does not take writes now.
	retryPause = 50 * time.Millisecond
)

var (
	errClosed   = errors.New("the trail is closed")
	errTimedOut = errors.New("the disk did not answer")
)

// pendingEvent is one event to append, with the change of the projection that belongs to it.
type pendingEvent struct {
	event         event  // without seq and at: these the writer gives
	projectionSQL string // an SQL statement that changes one row exactly; ?1 is the seq
	args          []any
	changes       *changedFiles // the files that the call changed; nil for none
	// compensate makes the job that ends a begin whose caller has gone when it is committed. An end
	// has none: it is wanted all the same.
	compensate func() *pendingEvent

	done chan error // gets the outcome, once
	// Both belong to writer.mu; at most one of them is ever true.
	settled   bool
	abandoned bool
}

// writer is the one goroutine that writes. Callers put jobs into its queue and wait; it takes all
// that wait into one transaction.
type writer struct {
	db      *sql.DB
	log     *zap.Logger
	wake    chan struct{} // holds one token if the queue changed
	abort   chan struct{} // closed when even what is queued is to be left
	stopped chan struct{} // closed when the goroutine is over

	unwritten int // how many ends were left, once stopped is closed

	mu           sync.Mutex
	queue        []*pendingEvent
	closed       bool
	lastErr      error     // why the last attempt failed
	failingSince time.Time // when the trouble began
}

// newWriter starts the goroutine; close ends it. A context that ends would break a write off in its
// middle.
func newWriter(ctx context.Context, db *sql.DB, log *zap.Logger) *writer {
	w := &writer{
		db: db, log: log,
		wake: make(chan struct{}, 1), abort: make(chan struct{}), stopped: make(chan struct{}),
	}
	go w.run(context.WithoutCancel(ctx))
	return w
}

// submit queues jobs, to be written in this order, and waits until they are committed or refused,
// or ctx ends. It gives the first error. A begin that is given up is not written any more, or is
// undone; an end that is given up stays in the queue.
func (w *writer) submit(ctx context.Context, jobs ...*pendingEvent) (err error) {
	if !w.enqueue(jobs) {
		return errClosed
	}
	for _, j := range jobs {
		if e := w.wait(ctx, j); err == nil {
			err = e
		}
	}
	return err
}

func (w *writer) wait(ctx context.Context, j *pendingEvent) error {
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
	case <-w.stopped:
	}
	return w.abandon(j)
}

func (w *writer) enqueue(jobs []*pendingEvent) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	for _, j := range jobs {
		j.done = make(chan error, 1)
	}
	w.queue = append(w.queue, jobs...)
	w.signal()
	return true
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // the token that lies there wakes it
	}
}

// abandon leaves a job to the writer and gives the reason, or gives the outcome if that came first.
func (w *writer) abandon(j *pendingEvent) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j.settled {
		return <-j.done
	}
	j.abandoned = true
	if j.compensate != nil {
		w.queue = slices.DeleteFunc(w.queue, func(other *pendingEvent) bool { return other == j })
	}
	switch {
	case w.lastErr != nil:
		return w.lastErr
	case w.closed:
		return errClosed
	default:
		return errTimedOut
	}
}

// close stops new jobs and waits until what is queued is committed; when ctx ends first, what
// remains is left, and that is an error.
func (w *writer) close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.signal()
	w.mu.Unlock()
	select {
	case <-w.stopped:
		return nil
	case <-ctx.Done():
	}
	close(w.abort)
	<-w.stopped
	if w.unwritten > 0 {
		return fmt.Errorf("ends that could not be recorded: %d: %w", w.unwritten, context.Cause(ctx))
	}
	return nil
}

func (w *writer) run(ctx context.Context) {
	defer close(w.stopped)
	var batch []*pendingEvent
	for {
		batch = w.next(batch)
		if len(batch) == 0 {
			return
		}
		if batch = w.flushRecovered(ctx, batch); len(batch) > 0 && !w.pause() {
			w.logUnwritten(batch)
			return
		}
	}
}

// next adds what is queued to the jobs left over from the last attempt, and waits if there is
// nothing at all. It gives none when the writer was closed and all is done.
func (w *writer) next(batch []*pendingEvent) []*pendingEvent {
	for {
		w.mu.Lock()
		n := min(maxBatch-len(batch), len(w.queue))
		batch = append(batch, w.queue[:n]...)
		w.queue = slices.Delete(w.queue, 0, n)
		over := w.closed
		w.mu.Unlock()
		if len(batch) > 0 || over {
			return batch
		}
		<-w.wake
	}
}

// flush commits a batch and tells those who wait. What cannot be written now is given back. What
// can never be written fails alone: its batch is tried again one by one, so that no call suffers
// from another's.
func (w *writer) flush(ctx context.Context, batch []*pendingEvent) (left []*pendingEvent) {
	written, err := commit(ctx, w.db, batch, w.dropAbandoned)
	w.recordHealth(err)
	switch {
	case err == nil:
		for _, j := range written {
			w.settle(j, nil)
		}
		return nil
	case isRetryable(err):
		return batch
	case len(batch) == 1:
		w.settle(batch[0], w.logPanic(err))
		return nil
	}
	for _, j := range batch {
		left = append(left, w.flush(ctx, []*pendingEvent{j})...)
	}
	return left
}

// dropAbandoned gives the jobs without the begins that were given up.
func (w *writer) dropAbandoned(batch []*pendingEvent) []*pendingEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(batch),
		func(j *pendingEvent) bool { return j.abandoned && j.compensate != nil })
}

// settle tells the outcome to whoever waits. If nobody does, a begin that was committed is undone.
func (w *writer) settle(j *pendingEvent, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := zap.String("invocation", j.event.invocation)
	switch {
	case j.settled: // before a panic cut the batch short
	case !j.abandoned:
		j.settled = true
		j.done <- err
	case err != nil:
		w.log.Error("an event could not be recorded", id, zap.String("kind", string(j.event.kind)),
			zap.Error(err))
	case j.compensate != nil:
		w.log.Warn("a begin came too late and is undone; nothing ran", id)
		undo := j.compensate()
		undo.abandoned = true // nobody waits for it
		w.queue = append(w.queue, undo)
	default:
		w.log.Info("an end was recorded late", id)
	}
}

// recordHealth keeps the trouble for those who give up, and logs when it begins and when it is
// over.
func (w *writer) recordHealth(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case isRetryable(err) && w.lastErr == nil:
		w.failingSince = time.Now()
		w.log.Warn("the trail cannot be written now", zap.Error(err))
	case !isRetryable(err) && w.lastErr != nil:
		w.log.Info("the trail can be written again", zap.Duration("after", time.Since(w.failingSince)))
	}
	w.lastErr = nil
	if isRetryable(err) {
		w.lastErr = err
	}
}

// pause waits before the next attempt; it gives false if there shall be none.
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

// logUnwritten logs what the writer was told to leave. These calls are found without an end at the
// next start.
func (w *writer) logUnwritten(batch []*pendingEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range append(batch, w.queue...) {
		if j.compensate == nil {
			w.unwritten++
			w.log.Error("an end could not be recorded before the daemon ended",
				zap.String("invocation", j.event.invocation))
		}
	}
}

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

// logPanic logs a panic under an id and gives an error that names it; others stay as they are. The
// job whose writing panicked is not in the trail: its caller is refused, or gets no result (EX-18,
// AU-01).
func (w *writer) logPanic(err error) error {
	p, ok := errors.AsType[*panicError](err)
	if !ok {
		return err
	}
	id := rand.Text()
	w.log.Error("the trail's writer panicked", zap.String("id", id),
		zap.String("panic", fmt.Sprint(p.value)), zap.ByteString("stack", p.stack))
	return dray.InternalError(dray.CodeAuditUnavailable, id, "writing the trail")
}

// flushRecovered is flush, and outlives a panic around the commit: who waits for a job that was not
// settled by then gets an error, and the writer goes on with the next.
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
