package process

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/internal/linux"
	"github.com/dray-dev/dray/internal/pack"
)

// supervisor is the pool's side of a supervisor.
type supervisor struct {
	proc    *os.Process
	conn    *os.File
	raw     syscall.RawConn // of conn
	reader  *bufio.Reader   // of conn
	cgroup  *Cgroup         // nil for none
	replied bool            // to the last start
	serving bool            // a call may have processes under it; guarded by Pool.mu
	since   time.Time       // it became idle
}

func launchSupervisor(config SupervisorConfig, cgroup *Cgroup) (*supervisor, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("create a socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "supervisor")
	defer func() { _ = theirs.Close() }()
	_ = unix.SetNonblock(pair[0], true)
	conn := os.NewFile(uintptr(pair[0]), "pool")
	s := &supervisor{conn: conn, serving: true, reader: bufio.NewReaderSize(conn, 512)}
	if s.raw, err = conn.SyscallConn(); err == nil {
		s.proc, err = startSupervisor(config, theirs)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("start a supervisor: %w", err)
	}
	if cgroup.addProc(s.proc.Pid) {
		s.cgroup = cgroup
		// a supervisor that does not receive this receives no call either
		_ = s.send(msgCgroup, nil, cgroup.ProcsFile, cgroup.ParentProcs, cgroup.Kill)
	}
	return s, nil
}

// startSupervisor starts the program with its socket as fd 3.
func startSupervisor(config SupervisorConfig, socket *os.File) (proc *os.Process, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()
	own := ownTimerSlack()
	attr := &os.ProcAttr{
		Dir: "/", Env: append(slices.Clone(config.Env), timerSlackEnv+"="+strconv.Itoa(own)),
		Files: []*os.File{null, null, os.Stderr, socket}, Sys: &syscall.SysProcAttr{Setsid: true},
	}
	withTimerSlack(AgentTimerSlack, func() {
		proc, err = os.StartProcess(config.Path, config.Args, attr)
	})
	return proc, err
}

// sendTimeout bounds the wait for a supervisor to read. A supervisor that is not stopped reads at
// once.
const sendTimeout = 2 * time.Second

// send sends one message; the fds of files are passed with its first byte. It arms a deadline only
// if the socket is full, because a timer for each message would wake a thread of the runtime.
func (s *supervisor) send(kind byte, body []byte, files ...*os.File) error {
	b := frame(kind, body)
	return linux.WithFDs(files, func(fds []int) error {
		n, err := s.sendFDs(b, fds, false)
		if err == nil && n == len(b) {
			return nil
		}
		if err := s.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
			return err
		}
		defer func() { _ = s.conn.SetWriteDeadline(time.Time{}) }()
		if err == unix.EAGAIN { //nolint:errorlint // the bare number
			n, err = s.sendFDs(b, fds, true)
		}
		if err == nil {
			_, err = s.conn.Write(b[n:])
		}
		return err
	})
}

// sendFDs sends as much of b as the socket takes. If wait is set it blocks until that is at least
// one byte, else it fails with EAGAIN.
func (s *supervisor) sendFDs(b []byte, fds []int, wait bool) (n int, err error) {
	waitErr := s.raw.Write(func(fd uintptr) bool {
		n, err = linux.SendFDs(int(fd), b, fds...)
		return !wait || err != unix.EAGAIN //nolint:errorlint // the bare number
	})
	if waitErr != nil {
		return 0, waitErr
	}
	return n, err
}

const (
	// claimTimeout bounds the time until an idle supervisor takes the permit of a start.
	claimTimeout = time.Second
	// abandonTimeout bounds the wait for the reply of a supervisor that has taken the permit of a
	// start which is not wanted any more. Then its connection is closed.
	abandonTimeout = time.Second
)

// awaitStart waits for the reply to a start. When ctx ends, it takes the permit, so that nothing is
// started, and fails with the cause of ctx. If the supervisor was faster, its reply counts. An idle
// supervisor that does not respond is killed.
func (s *supervisor) awaitStart(ctx context.Context, permit *os.File, idle bool,
) (pid int, err error) {
	s.replied = false
	if idle {
		defer time.AfterFunc(claimTimeout, func() {
			if !permitTaken(permit) {
				_ = s.proc.Kill()
			}
		}).Stop()
	}
	abandoned := make(chan bool, 1)
	stop := context.AfterFunc(ctx, func() { abandoned <- s.abandon(permit) })
	kind, body, err := receiveMessage(s.reader)
	if !stop() {
		if <-abandoned {
			return 0, fmt.Errorf("start a process: %w", context.Cause(ctx))
		}
		if err != nil {
			return 0, ErrAbandoned
		}
		_ = s.conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return 0, ErrLost
	}
	return s.startResult(kind, body)
}

// startResult decodes the reply to a start.
func (s *supervisor) startResult(kind byte, body []byte) (pid int, err error) {
	switch kind {
	case msgStarted:
		err = pack.Decode(body, &pid, pack.Int)
		s.replied = err == nil
		return pid, err
	case msgFailed:
		var failure StartError
		if err := pack.Decode(body, &failure, packStartError); err != nil {
			return 0, err
		}
		s.replied = true
		return 0, &failure
	default:
		return 0, errMalformed
	}
}

// abandon reports whether it has taken the permit of a start. If the supervisor has it already, it
// has abandonTimeout to reply.
func (s *supervisor) abandon(permit *os.File) bool {
	if TakePermit(permit) {
		_ = s.conn.Close()
		return true
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(abandonTimeout))
	return false
}

// exited waits for the end of the call.
func (s *supervisor) exited() (Exit, error) {
	kind, body, err := receiveMessage(s.reader)
	if err != nil || kind != msgExited {
		return Exit{}, ErrLost
	}
	var exit Exit
	err = pack.Decode(body, &exit, packExit)
	return exit, err
}
