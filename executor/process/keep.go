package process

import (
	"os"
	"syscall"
)

// superviseDetached makes this supervisor the keeper of what its call left running: it reaps, ends nothing, and goes when the last has gone. It holds
// nothing of the pool's program but the socket, by which the pool sees its end; the pool's own end is none of its business.
func (r *supervisedCall) superviseDetached() {
	r.group.release()
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		_ = syscall.Dup3(int(null.Fd()), 2, 0) // whoever reads what the pool's program says to the end does not wait for the kept
		_ = null.Close()
	}
	for !r.empty {
		pid, err := syscall.Wait4(-1, nil, syscall.WALL, nil)
		r.empty = pid <= 0 && err != syscall.EINTR
	}
}

// detach hands what a call left running to the environment, with its supervisor as the one that reaps. The supervisor is no longer the
// pool's to end.
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
