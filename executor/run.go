package executor

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/capture"
)

// Causes with which a call's context is cancelled; they become the reason of its end.
var (
	ErrTimeout     = errors.New("the call timed out")
	ErrIdleTimeout = errors.New("the tool printed nothing for longer than its idle timeout")
	ErrCancelled   = errors.New("the call was cancelled")
	ErrShutdown    = errors.New("the daemon shut down")
	ErrOutputLimit = errors.New("what the tool prints can no longer be kept")
)

// Runner starts processes on environments and captures what they print.
type Runner struct {
	Captures *capture.Store
	// Grace is the time between TERM and KILL.
	Grace time.Duration
}

// Options belong to one run.
type Options struct {
	// ID is the invocation's; its captures are kept under it.
	ID string
	// Stdin is what the process reads; nil is an empty stdin. Where it is an io.Closer it is closed
	// when the process is over, so that a read that waits for a client ends.
	Stdin io.Reader
	// Control brings what is to be done to the process while it runs; nil is nothing.
	Control <-chan dray.Control
	// Idle is the longest silence on both streams; zero is any.
	Idle time.Duration
	// Rewrite makes a filter for the paths in a text (dray.Call); nil leaves it as it is. What was
	// printed is kept beside what becomes of it, which the sink and the result's text have.
	Rewrite func(to io.Writer) dray.TextFilter
}

// Run starts a process, feeds it, captures it and waits until it and all that descends from it are
// over. When the context ends, they are ended; the reason is the context's cause. A process that
// could not be started, or whose end is not known, is an error; what was printed until then is in
// the Outcome all the same. A process whose output cannot be kept as far as the limit allows is
// ended, too. The caller releases the Outcome.
//
// A panic, be it the sink's, ends the process and is raised when everything is over (EX-18); then
// there is no Outcome to release.
func (r *Runner) Run(ctx context.Context, env dray.Environment, spec dray.ProcessSpec, opts Options,
	sink dray.Sink,
) (Outcome, error) {
	out := Outcome{stdout: r.outlet(opts, dray.Stdout), stderr: r.outlet(opts, dray.Stderr)}
	defer out.discard()
	spec.Grace = r.Grace
	begun := time.Now()
	proc, err := env.Start(ctx, spec)
	if err != nil {
		closeStdin(opts.Stdin)
		out.summarize()
		if ctx.Err() != nil {
			out.stopped(context.Cause(ctx))
			return out, nil // the result says it
		}
		return out, err
	}
	exit, cause, err := r.copyUntilExit(ctx, proc, opts, sink, &out)
	out.Result.ExecDuration = time.Since(begun)
	out.summarize()
	out.Result.Metadata.Kill = &dray.KillReport{
		Survivors: exit.Survivors, Leftover: exit.Leftover,
		Kept: exit.KeptPIDs,
	}
	if err == nil {
		out.setReason(exit, cause)
	}
	out.warnUnkept()
	return out, err
}

// copyUntilExit moves the bytes until the end and says why it came: cause is set where we ended it.
func (r *Runner) copyUntilExit(ctx context.Context, proc dray.Process, opts Options, sink dray.Sink,
	out *Outcome,
) (exit dray.Exit, cause, err error) {
	all := &taskGroup{onPanic: func() { proc.Stop(0) }}
	all.Run(sink.Started)
	// what the place did differently for this call alone
	if w, ok := proc.(interface{ Warnings() []string }); ok {
		all.Run(func() { out.Result.Metadata.Warnings = append(out.Result.Metadata.Warnings, w.Warnings()...) })
	}
	watch := newWatch(proc, r.Grace, opts.Idle)
	ended := make(chan struct{})
	for _, o := range out.outlets() {
		all.drain(proc, &streamSink{streamCapture: o, sink: sink, watch: watch}, opts)
	}
	all.Go(func() { copyStdin(proc, opts.Stdin) }, nil)
	all.Go(func() { watch.until(ctx, ended) }, nil)
	all.Go(func() { applyControls(proc, opts.Control, ended) }, nil)
	all.Run(func() { exit, err = proc.Wait() })
	close(ended)
	closeStdin(opts.Stdin)
	all.wait()
	all.rethrow()
	return exit, watch.cause, err
}

func copyStdin(proc dray.Process, stdin io.Reader) {
	w := proc.Stdin()
	if stdin != nil {
		_, _ = io.Copy(w, stdin) // a tool that does not read its stdin is no fault of the call
	}
	_ = w.Close()
}

// applyControls does to the process what it is told until the process is over.
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

func closeStdin(stdin io.Reader) {
	if c, ok := stdin.(io.Closer); ok {
		_ = c.Close()
	}
}

// bufferPool is how much is read of a stream at once. A tool that prints little is read into less:
// of the calls that run at a time most are silent.
var bufferPool, smallChunk = buffersOf(64 << 10), buffersOf(4 << 10)

func buffersOf(size int) *sync.Pool {
	return &sync.Pool{New: func() any { b := make([]byte, size); return &b }}
}

// drain reads a stream to its end in a goroutine of its own. A filter has one more.
func (c *taskGroup) drain(proc dray.Process, t *streamSink, opts Options) {
	if opts.Rewrite != nil {
		t.rewrite(opts.Rewrite)
		c.Go(t.filter.flushLoop, nil)
	}
	c.Go(func() { t.drain(proc.Output(t.stream)) }, func() { drainOutput(proc, t.stream) })
}

// drain reads a stream to its end, whatever becomes of what it reads: a tool never waits for the
// disk to have room.
func (t *streamSink) drain(from io.Reader) {
	if t.filter != nil {
		defer close(t.filter.done)
	}
	if over := copyBuffered(from, smallChunk, true, t.write); !over {
		copyBuffered(from, bufferPool, false, t.write)
	}
	if t.filter != nil {
		t.paths = t.filter.end()
	}
}

// drainOutput reads the rest of a stream for nobody: what the process is in does not end before its
// reader has had everything.
func drainOutput(proc dray.Process, stream dray.Stream) {
	_, _ = io.Copy(io.Discard, proc.Output(stream))
}

// copyBuffered reads with one buffer to the end of a stream or, where it may be too small, until it
// is full.
func copyBuffered(from io.Reader, buffers *sync.Pool, small bool, take func([]byte)) (over bool) {
	buf := buffers.Get().(*[]byte) //nolint:forcetypeassert,errcheck // nothing else is put there
	defer buffers.Put(buf)
	for {
		n, err := from.Read(*buf)
		if n > 0 {
			take((*buf)[:n])
		}
		switch {
		case err != nil:
			return true
		case small && n == len(*buf):
			return false
		}
	}
}

// watchdog ends a process when its context does, when it is silent for too long, or when what it
// prints can no longer be kept.
type watchdog struct {
	proc     dray.Process
	grace    time.Duration
	idle     time.Duration
	activity chan struct{}
	overflow chan struct{}
	cause    error // read after until has returned
}

func newWatch(proc dray.Process, grace, idle time.Duration) *watchdog {
	return &watchdog{
		proc: proc, grace: grace, idle: idle, activity: make(chan struct{}, 1),
		overflow: make(chan struct{}, 1),
	}
}

// outputSeen says that the process printed something.
func (w *watchdog) outputSeen() {
	if w.idle > 0 {
		notify(w.activity)
	}
}

// captureFailed says that something of it is not kept.
func (w *watchdog) captureFailed() { notify(w.overflow) }

func notify(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

func (w *watchdog) until(ctx context.Context, ended <-chan struct{}) {
	var silence <-chan time.Time
	timer := time.NewTimer(max(w.idle, time.Hour))
	defer timer.Stop()
	if w.idle > 0 {
		timer.Reset(w.idle)
		silence = timer.C
	}
	for {
		select {
		case <-ended:
			return
		case <-w.activity:
			timer.Reset(w.idle)
			continue
		case <-w.overflow:
			w.cause = ErrOutputLimit
		case <-silence:
			w.cause = ErrIdleTimeout
		case <-ctx.Done():
			w.cause = context.Cause(ctx)
		}
		w.proc.Stop(w.grace)
		return
	}
}
