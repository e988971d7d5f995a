package call

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/dray-dev/dray"
)

const (
	// StdinCapacity is the size in bytes of the buffer of a StdinPipe.
	StdinCapacity = 256 << 10
	// StdinAppend is the offset of a write that continues the one before it.
	StdinAppend int64 = -1
	// stdinWriteTimeout bounds how long Append waits for buffer space before it fails with busy.
	stdinWriteTimeout = time.Second
)

// StdinPipe passes bytes from requests to the stdin of a tool. It is safe for concurrent use.
type StdinPipe struct {
	mu      sync.Mutex
	buf     []byte
	written int64
	eofSeen bool
	closed  bool
	changed chan struct{}
}

// NewStdinPipe returns an empty pipe.
func NewStdinPipe() *StdinPipe {
	return &StdinPipe{changed: make(chan struct{})}
}

// Read blocks until there are bytes. It returns io.EOF at the end of the input, and
// io.ErrClosedPipe after Close.
func (p *StdinPipe) Read(b []byte) (int, error) {
	for {
		n, changed, err := p.tryRead(b)
		if changed == nil {
			return n, err
		}
		<-changed
	}
}

// tryRead reads, fails, or returns a channel that the next change closes.
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

// Close makes later reads and writes fail: the tool closed its stdin or the call has ended. It
// always returns nil.
func (p *StdinPipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.buf = true, nil
	p.signal()
	return nil
}

// Append writes b, at most StdinCapacity bytes, at an offset of the input, and with eof as its last
// bytes. It writes all of b or nothing, and returns the number of bytes of input written so far.
// Bytes that were written before are skipped, so a write may be repeated, also after the end.
//
// Append fails with conflict if bytes before offset are missing, or if bytes follow the end of the
// input or a Close. It blocks for up to a second until there is space, then it fails with busy.
func (p *StdinPipe) Append(ctx context.Context, offset int64, b []byte, eof bool) (int64, error) {
	timer := time.NewTimer(stdinWriteTimeout)
	defer timer.Stop()
	for {
		written, changed, err := p.tryAppend(offset, b, eof)
		if changed == nil {
			return written, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return written, dray.Errorf(dray.CodeBusy,
				"the tool does not read its stdin: no space for %d bytes", len(b)).
				WithHint("send the same bytes with the same offset later")
		case <-ctx.Done():
			return written, context.Cause(ctx)
		}
	}
}

// Written returns the number of bytes of input written so far.
func (p *StdinPipe) Written() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written
}

// tryAppend writes, fails, or returns a channel that the next change closes.
func (p *StdinPipe) tryAppend(offset int64, b []byte, eof bool) (int64, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset > p.written {
		return p.written, nil, dray.Errorf(dray.CodeConflict, "bytes %d to %d of stdin are missing",
			p.written, offset).WithHint("send them first, with offset=%d", p.written)
	}
	if offset != StdinAppend {
		b = b[min(p.written-offset, int64(len(b))):]
	}
	switch {
	case len(b) > 0 && p.eofSeen:
		return p.written, nil, dray.Errorf(dray.CodeConflict, "stdin ended after %d bytes", p.written).
			WithHint("send eof=1 with the last bytes only")
	case len(b) > 0 && p.closed:
		return p.written, nil, dray.Errorf(dray.CodeConflict,
			"stdin is closed: the tool closed it or the call has ended").WithHint("stop sending")
	case len(p.buf)+len(b) > StdinCapacity:
		return p.written, p.changed, nil
	}
	p.buf = append(p.buf, b...)
	p.written += int64(len(b))
	p.eofSeen = p.eofSeen || eof
	p.signal()
	return p.written, nil, nil
}

// signal wakes all waiting readers and writers.
func (p *StdinPipe) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}
