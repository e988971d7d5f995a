package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/executor/process"
)

// Causes with which a call's context is cancelled; they become the reason of its end.
var (
	ErrTimeout   = errors.New("the call took longer than its timeout")
	ErrIdle      = errors.New("the tool printed nothing for longer than its idle timeout")
	ErrCancelled = errors.New("the call was cancelled")
	ErrShutdown  = errors.New("the daemon shut down")
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
	// Stdin is what the process reads; nil is an empty stdin. Where it is an io.Closer it is closed when the process is over, so that a
	// read that waits for a client ends.
	Stdin io.Reader
	// Control brings what is to be done to the process while it runs; nil is nothing.
	Control <-chan dray.Control
	// Idle is the longest silence on both streams; zero is any.
	Idle time.Duration
}

// Outcome is a finished run.
type Outcome struct {
	Result         dray.Result
	Stdout, Stderr *capture.Capture
}

// Run starts a process, feeds it, captures it and waits until it and all that descends from it are over. When the context ends, they are
// ended; the reason is the context's cause. A process that could not be started, or whose end is not known, is an error; what was
// printed until then is in the Outcome all the same.
func (r *Runner) Run(ctx context.Context, env dray.Environment, spec dray.Spec, opts Options, sink dray.Sink) (Outcome, error) {
	out := Outcome{Stdout: r.Captures.New(opts.ID, dray.Stdout), Stderr: r.Captures.New(opts.ID, dray.Stderr)}
	spec.Grace = r.Grace
	begun := time.Now()
	proc, err := env.Start(ctx, spec)
	if err != nil {
		closeStdin(opts.Stdin)
		out.summarize()
		if ctx.Err() != nil {
			out.stopped(context.Cause(ctx))
			return out, nil //nolint:nilerr // the result says it
		}
		return out, err
	}
	sink.Running()
	if w, ok := proc.(interface{ Warnings() []string }); ok { // what the place did differently for this call alone
		out.Result.Metadata.Warnings = append(out.Result.Metadata.Warnings, w.Warnings()...)
	}
	exit, cause, err := r.attend(ctx, proc, opts, sink, &out)
	out.Result.Exec = time.Since(begun)
	out.summarize()
	out.Result.Metadata.Kill = &dray.KillReport{Survivors: exit.Survivors, Leftover: exit.Leftover}
	switch {
	case err != nil:
		return out, err
	case cause != nil:
		out.stopped(cause)
	default:
		out.ended(exit)
	}
	return out, nil
}

// attend moves the bytes until the end and says why it came: cause is set where we ended it.
func (r *Runner) attend(ctx context.Context, proc dray.Process, opts Options, sink dray.Sink, out *Outcome) (exit dray.Exit, cause, err error) {
	watch := newWatch(proc, r.Grace, opts.Idle)
	var streams, stdin sync.WaitGroup
	streams.Go(func() { drain(proc, dray.Stdout, out.Stdout, sink, watch) })
	streams.Go(func() { drain(proc, dray.Stderr, out.Stderr, sink, watch) })
	stdin.Go(func() { feed(proc, opts.Stdin) })
	ended := make(chan struct{})
	var guard sync.WaitGroup
	guard.Go(func() { watch.until(ctx, ended) })
	guard.Go(func() { obey(proc, opts.Control, ended) })
	exit, err = proc.Wait()
	close(ended)
	guard.Wait()
	streams.Wait()
	closeStdin(opts.Stdin)
	stdin.Wait()
	return exit, watch.cause, err
}

func feed(proc dray.Process, stdin io.Reader) {
	w := proc.Stdin()
	if stdin != nil {
		_, _ = io.Copy(w, stdin) // a tool that does not read its stdin is no fault of the call
	}
	_ = w.Close()
}

// obey does to the process what it is told until the process is over.
func obey(proc dray.Process, control <-chan dray.Control, ended <-chan struct{}) {
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

// chunk is how much is read of a stream at once.
const chunk = 64 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}

func drain(proc dray.Process, stream dray.Stream, keep *capture.Capture, sink dray.Sink, w *watch) {
	buf := *buffers.Get().(*[]byte) //nolint:forcetypeassert,errcheck // nothing else is put there
	defer buffers.Put(&buf)
	from := proc.Output(stream)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			w.heard()
			_, _ = keep.Write(buf[:n]) // it remembers its own trouble
			sink.Output(stream, buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// summarize ends the captures and puts them into the result.
func (o *Outcome) summarize() {
	for _, c := range []*capture.Capture{o.Stdout, o.Stderr} {
		if err := c.Close(); err != nil {
			o.Result.Metadata.Warnings = append(o.Result.Metadata.Warnings, err.Error())
		}
	}
	o.Result.Stdout, o.Result.Stderr = o.Stdout.Summary(), o.Stderr.Summary()
}

// stopped is the end that a cause brought about.
func (o *Outcome) stopped(cause error) {
	e := &dray.Error{Message: cause.Error()}
	switch {
	case errors.Is(cause, ErrTimeout), errors.Is(cause, context.DeadlineExceeded):
		o.Result.Reason = dray.ReasonTimeout
		e = e.WithHint("give the call a longer timeout_seconds, or run it in parts")
	case errors.Is(cause, ErrIdle):
		o.Result.Reason = dray.ReasonIdleTimeout
		e = e.WithHint("give the call a longer idle_timeout_seconds, or have the tool print its progress")
	default:
		o.Result.Reason = dray.ReasonCancelled
	}
	o.Result.Error = e
}

// ended is the tool's own end.
func (o *Outcome) ended(exit dray.Exit) {
	if exit.Signal != 0 {
		o.Result.Reason = dray.ReasonSignalled
		o.Result.Signal = &dray.Signal{Name: process.SignalName(exit.Signal), Number: int(exit.Signal)}
		o.Result.Error = &dray.Error{Message: joinNonEmpty("ended by "+process.SignalName(exit.Signal), o.excerpt())}
		return
	}
	o.Result.Reason = dray.ReasonExited
	o.Result.ExitCode = &exit.Code
	if exit.Code != 0 {
		o.Result.Error = &dray.Error{Message: o.excerpt()}
	}
}

// maxExcerpt bounds the part of stderr in an error's message, in characters (CA-05).
const maxExcerpt = 500

// excerpt is the end of stderr, without a character or separator left hanging.
func (o *Outcome) excerpt() string {
	text := []rune(strings.ToValidUTF8(string(o.Stderr.Tail(4*maxExcerpt)), "\uFFFD"))
	return strings.TrimSpace(string(text[max(0, len(text)-maxExcerpt):]))
}

func joinNonEmpty(a, b string) string {
	if b == "" {
		return a
	}
	return fmt.Sprintf("%s: %s", a, b)
}

// watch ends a process when its context does, or when it is silent for too long.
type watch struct {
	proc  dray.Process
	grace time.Duration
	idle  time.Duration
	noise chan struct{}
	cause error // read after until has returned
}

func newWatch(proc dray.Process, grace, idle time.Duration) *watch {
	return &watch{proc: proc, grace: grace, idle: idle, noise: make(chan struct{}, 1)}
}

func (w *watch) heard() {
	if w.idle == 0 {
		return
	}
	select {
	case w.noise <- struct{}{}:
	default:
	}
}

func (w *watch) until(ctx context.Context, ended <-chan struct{}) {
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
		case <-w.noise:
			timer.Reset(w.idle)
			continue
		case <-silence:
			w.cause = ErrIdle
		case <-ctx.Done():
			w.cause = context.Cause(ctx)
		}
		w.proc.Stop(w.grace)
		return
	}
}
