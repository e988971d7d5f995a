package wire

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/dray-dev/dray/internal/pack"
)

// Protocols that this build supports. Every change of a frame or a message needs a new number,
// because messages contain no field names.
//
//	3  messages are packed; 1 and 2 were never released
const (
	MinProtocol = 3
	MaxProtocol = 3
)

// magic starts a connection. A shell or an error message in place of a peer differs from it.
var magic = []byte("DRAYWIRE")

// Hello is the first message of each side. In every version it starts with the two protocols and
// the version, so that an incompatible peer gets an error with both. New fields are added at its
// end, and readers ignore fields that they do not know.
type Hello struct {
	MinProtocol int
	MaxProtocol int
	Version     string
	// Lease is sent by the daemon: after this time without a frame the agent ends everything.
	Lease time.Duration
	// Dial is sent by the daemon: the agent connects to this socket, or sends a StdioFallback.
	Dial *DialTarget
	// SwitchUser is sent by the agent: it can run processes as any user (CAP_SETUID, CAP_SETGID and
	// CAP_KILL).
	SwitchUser bool
	// UID is sent by the agent: the user that it runs as.
	UID int
}

// fields stops after the version of an incompatible peer.
func (h *Hello) fields(f *pack.Fields) {
	pack.Int(f, &h.MinProtocol)
	pack.Int(f, &h.MaxProtocol)
	pack.Text(f, &h.Version)
	if h.incompatible() {
		return
	}
	pack.Int(f, &h.Lease)
	pack.Optional(f, &h.Dial, packDial)
	pack.Bool(f, &h.SwitchUser)
	pack.Int(f, &h.UID)
}

func (h *Hello) incompatible() bool {
	return h.MinProtocol > MaxProtocol || h.MaxProtocol < MinProtocol
}

// VersionError is returned if the peer supports no protocol that this build supports.
type VersionError struct{ Peer Hello }

// Error names the protocols of both sides and what to do.
func (e *VersionError) Error() string {
	return fmt.Sprintf("the peer (version %q) speaks protocols %d to %d, this side %d to %d: "+
		"daemon and agent must be of one build, so install dray again",
		e.Peer.Version, e.Peer.MinProtocol, e.Peer.MaxProtocol, MinProtocol, MaxProtocol)
}

// WriteHello sends h with the protocols of this build.
func WriteHello(w io.Writer, h Hello) error {
	h.MinProtocol, h.MaxProtocol = MinProtocol, MaxProtocol
	return writeHello(w, bytes.Clone(magic), &h)
}

func writeHello(w io.Writer, b []byte, message Message) error {
	body := encode(message)
	//nolint:gosec // a few hundred bytes
	b = header{length: uint32(len(body)), typ: frameHello}.append(b)
	_, err := w.Write(append(b, body...))
	return err
}

// StdioFallback is sent by an agent on its stdout if it could not use the socket of Hello.Dial. The
// connection continues there.
type StdioFallback struct {
	Reason string
}

func (s *StdioFallback) fields(f *pack.Fields) { pack.Text(f, &s.Reason) }

// maxReason bounds StdioFallback.Reason.
const maxReason = 1 << 10

// WriteFallback sends a StdioFallback with the reason cause.
func WriteFallback(w io.Writer, cause error) error {
	text := cause.Error()
	return writeHello(w, nil, &StdioFallback{Reason: text[:min(len(text), maxReason)]})
}

// ReadFallback blocks until the agent sends a StdioFallback. An agent that uses the socket sends
// nothing here.
func ReadFallback(r io.Reader) (StdioFallback, error) {
	var s StdioFallback
	body, err := readHello(r)
	if err == nil {
		err = Decode(body, &s)
	}
	return s, err
}

// maxHello bounds a hello of any version, in bytes.
const maxHello = 4 << 10

// ReadHello reads the peer's hello. It fails with ErrProtocol if something else was received, and
// with *VersionError if the peer is incompatible.
func ReadHello(r io.Reader) (Hello, error) {
	got := make([]byte, len(magic))
	if n, err := io.ReadFull(r, got); err != nil {
		return Hello{}, fmt.Errorf("receive the peer's hello (got %q): %w", got[:n], err)
	}
	if !bytes.Equal(got, magic) {
		return Hello{}, protocolError("the connection started with %q", got)
	}
	body, err := readHello(r)
	if err != nil {
		return Hello{}, err
	}
	var h Hello
	if _, err := pack.DecodePrefix(body, &h,
		func(f *pack.Fields, h *Hello) { h.fields(f) }); err != nil {
		return Hello{}, protocolError("hello: %v", err)
	}
	if h.incompatible() {
		return h, &VersionError{Peer: h}
	}
	return h, nil
}

func readHello(r io.Reader) ([]byte, error) {
	head, err := readHeader(r, maxHello)
	if err != nil {
		return nil, err
	}
	if head.typ != frameHello {
		return nil, protocolError("frame type %d instead of a hello", head.typ)
	}
	body := make([]byte, head.length)
	_, err = io.ReadFull(r, body)
	return body, err
}
