package wire

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/dray-dev/dray/internal/pack"
)

// Protocols that this build speaks. Any change of a frame or of a message takes a new number,
// because a message names no fields.
//
//	3  messages are packed; what 1 and 2 spoke was never released
const (
	MinProtocol = 3
	MaxProtocol = 3
)

// magic starts a connection, so that whatever else may answer (a shell, an error text) is told from
// a peer at the first byte.
var magic = []byte("DRAYWIRE")

// Hello is the first message of each side. Every version begins its hello with the two protocols
// and its own name, so that a peer of another time can be told. What follows grows at its end
// alone, and what a reader does not know there it passes over.
type Hello struct {
	MinProtocol int
	MaxProtocol int
	Version     string
	// Lease is the daemon's word: without a frame for so long, the agent ends everything.
	Lease time.Duration
	// Dial is the daemon's word: try that socket, and tell how it went if it did not.
	Dial *DialTarget
	// SwitchUser is the agent's word: it can become any user (CAP_SETUID, CAP_SETGID and CAP_KILL).
	SwitchUser bool
	// UID is what the agent runs as.
	UID int
}

// fields of a peer that we cannot speak to end with its version.
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

// VersionError is a peer that speaks no protocol that we speak.
type VersionError struct{ Peer Hello }

// Error names both sides' protocols, the peer's version, and what to do.
func (e *VersionError) Error() string {
	return fmt.Sprintf("the peer (version %q) speaks protocols %d to %d, this side %d to %d: "+
		"daemon and agent must be of one build, so install dray again",
		e.Peer.Version, e.Peer.MinProtocol, e.Peer.MaxProtocol, MinProtocol, MaxProtocol)
}

// WriteHello sends our hello. The protocols are filled in.
func WriteHello(w io.Writer, h Hello) error {
	h.MinProtocol, h.MaxProtocol = MinProtocol, MaxProtocol
	return writeHello(w, bytes.Clone(magic), &h)
}

func writeHello(w io.Writer, b []byte, message Message) error {
	body := encode(message)
	// a few hundred bytes
	b = header{length: uint32(len(body)), typ: frameHello}.append(b) //nolint:gosec
	_, err := w.Write(append(b, body...))
	return err
}

// StdioFallback is what an agent says on its stdout when it was told to dial and could not: the
// connection goes on there.
type StdioFallback struct {
	Reason string
}

func (s *StdioFallback) fields(f *pack.Fields) { pack.Text(f, &s.Reason) }

// maxReason bounds StdioFallback.Reason.
const maxReason = 1 << 10

// WriteFallback sends why the socket is not used.
func WriteFallback(w io.Writer, why error) error {
	text := why.Error()
	return writeHello(w, nil, &StdioFallback{Reason: text[:min(len(text), maxReason)]})
}

// ReadFallback waits for the word of an agent that was told to dial. One that reached the socket
// says nothing here.
func ReadFallback(r io.Reader) (StdioFallback, error) {
	var s StdioFallback
	body, err := readHello(r)
	if err == nil {
		err = Decode(body, &s)
	}
	return s, err
}

// maxHello is more than any version of hello will need.
const maxHello = 4 << 10

// ReadHello reads the peer's hello. It fails with ErrProtocol for something that is no peer, with
// *VersionError for one of another time.
func ReadHello(r io.Reader) (Hello, error) {
	got := make([]byte, len(magic))
	if n, err := io.ReadFull(r, got); err != nil {
		return Hello{}, fmt.Errorf("waiting for the peer's hello (got %q): %w", got[:n], err)
	}
	if !bytes.Equal(got, magic) {
		return Hello{}, protocolError("the connection began with %q", got)
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
		return nil, protocolError("frame type %d where a hello belongs", head.typ)
	}
	body := make([]byte, head.length)
	_, err = io.ReadFull(r, body)
	return body, err
}
