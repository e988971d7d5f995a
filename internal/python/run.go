package python

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
)

// CallSpec is a call of a session.
type CallSpec struct {
	Request Request
	// Files are where a runtime that stages files finds them.
	Files Workspace
	// Executable is the interpreter of a worker to start, unless operation prepare has chosen one for
	// the session. Empty is python3 of the environment.
	Executable string
	// Permissions are fixed by the first call of a session; see [Permissions.Narrow]. Nil accepts the
	// session's own.
	Permissions *Permissions
}

// maxGrace bounds the time between an interrupt and the kill, so that a call ends soon after its
// deadline whatever its code does (PY-06).
const maxGrace = 1500 * time.Millisecond

// stopper is implemented by an Execution whose code can start processes.
type stopper interface {
	// Stop interrupts the code as Interrupt does. When the code ends, the processes that it started
	// are killed; if that fails, the worker is ended. Stop does not block.
	Stop()
}

// SessionInfo describes the worker that a call ran in.
type SessionInfo struct {
	Key
	Generation uint32
	// Restarted reports that the last run of the session was in another worker: that one was evicted,
	// killed, idle for too long, reset or replaced by operation prepare, or it crashed, or the daemon
	// was restarted.
	Restarted bool
	// DiscardedState reports that globals are lost and that no earlier reply has reported it, neither
	// of a run nor of Reset or Prepare.
	DiscardedState bool
	Capabilities   Capabilities
}

// Run is code that runs in a session. It implements [dray.Process].
type Run struct {
	sessions  *Sessions
	hold      *hold
	resident  *resident
	execution Execution
	info      SessionInfo

	// guarded by Sessions.mu
	stopped bool
	ended   bool        // the request
	timer   *time.Timer // from the interrupt to the kill; nil until Stop

	done  chan struct{} // closed when the fields below are set
	reply Reply
	exit  dray.Exit
	err   error
	// crashed says that what runs in the worker caused err, and not its environment.
	crashed bool
}

// Start runs code in a session. It blocks until no other call has the session, the session has a
// worker, and the worker has accepted the request. The waits for the session and for a slot
// together are bounded by Options.QueueWait, and do not count for the deadline of ctx.
//
// It fails with busy if the queue is full or the wait was too long, with conflict if the session
// was reset meanwhile or has other permissions, with denied if the call asks for more permissions
// than Options.Permissions, with shutting_down after Close, with the cause of ctx, and with the
// errors of [Runtime].Start. If it fails, no code has run.
//
// The caller must read both outputs to their ends and call Release.
func (s *Sessions) Start(ctx context.Context, key Key, env dray.Environment, spec CallSpec,
) (*Run, error) {
	if err := s.checkPermissions(key, spec); err != nil {
		return nil, err
	}
	var run *Run
	err := s.withSession(ctx, key, func(ctx context.Context, h *hold) (err error) {
		run, err = s.startRun(ctx, h, env, spec)
		return err
	})
	return run, err
}

// checkPermissions fails if a call asks for more permissions than it may have.
func (s *Sessions) checkPermissions(key Key, spec CallSpec) error {
	p := s.pools[key.Runtime]
	if p == nil {
		return nil // acquireSession refuses it
	}
	_, err := s.permissions(p.runtime, spec)
	return err
}

// permissions returns those of a session that a call creates, nil for those of its environment.
func (s *Sessions) permissions(r Runtime, spec CallSpec) (*Permissions, error) {
	if !r.Capabilities().Permissions {
		return spec.Permissions, nil // the runtime refuses any
	}
	return s.opts.Permissions.Narrow(spec.Permissions)
}

// withSession calls start when a call has the session. If start fails the session is released.
func (s *Sessions) withSession(ctx context.Context, key Key,
	start func(context.Context, *hold) error,
) error {
	if !s.enter() {
		return errShuttingDown()
	}
	defer s.group.Done()
	h := &hold{}
	ctx, h.cancel = context.WithCancelCause(ctx)
	defer h.cancel(nil)
	defer h.stopTimer()
	if err := s.acquireSession(ctx, h, key); err != nil {
		return err
	}
	if err := start(ctx, h); err != nil {
		s.release(h)
		return err
	}
	return nil
}

// enter makes Close wait for a call that starts. It reports false after Close.
func (s *Sessions) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.group.Add(1)
	}
	return !s.closed
}

// startRun sends the request to the worker of the session. If an idle worker has ended meanwhile,
// another one is started: nothing of the request has run.
func (s *Sessions) startRun(ctx context.Context, h *hold, env dray.Environment, spec CallSpec,
) (*Run, error) {
	for attempt := 1; ; attempt++ {
		r, err := s.worker(ctx, h, env, spec)
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		e, err := r.worker.Execute(ctx, spec.Request, spec.Files)
		if err == nil {
			return s.begin(h, r, e), nil
		}
		if !isLost(err) {
			return nil, err // the worker refused the request
		}
		s.killResident(h, r)
		select {
		case <-r.gone:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if attempt == 2 {
			return nil, err
		}
	}
}

// isLost reports whether a worker has ended or violated the protocol.
func isLost(err error) bool {
	return errors.Is(err, errWorkerEnded) || dray.CodeOf(err) == dray.CodeAgentLost
}

// worker returns the worker of a session, and starts it if there is none.
func (s *Sessions) worker(ctx context.Context, h *hold, env dray.Environment, spec CallSpec,
) (*resident, error) {
	r, gone, err := s.usableWorker(h, spec)
	if err != nil || r != nil {
		return r, err
	}
	select {
	case <-gone:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := s.acquireSlot(ctx, h); err != nil {
		return nil, err
	}
	return s.startWorker(ctx, h, env, spec)
}

// usableWorker returns the worker of a session, or nil and a channel that is closed when the last
// one has ended. It fails if the call wants permissions other than those of the session.
func (s *Sessions) usableWorker(h *hold, spec CallSpec) (*resident, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := h.session
	if sess.created && !sess.permissions.grants(spec.Permissions) {
		return nil, nil, dray.Errorf(dray.CodeConflict,
			"the permissions of the Python session %q are fixed, and the call has others", sess.key.Name).
			WithHint("omit permissions, use another session, or reset this one")
	}
	if r := sess.resident; r != nil && !r.ending {
		return r, nil, nil
	}
	return nil, sess.gone(), nil
}

// startWorker starts a worker in the slot that the call has.
func (s *Sessions) startWorker(ctx context.Context, h *hold, env dray.Environment, spec CallSpec,
) (*resident, error) {
	ws := s.workerSpec(h, env, spec)
	w, err := h.session.pool.runtime.Start(ctx, ws)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.returnSlot(h)
		if h.cause != nil {
			return nil, h.cause
		}
		return nil, h.session.prepared.explain(err)
	}
	sess := h.session
	r := &resident{
		worker: w, generation: ws.Generation, gone: make(chan struct{}), afterLoss: sess.lost > 0,
	}
	s.group.Go(func() { s.watch(sess, r) })
	sess.pool.residents[sess] = true
	h.starting, sess.resident, sess.died = false, r, false
	sess.created, sess.permissions = true, ws.Permissions
	if h.cause != nil { // reset or closed meanwhile
		s.kill(sess)
		return nil, h.cause
	}
	return r, nil
}

func (s *Sessions) workerSpec(h *hold, env dray.Environment, spec CallSpec) WorkerSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := h.session
	sess.generation++
	ws := WorkerSpec{
		Environment: env, Executable: sess.prepared.Executable, Generation: sess.generation,
		Memory: s.opts.Memory,
	}
	if ws.Executable == "" {
		ws.Executable = spec.Executable
	}
	if ws.Permissions = sess.permissions; !sess.created {
		ws.Permissions, _ = s.permissions(sess.pool.runtime, spec) // Start has checked them
	}
	return ws
}

// begin makes a Run of an execution.
func (s *Sessions) begin(h *hold, r *resident, e Execution) *Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := h.session
	run := &Run{
		sessions: s, hold: h, resident: r, execution: e, done: make(chan struct{}),
		info: SessionInfo{
			Key: sess.key, Generation: r.generation, DiscardedState: r.afterLoss,
			Restarted:    sess.lastRun != 0 && sess.lastRun != r.generation,
			Capabilities: sess.pool.runtime.Capabilities(),
		},
	}
	h.run, sess.lastRun = run, r.generation
	if !sess.hasState {
		s.journal.record(sess.key, r.generation, true)
		sess.hasState = true
	}
	if sess.resident != r || r.ending {
		sess.lose() // it has ended already
	}
	s.group.Go(run.supervise)
	return run
}

// killResident kills a worker that the call has.
func (s *Sessions) killResident(h *hold, r *resident) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.session.resident == r {
		s.kill(h.session)
	}
}

// supervise waits for the end of the request and decides how it ended.
func (r *Run) supervise() {
	<-r.execution.Done()
	reply, err := r.execution.Reply()
	if err != nil {
		r.sessions.killResident(r.hold, r.resident)
		<-r.resident.gone
	}
	r.reply = reply
	r.exit, r.err = r.finish(err)
	if _, ok := r.execution.(Committer); !ok || err != nil {
		r.sessions.release(r.hold)
	}
	close(r.done)
}

// finish records the end in the session.
func (r *Run) finish(err error) (dray.Exit, error) {
	s, sess := r.sessions, r.hold.session
	s.mu.Lock()
	defer s.mu.Unlock()
	r.ended, r.hold.run = true, nil
	if r.timer != nil {
		r.timer.Stop()
	}
	if err != nil {
		sess.died = r.hold.cause == nil
		return r.lostWorker(err)
	}
	sess.usage = r.reply.Usage
	r.resident.afterLoss = false // the reply reports it
	if sess.lost < r.resident.generation {
		sess.lost = 0
	}
	interrupted := r.stopped && !r.info.Capabilities.InterruptKeepsState
	tooLarge := s.opts.RetireAbove > 0 && sess.usage.MemoryBytes > s.opts.RetireAbove
	if interrupted || tooLarge {
		s.kill(sess)
	}
	return dray.Exit{Code: r.reply.Code, Survivors: dray.Survivors{Proven: true}}, nil
}

// lostWorker returns the exit and the error of a request that ended without a reply.
func (r *Run) lostWorker(err error) (dray.Exit, error) {
	exit, exitErr := r.resident.worker.Exit()
	switch {
	case r.hold.cause != nil:
		return exit, r.hold.cause
	case r.stopped:
		return exit, exitErr // its caller knows why
	case !errors.Is(err, errWorkerEnded):
		r.crashed = true
		return exit, err
	case exitErr != nil:
		return exit, exitErr
	case exit.Signal != 0:
		return exit, nil
	default:
		r.crashed = true
		return exit, dray.Errorf(dray.CodeAgentLost,
			"the Python interpreter exited with %d while it ran code", exit.Code).
			WithHint("use sys.exit, not os._exit, to keep a session; the next call starts a new one")
	}
}

// Stdin returns the stdin of the code.
func (r *Run) Stdin() io.WriteCloser { return r.execution.Stdin() }

// Output returns what the code writes to a stream. Both must be read to their ends.
func (r *Run) Output(stream dray.Stream) io.Reader { return r.execution.Output(stream) }

// Signal interrupts the code on SIGINT, and kills the worker on SIGKILL and SIGTERM. Other signals
// fail with unsupported.
func (r *Run) Signal(sig syscall.Signal) error {
	switch sig {
	case syscall.SIGINT:
		r.execution.Interrupt()
	case syscall.SIGTERM, syscall.SIGKILL:
		r.Stop(0)
	default:
		return dray.Errorf(dray.CodeUnsupported, "a Python session takes no signal %d", int(sig)).
			WithHint("send INT to interrupt the code, or KILL to end its session")
	}
	return nil
}

// Resize fails with dray.ErrNoTerminal.
func (r *Run) Resize(dray.TerminalSize) error { return dray.ErrNoTerminal }

// Stop interrupts the code, and kills the worker with all its processes after grace or 1.5 s,
// whichever is less. If the code ends before that, the processes that it started are killed, and
// those of earlier calls stay. Stop does not block.
func (r *Run) Stop(grace time.Duration) {
	r.sessions.mu.Lock()
	defer r.sessions.mu.Unlock()
	if r.ended {
		return
	}
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
	if grace <= 0 {
		r.killLocked()
		return
	}
	if e, ok := r.execution.(stopper); ok {
		e.Stop()
	} else {
		r.execution.Interrupt()
	}
	r.timer = time.AfterFunc(min(grace, maxGrace), r.kill)
}

func (r *Run) kill() {
	r.sessions.mu.Lock()
	defer r.sessions.mu.Unlock()
	r.killLocked()
}

// killLocked kills the worker unless the request has ended: the worker may run the next one.
func (r *Run) killLocked() {
	if sess := r.hold.session; !r.ended && sess.resident == r.resident {
		r.sessions.kill(sess)
	}
}

// Wait blocks until the request or the worker has ended. Exit.Code is the code of the reply.
// Without a reply the exit is that of the worker, and Wait fails with agent_lost if the worker
// exited by itself or violated the protocol, with conflict if the session was reset, and with
// shutting_down after Close.
func (r *Run) Wait() (dray.Exit, error) {
	<-r.done
	return r.exit, r.err
}

// Crashed reports, after Wait, whether the error of Wait was caused by what runs in the worker and
// not by its environment.
func (r *Run) Crashed() bool {
	<-r.done
	return r.crashed
}

// Reply returns the checked reply, and reports whether there is one. It must be called after Wait.
func (r *Run) Reply() (Reply, bool) {
	_, err := r.execution.Reply()
	return r.reply, err == nil
}

// Fetches returns the first 100 requests that the code sent to hosts, and how many more there were.
func (r *Run) Fetches() (fetches []dray.Fetch, omitted int) {
	if e, ok := r.execution.(interface{ Fetches() ([]dray.Fetch, int) }); ok {
		return e.Fetches()
	}
	return nil, 0
}

// Warnings returns what of its directory the code cannot see.
func (r *Run) Warnings() []string {
	if e, ok := r.execution.(interface{ Warnings() []string }); ok {
		return e.Warnings()
	}
	return nil
}

// Session describes the worker that the call runs in.
func (r *Run) Session() SessionInfo { return r.info }

// Commit changes the files as the code did, if the runtime is transactional, and returns what
// changed. It must be called at most once, after Wait, and only if the outcome of the call is no
// timeout, cancel or limit (PY-18).
func (r *Run) Commit(ctx context.Context) (FileChanges, error) {
	if c, ok := r.execution.(Committer); ok && r.err == nil {
		return c.Commit(ctx)
	}
	return FileChanges{}, nil
}

// Release blocks until the request has ended, drops changes to files that were not committed, and
// lets the next call have the session. It may be called more than once, and with a nil Run.
func (r *Run) Release() {
	if r == nil {
		return
	}
	<-r.done
	if c, ok := r.execution.(Committer); ok {
		c.Discard()
	}
	r.sessions.release(r.hold)
}
