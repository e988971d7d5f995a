package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"
)

// SupervisorConfig says how a supervisor is started: a program that calls Supervise(3). The daemon
// gives its embedded agent, the agent itself.
type SupervisorConfig struct {
	Path string
	Args []string
	Env  []string
	// KeepOpen is what must stay open while supervisors are started, such as the file that Path leads
	// through; nil for nothing.
	KeepOpen io.Closer
	// Subreaper says that this whole program is there for the pool and starts nothing besides. It
	// becomes a child subreaper then, and what a supervisor that was killed leaves behind comes to it
	// and is ended. A program with other children must not say so.
	Subreaper bool
	// Cgroup gives a group for one supervisor; nil, here or as what it gives, is none. The pool closes
	// the group and may give it to the next supervisor when it is empty.
	Cgroup func() *Cgroup
}

// Pool starts processes, each under a supervisor of its own, and keeps supervisors warm between
// calls.
type Pool struct {
	config SupervisorConfig

	mu       sync.Mutex
	closed   bool
	idle     []*supervisor // the one that is idle for longest is the first
	cooling  *time.Timer   // while more are idle than are kept for good
	groups   []*Cgroup     // empty ones, of supervisors that are gone
	all      map[*supervisor]struct{}
	detached map[*supervisor]struct{}
	pids     map[int]struct{} // of supervisors that were not waited for yet
	calls    int              // that run
	starts   int              // ever
	// held while one is born, so that a child without a name is no supervisor
	spawnMu sync.RWMutex
	wg      sync.WaitGroup
}

// NewPool makes an empty pool; Warm fills it ahead of the first call.
func NewPool(launch SupervisorConfig) *Pool {
	return &Pool{
		config: launch, all: map[*supervisor]struct{}{}, detached: map[*supervisor]struct{}{},
		pids: map[int]struct{}{},
	}
}

// Start runs a process and returns once its program was accepted. It fails with a *StartError,
// ErrClosed, or the context's error; then nothing runs. The context bounds the start alone.
func (p *Pool) Start(ctx context.Context, spec Spec) (*Process, error) {
	ends, streams, err := newStreams(spec)
	if err != nil {
		return nil, err
	}
	return p.startCall(ctx, spec, ends, streams)
}

// StartWith is Start with streams that the caller made: it takes the tool's ends, gives them to the
// tool and its user, and closes them, whatever comes of it. The Process has no streams then, and
// Spec.Terminal must be nil.
func (p *Pool) StartWith(ctx context.Context, spec Spec, ends ChildFiles) (*Process, error) {
	if spec.Terminal != nil {
		ends.Close()
		return nil, &StartError{Step: StepTerminal, Err: errors.New("its streams were made already")}
	}
	return p.startCall(ctx, spec, ends, streams{})
}

// startCall starts a process with the ends of its streams, which it closes.
func (p *Pool) startCall(ctx context.Context, spec Spec, ends ChildFiles,
	streams streams,
) (*Process, error) {
	defer ends.Close()
	proc, err := p.run(ctx, spec, ends, streams)
	if err != nil {
		streams.close()
	}
	return proc, err
}

func (p *Pool) run(ctx context.Context, spec Spec, ends ChildFiles, streams streams) (*Process,
	error,
) {
	if !p.enter() {
		return nil, ErrClosed
	}
	defer p.wg.Done()
	body, err := spec.encode()
	if err != nil {
		return nil, err
	}
	if err := ends.prepareForChild(spec.User); err != nil {
		return nil, &StartError{Step: StepFork, Err: err}
	}
	alone := p.count()
	s, err := p.send(body, ends)
	if err != nil {
		alone()
		return nil, err
	}
	pid, err := s.accepted(ctx)
	if err != nil {
		alone()
		p.recycleAfterFailure(s, err)
		return nil, err
	}
	return p.watchExit(s, pid, streams, alone), nil
}

// count counts a call that begins. The function that it gives counts its end, and says whether
// nothing else of the pool's ran beside it.
func (p *Pool) count() (alone func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.calls == 0 && len(p.detached) == 0
	p.calls++
	p.starts++
	mine := p.starts
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls--
		return first && p.starts == mine
	}
}

// enter counts a start, so that Close waits for it.
func (p *Pool) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.wg.Add(1)
	}
	return !p.closed
}

// send hands the start to a supervisor. One that died while it was idle is passed over.
func (p *Pool) send(body []byte, ends ChildFiles) (*supervisor, error) {
	files := ends.files()
	for {
		s, fresh, err := p.take()
		if err != nil {
			return nil, err
		}
		if err = s.send(msgStart, body, files[:]...); err == nil {
			return s, nil
		}
		p.release(s)
		if fresh {
			return nil, &StartError{
				Step: StepFork,
				Err:  fmt.Errorf("a new supervisor did not take the call: %w", err),
			}
		}
	}
}

// recycleAfterFailure decides what becomes of a supervisor whose start failed: it is as good as
// before if it said so itself.
func (p *Pool) recycleAfterFailure(s *supervisor, err error) {
	var start *StartError
	if errors.As(err, &start) && s.alive {
		p.put(s)
		return
	}
	p.release(s)
}

// release lets a supervisor go: it kills what it has and ends, or is killed if it does not. The
// wait for it is the pool's, not the caller's.
func (p *Pool) release(s *supervisor) {
	if p.forget(s) {
		p.wg.Go(func() { p.waitSupervisor(s, 2*killTimeout) })
	}
}

// forget forgets a supervisor and hangs up. It reports whether the caller was the first to.
func (p *Pool) forget(s *supervisor) bool {
	p.mu.Lock()
	_, ours := p.all[s]
	delete(p.all, s)
	p.mu.Unlock()
	if ours {
		_ = s.conn.Close()
		_ = s.proc.Signal(syscall.SIGCONT) // one that was stopped has to see it
	}
	return ours
}

// waitSupervisor waits for the end of a supervisor, which may take so long, and sees to what it
// left. It says who survived, if that can be known.
func (p *Pool) waitSupervisor(s *supervisor, patience time.Duration) (survivors []int,
	proven bool,
) {
	kill := time.AfterFunc(patience, func() { _ = s.proc.Kill() })
	state, err := s.proc.Wait()
	kill.Stop()
	p.mu.Lock()
	delete(p.pids, s.proc.Pid)
	p.mu.Unlock()
	clean := err == nil && state.Success()
	survivors, proven = p.emptyGroup(s.group, clean)
	if clean || proven && len(survivors) == 0 && !p.config.Subreaper {
		return survivors, proven
	}
	if swept, ok := p.reapOrphans(); ok {
		return swept, ok
	}
	return survivors, proven
}

// killSupervisor ends a supervisor that is lost and what it left behind, and says who survived, if
// that can be known.
func (p *Pool) killSupervisor(s *supervisor) (survivors []int, proven bool) {
	if p.forget(s) {
		return p.waitSupervisor(s, 0)
	}
	return p.reapOrphans()
}

// Close ends every call at once, with all that descends from it, and waits until the supervisors
// are gone.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	open := make([]*supervisor, 0, len(p.all))
	for s := range p.all {
		open = append(open, s)
	}
	p.idle = nil
	if p.cooling != nil {
		p.cooling.Stop()
	}
	for s := range p.detached {
		_ = s.conn.Close()
	}
	p.mu.Unlock()
	for _, s := range open {
		p.release(s)
	}
	p.wg.Wait()
	p.reapOrphans()
	for _, g := range p.groups {
		g.Close()
	}
	p.groups = nil
	if p.config.KeepOpen != nil {
		_ = p.config.KeepOpen.Close()
	}
}

func (p *Pool) spawn() (*supervisor, error) {
	s, err := p.forkSupervisor()
	if err != nil {
		return nil, &StartError{Step: StepFork, Err: err}
	}
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		p.release(s)
		return nil, ErrClosed
	}
	return s, nil
}

// forkSupervisor makes a supervisor that is known from its first moment.
func (p *Pool) forkSupervisor() (*supervisor, error) {
	p.spawnMu.RLock()
	defer p.spawnMu.RUnlock()
	if p.config.Subreaper {
		if err := becomeSubreaper(); err != nil {
			return nil, err
		}
	}
	s, err := launchSupervisor(p.config, p.acquireGroup())
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[s], p.pids[s.proc.Pid] = struct{}{}, struct{}{}
	return s, nil
}

// maxIdleSupervisors is how many supervisors are kept warm for good. Starting one and ending it
// costs more than a short tool; keeping one costs memory and a few threads.
const maxIdleSupervisors = 16

// maxTemporaryIdle is how many are kept for a while after many calls ran at once, and linger for
// how long: more calls come when many came.
const (
	maxTemporaryIdle = 256
	idleTimeout      = 5 * time.Second
)

// Prestart starts supervisors until n are idle.
func (p *Pool) Prestart(n int) error {
	for range n {
		s, err := p.spawn()
		if err != nil {
			return err
		}
		p.put(s)
	}
	return nil
}

func (p *Pool) take() (s *supervisor, fresh bool, err error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, false, ErrClosed
	}
	if n := len(p.idle); n > 0 {
		s = p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return s, false, nil
	}
	p.mu.Unlock()
	s, err = p.spawn()
	return s, true, err
}

func (p *Pool) put(s *supervisor) {
	if !p.putIdle(s) {
		p.release(s)
	}
}

func (p *Pool) putIdle(s *supervisor) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxTemporaryIdle {
		return false
	}
	s.since = time.Now()
	p.idle = append(p.idle, s)
	if len(p.idle) > maxIdleSupervisors && p.cooling == nil {
		p.cooling = time.AfterFunc(idleTimeout, p.evictIdle)
	}
	return true
}

// evictIdle lets those go that nobody needed for long.
func (p *Pool) evictIdle() {
	if !p.enter() {
		return
	}
	defer p.wg.Done()
	for _, s := range p.takeExpired(time.Now()) {
		p.release(s)
	}
}

// takeExpired takes out those above maxIdleSupervisors that were idle for too long by now, and sees
// to it that cool looks at the others.
func (p *Pool) takeExpired(now time.Time) []*supervisor {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.idle)-maxIdleSupervisors && now.Sub(p.idle[n].since) >= idleTimeout {
		n++
	}
	gone := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	p.cooling = nil
	if len(p.idle) > maxIdleSupervisors {
		p.cooling = time.AfterFunc(p.idle[0].since.Add(idleTimeout).Sub(now), p.evictIdle)
	}
	return gone
}
