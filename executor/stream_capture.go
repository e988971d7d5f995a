package executor

import (
	"io"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/capture"
)

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
	sink   dray.Sink
	watch  *watchdog
	filter *timedFilter // nil if the text stays unchanged
}

// copyFrom reads a stream to its end. It goes on when the captures fail, so that a tool never waits
// for disk space.
func (t *streamSink) copyFrom(stream io.Reader) {
	if t.filter != nil {
		defer t.filter.stop()
	}
	if !copyBuffered(stream, smallBuffers, true, t.write) {
		copyBuffered(stream, largeBuffers, false, t.write)
	}
	if t.filter != nil {
		t.paths = t.filter.close()
	}
}

func (t *streamSink) write(p []byte) {
	t.watch.outputSeen()
	t.capture(t.raw, p)
	if t.filter == nil {
		t.sink.Output(t.stream, p)
		return
	}
	t.filter.write(p)
}

func (t *streamSink) capture(c *capture.Capture, p []byte) {
	if _, err := c.Write(p); err != nil {
		t.watch.stopWith(ErrOutputLimit)
	}
}

// rewrite passes the text through a filter before the sink and the second capture get it.
func (t *streamSink) rewrite(tasks *taskGroup, newFilter func(io.Writer) dray.TextFilter) {
	t.filter = &timedFilter{tasks: tasks, text: newFilter(writerFunc(func(p []byte) {
		t.capture(t.rewritten, p)
		t.sink.Output(t.stream, p)
	}))}
}

// writerFunc is a writer that never fails.
type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// flushDelay is how long a filter buffers the end of a text, where a path may begin, while the tool
// prints nothing. Flushed text is not rewritten any more, so the delay is longer than the pause that
// a busy machine makes in the middle of a path.
const flushDelay = time.Second

// timedFilter is a text filter that is flushed when it buffered text for flushDelay.
type timedFilter struct {
	tasks *taskGroup

	mu      sync.Mutex
	text    dray.TextFilter // its writer never fails
	timer   *time.Timer     // nil until text was buffered
	last    time.Time       // of a write that left text buffered
	stopped bool
}

func (f *timedFilter) write(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = f.text.Write(p)
	if f.text.Buffered() == 0 {
		return
	}
	f.last = time.Now()
	if f.timer == nil {
		f.timer = time.AfterFunc(flushDelay, f.flush)
		return
	}
	f.timer.Reset(flushDelay)
}

// flush does nothing if a write came after the timer had fired: that has set the timer again.
func (f *timedFilter) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || time.Since(f.last) < flushDelay {
		return
	}
	// The panic is recorded before the lock is released, and thus before the stream can end.
	f.tasks.Run(func() { _ = f.text.Flush() })
}

// close writes the rest of the text and returns how many paths were rewritten.
func (f *timedFilter) close() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	_ = f.text.Close()
	return f.text.Replaced()
}

// stop stops the timer. After it nothing is flushed.
func (f *timedFilter) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	if f.timer != nil {
		f.timer.Stop()
	}
}
