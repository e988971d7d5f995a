package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// ErrPeerTimeout is a peer from which nothing came for the whole lease.
var ErrPeerTimeout = errors.New("the peer fell silent")

// ErrWriteTimeout is a peer that does not take what is written to it.
var ErrWriteTimeout = errors.New("the peer reads no more")

// ErrTooMany is a stream too many, ErrTooLarge a first message that the peer would not take.
// Neither was sent.
var (
	ErrTooMany  = errors.New("too many streams are open")
	ErrTooLarge = errors.New("the message is too large")
)

// ErrClosed is a connection that this side closed.
var ErrClosed = errors.New("the connection is closed")

// Config says how one side uses a connection.
type Config struct {
	// Accept is called with each stream that the peer opens, in a goroutine of its own that Run waits
	// for. Nil refuses all.
	Accept func(*Stream)
	// MaxMessage bounds one message from the peer, in bytes.
	MaxMessage int
	// Lease is the lease: how long nothing may come, and how long one frame may take to leave. A ping
	// goes out six times as often.
	Lease time.Duration
}

// maxPings is how many pings and pongs of the peer may come in a twelfth of the lease: hundreds of
// times what any lease asks for.
const maxPings = 1000

// Mux carries streams over one connection. Run must be called, once.
type Mux struct {
	conn   io.ReadWriteCloser
	socket *Socket // conn, where it is one
	cfg    Config

	frameSeen atomic.Bool   // a frame came since the last look
	inWrite   atomic.Int64  // the number of the current write, 0 for none
	pong      chan struct{} // a pong is owed
	pings     atomic.Int64  // and pongs since the last look
	failed    chan struct{} // closed with err set

	opening sync.Mutex // streams are opened in the order of their ids
	writing sync.Mutex // held during a write
	writes  int64      // started; guarded by writing, as is scratch
	scratch []byte

	mu      sync.Mutex
	streams map[uint32]*Stream
	lastID  uint32 // the highest stream that was opened
	err     error
	serving sync.WaitGroup
}

// NewMux takes over a connection on which both hellos are done.
func NewMux(conn io.ReadWriteCloser, cfg Config) *Mux {
	socket, _ := conn.(*Socket)
	return &Mux{
		conn: conn, socket: socket, cfg: cfg, pong: make(chan struct{}, 1), failed: make(chan struct{}),
		streams: map[uint32]*Stream{},
	}
}

// CanPassFDs says that Open can pass descriptors.
func (m *Mux) CanPassFDs() bool { return m.socket != nil }

// Run reads until the connection breaks or is closed, ends every stream, waits for the accepted
// ones, and says why it ended.
func (m *Mux) Run() error {
	var watching sync.WaitGroup
	watching.Go(func() { m.goRecovered(m.livenessLoop) })
	watching.Go(func() { m.goRecovered(m.pingLoop) })
	m.fail(recoverPanic(m.read))
	if m.socket != nil {
		m.socket.discard()
	}
	watching.Wait()
	m.serving.Wait()
	return m.Err()
}

// Close ends the connection and every stream on it.
func (m *Mux) Close() { m.fail(ErrClosed) }

// Done is closed when the connection is of no further use; Err says why.
func (m *Mux) Done() <-chan struct{} { return m.failed }

// Err is nil while the connection works.
func (m *Mux) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Fail ends the connection for a reason of the caller's.
func (m *Mux) Fail(err error) { m.fail(err) }

func (m *Mux) fail(err error) {
	m.mu.Lock()
	if m.err != nil {
		m.mu.Unlock()
		return
	}
	m.err = err
	open := m.streams
	m.streams = map[uint32]*Stream{}
	close(m.failed)
	m.mu.Unlock()
	_ = m.conn.Close()
	for _, s := range open {
		s.abort(err)
	}
}

// Open starts a stream with its first message and, where the connection Passes them, descriptors of
// files, which stay the caller's to close. It fails with ErrTooMany, ErrTooLarge, or the
// connection's error; then nothing was sent.
func (m *Mux) Open(first Message, files ...*os.File) (*Stream, error) {
	message := encode(first)
	if len(message) > MaxMessage {
		return nil, ErrTooLarge
	}
	m.opening.Lock()
	defer m.opening.Unlock()
	m.mu.Lock()
	if m.err != nil {
		defer m.mu.Unlock()
		return nil, m.err
	}
	if len(m.streams) >= MaxStreams {
		m.mu.Unlock()
		return nil, ErrTooMany
	}
	m.lastID++
	s := newStream(m, m.lastID)
	m.streams[s.id] = s
	m.mu.Unlock()
	head := header{stream: s.id, typ: frameOpen}
	if len(files) > 0 {
		head.typ = frameOpenWithFDs
	}
	if err := m.send(head, message, files...); err != nil {
		s.drop()
		return nil, err
	}
	return s, nil
}

func (m *Mux) send(h header, payload []byte, files ...*os.File) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	h.length = uint32(len(payload)) //nolint:gosec // bounded by MaxData and the message limits
	m.scratch = append(h.append(m.scratch[:0]), payload...)
	err := m.writeLocked(m.scratch, files)
	if cap(m.scratch) > 2*MaxData {
		m.scratch = nil // a large message was sent; its buffer is not needed again
	}
	return err
}

// write sends complete frames.
func (m *Mux) write(frames []byte, files []*os.File) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	return m.writeLocked(frames, files)
}

func (m *Mux) writeLocked(frames []byte, files []*os.File) (err error) {
	m.writes++
	m.inWrite.Store(m.writes)
	defer m.inWrite.Store(0)
	if len(files) == 0 {
		_, err = m.conn.Write(frames)
	} else {
		err = m.socket.writeWithFDs(frames, files)
	}
	if err != nil {
		m.fail(err)
	}
	return err
}

// pingLoop pings and answers pings. The reading side must never write itself: two sides that both
// wait to write would wait for ever.
func (m *Mux) pingLoop() {
	tick := time.NewTicker(max(m.cfg.Lease/6, time.Millisecond))
	defer tick.Stop()
	for {
		typ := framePing
		select {
		case <-m.failed:
			return
		case <-m.pong:
			typ = framePong
		case <-tick.C:
		}
		if m.send(header{typ: typ}, nil) != nil {
			return
		}
	}
}

func (m *Mux) read() error {
	r := bufio.NewReaderSize(m.conn, MaxData+headerSize)
	buf := make([]byte, MaxData)
	for {
		h, err := readHeader(r, m.cfg.MaxMessage)
		if err != nil {
			return err
		}
		m.frameSeen.Store(true)
		payload := buf
		if h.typ != frameData {
			payload = make([]byte, h.length) // messages are kept by their receiver
		}
		payload = payload[:h.length]
		if _, err := io.ReadFull(r, payload); err != nil {
			return err
		}
		if err := m.handle(h, payload); err != nil {
			return err
		}
	}
}

func (m *Mux) handle(h header, payload []byte) error {
	switch h.typ {
	case framePing:
		select {
		case m.pong <- struct{}{}:
		default: // one is owed already
		}
		return m.limitPings()
	case framePong:
		return m.limitPings()
	case frameHello:
		return protocolError("a second hello")
	case frameOpen:
		return m.accept(h.stream, payload, nil)
	case frameOpenWithFDs:
		return m.acceptPassed(h.stream, payload)
	default:
		s, err := m.stream(h.stream)
		if s == nil {
			return err // nil for a stream that has ended: the frames crossed
		}
		return s.handle(h, payload)
	}
}

// limitPings refuses a flood of frames that bring nothing and cost a reader all its time.
func (m *Mux) limitPings() error {
	if m.pings.Add(1) > maxPings {
		return protocolError("more than %d pings at once", maxPings)
	}
	return nil
}

func (m *Mux) stream(id uint32) (*Stream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id == 0 || id > m.lastID {
		return nil, protocolError("a frame for stream %d, which was never opened", id)
	}
	return m.streams[id], nil
}

func (m *Mux) acceptPassed(id uint32, payload []byte) error {
	if m.socket == nil || !m.socket.acceptFDs {
		return protocolError("a stream with descriptors")
	}
	files, err := m.socket.nextFDs()
	if err != nil {
		return err
	}
	if err := m.accept(id, payload, files); err != nil {
		closeFiles(files)
		return err
	}
	return nil
}

func (m *Mux) accept(id uint32, payload []byte, files []*os.File) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.err != nil:
		return m.err
	case m.cfg.Accept == nil:
		return protocolError("the peer opened a stream")
	case id <= m.lastID:
		return protocolError("stream %d was opened twice", id)
	case len(m.streams) >= MaxStreams:
		return protocolError("more than %d streams at once", MaxStreams)
	}
	m.lastID = id
	s := newStream(m, id)
	s.messages <- payload
	s.files = files
	m.streams[id] = s
	m.serving.Go(func() {
		defer s.Close()
		defer func() { closeFiles(s.Files()) }()
		m.cfg.Accept(s)
	})
	return nil
}

func creditOf(payload []byte) (int, error) {
	if len(payload) != 4 {
		return 0, protocolError("a credit of %d bytes", len(payload))
	}
	n := binary.LittleEndian.Uint32(payload)
	if n > Window {
		return 0, protocolError("a credit of %d", n)
	}
	return int(n), nil
}

// PanicError is a panic of this side in its work for the connection: a defect of ours, which a
// peer's frames may have laid open. The connection has failed with it, and nothing else.
type PanicError struct {
	Value any
	Stack []byte
}

// Error tells the value alone; the stack is for a log.
func (p *PanicError) Error() string { return fmt.Sprintf("a defect of this side: %v", p.Value) }

// recoverPanic makes a panic of the work an error.
func recoverPanic(work func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return work()
}

// goRecovered does a part of the connection's work that ends with it, or ends it.
func (m *Mux) goRecovered(work func()) {
	err := recoverPanic(func() error {
		work()
		return nil
	})
	if err != nil {
		m.fail(err)
	}
}
