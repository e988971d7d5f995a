package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/executor/process"
)

// Outcome is the result of a run, with its captures.
type Outcome struct {
	Result dray.Result
	// SessionState is that of dray.Exit.
	SessionState   []byte
	stdout, stderr streamCapture
}

// Stdout returns the capture of the raw stdout.
func (o *Outcome) Stdout() *capture.Capture { return o.stdout.raw }

// Release makes the captures subject to retention. It must be called once.
func (o *Outcome) Release() {
	for _, c := range o.captures() {
		c.Release()
	}
}

func (o *Outcome) captures() []*capture.Capture {
	return append(o.stdout.captures(), o.stderr.captures()...)
}

// discard is deferred: after a panic the caller gets no Outcome, so it closes and releases the
// captures.
func (o *Outcome) discard() {
	p := recover()
	if p == nil {
		return
	}
	for _, c := range o.captures() {
		_ = c.Close() // its content is not used
	}
	o.Release()
	panic(Recovered(p))
}

// summarize closes the captures and adds their summaries to the result.
func (o *Outcome) summarize() {
	o.Result.Stdout, o.Result.Stderr = o.stdout.close(), o.stderr.close()
}

func (o *Outcome) warn(texts ...string) {
	o.Result.Metadata.Warnings = append(o.Result.Metadata.Warnings, texts...)
}

// setReason sets the reason of a run whose process has ended. If the process was stopped, it is the
// cause of that, whatever the exit status. An incomplete capture has precedence over an exit: which
// of the two came first is a race.
func (o *Outcome) setReason(exit dray.Exit, cause error) {
	if cause == nil && o.captureErr() != nil {
		cause = ErrOutputLimit
	}
	switch {
	case errors.Is(cause, ErrOutputLimit):
		o.endedByOutputLimit(exit)
	case cause != nil:
		o.stopped(cause)
	default:
		o.endedByItself(exit)
	}
}

// stopped sets the reason of a run that was stopped with a cause.
func (o *Outcome) stopped(cause error) {
	e := &dray.Error{Message: cause.Error()}
	switch {
	case errors.Is(cause, ErrTimeout), errors.Is(cause, context.DeadlineExceeded):
		o.Result.Reason = dray.ReasonTimeout
		e = e.WithHint("give the call a longer timeout_seconds, or run it in parts")
	case errors.Is(cause, ErrIdleTimeout):
		o.Result.Reason = dray.ReasonIdleTimeout
		e = e.WithHint("give the call a longer idle_timeout_seconds, or have the tool print its progress")
	default:
		o.Result.Reason = dray.ReasonCancelled
	}
	o.Result.Error = e
}

// captureErr returns why a stream could not be captured up to the limit; nil if all were.
func (o *Outcome) captureErr() *dray.Error {
	for _, c := range o.captures() {
		if err := c.Err(); err != nil {
			return dray.AsError(err)
		}
	}
	return nil
}

// warnIncomplete adds a warning for an incomplete capture, unless it is the reason already.
func (o *Outcome) warnIncomplete() {
	if e := o.captureErr(); e != nil && o.Result.Reason != dray.ReasonOutputLimit {
		o.warn(e.Message)
	}
}

// endedByOutputLimit sets the reason of a run whose output could not be captured.
func (o *Outcome) endedByOutputLimit(exit dray.Exit) {
	o.Result.Reason = dray.ReasonOutputLimit
	e := *o.captureErr()
	e.Message = fmt.Sprintf("%v: %s", ErrOutputLimit, e.Message)
	if exit.Signal == 0 {
		e.Message += fmt.Sprintf(" (the tool itself exited with %d)", exit.Code)
	}
	o.Result.Error = &e
}

// endedByItself sets the reason of a run whose process was not stopped.
func (o *Outcome) endedByItself(exit dray.Exit) {
	switch {
	case exit.Signal == syscall.SIGKILL && exit.OOM != dray.OOMNo:
		o.outOfMemory(exit.OOM)
	case exit.Signal != 0:
		name := process.SignalName(exit.Signal)
		o.Result.Reason = dray.ReasonSignalled
		o.Result.Signal = &dray.Signal{Name: name, Number: int(exit.Signal)}
		o.Result.Error = &dray.Error{Message: joinNonEmpty("ended by "+name, o.excerpt())}
	default:
		o.Result.Reason = dray.ReasonExited
		o.Result.ExitCode = &exit.Code
		if exit.Code != 0 {
			o.Result.Error = &dray.Error{Message: o.excerpt()}
		}
	}
}

// outOfMemory sets the reason of a run whose process the kernel killed because memory ran out.
func (o *Outcome) outOfMemory(oom dray.OOM) {
	o.Result.Reason = dray.ReasonOOM
	const message = "the kernel killed the tool because memory ran out"
	e := &dray.Error{Message: joinNonEmpty(message, o.excerpt())}
	o.Result.Error = e.WithHint("reduce the memory that the tool needs, or give the container more")
	if oom == dray.OOMLikely {
		o.warn("out of memory is likely and not certain: the kernel counts for the whole container, " +
			"and other calls ran there")
	}
}

// maxExcerpt is the maximum length in characters of the part of stderr in an error message (CA-05).
const maxExcerpt = 500

// excerpt returns the end of stderr without separators around it.
func (o *Outcome) excerpt() string {
	text := []rune(strings.ToValidUTF8(string(o.stderr.displayed().Tail(4*maxExcerpt)), "\uFFFD"))
	return strings.Trim(string(text[max(0, len(text)-maxExcerpt):]), separators)
}

// separators are the characters that an excerpt neither begins nor ends with.
const separators = " \t\r\n\v\f\u0085\u00a0\u2028\u2029:;,|"

func joinNonEmpty(a, b string) string {
	if b == "" {
		return a
	}
	return a + ": " + b
}

// streamCapture has the captures of one stream: the raw output and, where paths are rewritten, the
// rewritten one.
type streamCapture struct {
	stream    dray.Stream
	raw       *capture.Capture
	rewritten *capture.Capture // nil if the text stays unchanged
	paths     int64            // number of rewritten paths
}

func (r *Runner) newStream(opts Options, stream dray.Stream) streamCapture {
	s := streamCapture{stream: stream, raw: r.Captures.New(opts.ID, stream)}
	if opts.Rewrite != nil {
		s.rewritten = r.Captures.NewRewritten(opts.ID, stream)
	}
	return s
}

func (s *streamCapture) captures() []*capture.Capture {
	if s.rewritten == nil {
		return []*capture.Capture{s.raw}
	}
	return []*capture.Capture{s.raw, s.rewritten}
}

// displayed returns the capture that results show.
func (s *streamCapture) displayed() *capture.Capture {
	if s.rewritten == nil {
		return s.raw
	}
	return s.rewritten
}

// close closes the captures and returns their summary.
func (s *streamCapture) close() dray.StreamSummary {
	for _, c := range s.captures() {
		if s.paths > 0 { // the texts differ, and the record contains only one of them
			c.RequireFile()
		}
		_ = c.Close() // Err has the same error
	}
	sum := s.raw.Summary()
	if s.rewritten == nil {
		return sum
	}
	text := s.rewritten.Summary()
	sum.Text = text.Text
	sum.Rewritten = &dray.RewrittenSummary{
		Paths: s.paths, TotalBytes: text.TotalBytes, KeptBytes: text.KeptBytes, SHA256: text.SHA256,
	}
	return sum
}

// streamSink receives the output of a running process.
type streamSink struct {
	*streamCapture
	sink  dray.Sink
	watch *watchdog
	tasks *taskGroup
	delay time.Duration // after which buffered text is flushed

	mu sync.Mutex
	// redaction replaces secrets, then filter rewrites paths. Each is nil if it changes nothing, and
	// its writer never fails.
	redaction, filter dray.TextFilter
	timer             *time.Timer // nil until text was buffered
	last              time.Time   // of a write that left text buffered
	stopped           bool
}

// copyFrom reads a stream to its end. It goes on when the captures fail, so that a tool never waits
// for disk space.
func (t *streamSink) copyFrom(stream io.Reader) {
	defer t.stop()
	if !copyBuffered(stream, smallBuffers, true, t.write) {
		copyBuffered(stream, largeBuffers, false, t.write)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.each(dray.TextFilter.Close)
	if t.filter != nil {
		t.paths = t.filter.Replaced()
	}
}

// write receives what the tool wrote.
func (t *streamSink) write(p []byte) {
	t.watch.outputSeen()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.redaction == nil {
		t.pass(p)
	} else {
		_, _ = t.redaction.Write(p)
	}
	switch {
	case !isBuffering(t.redaction) && !isBuffering(t.filter):
		return
	case t.timer == nil:
		t.timer = time.AfterFunc(t.delay, t.flush)
	default:
		t.timer.Reset(t.delay)
	}
	t.last = time.Now()
}

func isBuffering(f dray.TextFilter) bool { return f != nil && f.Buffered() > 0 }

// flush does nothing if a write came after the timer had fired: that has set the timer again.
func (t *streamSink) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped || time.Since(t.last) < t.delay {
		return
	}
	// The panic is recorded before the lock is released, and thus before the stream can end.
	t.tasks.Run(func() { t.each(dray.TextFilter.Flush) })
}

func (t *streamSink) each(do func(dray.TextFilter) error) {
	for _, f := range []dray.TextFilter{t.redaction, t.filter} { // the first writes to the second
		if f != nil {
			_ = do(f)
		}
	}
}

// stop stops the timer. After it nothing is flushed.
func (t *streamSink) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

// redactedSink receives the stream without its secrets.
type redactedSink struct{ *streamSink }

func (s redactedSink) Write(p []byte) (int, error) {
	s.pass(p)
	return len(p), nil
}

func (s redactedSink) WriteMark(mark []byte, size int64) error {
	s.checkCaptured(s.raw.WriteMark(mark, size))
	s.show(mark)
	return nil
}

func (t *streamSink) pass(p []byte) {
	t.capture(t.raw, p)
	t.show(p)
}

// show passes the captured stream on to the filter, or to the sink.
func (t *streamSink) show(p []byte) {
	if t.filter == nil {
		t.sink.Output(t.stream, p)
		return
	}
	_, _ = t.filter.Write(p)
}

func (t *streamSink) capture(c *capture.Capture, p []byte) {
	_, err := c.Write(p)
	t.checkCaptured(err)
}

func (t *streamSink) checkCaptured(err error) {
	if err != nil {
		t.watch.stopWith(ErrOutputLimit)
	}
}

// rewrittenSink receives the text in which paths were rewritten.
type rewrittenSink struct{ *streamSink }

func (s rewrittenSink) Write(p []byte) (int, error) {
	s.capture(s.rewritten, p)
	s.sink.Output(s.stream, p)
	return len(p), nil
}

// flushDelay is how long a filter buffers the end of a text, where a path or a secret may begin,
// while the tool prints nothing. Flushed text is not rewritten any more, so the delay is longer
// than the pause that a busy machine makes in the middle of a path. On a terminal somebody waits
// for every character.
const flushDelay, terminalFlushDelay = time.Second, 50 * time.Millisecond
