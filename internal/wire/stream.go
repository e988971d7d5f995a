package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
)

// maxQueued bounds the messages of one stream that were not received yet.
const maxQueued = 64

// ErrStopSending is returned by writes to a channel whose reader has closed it.
var ErrStopSending = errors.New("the peer closed its end of the channel")

// Stream carries messages and three channels of bytes.
type Stream struct {
	id       uint32
	mux      *Mux
	messages chan []byte
	done     chan struct{} // closed with err set
	in       [channels]recvBuffer
	out      [channels]sendWindow
	passed   passedFDs // with the first message; used by Accept

	peerClosed atomic.Bool

	mu        sync.Mutex
	err       error
	closed    bool // Close was called
	onEnd     func()
	onMessage func([]byte, error) // set by ReceiveFunc until it is called
}

func newStream(m *Mux, id uint32) *Stream {
	s := &Stream{id: id, mux: m, messages: make(chan []byte, maxQueued), done: make(chan struct{})}
	for i := range channels {
		s.in[i].init(s, uint8(i))
		s.out[i].init(s, uint8(i))
	}
	return s
}

// Send sends a message.
func (s *Stream) Send(message Message) error { return s.send(frameMessage, 0, encode(message)) }

func (s *Stream) send(typ frameType, channel uint8, payload []byte) error {
	return s.mux.send(header{stream: s.id, typ: typ, channel: channel}, payload)
}

// SendLast sends a message and closes the stream, in one write.
func (s *Stream) SendLast(message Message) {
	if !s.startClose() {
		return
	}
	body := encode(message)
	//nolint:gosec // bounded by the message limits
	b := header{length: uint32(len(body)), stream: s.id, typ: frameMessage}.append(nil)
	b = header{stream: s.id, typ: frameClose}.append(append(b, body...))
	_ = s.mux.write(b, nil) // a broken connection has ended the stream already
	s.abort(ErrClosed)
}

// OnEnd sets a function that is called when Done is closed, at once if it is closed already. nil
// removes it. f must not block.
func (s *Stream) OnEnd(f func()) {
	s.mu.Lock()
	s.onEnd = f
	ended := s.err != nil
	s.mu.Unlock()
	if ended && f != nil {
		f()
	}
}

// Receive blocks until there is a message. It returns io.EOF after the last message of a stream
// that the peer has closed.
func (s *Stream) Receive() ([]byte, error) {
	select {
	case b := <-s.messages:
		return b, nil
	case <-s.done:
	}
	select { // what was received before the end
	case b := <-s.messages:
		return b, nil
	default:
		return nil, s.reason()
	}
}

// ReceiveFunc calls receive once: with the next message, or with the error that Receive would
// return. It is called by the goroutine that reads the connection or ends the stream and must not
// block.
func (s *Stream) ReceiveFunc(receive func(message []byte, err error)) {
	s.mu.Lock()
	select {
	case b := <-s.messages:
		s.mu.Unlock()
		receive(b, nil)
		return
	default:
	}
	err := s.err
	if err == nil {
		s.onMessage = receive
	}
	s.mu.Unlock()
	if err != nil {
		receive(nil, err)
	}
}

// deliver passes a message to ReceiveFunc or queues it for Receive.
func (s *Stream) deliver(b []byte) error {
	s.mu.Lock()
	receive := s.onMessage
	s.onMessage = nil
	if receive == nil {
		defer s.mu.Unlock()
		select {
		case s.messages <- b:
			return nil
		default:
			return protocolError("more than %d messages are waiting", maxQueued)
		}
	}
	s.mu.Unlock()
	receive(b, nil)
	return nil
}

// Files returns the files that were passed with the first message, once. The caller closes them. If
// Accept does not call Files, they are closed after it.
func (s *Stream) Files() []*os.File {
	files := s.passed.files
	s.passed.files = nil
	return files
}

// FilesDropped reports whether files were passed that this process could not take, because it has
// too many open.
func (s *Stream) FilesDropped() bool { return s.passed.dropped }

// Done is closed when either side has closed the stream, or the connection has ended.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Reader reads a channel. It must not be used concurrently.
func (s *Stream) Reader(channel int) io.ReadCloser { return &s.in[channel] }

// Writer writes a channel. Close sends end of file. It must not be used concurrently.
func (s *Stream) Writer(channel int) io.WriteCloser { return &s.out[channel] }

// Close ends the stream for both sides. The peer receives what was sent before.
func (s *Stream) Close() {
	if !s.startClose() {
		return
	}
	if !s.peerClosed.Load() { // else the peer has dropped the stream
		_ = s.send(frameClose, 0, nil)
	}
	s.abort(ErrClosed)
}

// startClose reports whether this is the first call, and drops the stream then.
func (s *Stream) startClose() bool {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		s.drop()
	}
	return first
}

// Discard ends the stream on this side alone, without a frame. It is for a stream whose last
// message has arrived: the peer ends it as well.
func (s *Stream) Discard() {
	if s.startClose() {
		s.abort(ErrClosed)
	}
}

// drop removes the stream. Frames that arrive for it later are ignored.
func (s *Stream) drop() {
	s.mux.mu.Lock()
	delete(s.mux.streams, s.id)
	s.mux.mu.Unlock()
}

// abort ends both directions. Readers still get what was received.
func (s *Stream) abort(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	onEnd, receive := s.onEnd, s.onMessage
	s.onMessage = nil
	close(s.done)
	s.mu.Unlock()
	if onEnd != nil {
		onEnd()
	}
	for i := range channels {
		s.in[i].end(err)
		s.out[i].end(err)
	}
	if receive != nil {
		receive(nil, err)
	}
}

func (s *Stream) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Stream) handle(h header, payload []byte) error {
	switch h.typ {
	case frameMessage:
		return s.deliver(payload)
	case frameData:
		return s.in[h.channel].add(payload)
	case frameEOF:
		s.in[h.channel].end(io.EOF)
	case frameWindowUpdate:
		n, err := windowUpdateOf(payload)
		if err != nil {
			return err
		}
		return s.out[h.channel].grant(n)
	case frameStopSending:
		s.out[h.channel].end(ErrStopSending)
	case frameClose:
		s.peerClosed.Store(true)
		s.drop()
		s.abort(io.EOF)
	}
	return nil
}

// recvBuffer has what was received on a channel and not read.
type recvBuffer struct {
	stream   *Stream
	channel  uint8
	mu       sync.Mutex
	readable sync.Cond
	data     []byte
	off      int
	unacked  int   // read, without a window update yet
	err      error // returned by Read after data
	closed   bool
}

func (b *recvBuffer) init(s *Stream, channel uint8) {
	b.stream, b.channel = s, channel
	b.readable.L = &b.mu
}

func (b *recvBuffer) add(p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.err != nil {
		return nil // sent before the peer received our stop, or after its end of file
	}
	if len(b.data)-b.off+b.unacked+len(p) > Window {
		return protocolError("channel %d exceeds its window", b.channel)
	}
	if b.off > 0 && len(b.data)+len(p) > cap(b.data) {
		b.data = b.data[:copy(b.data, b.data[b.off:])]
		b.off = 0
	}
	b.data = append(b.data, p...)
	b.readable.Signal()
	return nil
}

func (b *recvBuffer) end(err error) {
	b.mu.Lock()
	if b.err == nil {
		b.err = err
	}
	b.mu.Unlock()
	b.readable.Broadcast()
}

// Read blocks until there are bytes. It returns io.EOF at the sender's end of file, and the reason
// of the connection's end if that was first.
func (b *recvBuffer) Read(p []byte) (int, error) {
	b.mu.Lock()
	for b.off == len(b.data) && b.err == nil && !b.closed {
		b.readable.Wait()
	}
	if b.off == len(b.data) {
		defer b.mu.Unlock()
		if b.closed {
			return 0, io.ErrClosedPipe
		}
		return 0, b.err
	}
	n := copy(p, b.data[b.off:])
	b.off += n
	if b.off == len(b.data) {
		b.data, b.off = b.data[:0], 0
	}
	b.unacked += n
	grant := 0
	if b.unacked >= Window/2 && b.err == nil {
		grant, b.unacked = b.unacked, 0
	}
	b.mu.Unlock()
	if grant > 0 {
		_ = b.stream.send(frameWindowUpdate, b.channel,
			binary.LittleEndian.AppendUint32(nil, uint32(grant)))
	}
	return n, nil
}

// Close makes the sender stop.
func (b *recvBuffer) Close() error {
	b.mu.Lock()
	ended := b.closed || b.err != nil
	b.closed, b.data, b.off = true, nil, 0
	b.mu.Unlock()
	b.readable.Broadcast()
	if ended {
		return nil
	}
	return b.stream.send(frameStopSending, b.channel, nil)
}

// sendWindow is the number of bytes that may be sent on a channel.
type sendWindow struct {
	stream  *Stream
	channel uint8
	mu      sync.Mutex
	more    sync.Cond
	credit  int // bytes
	err     error
}

func (b *sendWindow) init(s *Stream, channel uint8) {
	b.stream, b.channel, b.credit = s, channel, Window
	b.more.L = &b.mu
}

func (b *sendWindow) grant(n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.credit+n > Window {
		return protocolError("a window update for channel %d exceeds what was sent", b.channel)
	}
	b.credit += n
	b.more.Signal()
	return nil
}

func (b *sendWindow) end(err error) {
	b.mu.Lock()
	if b.err == nil {
		b.err = err
	}
	b.mu.Unlock()
	b.more.Broadcast()
}

// reserve blocks until bytes may be sent, and returns how many.
func (b *sendWindow) reserve(want int) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.credit == 0 && b.err == nil {
		b.more.Wait()
	}
	if b.err != nil {
		return 0, b.err
	}
	n := min(want, b.credit, MaxData)
	b.credit -= n
	return n, nil
}

// Write blocks while a whole window is unread.
func (b *sendWindow) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		n, err := b.reserve(len(p))
		if err != nil {
			return written, err
		}
		if err := b.stream.send(frameData, b.channel, p[:n]); err != nil {
			return written, err
		}
		written += n
		p = p[n:]
	}
	return written, nil
}

func (b *sendWindow) Close() error {
	b.mu.Lock()
	first := b.err == nil
	if first {
		b.err = io.ErrClosedPipe
	}
	b.mu.Unlock()
	if !first {
		return nil
	}
	return b.stream.send(frameEOF, b.channel, nil)
}
