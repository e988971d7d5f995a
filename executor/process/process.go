package process

import (
	"encoding/binary"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// Process is a started process and all that descends from it.
type Process struct {
	// Pid is the leader's, in the pid namespace that the pool lives in.
	Pid            int
	stdin          *os.File
	stdout, stderr *output

	done chan struct{} // closed when exit and err are set
	exit Exit
	err  error

	mu  sync.Mutex
	sup *supervisor // nil once the process is over: the supervisor may serve another call by then
}

// follow waits for the end in a goroutine that the pool owns.
func (p *Pool) follow(s *supervisor, pid int, st *streams) *Process {
	proc := &Process{Pid: pid, stdin: st.stdin, stdout: st.stdout, stderr: st.stderr, done: make(chan struct{}), sup: s}
	p.wg.Go(func() {
		exit, err := s.exited()
		proc.mu.Lock()
		proc.sup = nil
		proc.mu.Unlock()
		proc.exit, proc.err = exit, err
		if err == nil && len(exit.Survivors) == 0 {
			p.put(s)
		} else {
			p.discard(s)
		}
		proc.stdout.finish()
		proc.stderr.finish()
		_ = proc.stdin.Close()
		close(proc.done)
	})
	return proc
}

func (s *supervisor) exited() (Exit, error) {
	kind, body, err := receiveMessage(s.conn)
	if err != nil || kind != msgExited {
		return Exit{}, ErrLost
	}
	return decodeExit(body)
}

// Stdin writes to the process. It fails once the process is over or has closed its end.
func (p *Process) Stdin() io.WriteCloser { return p.stdin }

// Stdout and Stderr read what the process writes; each must be read to its end.
func (p *Process) Stdout() io.Reader { return p.stdout }

// Stderr is the other stream.
func (p *Process) Stderr() io.Reader { return p.stderr }

// Signal sends one signal to the leader. A process that is over takes none, without an error.
func (p *Process) Signal(sig syscall.Signal) error {
	return p.tell(msgSignal, binary.AppendUvarint(nil, uint64(sig))) //nolint:gosec // a signal number
}

// Stop ends the process and all that descends from it: TERM, the grace, KILL. A second Stop can only shorten the grace.
func (p *Process) Stop(grace time.Duration) {
	_ = p.tell(msgStop, binary.AppendVarint(nil, int64(grace))) // a supervisor that is gone has killed all or is reported by Wait
}

func (p *Process) tell(kind byte, body []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sup == nil {
		return nil
	}
	return sendMessage(p.sup.conn, kind, body)
}

// Done is closed when Wait would not wait.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the process and its descendants are over. ErrLost means that the supervisor died, and the end is not known.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	return p.exit, p.err
}
