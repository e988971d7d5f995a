package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/pack"
)

// Process is a started process with its descendants. It is safe for concurrent use.
type Process struct {
	// Pid is the leader's pid in the pid namespace of the pool.
	Pid     int
	streams streams

	done     chan struct{} // closed when exit and err are set
	exit     Exit
	err      error
	panicErr error // a panic of the goroutine that watches the process, with its stack

	mu           sync.Mutex
	sup          *supervisor // nil after the end: it may serve another call
	stopTimer    *time.Timer // gives up a supervisor that does not stop the process
	stopDeadline time.Time
}

// watchExit waits for the end of a process in a goroutine of the pool.
func (p *Pool) watchExit(s *supervisor, pid int, st streams, endCall func() (alone bool)) *Process {
	proc := &Process{Pid: pid, streams: st, done: make(chan struct{}), sup: s}
	p.wg.Go(func() {
		defer close(proc.done)
		defer proc.streams.finish()
		defer func() {
			if v := recover(); v != nil { // Wait panics with it
				proc.panicErr = fmt.Errorf("%v, in the goroutine that watches a process:\n%s", v, debug.Stack())
				p.release(s)
			}
		}()
		exit, err := s.exited()
		proc.release()
		if alone := endCall(); alone && exit.OOM != dray.OOMNo {
			exit.OOM = dray.OOMCertain
		}
		proc.exit, proc.err = p.completeExit(s, exit, err)
	})
	return proc
}

// completeExit recycles, detaches or kills the supervisor of a process that has ended, and adds
// what that shows to exit.
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

// release detaches the process from its supervisor, which may then serve another call.
func (p *Process) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sup = nil
	if p.stopTimer != nil {
		p.stopTimer.Stop()
	}
}

// Stdin writes to the process. Writes fail when the process has ended or has closed its end. Close
// on a terminal writes its end-of-file character.
func (p *Process) Stdin() io.WriteCloser { return p.streams.stdin }

// Stdout reads what the process writes. The caller must read it to the end. It has all output of a
// terminal.
func (p *Process) Stdout() io.Reader { return p.streams.stdout }

// Stderr is the other output. The caller must read it to the end too.
func (p *Process) Stderr() io.Reader { return p.streams.stderr }

// Resize sets the size of the process's terminal; the foreground job receives SIGWINCH. It fails
// with dray.ErrNoTerminal if there is none, and does nothing after the end of the process.
func (p *Process) Resize(size dray.TerminalSize) error {
	if p.streams.terminal == nil {
		return dray.ErrNoTerminal
	}
	err := p.streams.terminal.resize(size)
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return err
}

// Signal sends a signal to the leader. It does nothing after the end of the process.
func (p *Process) Signal(sig syscall.Signal) error {
	return p.send(msgSignal, pack.Append(nil, &sig, pack.Int))
}

// Stop ends the process and its descendants: TERM, then KILL after grace. A second Stop can only
// shorten the grace. If the supervisor does not report the end in time, because a tool with its
// credentials stops it or the machine is too busy, Wait returns ErrLost, and what is left is killed
// as soon as that is possible.
func (p *Process) Stop(grace time.Duration) {
	// Wait returns the error of a lost supervisor
	_ = p.send(msgStop, pack.Append(nil, &grace, pack.Int))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sup == nil {
		return
	}
	_ = p.sup.proc.Signal(syscall.SIGCONT) // it may be stopped
	deadline := time.Now().Add(grace + reportTimeout)
	if p.stopTimer != nil {
		if p.stopDeadline.Before(deadline) {
			return
		}
		p.stopTimer.Stop()
	}
	p.stopDeadline, p.stopTimer = deadline, time.AfterFunc(time.Until(deadline), p.giveUp)
}

// giveUp makes Wait return ErrLost. It does not kill the supervisor, because on the host nothing
// else knows the processes of the call: when its connection is closed, the supervisor kills them.
func (p *Process) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sup != nil {
		_ = p.sup.conn.Close()
	}
}

// send sends a message to the supervisor, and gives it up if it does not read.
func (p *Process) send(kind byte, body []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sup == nil {
		return nil
	}
	err := p.sup.send(kind, body)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = p.sup.conn.Close()
	}
	return err
}

// Done is closed when Wait does not block any more.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait blocks until the process and its descendants have ended. It returns ErrLost if the
// supervisor is lost, and ErrTraced if a tracer holds the leader; the end is not known then. A
// panic in the goroutine that watches the process is repeated here, so that it ends only this call
// (EX-18).
func (p *Process) Wait() (Exit, error) {
	<-p.done
	if p.panicErr != nil {
		panic(p.panicErr)
	}
	return p.exit, p.err
}

// Adapt returns a process as a dray.Process.
func Adapt(p *Process) dray.Process { return adapter{p} }

type adapter struct{ *Process }

func (p adapter) Output(stream dray.Stream) io.Reader {
	if stream == dray.Stderr {
		return p.Stderr()
	}
	return p.Stdout()
}

// Wait is Process.Wait with the code agent_lost for its errors.
func (p adapter) Wait() (dray.Exit, error) {
	exit, err := p.Process.Wait()
	survivors := dray.Survivors{Proven: exit.Proven, PIDs: exit.Survivors}
	if err != nil {
		hint := "look for processes that it left, then repeat the call"
		if exit.Proven && len(exit.Survivors) == 0 {
			hint = "all its processes were killed; check what it did before you repeat it"
		}
		return dray.Exit{Survivors: survivors},
			dray.Errorf(dray.CodeAgentLost, "the call ended with an unknown exit status: %w", err).
				WithHint("something on the host killed or traced the call: %s", hint)
	}
	return dray.Exit{
		Code: exit.Code, Signal: exit.Signal, Leftover: exit.Leftover, KeptPIDs: exit.Kept,
		Survivors: survivors, OOM: exit.OOM,
	}, nil
}

// WrapStartError gives the error of a start its code and hint. dir is the working directory as the
// caller knows it.
func WrapStartError(err error, dir string) error {
	var start *StartError
	switch {
	case errors.Is(err, ErrClosed):
		return dray.Errorf(dray.CodeShuttingDown, "start a process: %w", err).
			WithHint("repeat the call when the daemon runs again")
	case errors.Is(err, ErrLost), errors.Is(err, ErrAbandoned):
		return &UnconfirmedError{
			Err: dray.Errorf(dray.CodeAgentLost, "the process may have started: %w", err).
				WithHint("something killed the supervisor: check what the call did before you repeat it"),
		}
	case !errors.As(err, &start):
		return err
	}
	named := *start
	if named.Step == StepDir || named.Step == StepRealDir {
		named.Path = dir
	}
	return dray.Errorf(named.Code(), "%w", &named).WithHint("%s", Hint(named.Code()))
}

// Hint returns the hint for a start that failed with code.
func Hint(code dray.Code) string {
	switch code {
	case dray.CodeExecutableNotFound:
		return "check the spelling, and that the program is installed and in PATH where the call runs"
	case dray.CodeNotExecutable:
		return "check that the file is an executable, and that its mode allows the user to run it"
	case dray.CodeBadCwd:
		return "set cwd to a directory that exists where the call runs and that its user may enter"
	case dray.CodeBadUser:
		return "check remoteUser in devcontainer.json against /etc/passwd and /etc/group of the image"
	case dray.CodeHelperMissing:
		return "mount a devpts file system at /dev/pts where the call runs, or call without tty"
	case dray.CodeAgentLost:
		return "repeat the call; if it fails again, find what kills dray's processes where it runs"
	default:
		return "a limit of the system was reached: for processes, open files or memory, end some or " +
			"raise the limit; for argv and environment (128 KiB for one string), use stdin or a file"
	}
}

// Exit is the end of a process.
type Exit struct {
	// Code is the exit code if Signal is zero.
	Code   int
	Signal syscall.Signal
	// Leftover is the number of descendants that ran when the leader ended by itself. They were ended
	// too, except those in Kept.
	Leftover int
	// Kept are the pids of leftover processes that Spec.Keep kept running.
	Kept []int
	// OOM is whether the kernel killed the leader because memory ran out.
	OOM dray.OOM
	// Survivors are the pids of processes that were still there a second or more after KILL.
	Survivors []int
	// Proven reports whether Survivors is complete: the kernel has reported that no descendant is
	// left, or those that are left are listed.
	Proven bool

	unknown       bool // how the leader ended
	tracerBlocked bool // the supervisor waits for a tracer, and serves no other call
}

func packExit(f *pack.Fields, e *Exit) {
	pack.Int(f, &e.Code)
	pack.Int(f, &e.Signal)
	pack.Int(f, &e.Leftover)
	pack.List(f, &e.Kept, pack.NoLimit, pack.Int)
	pack.Int(f, &e.OOM)
	pack.List(f, &e.Survivors, pack.NoLimit, pack.Int)
	pack.Bool(f, &e.Proven)
	pack.Bool(f, &e.unknown)
	pack.Bool(f, &e.tracerBlocked)
}

// names are the signals of Linux on amd64 and arm64, by number (signal(7)).
var names = [...]string{
	1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT",
	7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2",
	13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 16: "SIGSTKFLT", 17: "SIGCHLD", 18: "SIGCONT",
	19: "SIGSTOP", 20: "SIGTSTP", 21: "SIGTTIN", 22: "SIGTTOU", 23: "SIGURG", 24: "SIGXCPU",
	25: "SIGXFSZ", 26: "SIGVTALRM", 27: "SIGPROF", 28: "SIGWINCH", 29: "SIGIO", 30: "SIGPWR",
	31: "SIGSYS",
}

// SignalName returns the name of a signal, such as "SIGKILL" or "SIGRTMIN+1".
func SignalName(sig syscall.Signal) string {
	n := int(sig)
	switch {
	case n > 0 && n < len(names):
		return names[n]
	case n >= rtMin && n <= rtMax:
		return fmt.Sprintf("SIGRTMIN+%d", n-rtMin)
	default:
		return fmt.Sprintf("SIG%d", n)
	}
}

// The real-time signals that programs can use. The C libraries use the two below them.
const (
	rtMin = 34
	rtMax = 64
)

// ParseSignal parses the name of a signal in any case, with or without SIG, or its number, 1 to 64.
func ParseSignal(text string) (syscall.Signal, bool) {
	if n, err := strconv.ParseUint(text, 10, 8); err == nil {
		return syscall.Signal(n), n >= 1 && n <= rtMax
	}
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	for n := 1; n <= rtMax; n++ {
		if sig := syscall.Signal(n); SignalName(sig) == name && (n < len(names) || n >= rtMin) {
			return sig, true
		}
	}
	return 0, false
}

// SignalNames returns the names of the signals below the real-time signals, by number.
func SignalNames() []string { return slices.Clone(names[1:]) }
