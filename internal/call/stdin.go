package call

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/dray-dev/dray"
)

// StdinCapacity is how many bytes may wait for the tool.
const StdinCapacity = 256 << 10

// writeTimeout is how long a write waits for the tool to make room before it is refused.
const writeTimeout = time.Second

// StdinAppend is the offset of a write that goes where the one before ended.
const StdinAppend int64 = -1

// StdinPipe carries bytes from requests to the tool. Its methods may be called from several goroutines.
type StdinPipe struct {
	mu      sync.Mutex
	buf     []byte
	written int64
	eofSeen bool // end of file was announced
	closed  bool // nobody reads any more
	changed chan struct{}
}

// NewStdinPipe makes an empty pipe.
func NewStdinPipe() *StdinPipe {
	return &StdinPipe{changed: make(chan struct{})}
}

// Read waits for bytes. After the announced end it gives io.EOF, and after Close io.ErrClosedPipe.
func (p *StdinPipe) Read(b []byte) (int, error) {
	for {
		n, changed, err := p.tryRead(b)
		if changed == nil {
			return n, err
		}
		<-changed
	}
}

func (p *StdinPipe) tryRead(b []byte) (int, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return 0, nil, io.ErrClosedPipe
	case len(p.buf) > 0:
		n := copy(b, p.buf)
		p.buf = p.buf[:copy(p.buf, p.buf[n:])]
		p.signal()
		return n, nil, nil
	case p.eofSeen:
		return 0, nil, io.EOF
	default:
		return 0, p.changed, nil
	}
}

// Close says that nobody reads any more: the call is over, or the tool closed its stdin. Whoever
// waits is woken.
func (p *StdinPipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.buf = true, nil
	p.signal()
	return nil
}

// Append takes b, at most StdinCapacity bytes, as the input from an offset on, and with eof as its last.
// It takes the whole or nothing, and tells how many bytes of input were taken in all. What an
// earlier Append took is passed over, so a repeat is harmless, also after the end.
//
// An offset beyond what was taken, and bytes behind the end or for nobody, are a conflict. Where
// there is no room it waits up to a second for the tool to read, then the error is busy.
func (p *StdinPipe) Append(ctx context.Context, offset int64, b []byte, eof bool) (int64, error) {
	timer := time.NewTimer(writeTimeout)
	defer timer.Stop()
	for {
		accepted, changed, err := p.tryAppend(offset, b, eof)
		if changed == nil {
			return accepted, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return accepted, dray.Errorf(dray.CodeBusy,
				"the tool does not read its stdin: there is no room for %d bytes", len(b)).
				WithHint("send the same bytes with the same offset later")
		case <-ctx.Done():
			return accepted, context.Cause(ctx)
		}
	}
}

// Accepted says how many bytes of input were taken in all.
func (p *StdinPipe) Accepted() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written
}

// tryAppend appends, fails, or gives the channel that the next change closes.
func (p *StdinPipe) tryAppend(offset int64, b []byte, eof bool) (int64, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset > p.written {
		return p.written, nil, dray.Errorf(dray.CodeConflict,
			"the bytes from %d to %d of stdin are missing", p.written, offset).
			WithHint("send them first: offset=%d", p.written)
	}
	if offset != StdinAppend {
		b = b[min(p.written-offset, int64(len(b))):]
	}
	switch {
	case len(b) > 0 && p.eofSeen:
		return p.written, nil, dray.Errorf(dray.CodeConflict, "stdin ended after %d bytes", p.written).
			WithHint("send eof=1 with the last bytes only")
	case len(b) > 0 && p.closed:
		return p.written, nil, dray.Errorf(dray.CodeConflict, "nobody reads stdin any more").
			WithHint("the tool closed its stdin or the call is over: there is no need to send more")
	case len(p.buf)+len(b) > StdinCapacity:
		return p.written, p.changed, nil
	}
	p.buf = append(p.buf, b...)
	p.written += int64(len(b))
	p.eofSeen = p.eofSeen || eof
	p.signal()
	return p.written, nil, nil
}

// signal wakes whoever waits for a change.
func (p *StdinPipe) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}
