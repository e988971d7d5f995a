package process

import (
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
	"github.com/dray-dev/dray/internal/pack"
)

// supervisedCall is one call under supervision. It has one goroutine: a single poll waits for the
// pool, the leader and orphans.
type supervisedCall struct {
	*supervisorLoop
	leader, pidfd int
	grace         time.Duration
	keep          bool
	ooms          int // the kernel's count before the start
	watchAt       time.Time

	ended         bool // the leader was reaped
	leaderZombie  bool // the leader has ended, and a tracer prevents that it is reaped
	stopRequested bool // by the pool
	tracerBlocked bool // no process runs any more, and a tracer prevents that zombies are reaped
	status        syscall.WaitStatus
	empty         bool // wait4 returned ECHILD: no descendant is left
	unreaped      bool // more children may have ended than reap has waited for
	orphaned      bool // the pool has closed the socket

	stopping     bool          // TERM was sent, or KILL is due
	killed       bool          // KILL was sent to the leader, or is due
	killAt       time.Time     // when TERM is followed by KILL
	nextKillAt   time.Time     // when KILL is sent again
	firstKillAt  time.Time     // zero before
	stuck        []int         // the descendants after the last round of KILL, zombies included
	changedAt    time.Time     // when others than stuck were seen
	killRounds   int           // so far
	killInterval time.Duration // after the last round
	leftover     int
	kept         []int
	survivors    []int
	oom          bool
}

func newSupervisedCall(s *supervisorLoop, spec Spec, leader, pidfd, ooms int) *supervisedCall {
	return &supervisedCall{
		supervisorLoop: s, leader: leader, pidfd: pidfd, grace: spec.Grace, keep: spec.Keep,
		ooms: ooms, watchAt: time.Now().Add(watchDelay),
	}
}

// watchDelay is the age at which a call starts to receive SIGCHLD. Orphans that ended before stay
// zombies until then.
const watchDelay = 20 * time.Millisecond

// A process that stays after KILL is blocked in the kernel: the call ends without it, at most 2.5 s
// after its grace. Processes that fork faster than they are killed are not given up so early.
const (
	// killTimeout is how long the same processes stay before they are given up.
	killTimeout = time.Second
	// maxKillTimeout bounds the time of KILL while processes end or are forked.
	maxKillTimeout = 5 * time.Second
	// reportTimeout bounds the time after the grace in which a supervisor must report. It is long
	// enough for one that kills a fork bomb on a busy machine.
	reportTimeout = 2 * maxKillTimeout
)

// Between two rounds of KILL the supervisor waits, longer each time. The first round finds most
// processes and they end meanwhile; the next one finds what they forked. The wait is also longer
// the more processes a round found, because looking for processes delays their end.
const (
	minKillInterval    = time.Millisecond
	intervalPerProcess = 100 * time.Microsecond
	maxKillInterval    = 50 * time.Millisecond
	stuckKillInterval  = time.Second // while KILL changes nothing
	// reapShare is how much longer than a round of KILL the supervisor then waits and reaps: a round
	// that finds thousands of zombies takes long.
	reapShare = 4
)

// individualKillRounds is the number of rounds that kill the members of a cgroup one by one. The
// rounds after them use cgroup.kill, for which the supervisor has to leave the cgroup. That can
// take longer than all else.
const individualKillRounds = 2

// tracerTimeout bounds the wait for zombies to be reaped. A tracer, which may belong to another
// call, holds its zombies until it waits for them.
const tracerTimeout = 500 * time.Millisecond

// maxReaped bounds the children that are reaped at once. On a busy machine processes that fork and
// exit may do so faster than they are reaped; they must be killed meanwhile.
const maxReaped = 64

func (r *supervisedCall) loop() {
	for {
		r.wait()
		if r.reap(); r.empty {
			return
		}
		if (r.ended || r.leaderZombie) && !r.stopping && r.handleLeftovers() {
			return
		}
		if r.killIfDue(time.Now()); (len(r.survivors) > 0 || r.tracerBlocked) && !r.orphaned {
			return
		}
	}
}

// handleLeftovers starts to stop what the leader left when it ended by itself. It reports true if
// the leftover processes are kept and the call has ended.
func (r *supervisedCall) handleLeftovers() bool {
	// a stopped call keeps nothing, even if its leader ended before the message was read
	if r.pool.hasMessage() {
		r.handleMessage()
	}
	if r.stopping {
		return false
	}
	_, live := descendants()
	r.leftover = len(live)
	if r.keep && r.ended && len(live) > 0 {
		r.kept = live
		return true
	}
	r.stop(r.grace)
	return false
}

// reap waits for up to maxReaped children that have ended, our own or adopted.
func (r *supervisedCall) reap() {
	r.unreaped = false
	for range maxReaped {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, unix.WNOHANG|unix.WALL, nil)
		switch {
		case err == unix.EINTR: //nolint:errorlint // the bare number
		case err != nil: // ECHILD: no descendant is left
			r.empty = true
			return
		case pid == 0:
			return
		default:
			r.reaped(pid, ws)
		}
	}
	r.unreaped = true
}

func (r *supervisedCall) reaped(pid int, ws syscall.WaitStatus) {
	if pid != r.leader {
		return
	}
	r.ended, r.status = true, ws
	r.oom = ws.Signaled() && ws.Signal() == unix.SIGKILL && !r.stopping && !r.killed &&
		r.memory.read() > r.ooms
}

// stop sends TERM to all processes and schedules KILL after grace. If that has happened it can only
// make KILL earlier.
func (r *supervisedCall) stop(grace time.Duration) {
	at := time.Now().Add(grace)
	if r.stopping {
		if at.Before(r.killAt) {
			r.killAt = at
		}
		return
	}
	r.stopping, r.killAt = true, at
	if grace > 0 {
		signalDescendants(unix.SIGTERM)
		signalDescendants(unix.SIGCONT) // a stopped process handles TERM only when it continues
	}
}

// killIfDue kills the processes that are there. It is called until none is left, because processes
// may fork faster than one round finds them.
func (r *supervisedCall) killIfDue(now time.Time) {
	if !r.stopping || now.Before(r.killAt) {
		return
	}
	if r.firstKillAt.IsZero() {
		r.firstKillAt = now
	}
	if now.Before(r.nextKillAt) {
		return
	}
	interval := r.kill()
	if r.killRounds > individualKillRounds && r.giveUpIfStuck(now) {
		interval = stuckKillInterval
	}
	took := time.Since(now)
	r.nextKillAt = now.Add(took + max(interval, reapShare*took))
}

// giveUpIfStuck ends the call if only zombies stay, or if KILL does not end what is left. A single
// look may miss a process that forks and exits, so it does not show that only zombies are left. It
// reports whether KILL changes nothing any more.
func (r *supervisedCall) giveUpIfStuck(now time.Time) (stuck bool) {
	all, live := descendants()
	pids := pidsOf(all)
	slices.Sort(pids)
	if r.changedAt.IsZero() || !slices.Equal(pids, r.stuck) {
		r.stuck, r.changedAt = pids, now
	}
	unchanged := now.Sub(r.changedAt)
	r.tracerBlocked = len(live) == 0 && unchanged > tracerTimeout
	if unchanged > killTimeout || now.Sub(r.firstKillAt) > maxKillTimeout {
		r.survivors = live
	}
	return unchanged > killTimeout
}

// kill runs one round of KILL and returns the time until the next. The members of a cgroup are
// killed first, at last by cgroup.kill, which no fork escapes. Then it kills the descendants in
// /proc, which include those that a tool moved out of the cgroup.
func (r *supervisedCall) kill() time.Duration {
	r.killRounds++
	r.killInterval = min(max(2*r.killInterval, minKillInterval), maxKillInterval)
	if r.killRounds <= individualKillRounds {
		if n := r.cgroup.killOthers(); n > 0 {
			return max(r.killInterval, min(time.Duration(n)*intervalPerProcess, maxKillInterval))
		}
	} else {
		r.cgroup.kill()
	}
	killTrees(ownChildren())
	return r.killInterval
}

// timeout returns the time until killIfDue has something to do; negative for never.
func (r *supervisedCall) timeout() time.Duration {
	if !r.stopping {
		return -1
	}
	if left := time.Until(r.killAt); left > 0 {
		return left
	}
	return max(time.Until(r.nextKillAt), 0)
}

// wait blocks until the pool sent a message, a child ended, or something is due. SIGCHLD interrupts
// the poll too. It handles the message.
func (r *supervisedCall) wait() {
	if !r.orphaned && len(r.pool.buf) > 0 {
		r.handleMessage()
		return
	}
	timeout := r.timeout()
	if r.unreaped {
		timeout = 0
	}
	if !r.children.started {
		left := time.Until(r.watchAt)
		if left <= 0 || r.ended || r.leaderZombie {
			r.children.start()
			return // children that ended before are reaped now
		}
		if timeout < 0 || timeout > left {
			timeout = left
		}
	}
	//nolint:gosec // fds are small
	fds := []unix.PollFd{{Fd: -1}, {Fd: int32(r.children.fd)}, {Fd: -1}}
	if !r.orphaned {
		fds[0].Fd = int32(r.pool.fd) //nolint:gosec // the same
	}
	if !r.ended && !r.leaderZombie {
		fds[2].Fd = int32(r.pidfd) //nolint:gosec // the same
	}
	for i := range fds {
		fds[i].Events = unix.POLLIN
	}
	linux.Poll(fds, timeout)
	if fds[0].Revents != 0 {
		r.handleMessage()
	}
	if fds[2].Revents != 0 {
		if r.reap(); !r.ended {
			stat, ok := statOf(r.leader)
			r.leaderZombie = ok && stat.state == 'Z'
		}
	}
	if fds[1].Revents != 0 {
		r.children.drain()
	}
}

func (r *supervisedCall) handleMessage() {
	kind, body, fds, err := r.pool.receive()
	linux.CloseAll(fds)
	if err != nil {
		r.killAllNow()
		return
	}
	switch kind {
	case msgSignal:
		var sig syscall.Signal
		if pack.Decode(body, &sig, pack.Int) == nil {
			r.signalLeader(sig)
		}
	case msgStop:
		var grace time.Duration
		if pack.Decode(body, &grace, pack.Int) == nil {
			r.stopRequested = true
			r.stop(grace)
		}
	}
}

func (r *supervisedCall) signalLeader(sig syscall.Signal) {
	if r.ended {
		return
	}
	r.killed = r.killed || sig == unix.SIGKILL
	if r.pidfd >= 0 {
		_ = unix.PidfdSendSignal(r.pidfd, sig, nil, 0)
		return
	}
	_ = unix.Kill(r.leader, sig) // it was not reaped, so the pid is still its own
}

// killAllNow ends the call without grace, because the pool has closed the socket.
func (r *supervisedCall) killAllNow() {
	r.orphaned = true
	r.stop(0)
}

// keepKilling kills survivors until they have ended. The pool has their pids already.
func (r *supervisedCall) keepKilling() {
	r.orphaned = true
	r.loop()
}

// superviseDetached reaps what the call left running and ends nothing. It returns when no process
// is left, even if the pool is closed before. By its exit the pool sees the end.
func (r *supervisedCall) superviseDetached() {
	r.cgroup.release()
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		// a reader of the daemon's stderr must not wait for the leftover processes
		_ = unix.Dup3(int(null.Fd()), 2, 0)
		_ = null.Close()
	}
	for !r.empty {
		pid, err := unix.Wait4(-1, nil, unix.WALL, nil)
		r.empty = pid <= 0 && err != unix.EINTR
	}
}

func (r *supervisedCall) exit() Exit {
	e := Exit{
		Leftover: r.leftover, Kept: r.kept, Survivors: r.survivors, tracerBlocked: r.tracerBlocked,
		Proven: r.empty || len(r.kept) > 0 || len(r.survivors) > 0 || !canHideProcesses(),
	}
	if r.oom {
		e.OOM = dray.OOMLikely // the pool knows whether it is certain
	}
	switch {
	case r.leaderZombie && !r.ended && !r.stopRequested:
		e.unknown = true // only the tracer knows
	case !r.ended:
		e.Signal = unix.SIGKILL // it is among the survivors, or a tracer holds it
	case r.status.Signaled():
		e.Signal = r.status.Signal()
	default:
		e.Code = r.status.ExitStatus()
	}
	return e
}
