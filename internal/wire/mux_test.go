package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// socketPair returns both ends of a real socket, with the kernel's buffers.
func socketPair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := [2]net.Conn{}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return ends[0], ends[1]
}

// pair runs a daemon's and an agent's side. The agent serves each stream with accept.
func pair(t testing.TB, accept func(*wire.Stream)) (daemon *wire.Mux) {
	t.Helper()
	a, b := socketPair(t)
	daemon = wire.NewMux(a, wire.Config{MaxMessage: 64 << 10, Lease: 10 * time.Second})
	agent := wire.NewMux(b, wire.Config{Accept: accept, MaxMessage: 1 << 20, Lease: 10 * time.Second})
	var wg sync.WaitGroup
	wg.Go(func() { _ = daemon.Run() })
	wg.Go(func() { _ = agent.Run() })
	t.Cleanup(func() {
		daemon.Close()
		wg.Wait()
	})
	return daemon
}

// words is a text message. heard receives one.
func words(text string) wire.Message { return &wire.StdioFallback{Reason: text} }

func heard(b []byte) string {
	var s wire.StdioFallback
	if err := wire.Decode(b, &s); err != nil {
		return err.Error()
	}
	return s.Reason
}

// echo sends back the messages and bytes that it receives.
func echo(s *wire.Stream) {
	first, err := s.Receive()
	if err != nil {
		return
	}
	_ = s.Send(words(heard(first)))
	_, _ = io.Copy(s.Writer(1), s.Reader(0))
	_ = s.Writer(1).Close()
	_, _ = s.Receive()
}

func TestEcho(t *testing.T) {
	m := pair(t, echo)
	blob := make([]byte, 5*wire.Window+123)
	for i := range blob {
		blob[i] = byte(rand.Uint32())
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			hello := fmt.Sprint("stream ", i)
			s, err := m.Open(words(hello))
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if b, err := s.Receive(); err != nil || heard(b) != hello {
				t.Errorf("got %q, %v", b, err)
			}
			go func() {
				_, _ = s.Writer(0).Write(blob)
				_ = s.Writer(0).Close()
			}()
			if got, err := io.ReadAll(s.Reader(1)); err != nil || !bytes.Equal(got, blob) {
				t.Errorf("stream %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	wg.Wait()
}

// A reader that does not read blocks its own channel and no other.
func TestSlowReaderBlocksNoOtherStream(t *testing.T) {
	m := pair(t, func(s *wire.Stream) {
		if b, _ := s.Receive(); heard(b) == "flood" {
			_, _ = s.Writer(1).Write(make([]byte, 100*wire.Window))
			return
		}
		_ = s.Send(words("pong"))
	})
	flood, err := m.Open(words("flood"))
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Close()
	for range 100 {
		s, err := m.Open(words("ping"))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := s.Receive(); err != nil || heard(b) != "pong" {
			t.Fatalf("got %q, %v", b, err)
		}
		s.Close()
	}
}

func TestWrite_StopSending(t *testing.T) {
	m := pair(t, func(s *wire.Stream) {
		_ = s.Reader(0).Close()
		_, _ = s.Receive()
		_, _ = s.Receive()
	})
	s, err := m.Open(words(""))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Writer(0).Write(make([]byte, 10*wire.Window)); !errors.Is(err,
		wire.ErrStopSending) {
		t.Errorf("got %v", err)
	}
}

// A reader gets what was sent before the end, then the end.
func TestDataArrivesBeforeEnd(t *testing.T) {
	m := pair(t, func(s *wire.Stream) {
		_, _ = s.Writer(1).Write([]byte("last words"))
		_ = s.Send(words("bye"))
	})
	for range 200 {
		s, err := m.Open(words(""))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := s.Receive(); err != nil || heard(b) != "bye" {
			t.Fatalf("got %q, %v", b, err)
		}
		if _, err := s.Receive(); !errors.Is(err, io.EOF) {
			t.Fatalf("got %v", err)
		}
		if b, err := io.ReadAll(s.Reader(1)); err != nil || string(b) != "last words" {
			t.Fatalf("got %q, %v", b, err)
		}
	}
}

func frame(length, stream uint32, typ, channel byte, payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, length)
	b = binary.LittleEndian.AppendUint32(b, stream)
	return append(append(b, typ, channel), payload...)
}

// Each violation of the protocol ends the connection without allocating for it (EX-21).
func TestProtocolErrors(t *testing.T) {
	data := func(n int) []byte { return frame(uint32(n), 1, 6, 1, make([]byte, n)) }
	window := bytes.Repeat(data(wire.MaxData), wire.Window/wire.MaxData)
	for name, c := range map[string][]byte{
		"unknown type":         frame(0, 1, 99, 0, nil),
		"second hello":         frame(0, 0, 1, 0, nil),
		"unknown channel":      frame(0, 1, 7, 9, nil),
		"data too long":        frame(1<<31, 1, 6, 1, nil),
		"message too long":     frame(1<<20, 1, 5, 0, nil),
		"stream never opened":  frame(0, 77, 10, 0, nil),
		"stream 0":             frame(0, 0, 10, 0, nil),
		"the peer opens":       frame(0, 5, 4, 0, nil),
		"window exceeded":      append(window, data(1)...),
		"credit too much":      frame(4, 1, 8, 0, []byte{1, 0, 0, 0}),
		"credit of no size":    frame(0, 1, 8, 0, nil),
		"a flood of pings":     bytes.Repeat(frame(0, 0, 2, 0, nil), 5000),
		"descriptors opened":   frame(0, 9, 11, 0, nil),
		"messages not awaited": bytes.Repeat(frame(2, 1, 5, 0, []byte{1, 'x'}), 200),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := socketPair(t)
			m := wire.NewMux(a, wire.Config{MaxMessage: 64 << 10, Lease: 10 * time.Second})
			ended := make(chan error, 1)
			go func() { ended <- m.Run() }()
			s, err := m.Open(words("hello"))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = b.Write(c) // it may be cut off before the last byte
			if err := <-ended; !errors.Is(err, wire.ErrProtocol) {
				t.Errorf("got %v", err)
			}
			for {
				if _, err := s.Receive(); err != nil {
					break
				}
			}
			_ = b.Close()
		})
	}
}

// Both sides ping, and a peer that sends nothing for a lease ends the connection (EX-21).
func TestPeerTimeout(t *testing.T) {
	a, b := socketPair(t)
	defer func() { _ = b.Close() }()
	m := wire.NewMux(a, wire.Config{MaxMessage: 1, Lease: 60 * time.Millisecond})
	if err := m.Run(); !errors.Is(err, wire.ErrPeerTimeout) {
		t.Errorf("got %v", err)
	}
	ping := make([]byte, 10)
	if _, err := io.ReadFull(b, ping); err != nil || ping[8] != 2 {
		t.Errorf("no ping: %v, %v", ping, err)
	}
}

func TestPingsKeepConnection(t *testing.T) {
	a, b := socketPair(t)
	x := wire.NewMux(a, wire.Config{MaxMessage: 1, Lease: 300 * time.Millisecond})
	y := wire.NewMux(b, wire.Config{MaxMessage: 1, Lease: 300 * time.Millisecond})
	ended := make(chan error, 2)
	go func() { ended <- x.Run() }()
	go func() { ended <- y.Run() }()
	select {
	case err := <-ended:
		t.Fatalf("it ended: %v", err)
	case <-time.After(900 * time.Millisecond): // three leases
	}
	x.Close()
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("it ended without a reason")
		}
	}
}

func TestHello(t *testing.T) {
	var b bytes.Buffer
	if err := wire.WriteHello(&b, wire.Hello{Version: "v1", Lease: 30 * time.Second}); err != nil {
		t.Fatal(err)
	}
	h, err := wire.ReadHello(&b)
	if err != nil || h.Version != "v1" || h.Lease != 30*time.Second ||
		h.MaxProtocol != wire.MaxProtocol {
		t.Errorf("got %+v, %v", h, err)
	}
	if _, err := wire.ReadHello(bytes.NewReader([]byte("OCI runtime exec failed: exec failed"))); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("a shell's text: %v", err)
	}
	for name, c := range map[string]struct {
		body, version string
		first         int
	}{
		"a later time's": {
			body: "\x10\x12\x02v9 and whatever it means by that", version: "v9",
			first: 8,
		},
		"an earlier one's": {body: "\x02\x04\x02v1", version: "v1", first: 1},
	} {
		t.Run(name, func(t *testing.T) {
			hello := append([]byte("DRAYWIRE"), frame(uint32(len(c.body)), 0, 1, 0, []byte(c.body))...)
			_, err := wire.ReadHello(bytes.NewReader(hello))
			version, ok := errors.AsType[*wire.VersionError](err)
			if !ok || version.Peer.Version != c.version || version.Peer.MinProtocol != c.first ||
				!strings.Contains(err.Error(), "install") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A hello may have further fields at its end.
func TestReadHello_FurtherFields(t *testing.T) {
	var b bytes.Buffer
	if err := wire.WriteHello(&b, wire.Hello{
		Version: "v1", Lease: time.Second, SwitchUser: true,
		UID: 7, BootID: "boot", PID: 11, Listen: &wire.Listen{Secret: []byte("x"), HolderUID: 12},
	}); err != nil {
		t.Fatal(err)
	}
	hello := b.Bytes()
	const length = 8 // of the magic
	longer := append(bytes.Clone(hello), "more"...)
	longer[length] += 4
	if h, err := wire.ReadHello(bytes.NewReader(longer)); err != nil || h.UID != 7 ||
		h.PID != 11 || h.BootID != "boot" || string(h.Listen.Secret) != "x" || h.Listen.HolderUID != 12 {
		t.Errorf("got %+v, %v", h, err)
	}
	cut := bytes.Clone(hello)
	cut[length]--
	if h, err := wire.ReadHello(bytes.NewReader(cut)); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("got %+v, %v", h, err)
	}
}

// FuzzPeer feeds a side with arbitrary bytes. It must end with a typed error and leak nothing.
func FuzzPeer(f *testing.F) {
	f.Add(frame(2, 1, 5, 0, []byte{1, 'x'}))
	f.Add(append(frame(3, 1, 6, 1, []byte("abc")), frame(0, 1, 10, 0, nil)...))
	f.Add(frame(4, 1, 8, 0, []byte{0, 1, 0, 0}))
	f.Fuzz(func(t *testing.T, input []byte) {
		a, b := net.Pipe()
		m := wire.NewMux(a, wire.Config{
			Accept: func(s *wire.Stream) { _, _ = s.Receive() }, MaxMessage: 1 << 10, Lease: time.Second,
		})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(io.Discard, b) })
		wg.Go(func() {
			_, _ = b.Write(input)
			_ = b.Close()
		})
		if err := m.Run(); err == nil {
			t.Error("it ended without a reason")
		}
		wg.Wait()
	})
}

// FuzzHello reads arbitrary bytes as a hello.
func FuzzHello(f *testing.F) {
	f.Add([]byte("DRAYWIRE"))
	var b bytes.Buffer
	if err := wire.WriteHello(&b, wire.Hello{
		Version: "v1",
		Listen:  &wire.Listen{Secret: []byte("secret")},
	}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(_ *testing.T, input []byte) { _, _ = wire.ReadHello(bytes.NewReader(input)) })
}

// trapped is a connection that panics when it is read from, or written to.
type trapped struct {
	net.Conn
	reading, writing bool
}

func (c trapped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.reading {
		panic("a panic of the reader")
	}
	return n, err
}

func (c trapped) Write(p []byte) (int, error) {
	if c.writing {
		panic("a panic of the writer")
	}
	return c.Conn.Write(p)
}

// A panic in a goroutine of the connection ends the connection and its streams with a PanicError
// (EX-18).
func TestPanicEndsTheConnection(t *testing.T) {
	for name, trap := range map[string]trapped{
		"a panic of the reader": {reading: true},
		"a panic of the writer": {writing: true},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := socketPair(t)
			trap.Conn = a
			// it pings six times as often
			m := wire.NewMux(trap, wire.Config{MaxMessage: 1 << 10, Lease: 200 * time.Millisecond})
			var s *wire.Stream
			if trap.reading {
				var err error
				if s, err = m.Open(words("")); err != nil {
					t.Fatal(err)
				}
				if _, err := b.Write(frame(0, 0, 6, 0, nil)); err != nil { // any frame will do
					t.Fatal(err)
				}
			}
			err := m.Run()
			defect, ok := errors.AsType[*wire.PanicError](err)
			if !ok || !strings.Contains(err.Error(), name) ||
				!strings.Contains(string(defect.Stack), "mux_test.go") {
				t.Errorf("the connection ended with %v", err)
			}
			if s != nil {
				if _, err := s.Receive(); !errors.Is(err, defect) {
					t.Errorf("the stream ended with %v", err)
				}
			}
		})
	}
}
