package process

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"github.com/dray-dev/dray/internal/pack"
)

// Supervise is the supervisor's whole life: it serves one pool over a socket, one call at a time,
// and returns when the pool is gone and nothing is left of the last call.
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
	s := &supervisorLoop{conn: conn, childWakeFD: wake, memory: openOOMCounter()}
	for {
		kind, body, fds, err := receiveFDs(conn)
		if err != nil {
			closeAll(fds)
			return nil //nolint:nilerr // the pool is gone and nothing runs: the ordinary end
		}
		switch kind {
		case msgStart:
			if clean, err := s.serveCall(body, fds); err != nil || !clean {
				return err
			}
		case msgCgroup:
			s.group = newGroupFDs(fds)
		default: // a signal or stop that crossed with the end of its call
			closeAll(fds)
		}
	}
}

// supervisorLoop is what a supervisor has for all of its calls.
type supervisorLoop struct {
	conn, childWakeFD int
	group             *groupFDs // nil for none
	memory            oomCounter
}

// wakeOnChild gives a descriptor that becomes readable when a child ended. Other signals that would
// end us are received and dropped: handled, not ignored, because an ignored signal would stay
// ignored in the tools.
func wakeOnChild() (int, error) {
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return 0, fmt.Errorf("making the wake pipe: %w", err)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP,
		syscall.SIGQUIT,
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

// serveCall runs one call to its proven end. It reports false if the supervisor must not be used
// again.
func (s *supervisorLoop) serveCall(body []byte, fds []int) (clean bool, err error) {
	defer closeAll(fds)
	var spec Spec
	if err := pack.Decode(body, &spec, packSpec); err != nil || len(fds) != 3 {
		return false, errMalformed
	}
	ooms := s.memory.read()
	leader, pidfd, err := s.start(spec, fds)
	if err != nil {
		told := tell(s.conn, msgFailed, pack.Append(nil, asStartError(err), packStartError))
		return told == nil, nil // a pool that hung up meanwhile is the ordinary end
	}
	closeAll(fds) // the tool's ends are the tool's alone, so that its streams end with it
	defer closeFD(pidfd)
	r := &supervisedCall{
		supervisorLoop: s, leader: leader, pidfd: pidfd, grace: spec.Grace,
		keep: spec.Keep, ooms: ooms, killDeadline: never,
	}
	if err := tell(s.conn, msgStarted, pack.Append(nil, &leader, pack.Int)); err != nil {
		r.killAllNow()
	}
	r.loop()
	if r.orphaned {
		return false, nil
	}
	exit := r.exit()
	if err := tell(s.conn, msgExited, pack.Append(nil, &exit, packExit)); err != nil {
		return false, nil
	}
	switch {
	case len(r.kept) > 0:
		r.superviseDetached()
	case len(r.survivors) > 0 || r.tracerBlocked:
		r.keepKilling()
	default:
		return true, nil
	}
	return false, nil
}

func (s *supervisorLoop) start(spec Spec, fds []int) (pid, pidfd int, err error) {
	if err := s.group.enter(); err != nil {
		return 0, -1, err
	}
	return start(spec, fds)
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

// spareThreads is how many threads a supervisor has from its beginning. The runtime makes one when
// it finds none that is free, and ends the whole program when the kernel refuses it: a tool that
// fills the container's limit of processes would so kill its supervisor. Threads that were made
// once are kept.
const spareThreads = 4

// ReserveThreads has the runtime make n threads, which it keeps and uses before it makes others.
func ReserveThreads(n int) {
	var all, done sync.WaitGroup
	all.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread() // each on a thread of its own, until all are there
			all.Done()
			all.Wait()
			runtime.UnlockOSThread()
		})
	}
	done.Wait()
}
