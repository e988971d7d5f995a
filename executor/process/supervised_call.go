package process

import (
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/pack"
)

// supervisedCall is one call under supervision. It is single-threaded: one poll waits for the pool,
// the leader and orphans alike.
type supervisedCall struct {
	*supervisorLoop
	leader, pidfd int
	grace         time.Duration
	keep          bool
	ooms          int // the kernel's count before the start

	ended         bool // the leader was reaped
	leaderZombie  bool // the leader has ended, and a tracer keeps it from being reaped
	stopRequested bool // the pool asked for the end
	tracerBlocked bool // nothing runs any more, and a tracer keeps what has ended
	status        syscall.WaitStatus
	empty         bool // wait4 said ECHILD: no descendant is left
	orphaned      bool // the pool is gone

	stopping     bool          // TERM was sent, or KILL is due
	killed       bool          // KILL was sent to the leader, or is due
	killAt       time.Time     // when TERM turns into KILL
	nextKillAt   time.Time     // when KILL is sent again
	killDeadline time.Time     // when killing is given up
	killRounds   int           // for what is to be killed
	killInterval time.Duration // after the last
	leftover     int
	kept         []int
	survivors    []int
	oom          bool
}

var never = time.Unix(1<<40, 0)

// killTimeout bounds how long KILL may take to show. A process that is still there then is stuck in
// the kernel.
const killTimeout = 5 * time.Second

// The first pause is between the first KILL and the second look. What the first look found ends
// within it; what was forked meanwhile is found by the next. Where the first look took no time,
// what it found needs more the more it is: to look while much ends only delays it.
const (
	minKillInterval    = time.Millisecond
	intervalPerProcess = 100 * time.Microsecond
	maxKillInterval    = 50 * time.Millisecond
)

// individualKillRounds is how often the members of a group are killed one by one before the whole
// of it is: for that the supervisor has to leave it, which may take longer than all the rest.
const individualKillRounds = 2

// tracerTimeout is how long what has ended may take to be reaped. A process that traces another
// holds it as a zombie, which runs no code, until it takes notice, and it may be another call's.
const tracerTimeout = 500 * time.Millisecond

func (r *supervisedCall) loop() {
	for {
		r.reap()
		if r.empty {
			return
		}
		if (r.ended || r.leaderZombie) && !r.stopping && r.handleLeftovers() {
			return
		}
		if r.killIfDue(time.Now()); (len(r.survivors) > 0 || r.tracerBlocked) && !r.orphaned {
			return
		}
		r.wait()
	}
}

// handleLeftovers sees to what the leader left running when it ended by itself. It reports true if
// that is kept, and the call over.
func (r *supervisedCall) handleLeftovers() bool {
	// a call that is stopped takes all with it, even if its leader was quicker
	if r.pollPool(); r.stopping {
		return false
	}
	live := liveDescendants()
	r.leftover = len(live)
	if r.keep && r.ended && len(live) > 0 {
		r.kept = live
		return true
	}
	r.stop(r.grace)
	return false
}

// pollPool takes what the pool has said already.
func (r *supervisedCall) pollPool() {
	fds := []pollFD{{fd: int32(r.conn), events: pollIn}} //nolint:gosec // descriptors are small
	if poll(fds, 0); fds[0].revents != 0 {
		r.handleMessage()
	}
}

// reap collects every child that ended, ours or adopted.
func (r *supervisedCall) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG|syscall.WALL, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // ECHILD: the proof that nothing is left
			r.empty = true
			return
		case pid == 0:
			return
		case pid == r.leader:
			r.ended, r.status = true, ws
			r.oom = ws.Signaled() && ws.Signal() == syscall.SIGKILL && !r.stopping && !r.killed &&
				r.memory.read() > r.ooms
		}
	}
}

// stop begins the end: TERM to all, or shortens the grace that already runs.
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
		signalDescendants(syscall.SIGTERM)
		signalDescendants(syscall.SIGCONT) // a stopped process takes TERM only when it goes on
	}
}

// killIfDue does what is due: KILL to whatever is there, again and again, because processes may
// fork faster than one look sees.
func (r *supervisedCall) killIfDue(now time.Time) {
	if !r.stopping || now.Before(r.killAt) {
		return
	}
	if r.killDeadline.Equal(never) {
		r.killDeadline = now.Add(killTimeout)
	}
	if now.Before(r.nextKillAt) {
		return
	}
	r.nextKillAt = time.Now().Add(r.kill())
	if now.After(r.killDeadline.Add(tracerTimeout - killTimeout)) {
		live := liveDescendants()
		r.tracerBlocked = len(live) == 0
		if now.After(r.killDeadline) {
			r.survivors = live
		}
	}
}

// kill looks for what is there and kills it, and gives the time until the next look. Where there is
// a group it first asks who is in it; what forks faster than that is ended at once, and what a tool
// that may took out of the group is looked for.
func (r *supervisedCall) kill() time.Duration {
	r.killRounds++
	r.killInterval = min(max(2*r.killInterval, minKillInterval), maxKillInterval)
	if r.killRounds <= individualKillRounds {
		if n := r.group.killOthers(); n > 0 {
			return max(r.killInterval, min(time.Duration(n)*intervalPerProcess, maxKillInterval))
		}
	} else {
		r.group.kill()
	}
	signalDescendants(syscall.SIGKILL)
	return r.killInterval
}

// timeout is how long nothing can be due.
func (r *supervisedCall) timeout() time.Duration {
	if !r.stopping {
		return -1
	}
	if left := time.Until(r.killAt); left > 0 {
		return left
	}
	return max(time.Until(r.nextKillAt), 0)
}

func (r *supervisedCall) wait() {
	// descriptors are small
	fds := []pollFD{{fd: r.fdOrNone(r.conn, !r.orphaned)}, {fd: int32(r.childWakeFD)}, {fd: r.fdOrNone(r.pidfd, !r.ended && !r.leaderZombie)}} //nolint:gosec
	for i := range fds {
		fds[i].events = pollIn
	}
	poll(fds, r.timeout())
	if fds[0].revents != 0 {
		r.handleMessage()
	}
	if fds[2].revents != 0 {
		r.reap()
		if !r.ended {
			stat, ok := statOf(r.leader)
			r.leaderZombie = ok && stat.state == 'Z'
		}
	}
	if fds[1].revents != 0 {
		var drain [64]byte
		_, _ = syscall.Read(r.childWakeFD, drain[:])
	}
}

// fdOrNone gives poll a negative descriptor, which it passes over, for what is not to be waited
// for.
func (r *supervisedCall) fdOrNone(fd int, wanted bool) int32 {
	if !wanted {
		return -1
	}
	return int32(fd) //nolint:gosec // descriptors are small
}

func (r *supervisedCall) handleMessage() {
	kind, body, fds, err := receiveFDs(r.conn)
	closeAll(fds)
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
	r.killed = r.killed || sig == syscall.SIGKILL
	if r.pidfd >= 0 {
		_ = pidfdSignal(r.pidfd, sig)
		return
	}
	_ = syscall.Kill(r.leader, sig) // not reaped yet, so the pid is still its own
}

// killAllNow ends the call at once: nobody is there who could want it.
func (r *supervisedCall) killAllNow() {
	r.orphaned = true
	r.stop(0)
}

// keepKilling keeps killing what could not be killed, so that it ends when the kernel lets go of
// it.
func (r *supervisedCall) keepKilling() {
	for !r.empty {
		signalDescendants(syscall.SIGKILL)
		poll(nil, time.Second)
		r.reap()
	}
}

func (r *supervisedCall) exit() Exit {
	e := Exit{
		Leftover: r.leftover, Kept: r.kept, Survivors: r.survivors,
		tracerBlocked: r.tracerBlocked,
	}
	if r.oom {
		e.OOM = dray.OOMLikely // the pool knows whether it is certain
	}
	switch {
	case r.leaderZombie && !r.ended && !r.stopRequested:
		e.unknown = true // whoever traced it knows
	case !r.ended:
		e.Signal = syscall.SIGKILL // it was killed, and is among the survivors or held by a tracer
	case r.status.Signaled():
		e.Signal = r.status.Signal()
	default:
		e.Code = r.status.ExitStatus()
	}
	return e
}
