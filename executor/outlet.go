package executor

import (
	"io"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/capture"
)

// outlet is what one stream of a process comes to: a capture of what was printed and, where its paths are rewritten, one of that text.
type outlet struct {
	stream dray.Stream
	raw    *capture.Capture
	// rewritten is nil where the text stays as it is.
	rewritten *capture.Capture
	paths     int64
}

func (r *Runner) outlet(opts Options, stream dray.Stream) outlet {
	o := outlet{stream: stream, raw: r.Captures.New(opts.ID, stream)}
	if opts.Rewrite != nil {
		o.rewritten = r.Captures.NewRewritten(opts.ID, stream)
	}
	return o
}

func (o *outlet) captures() []*capture.Capture {
	if o.rewritten == nil {
		return []*capture.Capture{o.raw}
	}
	return []*capture.Capture{o.raw, o.rewritten}
}

// shown is the capture that people see.
func (o *outlet) shown() *capture.Capture {
	if o.rewritten == nil {
		return o.raw
	}
	return o.rewritten
}

// close ends the captures and sums them up.
func (o *outlet) close() dray.Capture {
	for _, c := range o.captures() {
		if o.paths > 0 { // there are two texts, and the record shows a view of one
			c.Unshown()
		}
		_ = c.Close() // Err says what is wrong
	}
	sum := o.raw.Summary()
	if o.rewritten == nil {
		return sum
	}
	text := o.rewritten.Summary()
	sum.Text = text.Text
	sum.Rewritten = &dray.Rewritten{Paths: o.paths, TotalBytes: text.TotalBytes, KeptBytes: text.KeptBytes, SHA256: text.SHA256}
	return sum
}

// tap is where the bytes of a running process's stream are taken in.
type tap struct {
	*outlet
	sink   dray.Sink
	watch  *watch
	filter *filter // nil where the text stays as it is
}

// take takes bytes as the tool printed them.
func (t *tap) take(p []byte) {
	t.watch.heard()
	t.keep(t.raw, p)
	if t.filter == nil {
		t.sink.Output(t.stream, p)
		return
	}
	t.filter.take(p)
}

func (t *tap) keep(c *capture.Capture, p []byte) {
	if _, err := c.Write(p); err != nil {
		t.watch.unkept()
	}
}

// patience is how long the end of a rewritten text is held, because a path may begin in it, once the tool is silent. What is passed on then is not
// rewritten any more, so it is longer than a busy machine makes a tool wait in the midst of a path.
const patience = time.Second

// filter guards a text filter, which the stream writes to and time flushes.
type filter struct {
	held chan struct{} // has something after a write that left something held
	over chan struct{}

	mu   sync.Mutex
	text dray.TextFilter
	last time.Time // of a write that left something held
}

// rewrite puts a filter between the tool and those who see its text.
func (t *tap) rewrite(with func(io.Writer) dray.TextFilter) {
	t.filter = newFilter(with(writerFunc(func(p []byte) {
		t.keep(t.rewritten, p)
		t.sink.Output(t.stream, p)
	})))
}

func newFilter(text dray.TextFilter) *filter {
	return &filter{held: make(chan struct{}, 1), over: make(chan struct{}), text: text}
}

// writerFunc is a writer that takes everything.
type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

func (f *filter) take(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = f.text.Write(p) // what is behind takes everything
	if f.text.Held() > 0 {
		f.last = time.Now()
		tell(f.held)
	}
}

// end passes on the rest of the text, and gives how much was changed in it.
func (f *filter) end() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.text.Close() // what is behind takes everything
	return f.text.Count()
}

// keepMoving passes on what is held when the tool has been silent for long enough, until the stream is over.
func (f *filter) keepMoving() {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-f.held:
			timer.Reset(patience)
		case <-timer.C:
			if left := f.flush(); left > 0 {
				timer.Reset(left)
			}
		case <-f.over:
			return
		}
	}
}

// flush passes on what is held, or says for how long that is too early.
func (f *filter) flush() (left time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if left := patience - time.Since(f.last); left > 0 {
		return left
	}
	_ = f.text.Flush() // what is behind takes everything
	return 0
}
