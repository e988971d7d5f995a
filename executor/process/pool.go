package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"
)

// Launch says how a supervisor is started: a program that calls Supervise(3). The daemon gives its embedded agent, the agent itself.
type Launch struct {
	Path string
	Args []string
	Env  []string
	// Keep is what must stay open while supervisors are started, such as the file that Path leads through; nil for nothing.
	Keep io.Closer
	// Alone says that this whole program is there for the pool and starts nothing besides. It becomes a child subreaper then, and what
	// a supervisor that was killed leaves behind comes to it and is ended. A program with other children must not say so.
	Alone bool
	// Cgroup gives a group for one supervisor; nil, here or as what it gives, is none. The pool closes the group and may give it to the
	// next supervisor when it is empty.
	Cgroup func() *Cgroup
}

// Pool starts processes, each under a supervisor of its own, and keeps supervisors warm between calls.
type Pool struct {
	launch Launch

	mu      sync.Mutex
	closed  bool
	idle    []*supervisor // the one that is idle for longest is the first
	cooling *time.Timer   // while more are idle than are kept for good
	groups  []*Cgroup     // empty ones, of supervisors that are gone
	all     map[*supervisor]struct{}
	keepers map[*supervisor]struct{}
	pids    map[int]struct{} // of supervisors that were not waited for yet
	calls   int              // that run
	starts  int              // ever
	births  sync.RWMutex     // held while one is born, so that a child without a name is no supervisor
	wg      sync.WaitGroup
}

// NewPool makes an empty pool; Warm fills it ahead of the first call.
func NewPool(launch Launch) *Pool {
	return &Pool{launch: launch, all: map[*supervisor]struct{}{}, keepers: map[*supervisor]struct{}{}, pids: map[int]struct{}{}}
}

// Start runs a process and returns once its program was accepted. It fails with a *StartError, ErrClosed, or the context's error; then
// nothing runs. The context bounds the start alone.
func (p *Pool) Start(ctx context.Context, spec Spec) (*Process, error) {
	ends, streams, err := newStreams(spec)
	if err != nil {
		return nil, err
	}
	return p.begin(ctx, spec, ends, streams)
}

// StartWith is Start with streams that the caller made: it takes the tool's ends, gives them to the tool and its user, and closes them,
// whatever comes of it. The Process has no streams then, and Spec.Terminal must be nil.
func (p *Pool) StartWith(ctx context.Context, spec Spec, ends Ends) (*Process, error) {
	if spec.Terminal != nil {
		ends.Close()
		return nil, &StartError{Step: StepTerminal, Err: errors.New("its streams were made already")}
	}
	return p.begin(ctx, spec, ends, streams{})
}

// begin starts a process with the ends of its streams, which it closes.
func (p *Pool) begin(ctx context.Context, spec Spec, ends Ends, streams streams) (*Process, error) {
	defer ends.Close()
	proc, err := p.run(ctx, spec, ends, streams)
	if err != nil {
		streams.close()
	}
	return proc, err
}

func (p *Pool) run(ctx context.Context, spec Spec, ends Ends, streams streams) (*Process, error) {
	if !p.enter() {
		return nil, ErrClosed
	}
	defer p.wg.Done()
	body, err := spec.encode()
	if err != nil {
		return nil, err
	}
	if err := ends.give(spec.User); err != nil {
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
		p.settle(s, err)
		return nil, err
	}
	return p.follow(s, pid, streams, alone), nil
}

// count counts a call that begins. The function that it gives counts its end, and says whether nothing else of the pool's ran beside it.
func (p *Pool) count() (alone func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.calls == 0 && len(p.keepers) == 0
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
func (p *Pool) send(body []byte, ends Ends) (*supervisor, error) {
	files := ends.files()
	for {
		s, fresh, err := p.take()
		if err != nil {
			return nil, err
		}
		if err = s.send(msgStart, body, files[:]...); err == nil {
			return s, nil
		}
		p.discard(s)
		if fresh {
			return nil, &StartError{Step: StepFork, Err: fmt.Errorf("a new supervisor did not take the call: %w", err)}
		}
	}
}

// settle decides what becomes of a supervisor whose start failed: it is as good as before if it said so itself.
func (p *Pool) settle(s *supervisor, err error) {
	var start *StartError
	if errors.As(err, &start) && s.alive {
		p.put(s)
		return
	}
	p.discard(s)
}

// discard lets a supervisor go: it kills what it has and ends, or is killed if it does not. The wait for it is the pool's, not the caller's.
func (p *Pool) discard(s *supervisor) {
	if p.drop(s) {
		p.wg.Go(func() { p.await(s, 2*patience) })
	}
}

// drop forgets a supervisor and hangs up. It reports whether the caller was the first to.
func (p *Pool) drop(s *supervisor) bool {
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

// await waits for the end of a supervisor, which may take so long, and sees to what it left. It says who survived, if that can be known.
func (p *Pool) await(s *supervisor, patience time.Duration) (survivors []int, proven bool) {
	kill := time.AfterFunc(patience, func() { _ = s.proc.Kill() })
	state, err := s.proc.Wait()
	kill.Stop()
	p.mu.Lock()
	delete(p.pids, s.proc.Pid)
	p.mu.Unlock()
	clean := err == nil && state.Success()
	survivors, proven = p.vacate(s.group, clean)
	if clean || proven && len(survivors) == 0 && !p.launch.Alone {
		return survivors, proven
	}
	if swept, ok := p.sweep(); ok {
		return swept, ok
	}
	return survivors, proven
}

// bury ends a supervisor that is lost and what it left behind, and says who survived, if that can be known.
func (p *Pool) bury(s *supervisor) (survivors []int, proven bool) {
	if p.drop(s) {
		return p.await(s, 0)
	}
	return p.sweep()
}

// Close ends every call at once, with all that descends from it, and waits until the supervisors are gone.
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
	for s := range p.keepers {
		_ = s.conn.Close()
	}
	p.mu.Unlock()
	for _, s := range open {
		p.discard(s)
	}
	p.wg.Wait()
	p.sweep()
	for _, g := range p.groups {
		g.Close()
	}
	p.groups = nil
	if p.launch.Keep != nil {
		_ = p.launch.Keep.Close()
	}
}

func (p *Pool) spawn() (*supervisor, error) {
	s, err := p.bear()
	if err != nil {
		return nil, &StartError{Step: StepFork, Err: err}
	}
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		p.discard(s)
		return nil, ErrClosed
	}
	return s, nil
}

// bear makes a supervisor that is known from its first moment.
func (p *Pool) bear() (*supervisor, error) {
	p.births.RLock()
	defer p.births.RUnlock()
	if p.launch.Alone {
		if err := becomeSubreaper(); err != nil {
			return nil, err
		}
	}
	s, err := launchSupervisor(p.launch, p.group())
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[s], p.pids[s.proc.Pid] = struct{}{}, struct{}{}
	return s, nil
}
