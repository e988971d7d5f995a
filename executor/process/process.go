package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/pack"
)

// Process is a started process and all that descends from it.
type Process struct {
	// Pid is the leader's, in the pid namespace that the pool lives in.
	Pid     int
	streams streams

	done     chan struct{} // closed when exit and err are set
	exit     Exit
	err      error
	panicErr error // a panic of ours, with its stack, that Wait raises again

	mu sync.Mutex
	// nil once the process is over: the supervisor may serve another call by then
	sup          *supervisor
	stopTimer    *time.Timer // ends a supervisor that does not do as it was told
	stopDeadline time.Time
}

// watchExit waits for the end in a goroutine that the pool owns.
func (p *Pool) watchExit(s *supervisor, pid int, st streams, alone func() bool) *Process {
	proc := &Process{Pid: pid, streams: st, done: make(chan struct{}), sup: s}
	p.wg.Go(func() {
		defer close(proc.done)
		defer proc.streams.finish()
		defer func() {
			// a defect: it is the call's, whose goroutine waits, and nobody else's
			if v := recover(); v != nil {
				proc.panicErr = fmt.Errorf("%v, in the goroutine that follows a process:\n%s", v, debug.Stack())
				p.release(s)
			}
		}()
		exit, err := s.exited()
		proc.release()
		if alone() && exit.OOM != dray.OOMNo {
			exit.OOM = dray.OOMCertain
		}
		proc.exit, proc.err = p.completeExit(s, exit, err)
	})
	return proc
}

// completeExit decides what becomes of a supervisor whose process is over, and completes what is
// known of the end.
func (p *Pool) completeExit(s *supervisor, exit Exit, err error) (Exit, error) {
	switch {
	case err != nil:
		exit.Survivors, exit.Proven = p.killSupervisor(s)
	case len(exit.Kept) > 0:
		p.detach(s)
	case len(exit.Survivors) == 0 && !exit.tracerBlocked:
		p.put(s)
	default:
		p.release(s)
	}
	if exit.unknown {
		err = ErrTraced
	}
	return exit, err
}

// release takes the supervisor from the process: from here on it is told nothing on behalf of this
// one.
func (p *Process) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sup = nil
	if p.stopTimer != nil {
		p.stopTimer.Stop()
	}
}

func (s *supervisor) exited() (Exit, error) {
	kind, body, err := receiveMessage(s.conn)
	if err != nil || kind != msgExited {
		return Exit{}, ErrLost
	}
	exit := Exit{Proven: true}
	err = pack.Decode(body, &exit, packExit)
	return exit, err
}

// Stdin writes to the process. It fails once the process is over or has closed its end. Closing a
// terminal's types its end-of-file character.
func (p *Process) Stdin() io.WriteCloser { return p.streams.stdin() }

// Stdout and Stderr read what the process writes; each must be read to its end. A terminal's output
// is all in Stdout.
func (p *Process) Stdout() io.Reader { return p.streams.stdout() }

// Stderr is the other stream.
func (p *Process) Stderr() io.Reader { return p.streams.stderr() }

// Resize changes the size of the process's terminal and tells the foreground job by SIGWINCH.
// Without a terminal it fails with dray.ErrNoTerminal; when the process is over it does nothing.
func (p *Process) Resize(size dray.TerminalSize) error {
	if p.streams.terminal == nil {
		return dray.ErrNoTerminal
	}
	err := p.streams.terminal.resize(size)
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// Signal sends one signal to the leader. A process that is over takes none, without an error.
func (p *Process) Signal(sig syscall.Signal) error {
	return p.send(msgSignal, pack.Append(nil, &sig, pack.Int))
}

// Stop ends the process and all that descends from it: TERM, the grace, KILL. A second Stop can
// only shorten the grace. A supervisor that does not bring it about (a tool with its rights can
// stop it) is killed in its turn, and the end is told as lost.
func (p *Process) Stop(grace time.Duration) {
	// a supervisor that is gone is reported by Wait
	_ = p.send(msgStop, pack.Append(nil, &grace, pack.Int))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sup == nil {
		return
	}
	_ = p.sup.proc.Signal(syscall.SIGCONT) // one that was stopped takes it up again
	due := time.Now().Add(grace + 2*killTimeout)
	if p.stopTimer != nil && p.stopDeadline.Before(due) {
		return
	}
	if p.stopTimer != nil {
		p.stopTimer.Stop()
	}
	p.stopDeadline, p.stopTimer = due, time.AfterFunc(time.Until(due), p.giveUp)
}

// giveUp kills the supervisor.
func (p *Process) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sup != nil {
		_ = p.sup.proc.Kill()
	}
}

// send sends a message. A supervisor that does not take it is of no further use.
func (p *Process) send(kind byte, body []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sup == nil {
		return nil
	}
	err := p.sup.send(kind, body)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = p.sup.proc.Kill()
	}
	return err
}

// Done is closed when Wait would not wait.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the process and its descendants are over. ErrLost means that the supervisor
// died, and the end is not known. A defect of the pool in its following of the process is raised
// here as a panic, so that it ends what waits, and nothing else.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	if p.panicErr != nil {
		panic(p.panicErr)
	}
	return p.exit, p.err
}

// Adapt gives a process the form that environments speak.
func Adapt(p *Process) dray.Process { return adapter{p} }

type adapter struct{ *Process }

// Output is one of the two streams.
func (p adapter) Output(stream dray.Stream) io.Reader {
	if stream == dray.Stderr {
		return p.Stderr()
	}
	return p.Stdout()
}

// Signal sends one signal to the process.
func (p adapter) Signal(sig syscall.Signal) error { return p.Process.Signal(sig) }

// Wait tells the end. Without a supervisor it is not known, and who survived only where something
// else proves it.
func (p adapter) Wait() (dray.Exit, error) {
	exit, err := p.Process.Wait()
	survivors := dray.Survivors{Proven: exit.Proven, PIDs: exit.Survivors}
	if err != nil {
		return dray.Exit{Survivors: survivors},
			dray.Errorf(dray.CodeAgentLost, "the end of the process is not known: %w", err).
				WithHint("%s", lostHint(exit))
	}
	return dray.Exit{
		Code: exit.Code, Signal: exit.Signal, Leftover: exit.Leftover, KeptPIDs: exit.Kept, Survivors: survivors, OOM: exit.OOM,
	}, nil
}

func lostHint(exit Exit) string {
	if exit.Proven && len(exit.Survivors) == 0 {
		return "something on the host killed the supervisor of this call, and all that it ran was ended; look for what it may have done before you repeat it"
	}
	return "something on the host killed the supervisor of this call; look for processes that it may have left"
}

// WrapStartError gives a failed start its code. The folder is the one that the caller knows,
// whatever path was used to enter it.
func WrapStartError(err error, dir string) error {
	var start *StartError
	switch {
	case errors.Is(err, ErrClosed):
		return dray.Errorf(dray.CodeShuttingDown, "starting a process: %w", err).
			WithHint("repeat the call when the daemon is up again")
	case errors.Is(err, ErrLost):
		return dray.Errorf(dray.CodeAgentLost, "it is not known whether the process started: %w", err).
			WithHint("something killed the supervisor of this call; look for what it may have done before you repeat it")
	case !errors.As(err, &start):
		return err
	}
	told := *start
	if told.Step == StepDir {
		told.Path = dir
	}
	return dray.Errorf(told.Code(), "%w", &told).WithHint("%s", Hint(told.Code()))
}

// Hint says what to do about a failed start.
func Hint(code dray.Code) string {
	switch code {
	case dray.CodeExecutableNotFound:
		return "check the spelling, that the program is installed where the call runs, and that it is in PATH there"
	case dray.CodeNotExecutable:
		return "check the file's mode and type: it must be an executable that its user may run"
	case dray.CodeBadCwd:
		return "give a cwd that exists where the call runs and that its user may enter"
	case dray.CodeBadUser:
		return "check remoteUser in devcontainer.json against /etc/passwd and /etc/group of the image"
	case dray.CodeHelperMissing:
		return "a terminal needs a devpts file system at /dev/pts and /dev/ptmx where the call runs; mount it, or call without tty"
	case dray.CodeAgentLost:
		return "repeat the call; if it happens again, look for what kills dray's processes where the call runs"
	default:
		return "a limit of the system was reached. Of processes or memory: end something, or raise it. Of argv and environment (128 KiB for one " +
			"string): pass what is long on stdin or in a file"
	}
}

// Exit is how a process ended.
type Exit struct {
	// Code is the exit code if Signal is zero.
	Code   int
	Signal syscall.Signal
	// Leftover counts descendants that were alive when the leader ended by itself; they were ended
	// too, but for those in Kept.
	Leftover int
	// Kept are the pids of those that Spec.Keep left running.
	Kept []int
	// OOM says whether the kernel ended the leader because memory ran out.
	OOM dray.OOM
	// Survivors are pids that did not go within five seconds of KILL.
	Survivors []int
	// Proven says that Survivors are all there are. It is false only beside ErrLost.
	Proven bool

	unknown bool // how the leader ended is not known
	// the supervisor waits for a tracer to let go of what has ended, and serves no more calls
	tracerBlocked bool
}

// packExit leaves Proven out: it is not the supervisor's to say.
func packExit(f *pack.Fields, e *Exit) {
	pack.Int(f, &e.Code)
	pack.Int(f, &e.Signal)
	pack.Int(f, &e.Leftover)
	pack.List(f, &e.Kept, pack.NoLimit, pack.Int)
	pack.Int(f, &e.OOM)
	pack.List(f, &e.Survivors, pack.NoLimit, pack.Int)
	pack.Bool(f, &e.unknown)
	pack.Bool(f, &e.tracerBlocked)
}
