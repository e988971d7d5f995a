package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// SupervisorConfig is how a pool starts supervisors: a program that calls Supervise(3). The daemon
// uses its embedded agent, the agent its own program.
type SupervisorConfig struct {
	Path string
	Args []string
	Env  []string
	// KeepOpen is closed by Pool.Close, when no more supervisors are started: the file that Path
	// refers to, for instance. It may be nil.
	KeepOpen io.Closer
	// Subreaper makes this program a child subreaper. The pool then kills what a killed supervisor
	// leaves. It must not be set in a program that has other children.
	Subreaper bool
	// Cgroup returns an empty cgroup for one supervisor, or nil. The pool closes it. It may be nil.
	Cgroup func() *Cgroup
}

// Pool starts processes, each under a supervisor of its own, and keeps idle supervisors between
// calls. It is safe for concurrent use.
type Pool struct {
	config   SupervisorConfig
	cgroups  cgroupPool
	children childRegistry
	// endSignals ends the goroutine that receives SIGCHLD.
	endSignals func()

	mu       sync.Mutex
	closed   bool
	idle     []*supervisor // the one that is idle for longest first
	cooling  *time.Timer   // set while there are more than maxIdleSupervisors
	all      map[*supervisor]struct{}
	detached map[*supervisor]struct{}
	calls    int // running
	starts   int // ever
	wg       sync.WaitGroup
}

// NewPool returns a pool without supervisors. Prestart adds some before the first call.
func NewPool(config SupervisorConfig) *Pool {
	p := &Pool{
		config: config, cgroups: cgroupPool{create: config.Cgroup},
		children: childRegistry{subreaper: config.Subreaper, supervisors: map[int]struct{}{}},
		all:      map[*supervisor]struct{}{}, detached: map[*supervisor]struct{}{},
	}
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGCHLD)
	p.endSignals = sync.OnceFunc(func() {
		signal.Stop(changed)
		close(changed)
	})
	p.wg.Go(func() { p.continueStopped(changed) })
	return p
}

// continueStopped continues supervisors that another process has stopped: their calls would hang
// until their timeout.
func (p *Pool) continueStopped(changed <-chan os.Signal) {
	for range changed {
		p.mu.Lock()
		for s := range p.all {
			var info unix.Siginfo
			err := unix.Waitid(unix.P_PID, s.proc.Pid, &info, unix.WSTOPPED|unix.WNOHANG, nil)
			if err == nil && info.Signo != 0 {
				_ = s.proc.Signal(unix.SIGCONT)
			}
		}
		p.mu.Unlock()
	}
}

// Start runs a process and returns when the kernel has executed its program. It fails with a
// *StartError, ErrClosed, or the cause of ctx; then no process runs or will run. If the supervisor
// was lost during the start it fails with ErrLost or ErrAbandoned, and a process may have run. ctx
// bounds the start alone: a start that succeeds while ctx ends returns the process.
func (p *Pool) Start(ctx context.Context, spec Spec) (*Process, error) {
	files, streams, err := newStreams(spec)
	if err != nil {
		return nil, err
	}
	return p.startCall(ctx, spec, files, streams)
}

// StartWith is Start with streams that the caller created. It gives files to the tool's user and
// closes them, even if it fails. The returned Process has no streams. Spec.Terminal must be nil.
func (p *Pool) StartWith(ctx context.Context, spec Spec, files ChildFiles) (*Process, error) {
	if spec.Terminal != nil {
		files.Close()
		return nil, &StartError{Step: StepTerminal, Err: errors.New("the streams exist already")}
	}
	return p.startCall(ctx, spec, files, noStreams())
}

// startCall starts a process and closes files.
func (p *Pool) startCall(ctx context.Context, spec Spec, files ChildFiles, streams streams,
) (*Process, error) {
	defer files.Close()
	proc, err := p.run(ctx, spec, files, streams)
	if err != nil {
		streams.close()
	}
	return proc, err
}

func (p *Pool) run(ctx context.Context, spec Spec, files ChildFiles, streams streams,
) (*Process, error) {
	if !p.enter() {
		return nil, ErrClosed
	}
	defer p.wg.Done()
	body, err := spec.encode()
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("start a process: %w", context.Cause(ctx))
	}
	if err := files.prepareForChild(spec.User); err != nil {
		return nil, &StartError{Step: StepFork, Err: err}
	}
	if spec.Permit == nil {
		if spec.Permit, err = NewPermit(); err != nil {
			return nil, err
		}
		defer func() { _ = spec.Permit.Close() }()
	}
	endCall := p.beginCall()
	s, pid, err := p.startSupervised(ctx, body, append(files.files(), spec.Permit))
	if err != nil {
		endCall()
		return nil, err
	}
	return p.watchExit(s, pid, streams, endCall), nil
}

// startSupervised starts a process under an idle supervisor. If that does not respond, it is killed
// before it has started anything, and a new one is used. The permit is the last of files.
func (p *Pool) startSupervised(ctx context.Context, body []byte, files []*os.File,
) (s *supervisor, pid int, err error) {
	permit := files[len(files)-1]
	for useIdle := true; ; useIdle = false {
		s, wasIdle, err := p.send(useIdle, body, files)
		if err != nil {
			return nil, 0, err
		}
		if pid, err = s.awaitStart(ctx, permit, wasIdle); err == nil {
			return s, pid, nil
		}
		if !wasIdle || !errors.Is(err, ErrLost) || !p.replaceable(s, permit) {
			p.recycleAfterFailure(s, err)
			return nil, 0, err
		}
	}
}

// replaceable waits for the end of a lost supervisor, and reports whether it has started nothing.
// Others that are idle may be stopped too, so they are released.
func (p *Pool) replaceable(s *supervisor, permit *os.File) bool {
	if permitTaken(permit) {
		return false
	}
	p.mu.Lock()
	s.serving = false
	others := p.idle
	p.idle = nil
	p.mu.Unlock()
	p.killSupervisor(s)
	for _, other := range others {
		p.release(other)
	}
	return !permitTaken(permit)
}

// beginCall counts a running call. The caller must call endCall at its end; alone reports whether
// the pool ran no other call in the meantime.
func (p *Pool) beginCall() (endCall func() (alone bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.calls == 0 && len(p.detached) == 0
	p.calls++
	p.starts++
	start := p.starts
	return func() (alone bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls--
		return first && p.starts == start
	}
}

// enter adds to wg, for which Close waits, unless the pool is closed.
func (p *Pool) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.wg.Add(1)
	}
	return !p.closed
}

// send passes the start to a supervisor, an idle one if there is one and useIdle is set. It skips
// idle supervisors that have died.
func (p *Pool) send(useIdle bool, body []byte, files []*os.File,
) (s *supervisor, wasIdle bool, err error) {
	for {
		s, wasIdle, err = p.take(useIdle)
		if err != nil {
			return nil, false, err
		}
		if err = s.send(msgStart, body, files...); err == nil {
			return s, wasIdle, nil
		}
		p.release(s)
		if !wasIdle {
			err = fmt.Errorf("send the start to a new supervisor: %w", err)
			return nil, false, &StartError{Step: StepFork, Err: err}
		}
	}
}

// recycleAfterFailure keeps a supervisor that reported the failure of a start itself, and releases
// any other.
func (p *Pool) recycleAfterFailure(s *supervisor, err error) {
	if _, ok := errors.AsType[*StartError](err); ok && s.replied {
		p.put(s)
		return
	}
	p.release(s)
}

// release closes the connection of a supervisor, which then kills what it runs and exits. A
// goroutine of the pool waits for that.
func (p *Pool) release(s *supervisor) {
	if p.forget(s) {
		p.wg.Go(func() { p.waitSupervisor(s, maxKillTimeout+killTimeout) })
	}
}

// forget closes the connection of a supervisor. It reports false if that happened before.
func (p *Pool) forget(s *supervisor) bool {
	p.mu.Lock()
	_, ours := p.all[s]
	delete(p.all, s)
	p.mu.Unlock()
	if ours {
		_ = s.conn.Close()
		_ = s.proc.Signal(unix.SIGCONT) // a stopped supervisor would not see the end of file
	}
	return ours
}

// waitSupervisor waits until a supervisor has exited, at most for timeout, and kills what it left.
// proven reports whether survivors are known.
func (p *Pool) waitSupervisor(s *supervisor, timeout time.Duration) (survivors []int, proven bool) {
	clean := p.reap(s, timeout)
	survivors, proven = p.cgroups.killAndPut(s.cgroup, clean)
	if clean || proven && len(survivors) == 0 && !p.config.Subreaper {
		return survivors, proven
	}
	if orphans, ok := p.children.killOrphans(); ok {
		return orphans, true
	}
	return survivors, proven
}

const (
	// reapTimeout bounds the wait for the end of a supervisor after KILL. A tracer can hold its
	// zombie.
	reapTimeout = 200 * time.Millisecond
	// continueInterval is the time between two SIGCONT to a supervisor that has to exit: its tool may
	// stop it again and again.
	continueInterval = 10 * time.Millisecond
)

// reap waits until a supervisor has exited, and reports whether it exited by itself after it had
// ended its call. After timeout it kills the supervisor, unless that would leave the processes of
// its call to nobody: such a supervisor kills them as soon as it can, and exits.
func (p *Pool) reap(s *supervisor, timeout time.Duration) (clean bool) {
	exited := make(chan bool, 1)
	go func() { // ends with the supervisor's zombie
		state, err := s.proc.Wait()
		p.children.remove(s.proc.Pid)
		exited <- err == nil && state.Success()
	}()
	for expired, again := time.After(timeout), time.Tick(continueInterval); ; {
		select {
		case clean = <-exited:
			return clean
		case <-again:
			_ = s.proc.Signal(unix.SIGCONT)
			continue
		case <-expired:
		}
		break
	}
	if s.cgroup != nil || p.config.Subreaper || !p.serves(s) {
		_ = s.proc.Kill()
	}
	select {
	case <-exited:
	case <-time.After(reapTimeout):
	}
	return false
}

// serves reports whether a call may have processes under a supervisor.
func (p *Pool) serves(s *supervisor) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.serving
}

// killSupervisor ends a lost supervisor and what it left. proven reports whether survivors are
// known.
func (p *Pool) killSupervisor(s *supervisor) (survivors []int, proven bool) {
	if p.forget(s) {
		return p.waitSupervisor(s, 0)
	}
	return p.children.killOrphans()
}

// Close kills every call with all its descendants, and blocks until the supervisors have exited.
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
	p.endSignals()
	p.wg.Wait()
	p.children.close()
	p.cgroups.close()
	if p.config.KeepOpen != nil {
		_ = p.config.KeepOpen.Close()
	}
}

// spawn starts a supervisor.
func (p *Pool) spawn() (*supervisor, error) {
	s, err := p.children.fork(func() (*supervisor, error) {
		return launchSupervisor(p.config, p.cgroups.get())
	})
	if err != nil {
		return nil, &StartError{Step: StepFork, Err: err}
	}
	p.mu.Lock()
	p.all[s] = struct{}{}
	closed := p.closed
	p.mu.Unlock()
	if closed {
		p.release(s)
		return nil, ErrClosed
	}
	return s, nil
}

// maxIdleSupervisors is the number of idle supervisors that the pool keeps without a time limit. It
// keeps up to maxTemporaryIdle for idleTimeout after many calls ran at once.
const (
	maxIdleSupervisors = 16
	maxTemporaryIdle   = 256
	idleTimeout        = 5 * time.Second
)

// Prestart starts n idle supervisors.
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

// take returns the supervisor that became idle last, if there is one and useIdle is set, else a new
// one.
func (p *Pool) take(useIdle bool) (s *supervisor, wasIdle bool, err error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, false, ErrClosed
	}
	if n := len(p.idle); n > 0 && useIdle {
		s = p.idle[n-1]
		p.idle = p.idle[:n-1]
		s.serving = true
		p.mu.Unlock()
		return s, true, nil
	}
	p.mu.Unlock()
	s, err = p.spawn()
	return s, false, err
}

// put keeps a supervisor that proved that nothing of its call is left.
func (p *Pool) put(s *supervisor) {
	p.mu.Lock()
	if p.closed || len(p.idle) >= maxTemporaryIdle {
		p.mu.Unlock()
		p.release(s)
		return
	}
	defer p.mu.Unlock()
	s.since, s.serving = time.Now(), false
	p.idle = append(p.idle, s)
	if len(p.idle) > maxIdleSupervisors && p.cooling == nil {
		p.cooling = time.AfterFunc(idleTimeout, p.evictIdle)
	}
}

func (p *Pool) evictIdle() {
	if !p.enter() {
		return
	}
	defer p.wg.Done()
	for _, s := range p.takeExpired(time.Now()) {
		p.release(s)
	}
}

// takeExpired removes from the idle supervisors those above maxIdleSupervisors that were idle for
// idleTimeout, and schedules evictIdle for the others.
func (p *Pool) takeExpired(now time.Time) []*supervisor {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.idle)-maxIdleSupervisors && now.Sub(p.idle[n].since) >= idleTimeout {
		n++
	}
	expired := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	p.cooling = nil
	if len(p.idle) > maxIdleSupervisors {
		p.cooling = time.AfterFunc(p.idle[0].since.Add(idleTimeout).Sub(now), p.evictIdle)
	}
	return expired
}

// detach hands the leftover processes of a call to the environment, with their supervisor.
func (p *Pool) detach(s *supervisor) {
	p.mu.Lock()
	delete(p.all, s)
	p.detached[s] = struct{}{}
	closed := p.closed
	p.mu.Unlock()
	if closed {
		_ = s.conn.Close()
	}
	if s.cgroup != nil && s.cgroup.moveToEnvironment() {
		p.cgroups.put(s.cgroup)
	} else {
		s.cgroup.Close()
	}
	p.wg.Go(func() { p.waitDetached(s) })
}

// waitDetached returns when a detached supervisor has exited or the pool is closed.
func (p *Pool) waitDetached(s *supervisor) {
	_, _, err := receiveMessage(s.reader)
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if err != nil && closed {
		_ = s.proc.Release() // it stays registered, so that it is not killed as an orphan
		return
	}
	_ = s.conn.Close()
	_, _ = s.proc.Wait()
	p.children.remove(s.proc.Pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.detached, s)
}
