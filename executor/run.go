// Package executor runs one process of a call on an environment and reports how it ended. The
// packages below it:
//
//	capture         stored output of tools, and its summaries
//	process         start, supervise, stream, stop: the only package that starts processes
//	cgroup          control groups, which prove that no process of a call is left
//	files           files beneath one root, and trees of them
//	host            the host environment
//	agent           the client of dray-agent, which works inside a container
//	docker          container environments of a Docker engine
//	agentbin        the agent programs, embedded in the daemon
//	executortest    the contract suite that every environment passes
//	hostiletest     tests with hostile tools, containers and engines
package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/executor/process"
)

// Causes with which a call's context is cancelled. They determine the reason of the result.
var (
	ErrTimeout     = errors.New("the call timed out")
	ErrIdleTimeout = errors.New("the tool printed nothing for longer than its idle timeout")
	ErrCancelled   = errors.New("the call was cancelled")
	ErrShutdown    = errors.New("the daemon shut down")
	ErrOutputLimit = errors.New("the tool's output can no longer be captured")
)

// Runner starts processes on environments and captures their output.
type Runner struct {
	Captures *capture.Store
	// Grace is the time between TERM and KILL.
	Grace time.Duration
}

// Options are the parameters of one run.
type Options struct {
	// ID is the invocation's; its captures are stored under it.
	ID string
	// Stdin is what the process reads; nil is an empty stdin. An io.Closer is closed when the process
	// has ended, which ends a read that waits for a client.
	Stdin io.Reader
	// Control receives operations on the running process; nil for none.
	Control <-chan dray.Control
	// Idle is the longest time without output on either stream; zero is unlimited.
	Idle time.Duration
	// Rewrite returns a filter for the paths in a text (dray.Call); nil leaves the text unchanged. The
	// raw output is captured as well; the sink and the result's text get the rewritten one.
	Rewrite func(to io.Writer) dray.TextFilter
	// Redact returns a filter that replaces secrets (dray.Call); nil leaves the output unchanged. The
	// captures, the sink and the result get only what it passes on.
	Redact func(to dray.RedactedWriter) dray.TextFilter
}

// Run starts a process, copies its stdin and output, and blocks until the process and all its
// descendants have ended. When the context ends, they are stopped, and the reason is the context's
// cause. They are also stopped when the output cannot be captured up to the limit. Run returns an
// error if the process could not be started or its end is unknown; the Outcome has the output until
// then. The caller must call Release.
//
// A panic, for example in the sink, stops the process. Run panics again when all has ended, and
// there is no Outcome to release (EX-18).
func (r *Runner) Run(ctx context.Context, env dray.Environment, spec dray.ProcessSpec, opts Options,
	sink dray.Sink,
) (Outcome, error) {
	out := Outcome{stdout: r.newStream(opts, dray.Stdout), stderr: r.newStream(opts, dray.Stderr)}
	defer out.discard()
	spec.Grace = r.Grace
	started := time.Now()
	proc, err := env.Start(ctx, spec)
	if err != nil {
		closeStdin(opts.Stdin)
		out.summarize()
		if u, ok := errors.AsType[*process.UnconfirmedError](err); ok {
			out.Result.Metadata.Kill = &dray.KillReport{Survivors: u.Survivors}
		}
		if ctx.Err() != nil {
			out.stopped(context.Cause(ctx))
			return out, nil // the result has the cause
		}
		return out, hintAtShell(err, spec.Argv)
	}
	run := &run{
		Options: opts, proc: proc, sink: sink, out: &out, terminal: spec.Terminal != nil,
		tasks: taskGroup{onPanic: func() { proc.Stop(0) }},
	}
	exit, cause, err := run.copyUntilExit(ctx, r.Grace)
	out.Result.ExecDuration = time.Since(started)
	out.summarize()
	out.Result.Results, out.SessionState = exit.Results, exit.SessionState
	out.Result.Metadata.Kill = &dray.KillReport{
		Survivors: exit.Survivors, Leftover: exit.Leftover, Kept: exit.KeptPIDs,
	}
	if err == nil {
		out.setReason(exit, cause)
	}
	out.warnIncomplete()
	return out, err
}

// hintAtShell gives the error of a program that was not found another hint if its name is a command
// line, or a command that only shells have.
func hintAtShell(err error, argv []string) error {
	if len(argv) == 0 || dray.CodeOf(err) != dray.CodeExecutableNotFound {
		return err
	}
	name := argv[0]
	const instead = "run sh -c LINE, or use the tool shell"
	switch {
	case strings.ContainsAny(name, " \t\n;&|<>$`"):
		return dray.AsError(err).WithHint("no shell reads this: pass each argument by itself, or %s",
			instead)
	case slices.Contains(shellCommands, name):
		return dray.AsError(err).WithHint("only shells and their sessions have %s: %s", name, instead)
	default:
		return err
	}
}

// shellCommands are commands of shells that programs cannot replace.
var shellCommands = []string{
	"alias", "cd", "eval", "exec", "exit", "export", "set", "source", "umask", "unset",
}

// run is a process between its start and its end.
type run struct {
	Options
	proc     dray.Process
	sink     dray.Sink
	out      *Outcome
	terminal bool
	tasks    taskGroup
	watch    *watchdog
}

// copyUntilExit copies all streams until the process has ended. The cause is set if the process was
// stopped. A process without control and with little input needs one goroutine beside the caller's.
func (r *run) copyUntilExit(ctx context.Context, grace time.Duration,
) (exit dray.Exit, cause, err error) {
	r.tasks.Run(r.sink.Started)
	// warnings for this call alone, beside those of the environment
	if w, ok := r.proc.(interface{ Warnings() []string }); ok {
		r.tasks.Run(func() { r.out.warn(w.Warnings()...) })
	}
	r.watch = newWatchdog(ctx, r.Idle, func() {
		r.tasks.Go(func() { r.proc.Stop(grace) }, nil)
	})
	ended := make(chan struct{})
	if r.Control != nil {
		r.tasks.Go(func() { applyControls(r.proc, r.Control, ended) }, nil)
	}
	r.tasks.Go(r.output(&r.out.stderr))
	r.copyStdin()
	r.tasks.RunElse(r.output(&r.out.stdout)) // its end comes with the process's
	r.tasks.Run(func() { exit, err = r.proc.Wait() })
	close(ended)
	cause = r.watch.end()
	closeStdin(r.Stdin)
	r.tasks.wait()
	return exit, cause, err
}

// pipeCapacity is the number of bytes that any new pipe accepts without blocking.
const pipeCapacity = 4096

// copyStdin copies stdin in a goroutine, unless a new pipe takes all of it at once.
func (r *run) copyStdin() {
	buffered, ok := r.Stdin.(interface{ Len() int })
	small := r.Stdin == nil || ok && buffered.Len() <= pipeCapacity
	copyAll := func() {
		w := r.proc.Stdin()
		if r.Stdin != nil {
			_, _ = io.Copy(w, &watchedStdin{r.Stdin, r.watch}) // a tool need not read its stdin
		}
		_ = w.Close()
	}
	if small && !r.terminal {
		r.tasks.Run(copyAll)
		return
	}
	r.tasks.Go(copyAll, nil)
}

// watchedStdin reports each read.
type watchedStdin struct {
	io.Reader
	watch *watchdog
}

func (s *watchedStdin) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	s.watch.used()
	return n, err
}

func closeStdin(stdin io.Reader) {
	if c, ok := stdin.(io.Closer); ok {
		_ = c.Close()
	}
}

// applyControls calls each function received from control with proc until ended is closed.
func applyControls(proc dray.Process, control <-chan dray.Control, ended <-chan struct{}) {
	for {
		select {
		case do := <-control:
			do(proc)
		case <-ended:
			return
		}
	}
}

// output returns the function that copies a stream to its capture and the sink, and what is called
// instead after a panic: the process does not end before its streams are read to their end.
func (r *run) output(s *streamCapture) (copyAll, drain func()) {
	t := &streamSink{
		streamCapture: s, sink: r.sink, watch: r.watch, tasks: &r.tasks, delay: flushDelay,
	}
	if r.terminal {
		t.delay = terminalFlushDelay
	}
	if r.Rewrite != nil {
		t.filter = r.Rewrite(rewrittenSink{t})
	}
	if r.Redact != nil {
		t.redaction = r.Redact(redactedSink{t})
	}
	return func() { t.copyFrom(r.proc.Output(s.stream)) },
		func() { _, _ = io.Copy(io.Discard, r.proc.Output(s.stream)) }
}

// Most calls that run at a time print little, so a stream is read into a small buffer until that is
// full for the first time.
var smallBuffers, largeBuffers = buffersOf(4 << 10), buffersOf(64 << 10)

func buffersOf(size int) *sync.Pool {
	return &sync.Pool{New: func() any { b := make([]byte, size); return &b }}
}

// copyBuffered passes the bytes of a stream to write with one buffer. It returns true at the end of
// the stream, and false if untilFull is set and a read filled the buffer.
func copyBuffered(from io.Reader, buffers *sync.Pool, untilFull bool, write func([]byte)) bool {
	buf := buffers.Get().(*[]byte) //nolint:forcetypeassert,errcheck // the pool has no other type
	defer buffers.Put(buf)
	for {
		n, err := from.Read(*buf)
		if n > 0 {
			write((*buf)[:n])
		}
		if err != nil {
			return true
		}
		if untilFull && n == len(*buf) {
			return false
		}
	}
}

// watchdog calls stop once: when its context ends, after the idle timeout, or when output cannot be
// captured. It is safe for concurrent use.
type watchdog struct {
	stop   func() // must not block
	used   func() // called for input and output
	idle   time.Duration
	timer  *time.Timer // nil without an idle timeout
	detach func() bool // from the context

	mu    sync.Mutex
	ended bool
	cause error
}

func newWatchdog(ctx context.Context, idle time.Duration, stop func()) *watchdog {
	w := &watchdog{stop: stop, used: terminalUse(ctx), idle: idle}
	if idle > 0 {
		w.timer = time.AfterFunc(idle, func() { w.stopWith(ErrIdleTimeout) })
	}
	w.detach = context.AfterFunc(ctx, func() { w.stopWith(context.Cause(ctx)) })
	return w
}

// outputSeen restarts the idle timeout.
func (w *watchdog) outputSeen() {
	w.used()
	if w.timer != nil {
		w.timer.Reset(w.idle)
	}
}

func (w *watchdog) stopWith(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.cause != nil {
		return
	}
	w.cause = cause
	w.stop()
}

// end returns the cause with which the process was stopped, if it was. stop is not called any more.
func (w *watchdog) end() error {
	w.detach()
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	return w.cause
}

// taskGroup runs the functions of one call, in goroutines or in the caller's. It records the first
// panic; wait raises it in the call's own goroutine, so that only that one has to recover.
type taskGroup struct {
	group sync.WaitGroup
	// onPanic is called at the first panic, to stop what the call started.
	onPanic func()

	mu    sync.Mutex
	panic *PanicError
}

// Go starts a goroutine. If work panics, otherwise is called there, unless it is nil.
func (g *taskGroup) Go(work, otherwise func()) {
	g.group.Go(func() { g.RunElse(work, otherwise) })
}

// RunElse is Go in the caller's goroutine.
func (g *taskGroup) RunElse(work, otherwise func()) {
	if !g.Run(work) && otherwise != nil {
		g.Run(otherwise)
	}
}

// Run calls work in the caller's goroutine and reports whether it returned without a panic.
func (g *taskGroup) Run(work func()) (ok bool) {
	defer func() {
		if p := Recovered(recover()); p != nil {
			g.record(p)
		}
	}()
	work()
	return true
}

// record keeps the first panic: later ones are its consequences.
func (g *taskGroup) record(p *PanicError) {
	g.mu.Lock()
	first := g.panic == nil
	if first {
		g.panic = p
	}
	g.mu.Unlock()
	if first {
		g.onPanic()
	}
}

// wait blocks until all goroutines have ended. It panics if one of the functions did.
func (g *taskGroup) wait() {
	g.group.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.panic != nil {
		panic(g.panic)
	}
}

// PanicError is a recovered panic of a goroutine that worked for a call, with its stack. It is
// raised again in the call's own goroutine.
type PanicError struct {
	Value any
	Stack []byte
}

// Recovered returns the PanicError for a value of recover, nil for no panic. A value that is a
// PanicError already is returned unchanged.
func Recovered(value any) *PanicError {
	if value == nil {
		return nil
	}
	if p, ok := value.(*PanicError); ok {
		return p
	}
	return &PanicError{Value: value, Stack: debug.Stack()}
}

// Error returns the panic's value and stack.
func (p *PanicError) Error() string {
	return fmt.Sprintf("%v, in a goroutine of the call:\n%s", p.Value, p.Stack)
}
