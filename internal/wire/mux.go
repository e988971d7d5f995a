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

// Errors of connections.
var (
	// ErrPeerTimeout is the end of a connection on which no frame was received for a lease.
	ErrPeerTimeout = errors.New("the peer sent nothing for too long")
	// ErrWriteTimeout is the end of a connection on which a write took longer than a lease.
	ErrWriteTimeout = errors.New("the peer stopped reading")
	// ErrTooMany is returned by Open if MaxStreams are open. Nothing was sent.
	ErrTooMany = errors.New("too many streams are open")
	// ErrTooLarge is returned by Open if the message exceeds MaxMessage. Nothing was sent.
	ErrTooLarge = errors.New("the message is too large")
	// ErrClosed is the end of a connection or stream that this side closed.
	ErrClosed = errors.New("the connection is closed")
)

// Config is how one side uses a connection.
type Config struct {
	// Accept is called with each stream that the peer opens, in a goroutine that Run waits for. If it
	// is nil, the peer must not open streams.
	Accept func(*Stream)
	// MaxMessage bounds one message of the peer, in bytes.
	MaxMessage int
	// Lease bounds the time without a frame of the peer, and the time of one write. Pings are sent six
	// times in a lease.
	Lease time.Duration
}

// maxPings bounds the pings and pongs of the peer in a twelfth of the lease.
const maxPings = 1000

// Mux multiplexes streams over one connection. Run must be called once. The other methods are safe
// for concurrent use.
type Mux struct {
	conn   io.ReadWriteCloser
	socket *Socket // conn, if it is one
	cfg    Config

	frameSeen atomic.Bool   // since the last check
	inWrite   atomic.Int64  // the number of the current write, 0 for none
	pong      chan struct{} // has an element if a pong has to be sent
	pings     atomic.Int64  // and pongs since the last check
	failed    chan struct{} // closed with err set

	opening sync.Mutex // held by Open, so that streams are opened in the order of their ids
	writing sync.Mutex // held during a write
	writes  int64      // started; guarded by writing, as is scratch
	scratch []byte

	mu      sync.Mutex
	streams map[uint32]*Stream
	lastID  uint32 // of all streams ever
	err     error
	serving sync.WaitGroup
}

// NewMux takes over a connection after both hellos.
func NewMux(conn io.ReadWriteCloser, cfg Config) *Mux {
	socket, _ := conn.(*Socket)
	return &Mux{
		conn: conn, socket: socket, cfg: cfg, pong: make(chan struct{}, 1), failed: make(chan struct{}),
		streams: map[uint32]*Stream{},
	}
}

// CanPassFDs reports whether Open can pass fds.
func (m *Mux) CanPassFDs() bool { return m.socket != nil }

// Run reads until the connection ends. Then it ends every stream, waits for the accepted ones, and
// returns the reason.
func (m *Mux) Run() error {
	var watching sync.WaitGroup
	for _, loop := range []func() error{m.livenessLoop, m.pingLoop} {
		watching.Go(func() { m.Fail(recoverPanic(loop)) })
	}
	m.Fail(recoverPanic(m.read))
	if m.socket != nil {
		m.socket.discard()
	}
	watching.Wait()
	m.serving.Wait()
	return m.Err()
}

// Close ends the connection and every stream on it.
func (m *Mux) Close() { m.Fail(ErrClosed) }

// Done is closed when the connection has ended.
func (m *Mux) Done() <-chan struct{} { return m.failed }

// Err returns the reason of the end; nil before.
func (m *Mux) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Fail ends the connection with the reason err, unless it has ended.
func (m *Mux) Fail(err error) {
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

// Open opens a stream with its first message and, if CanPassFDs, passes files, which the caller
// closes. It fails with ErrTooMany, ErrTooLarge, or the reason of the connection's end; then
// nothing was sent.
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
		m.Fail(err)
	}
	return err
}

// pingLoop sends pings and pongs. The reader must not write: if both sides did and their buffers
// were full, both would block forever.
func (m *Mux) pingLoop() error {
	tick := time.NewTicker(max(m.cfg.Lease/6, time.Millisecond))
	defer tick.Stop()
	for {
		typ := framePing
		select {
		case <-m.failed:
			return m.Err()
		case <-m.pong:
			typ = framePong
		case <-tick.C:
		}
		if err := m.send(header{typ: typ}, nil); err != nil {
			return err
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
			payload = make([]byte, h.length) // the receiver keeps messages
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
		default: // one will be sent already
		}
		return m.limitPings()
	case framePong:
		return m.limitPings()
	case frameHello:
		return protocolError("a second hello")
	case frameOpen:
		return m.accept(h.stream, payload, passedFDs{})
	case frameOpenWithFDs:
		return m.acceptPassed(h.stream, payload)
	default:
		s, err := m.stream(h.stream)
		if s == nil {
			return err // nil for a stream that has ended: the peer did not know it yet
		}
		return s.handle(h, payload)
	}
}

// limitPings ends the connection of a peer that floods the reader with pings.
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
		return nil, protocolError("a frame for stream %d, which was not opened", id)
	}
	return m.streams[id], nil
}

func (m *Mux) acceptPassed(id uint32, payload []byte) error {
	if m.socket == nil || !m.socket.acceptFDs {
		return protocolError("a stream with file descriptors")
	}
	passed, err := m.socket.nextFDs()
	if err != nil {
		return err
	}
	if err = m.accept(id, payload, passed); err != nil {
		closeFiles(passed.files)
	}
	return err
}

func (m *Mux) accept(id uint32, payload []byte, passed passedFDs) error {
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
	s.passed = passed
	m.streams[id] = s
	m.serving.Go(func() {
		defer s.Close()
		defer func() { closeFiles(s.Files()) }()
		m.cfg.Accept(s)
	})
	return nil
}

func windowUpdateOf(payload []byte) (int, error) {
	if len(payload) != 4 {
		return 0, protocolError("a window update of %d bytes", len(payload))
	}
	n := binary.LittleEndian.Uint32(payload)
	if n > Window {
		return 0, protocolError("a window update of %d", n)
	}
	return int(n), nil
}

// PanicError is a recovered panic in a goroutine of the connection. Only the connection ends
// (EX-18).
type PanicError struct {
	Value any
	Stack []byte
}

// Error contains only the value. The stack is for a log.
func (p *PanicError) Error() string { return fmt.Sprintf("internal error: %v", p.Value) }

// recoverPanic returns a panic of work as an error.
func recoverPanic(work func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return work()
}

// checksPerLease is the number of times in a lease that a side checks its peer.
const checksPerLease = 12

// livenessMonitor sums up the time in which a peer sent nothing, and in which it read nothing. The
// time between two checks counts for two intervals at most: a side that was stopped, or had no
// processor, has not read what the peer sent meanwhile.
type livenessMonitor struct {
	interval     time.Duration
	last         time.Duration // the last check
	writing      int64         // the number of the current write then, 0 for none
	silent       time.Duration
	writeStalled time.Duration
}

// observe adds one check at the time now: whether a frame was received since the last one, and the
// number of the current write.
func (a *livenessMonitor) observe(now time.Duration, received bool, writing int64) {
	elapsed := min(now-a.last, 2*a.interval)
	if a.silent += elapsed; received {
		a.silent = 0
	}
	if a.writeStalled += elapsed; writing == 0 || writing != a.writing {
		a.writeStalled = 0
	}
	a.last, a.writing = now, writing
}

// livenessLoop ends the connection of a peer that sends nothing, or reads nothing, for a lease. It
// does not write, because a write could block.
func (m *Mux) livenessLoop() error {
	interval := max(m.cfg.Lease/checksPerLease, time.Millisecond)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	start, peer := time.Now(), livenessMonitor{interval: interval}
	for {
		select {
		case <-m.failed:
			return m.Err()
		case <-tick.C:
		}
		m.pings.Store(0)
		peer.observe(time.Since(start), m.frameSeen.Swap(false), m.inWrite.Load())
		switch {
		case peer.writeStalled > m.cfg.Lease:
			return ErrWriteTimeout
		case peer.silent > m.cfg.Lease:
			return ErrPeerTimeout
		}
	}
}
