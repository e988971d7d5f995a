package process

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Supervise is the supervisor's whole life: it serves one pool over a socket, one call at a time, and returns when the pool is gone
// and nothing is left of the last call.
func Supervise(conn int) error {
	if err := becomeSubreaper(); err != nil {
		return err
	}
	ReserveThreads(spareThreads)
	syscall.Umask(0o022) // what an engine gives a fresh exec
	closeOnExecAbove(conn)
	resetIgnoredSignals()
	wake, err := wakeOnChild()
	if err != nil {
		return err
	}
	s := &supervision{conn: conn, wake: wake}
	for {
		kind, body, fds, err := receiveRights(conn)
		if err != nil {
			closeAll(fds)
			return nil //nolint:nilerr // the pool is gone and nothing runs: the ordinary end
		}
		switch kind {
		case msgStart:
			if clean, err := s.one(body, fds); err != nil || !clean {
				return err
			}
		case msgCgroup:
			s.group = newGroupFDs(fds)
		default: // a signal or stop that crossed with the end of its call
			closeAll(fds)
		}
	}
}

// supervision is what a supervisor has for all of its calls.
type supervision struct {
	conn, wake int
	group      *groupFDs // nil for none
}

// wakeOnChild gives a descriptor that becomes readable when a child ended. Other signals that would end us are received and dropped:
// handled, not ignored, because an ignored signal would stay ignored in the tools.
func wakeOnChild() (int, error) {
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return 0, fmt.Errorf("making the wake pipe: %w", err)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGPIPE)
	go func() { // lives as long as the process
		for s := range signals {
			if s == syscall.SIGCHLD {
				_, _ = syscall.Write(p[1], []byte{0}) // full means that a wake is due already
			}
		}
	}()
	return p[0], nil
}

// one runs one call to its proven end. It reports false if the supervisor must not be used again.
func (s *supervision) one(body []byte, fds []int) (clean bool, err error) {
	defer closeAll(fds)
	spec, err := decodeSpec(body)
	if err != nil || len(fds) != 3 {
		return false, errMalformed
	}
	leader, pidfd, err := s.start(spec, fds)
	if err != nil {
		return true, tell(s.conn, msgFailed, asStartError(err).encode())
	}
	closeAll(fds) // the tool's ends are the tool's alone, so that its streams end with it
	defer closeFD(pidfd)
	r := &run{supervision: s, leader: leader, pidfd: pidfd, grace: spec.Grace, hopeless: never}
	if err := tell(s.conn, msgStarted, binary.AppendUvarint(nil, uint64(leader))); err != nil { //nolint:gosec // a pid
		r.parentGone()
	}
	r.loop()
	if r.orphaned {
		return false, nil
	}
	if err := tell(s.conn, msgExited, r.exit().encode()); err != nil {
		return false, nil
	}
	if len(r.survivors) == 0 && !r.held {
		return true, nil
	}
	r.outlive()
	return false, nil
}

func (s *supervision) start(spec Spec, fds []int) (pid, pidfd int, err error) {
	if err := s.group.enter(); err != nil {
		return 0, -1, err
	}
	return start(spec, fds)
}

// run is one call under supervision. It is single-threaded: one poll waits for the pool, the leader and orphans alike.
type run struct {
	*supervision
	leader, pidfd int
	grace         time.Duration

	ended    bool // the leader was reaped
	dead     bool // the leader has ended, and a tracer keeps it from being reaped
	told     bool // the pool asked for the end
	held     bool // nothing runs any more, and a tracer keeps what has ended
	status   syscall.WaitStatus
	empty    bool // wait4 said ECHILD: no descendant is left
	orphaned bool // the pool is gone

	stopping  bool      // TERM was sent, or KILL is due
	killAt    time.Time // when TERM turns into KILL
	hopeless  time.Time // when killing is given up
	pause     time.Duration
	leftover  int
	survivors []int
}

var never = time.Unix(1<<40, 0)

// patience bounds how long KILL may take to show. A process that is still there then is stuck in the kernel.
const patience = 5 * time.Second

// tracerPatience is how long what has ended may take to be reaped. A process that traces another holds it as a zombie, which runs no code, until it
// takes notice, and it may be another call's.
const tracerPatience = 500 * time.Millisecond

func (r *run) loop() {
	for {
		r.reap()
		if r.empty {
			return
		}
		if (r.ended || r.dead) && !r.stopping {
			r.leftover = len(liveDescendants())
			r.stop(r.grace)
		}
		if r.advance(time.Now()); (len(r.survivors) > 0 || r.held) && !r.orphaned {
			return
		}
		r.wait()
	}
}

// reap collects every child that ended, ours or adopted.
func (r *run) reap() {
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
		}
	}
}

// stop begins the end: TERM to all, or shortens the grace that already runs.
func (r *run) stop(grace time.Duration) {
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

// advance does what is due: KILL to whatever is there, again and again, because processes may fork faster than one look sees.
func (r *run) advance(now time.Time) {
	if !r.stopping || now.Before(r.killAt) {
		return
	}
	if r.hopeless.Equal(never) {
		r.hopeless = now.Add(patience)
	}
	r.group.kill()
	signalDescendants(syscall.SIGKILL)
	r.pause = min(max(r.pause*2, 200*time.Microsecond), 50*time.Millisecond)
	if now.After(r.hopeless.Add(tracerPatience - patience)) {
		live := liveDescendants()
		r.held = len(live) == 0
		if now.After(r.hopeless) {
			r.survivors = live
		}
	}
}

// timeout is how long nothing can be due.
func (r *run) timeout() time.Duration {
	if !r.stopping {
		return -1
	}
	if left := time.Until(r.killAt); left > 0 {
		return left
	}
	return r.pause
}

func (r *run) wait() {
	fds := []pollFD{{fd: r.fdOrNone(r.conn, !r.orphaned)}, {fd: int32(r.wake)}, {fd: r.fdOrNone(r.pidfd, !r.ended && !r.dead)}} //nolint:gosec // descriptors are small
	for i := range fds {
		fds[i].events = pollIn
	}
	poll(fds, r.timeout())
	if fds[0].revents != 0 {
		r.obey()
	}
	if fds[2].revents != 0 {
		r.reap()
		state, _, ok := stateOf(r.leader)
		r.dead = !r.ended && ok && state == 'Z'
	}
	if fds[1].revents != 0 {
		var drain [64]byte
		_, _ = syscall.Read(r.wake, drain[:])
	}
}

// fdOrNone gives poll a negative descriptor, which it passes over, for what is not to be waited for.
func (r *run) fdOrNone(fd int, wanted bool) int32 {
	if !wanted {
		return -1
	}
	return int32(fd) //nolint:gosec // descriptors are small
}

func (r *run) obey() {
	kind, body, fds, err := receiveRights(r.conn)
	closeAll(fds)
	if err != nil {
		r.parentGone()
		return
	}
	d := decoder{b: body}
	switch kind {
	case msgSignal:
		r.signalLeader(syscall.Signal(d.uvarint())) //nolint:gosec // a signal number
	case msgStop:
		r.told = true
		r.stop(time.Duration(d.varint()))
	}
}

func (r *run) signalLeader(sig syscall.Signal) {
	if r.ended {
		return
	}
	if r.pidfd >= 0 {
		_ = pidfdSignal(r.pidfd, sig)
		return
	}
	_ = syscall.Kill(r.leader, sig) // not reaped yet, so the pid is still its own
}

// parentGone ends the call at once: nobody is there who could want it.
func (r *run) parentGone() {
	r.orphaned = true
	r.stop(0)
}

// outlive keeps killing what could not be killed, so that it ends when the kernel lets go of it.
func (r *run) outlive() {
	for !r.empty {
		signalDescendants(syscall.SIGKILL)
		poll(nil, time.Second)
		r.reap()
	}
}

func (r *run) exit() Exit {
	e := Exit{Leftover: r.leftover, Survivors: r.survivors, held: r.held}
	switch {
	case r.dead && !r.ended && !r.told:
		e.untold = true // whoever traced it knows
	case !r.ended:
		e.Signal = syscall.SIGKILL // it was killed, and is among the survivors or held by a tracer
	case r.status.Signaled():
		e.Signal = r.status.Signal()
	default:
		e.Code = r.status.ExitStatus()
	}
	return e
}

func tell(conn int, kind byte, body []byte) error {
	b := frame(kind, body)
	for len(b) > 0 {
		n, err := syscall.SendmsgN(conn, b, nil, nil, syscall.MSG_NOSIGNAL)
		if err != nil && err != syscall.EINTR {
			return err
		}
		b = b[max(n, 0):]
	}
	return nil
}

func closeAll(fds []int) {
	for i, fd := range fds {
		closeFD(fd)
		fds[i] = -1
	}
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = syscall.Close(fd)
	}
}
