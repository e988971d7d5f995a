package executor

import (
	"io"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/capture"
)

// streamCapture is what one stream of a process comes to: a capture of what was printed and, where
// its paths are rewritten, one of that text.
type streamCapture struct {
	stream dray.Stream
	raw    *capture.Capture
	// rewritten is nil where the text stays as it is.
	rewritten *capture.Capture
	paths     int64
}

func (r *Runner) outlet(opts Options, stream dray.Stream) streamCapture {
	o := streamCapture{stream: stream, raw: r.Captures.New(opts.ID, stream)}
	if opts.Rewrite != nil {
		o.rewritten = r.Captures.NewRewritten(opts.ID, stream)
	}
	return o
}

func (o *streamCapture) captures() []*capture.Capture {
	if o.rewritten == nil {
		return []*capture.Capture{o.raw}
	}
	return []*capture.Capture{o.raw, o.rewritten}
}

// displayed is the capture that people see.
func (o *streamCapture) displayed() *capture.Capture {
	if o.rewritten == nil {
		return o.raw
	}
	return o.rewritten
}

// close ends the captures and sums them up.
func (o *streamCapture) close() dray.StreamSummary {
	for _, c := range o.captures() {
		if o.paths > 0 { // there are two texts, and the record shows a view of one
			c.RequireFile()
		}
		_ = c.Close() // Err says what is wrong
	}
	sum := o.raw.Summary()
	if o.rewritten == nil {
		return sum
	}
	text := o.rewritten.Summary()
	sum.Text = text.Text
	sum.Rewritten = &dray.RewrittenSummary{
		Paths: o.paths, TotalBytes: text.TotalBytes,
		KeptBytes: text.KeptBytes, SHA256: text.SHA256,
	}
	return sum
}

// streamSink is where the bytes of a running process's stream are taken in.
type streamSink struct {
	*streamCapture
	sink   dray.Sink
	watch  *watchdog
	filter *timedFilter // nil where the text stays as it is
}

// write takes bytes as the tool printed them.
func (t *streamSink) write(p []byte) {
	t.watch.outputSeen()
	t.capture(t.raw, p)
	if t.filter == nil {
		t.sink.Output(t.stream, p)
		return
	}
	t.filter.take(p)
}

func (t *streamSink) capture(c *capture.Capture, p []byte) {
	if _, err := c.Write(p); err != nil {
		t.watch.captureFailed()
	}
}

// flushDelay is how long the end of a rewritten text is held, because a path may begin in it, once
// the tool is silent. What is passed on then is not rewritten any more, so it is longer than a busy
// machine makes a tool wait in the midst of a path.
const flushDelay = time.Second

// timedFilter guards a text filter, which the stream writes to and time flushes.
type timedFilter struct {
	held chan struct{} // has something after a write that left something held
	done chan struct{}

	mu   sync.Mutex
	text dray.TextFilter
	last time.Time // of a write that left something held
}

// rewrite puts a filter between the tool and those who see its text.
func (t *streamSink) rewrite(with func(io.Writer) dray.TextFilter) {
	t.filter = newTimedFilter(with(writerFunc(func(p []byte) {
		t.capture(t.rewritten, p)
		t.sink.Output(t.stream, p)
	})))
}

func newTimedFilter(text dray.TextFilter) *timedFilter {
	return &timedFilter{held: make(chan struct{}, 1), done: make(chan struct{}), text: text}
}

// writerFunc is a writer that takes everything.
type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

func (f *timedFilter) take(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = f.text.Write(p) // what is behind takes everything
	if f.text.Buffered() > 0 {
		f.last = time.Now()
		notify(f.held)
	}
}

// end passes on the rest of the text, and gives how much was changed in it.
func (f *timedFilter) end() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.text.Close() // what is behind takes everything
	return f.text.Replaced()
}

// flushLoop passes on what is held when the tool has been silent for long enough, until the stream
// is over.
func (f *timedFilter) flushLoop() {
	timer := time.NewTimer(flushDelay)
	defer timer.Stop()
	for {
		select {
		case <-f.held:
			timer.Reset(flushDelay)
		case <-timer.C:
			if left := f.flush(); left > 0 {
				timer.Reset(left)
			}
		case <-f.done:
			return
		}
	}
}

// flush passes on what is held, or says for how long that is too early.
func (f *timedFilter) flush() (left time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if left := flushDelay - time.Since(f.last); left > 0 {
		return left
	}
	_ = f.text.Flush() // what is behind takes everything
	return 0
}
