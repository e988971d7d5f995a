package python

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
)

// pool has the workers of one runtime. Its fields are guarded by Sessions.mu.
type pool struct {
	runtime Runtime
	limit   int
	used    int     // slots in use, until the process of the worker has ended
	ending  int     // those of workers that were killed
	queue   []*hold // calls that wait for a slot, in order
	waiting int     // calls that wait for a session or for a slot
	// residents are the sessions with a worker.
	residents map[*session]bool
}

// resident is a started worker of a session.
type resident struct {
	worker     Worker
	generation uint32
	ending     bool          // it was killed
	afterLoss  bool          // its next reply reports that state was lost
	gone       chan struct{} // closed when its process has ended and its slot is free
}

// hold is a call that has a session, or waits for it. Its fields are guarded by Sessions.mu.
type hold struct {
	session     *session
	sessionWait waiter
	slotWait    waiter
	starting    bool // it has a slot, and its worker has not started yet
	run         *Run // nil until the code runs
	// cancel ends the start of the call, or the function of Exclusive. cause is the reason.
	cancel context.CancelCauseFunc
	cause  *dray.Error
	timer  *time.Timer // bounds both waits together; nil until the first
}

func (h *hold) stopTimer() {
	if h.timer != nil {
		h.timer.Stop()
	}
}

// waiter waits for a session or for a slot.
type waiter struct {
	ready   chan struct{} // closed when it was granted or err is set; nil if it was not queued
	granted bool
	err     error
}

func (w *waiter) grant() {
	w.granted = true
	if w.ready != nil {
		close(w.ready)
	}
}

func (w *waiter) fail(err error) {
	w.err = err
	close(w.ready)
}

// acquireSession blocks until a call has a session.
func (s *Sessions) acquireSession(ctx context.Context, h *hold, key Key) error {
	s.mu.Lock()
	err := s.acquireSessionOrQueue(h, key)
	s.mu.Unlock()
	if err == nil && h.sessionWait.ready != nil {
		err = s.await(ctx, h, &h.sessionWait)
	}
	return err
}

func (s *Sessions) acquireSessionOrQueue(h *hold, key Key) error {
	sess, err := s.sessionOf(key)
	if err != nil {
		return err
	}
	h.session = sess
	if sess.holder == nil {
		s.assign(h)
		return nil
	}
	if err := s.admit(h, &h.sessionWait); err != nil {
		return err
	}
	h.sessionWait.ready = make(chan struct{})
	sess.queue = append(sess.queue, h)
	return nil
}

// admit counts a call that begins to wait. It fails with busy if the queue is full.
func (s *Sessions) admit(h *hold, w *waiter) error {
	p := h.session.pool
	if s.closed {
		return errShuttingDown()
	}
	if p.waiting >= s.opts.Queue {
		return s.busyError(h, w, fmt.Sprintf("%d calls wait already", p.waiting))
	}
	p.waiting++
	return nil
}

// sessionOf returns the session of a key, and creates it if there is none.
func (s *Sessions) sessionOf(key Key) (*session, error) {
	if s.closed {
		return nil, errShuttingDown()
	}
	if sess := s.sessions[key]; sess != nil {
		return sess, nil
	}
	p := s.pools[key.Runtime]
	if p == nil {
		return nil, dray.Errorf(dray.CodeInvalidInput, "there is no Python runtime %q", key.Runtime).
			WithHint("operation status lists the runtimes")
	}
	s.forgetOldest()
	sess := &session{key: key, pool: p}
	s.sessions[key] = sess
	return sess, nil
}

// assign gives a call its session.
func (s *Sessions) assign(h *hold) {
	h.session.stopTimer()
	h.session.holder = h
	h.sessionWait.grant()
}

// await blocks until w is granted, for at most Options.QueueWait. The deadline of the call is
// paused meanwhile. If await fails, the call has neither been granted anything nor is it queued.
func (s *Sessions) await(ctx context.Context, h *hold, w *waiter) error {
	defer executor.PauseDeadline(ctx)()
	if h.timer == nil {
		h.timer = time.NewTimer(s.opts.QueueWait)
	}
	var err error
	select {
	case <-w.ready:
		return w.err // nothing to give back
	case <-h.timer.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		err = s.busyError(h, w, fmt.Sprintf("the call waited for %v", s.opts.QueueWait))
	}
	s.withdraw(h, w)
	return err
}

// withdraw ends a wait. What was granted meanwhile goes to the next call.
func (s *Sessions) withdraw(h *hold, w *waiter) {
	sess := h.session
	isThis := func(other *hold) bool { return other == h }
	switch {
	case w.err != nil:
	case w.granted && w == &h.sessionWait:
		s.assignNext(sess)
	case w.granted:
		s.returnSlot(h)
	case w == &h.sessionWait:
		sess.queue = slices.DeleteFunc(sess.queue, isThis)
		sess.pool.waiting--
	default:
		sess.pool.queue = slices.DeleteFunc(sess.pool.queue, isThis)
		sess.pool.waiting--
	}
}

// release ends a call's hold of its session.
func (s *Sessions) release(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returnSlot(h)
	if h.session.holder == h {
		h.session.lastUsed = time.Now()
		s.assignNext(h.session)
	}
}

// assignNext assigns a session to the next call that waits for it, or leaves it idle.
func (s *Sessions) assignNext(sess *session) {
	sess.holder = nil
	if len(sess.queue) > 0 {
		next := sess.queue[0]
		sess.queue = slices.Delete(sess.queue, 0, 1)
		sess.pool.waiting--
		s.assign(next)
		return
	}
	if sess.isIdle() && s.opts.Idle > 0 && !s.closed {
		r := sess.resident
		sess.idleTimer = time.AfterFunc(s.opts.Idle, func() { s.expire(sess, r) })
	}
	s.dispatch(sess.pool)
	s.forgetIfUnused(sess)
}

func (sess *session) isIdle() bool {
	return sess.holder == nil && sess.resident != nil && !sess.resident.ending
}

// expire ends a worker that was idle for too long, unless a call came meanwhile.
func (s *Sessions) expire(sess *session, r *resident) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sess.isIdle() && sess.resident == r && time.Since(sess.lastUsed) >= s.opts.Idle {
		s.kill(sess)
	}
}

// acquireSlot blocks until a call may start a worker.
func (s *Sessions) acquireSlot(ctx context.Context, h *hold) error {
	s.mu.Lock()
	err := s.acquireSlotOrQueue(h)
	s.mu.Unlock()
	if err == nil && h.slotWait.ready != nil {
		err = s.await(ctx, h, &h.slotWait)
	}
	return err
}

func (s *Sessions) acquireSlotOrQueue(h *hold) error {
	p := h.session.pool
	h.slotWait = waiter{}
	if p.used < p.limit && len(p.queue) == 0 && !s.closed {
		p.used++
		h.starting = true
		return nil
	}
	if err := s.admit(h, &h.slotWait); err != nil {
		return err
	}
	h.slotWait.ready = make(chan struct{})
	p.queue = append(p.queue, h)
	s.dispatch(p)
	return nil
}

// dispatch grants the free slots. For the calls that still wait it ends idle workers, the least
// recently used first, but none that starts or runs.
func (s *Sessions) dispatch(p *pool) {
	for len(p.queue) > 0 && p.used < p.limit {
		h := p.queue[0]
		p.queue = slices.Delete(p.queue, 0, 1)
		p.waiting--
		p.used++
		h.starting = true
		h.slotWait.grant()
	}
	for p.ending < len(p.queue) {
		oldest := p.leastRecentlyUsed()
		if oldest == nil {
			return
		}
		s.kill(oldest)
	}
}

func (p *pool) leastRecentlyUsed() (oldest *session) {
	for sess := range p.residents {
		if sess.isIdle() && (oldest == nil || sess.lastUsed.Before(oldest.lastUsed)) {
			oldest = sess
		}
	}
	return oldest
}

// kill ends the worker of a session, if there is one. Its slot is free once the process has ended.
func (s *Sessions) kill(sess *session) {
	sess.stopTimer()
	r := sess.resident
	if r == nil || r.ending {
		return
	}
	r.ending = true
	sess.pool.ending++
	sess.lose()
	r.worker.Kill()
}

// watch waits for the end of a worker and frees its slot.
func (s *Sessions) watch(sess *session, r *resident) {
	<-r.worker.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(r.gone)
	sess.stopTimer()
	sess.lose()
	sess.resident = nil
	delete(sess.pool.residents, sess)
	if r.ending {
		sess.pool.ending--
	} else {
		sess.died = true
	}
	s.freeSlot(sess.pool)
}

func (s *Sessions) freeSlot(p *pool) {
	p.used--
	s.dispatch(p)
}

// returnSlot frees the slot of a call that has started no worker in it.
func (s *Sessions) returnSlot(h *hold) {
	if h.starting {
		h.starting = false
		s.freeSlot(h.session.pool)
	}
}

// maxSessions bounds the sessions that are remembered. Above it the least recently used are
// forgotten, together with losses that no reply has reported.
const maxSessions = 10_000

// forgetOldest forgets a session if there are too many.
func (s *Sessions) forgetOldest() {
	if len(s.sessions) < maxSessions {
		return
	}
	var oldest *session
	for _, sess := range s.sessions {
		unused := sess.holder == nil && sess.resident == nil
		if unused && (oldest == nil || sess.lastUsed.Before(oldest.lastUsed)) {
			oldest = sess
		}
	}
	if oldest != nil { // else all have workers or calls, which have limits of their own
		delete(s.sessions, oldest.key)
		s.journal.record(oldest.key, oldest.generation, false)
		s.journal.recordPrepared(oldest.key, Prepared{})
	}
}

// forgetIfUnused drops a session that never had a worker, for example because its call was refused.
func (s *Sessions) forgetIfUnused(sess *session) {
	if sess.generation == 0 && sess.prepared.isNew() && sess.holder == nil {
		delete(s.sessions, sess.key)
	}
}

// retryAfterError says when a caller may repeat a call.
type retryAfterError struct{ after time.Duration }

func (e retryAfterError) Error() string {
	return fmt.Sprintf("repeat the call in about %v", e.after)
}

// RetryAfter returns whole seconds, at least one.
func (e retryAfterError) RetryAfter() time.Duration { return e.after }

// busyError returns the error of a call that cannot wait, or not any longer.
func (s *Sessions) busyError(h *hold, w *waiter, why string) *dray.Error {
	p := h.session.pool
	retry := retryAfterError{max(time.Second, s.opts.QueueWait.Truncate(time.Second)/4)}
	what := fmt.Sprintf("all workers of the Python runtime %s are in use (%d of %d)",
		p.runtime.Name(), p.used, p.limit)
	hint := "retry in %v, or raise " + residentKey(p.runtime.Name()) +
		", python.queue or python.queue_wait"
	if w == &h.sessionWait {
		what = fmt.Sprintf("the Python session %q runs other calls", h.session.key.Name)
		hint = "retry in %v, use another session, or interrupt the call that runs"
	}
	return dray.Errorf(dray.CodeBusy, "%s: %s: %w", what, why, retry).WithHint(hint, retry.after)
}

// residentKey returns the configuration key of the number of workers of a runtime.
func residentKey(runtime string) string {
	if runtime == RuntimePyodide {
		return "python.pyodide.resident"
	}
	return "python.resident"
}

func errShuttingDown() *dray.Error {
	return dray.Errorf(dray.CodeShuttingDown, "%w: its Python sessions have ended",
		executor.ErrShutdown).WithHint("repeat the call when the daemon runs again")
}
