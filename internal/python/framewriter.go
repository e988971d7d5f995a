package python

import (
	"bytes"
	"io"
	"slices"
	"sync"
)

// maxStdin bounds the body of a frame of stdin in bytes. An interrupt waits for at most one of
// them.
const maxStdin = 64 << 10

// message is a body to send in frames: part is the kind of all but the last.
type message struct {
	request    uint32
	part, last kind
	body       []byte
	// until is closed when the message is stale. Nil means never.
	until <-chan struct{}
	// sent is closed when the message was written or dropped. Nil if no caller waits for it.
	sent chan struct{}
}

// frameWriter writes the messages of a conn in the order in which they were added. It is safe for
// concurrent use.
type frameWriter struct {
	w          io.Writer
	generation uint32
	sequence   uint32        // used only by run
	buf        []byte        // used only by run
	wake       chan struct{} // with a capacity of 1

	mu      sync.Mutex
	queue   []message
	stopped bool
}

func newFrameWriter(w io.Writer, generation uint32) *frameWriter {
	return &frameWriter{w: w, generation: generation, wake: make(chan struct{}, 1)}
}

// add queues a message. It does not block. After stop it is dropped.
func (f *frameWriter) add(m message) {
	f.insert(m, func(queue []message) int { return len(queue) })
}

// interrupt queues a message before all others except the request itself. If the queue has the same
// message there already, it is dropped.
func (f *frameWriter) interrupt(m message) {
	f.insert(m, func(queue []message) int {
		at := len(queue) // behind the last Q; before it there may be messages of an earlier request
		for at > 0 && queue[at-1].last != kindRequestEnd {
			at--
		}
		if at < len(queue) && queue[at].last == m.last && queue[at].request == m.request {
			return -1
		}
		return at
	})
}

func (f *frameWriter) insert(m message, position func([]message) int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := position(f.queue)
	if f.stopped || at < 0 {
		m.drop()
		return
	}
	f.queue = slices.Insert(f.queue, at, m)
	f.signal()
}

func (f *frameWriter) signal() {
	select {
	case f.wake <- struct{}{}:
	default: // run has not seen the last signal yet
	}
}

// stop drops what is queued. run returns when the write that it is in has ended.
func (f *frameWriter) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	for _, m := range f.queue {
		m.drop()
	}
	f.queue = nil
	f.signal()
}

// run writes messages until stop, or until a write fails.
func (f *frameWriter) run() error {
	for range f.wake {
		for {
			m, ok := f.next()
			if !ok {
				break
			}
			err := f.write(m)
			m.drop()
			if err != nil {
				f.stop()
				return err
			}
		}
		if f.isStopped() {
			return nil
		}
	}
	return nil
}

func (f *frameWriter) isStopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped
}

// next removes and returns the first message that is not stale.
func (f *frameWriter) next() (message, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) > 0 {
		m := f.queue[0]
		f.queue = slices.Delete(f.queue, 0, 1)
		if !m.isStale() {
			return m, true
		}
		m.drop()
	}
	return message{}, false
}

// write writes a message, each frame with one call.
func (f *frameWriter) write(m message) error {
	for {
		piece := m.body[:min(len(m.body), maxBody)]
		m.body = m.body[len(piece):]
		h := header{
			body: len(piece), kind: m.last, generation: f.generation, request: m.request,
			sequence: f.sequence,
		}
		if len(m.body) > 0 {
			h.kind = m.part
		}
		f.sequence++
		f.buf = append(h.append(f.buf[:0]), piece...)
		if _, err := f.w.Write(f.buf); err != nil {
			return err
		}
		if cap(f.buf) > 2*maxStdin {
			f.buf = nil // few messages are that long, and the worker may live for hours
		}
		if len(m.body) == 0 {
			return nil
		}
	}
}

func (m message) isStale() bool {
	select {
	case <-m.until:
		return true
	default:
		return false
	}
}

// drop closes sent: the message is not queued any more.
func (m message) drop() {
	if m.sent != nil {
		close(m.sent)
	}
}

// bodyWriter sends a body of unknown length. It must not be used concurrently.
type bodyWriter struct {
	*execution
	part, last kind
	size       int // of the largest frame, in bytes
	closed     bool
}

// Write blocks until the bytes are written to the worker. It fails with io.ErrClosedPipe after
// Close and after the end of the request.
func (b *bodyWriter) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		piece := p[:min(len(p), b.size)]
		if !b.send(piece) {
			return written, io.ErrClosedPipe
		}
		written += len(piece)
		p = p[len(piece):]
	}
	return written, nil
}

func (b *bodyWriter) send(piece []byte) bool {
	if b.closed {
		return false
	}
	m := message{
		request: b.request, last: b.part, until: b.done, sent: make(chan struct{}),
		body: bytes.Clone(piece), // the write may outlast the request
	}
	b.conn.out.add(m)
	select {
	case <-m.sent:
	case <-b.done:
	}
	return !m.isStale()
}

// Close sends the end of the body. It does not block, and may be called more than once.
func (b *bodyWriter) Close() error {
	if !b.closed {
		b.closed = true
		b.conn.out.add(message{request: b.request, last: b.last, until: b.done})
	}
	return nil
}
