package process

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/dray-dev/dray/internal/pack"
)

// supervisor is the pool's end of one.
type supervisor struct {
	proc  *os.Process
	conn  *os.File
	group *Cgroup   // nil for none
	alive bool      // it answered the last start
	since time.Time // it is idle
}

func launchSupervisor(l SupervisorConfig, group *Cgroup) (*supervisor, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "supervisor")
	defer func() { _ = theirs.Close() }()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		closeFD(pair[0])
		return nil, err
	}
	defer func() { _ = null.Close() }()
	proc, err := os.StartProcess(l.Path, l.Args, &os.ProcAttr{
		Dir: "/", Env: l.Env, Files: []*os.File{
			null, null, os.Stderr,
			theirs,
		}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		closeFD(pair[0])
		return nil, fmt.Errorf("starting a supervisor: %w", err)
	}
	if err := syscall.SetNonblock(pair[0], true); err != nil {
		closeFD(pair[0])
		return nil, err
	}
	s := &supervisor{proc: proc, conn: os.NewFile(uintptr(pair[0]), "pool")}
	if group.addProc(proc.Pid) {
		s.group = group
		// one that does not take it takes no call either
		_ = s.send(msgCgroup, nil, group.ProcsFile, group.ParentProcs, group.Kill)
	}
	return s, nil
}

// sendTimeout bounds how long a supervisor may take to read: it does nothing else for so long
// unless it is stopped.
const sendTimeout = 2 * time.Second

func (s *supervisor) send(kind byte, body []byte, files ...*os.File) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	return sendMessage(s.conn, kind, body, files...)
}

// accepted waits for the answer to a start.
func (s *supervisor) accepted(ctx context.Context) (pid int, err error) {
	s.alive = false
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	kind, body, err := receiveMessage(s.conn)
	if !stop() {
		return 0, fmt.Errorf("starting a process: %w", context.Cause(ctx))
	}
	switch {
	case err != nil:
		return 0, ErrLost
	case kind == msgFailed:
		failure := &StartError{}
		if err := pack.Decode(body, failure, packStartError); err != nil {
			return 0, err
		}
		s.alive = true
		return 0, failure
	case kind != msgStarted:
		return 0, errMalformed
	}
	if err := pack.Decode(body, &pid, pack.Int); err != nil {
		return 0, err
	}
	s.alive = true
	return pid, nil
}

// superviseDetached makes this supervisor the keeper of what its call left running: it reaps, ends
// nothing, and goes when the last has gone. It holds nothing of the pool's program but the socket,
// by which the pool sees its end; the pool's own end is none of its business.
func (r *supervisedCall) superviseDetached() {
	r.group.release()
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		// whoever reads what the pool's program says to the end does not wait for the kept
		_ = syscall.Dup3(int(null.Fd()), 2, 0)
		_ = null.Close()
	}
	for !r.empty {
		pid, err := syscall.Wait4(-1, nil, syscall.WALL, nil)
		r.empty = pid <= 0 && err != syscall.EINTR
	}
}

// detach hands what a call left running to the environment, with its supervisor as the one that
// reaps. The supervisor is no longer the pool's to end.
func (p *Pool) detach(s *supervisor) {
	p.mu.Lock()
	delete(p.all, s)
	p.detached[s] = struct{}{}
	closed := p.closed
	p.mu.Unlock()
	if closed {
		_ = s.conn.Close()
	}
	if s.group != nil && s.group.moveToEnvironment() {
		p.recycleGroup(s.group)
	} else {
		s.group.Close()
	}
	p.wg.Go(func() { p.waitDetached(s) })
}

// waitDetached waits for a keeper's end, or for the pool's.
func (p *Pool) waitDetached(s *supervisor) {
	_, _, err := receiveMessage(s.conn)
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if err != nil && closed {
		_ = s.proc.Release() // it stays among the pids, so that no sweep takes it for a stray
		return
	}
	_ = s.conn.Close()
	_, _ = s.proc.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.detached, s)
	delete(p.pids, s.proc.Pid)
}
