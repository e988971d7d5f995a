package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Protocols that this build speaks. A change that an older peer would misunderstand takes a new number.
//
//	1  processes with three framed streams
//	2  terminals, kept leftovers, the socket and descriptors on it
const (
	MinProtocol = 1
	MaxProtocol = 2
)

// magic starts a connection, so that whatever else may answer (a shell, an error text) is told from a peer at the first byte.
var magic = []byte("DRAYWIRE")

// Hello is the first message of each side.
type Hello struct {
	MinProtocol int    `json:"min_protocol"`
	MaxProtocol int    `json:"max_protocol"`
	Version     string `json:"version"`
	// LeaseMS is the daemon's word: without a frame for so long, the agent ends everything.
	LeaseMS int64 `json:"lease_ms,omitempty"`
	// Dial is the daemon's word: try that socket, and tell how it went if it did not (protocol 2).
	Dial *Dial `json:"dial,omitempty"`
	// SwitchUser is the agent's word: it can become any user (CAP_SETUID, CAP_SETGID and CAP_KILL).
	SwitchUser bool `json:"switch_user,omitempty"`
	// UID is what the agent runs as.
	UID int `json:"uid"`
}

// Protocol is what both sides speak, after Meet.
func (h Hello) Protocol() int { return min(h.MaxProtocol, MaxProtocol) }

// VersionError is a peer that speaks no protocol that we speak.
type VersionError struct{ Peer Hello }

// Error names both sides' protocols and the peer's version.
func (e *VersionError) Error() string {
	return fmt.Sprintf("the peer (version %s) speaks protocols %d to %d, this side %d to %d",
		e.Peer.Version, e.Peer.MinProtocol, e.Peer.MaxProtocol, MinProtocol, MaxProtocol)
}

// Greet sends our hello. The protocols are filled in.
func Greet(w io.Writer, h Hello) error {
	h.MinProtocol, h.MaxProtocol = MinProtocol, MaxProtocol
	return writeHello(w, bytes.Clone(magic), h)
}

func writeHello(w io.Writer, b []byte, message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	b = header{length: uint32(len(body)), typ: frameHello}.append(b) //nolint:gosec // a few hundred bytes
	_, err = w.Write(append(b, body...))
	return err
}

// Stay is what an agent says on its stdout when it was told to dial and could not: the connection goes on there.
type Stay struct {
	Why string `json:"why"`
}

// maxWhy bounds Stay.Why.
const maxWhy = 1 << 10

// TellStay sends why the socket is not used.
func TellStay(w io.Writer, why error) error {
	text := why.Error()
	return writeHello(w, nil, Stay{Why: text[:min(len(text), maxWhy)]})
}

// HearStay waits for the word of an agent that was told to dial. One that reached the socket says nothing here.
func HearStay(r io.Reader) (Stay, error) {
	var s Stay
	err := readHello(r, &s)
	return s, err
}

// maxHello is more than any version of hello will need.
const maxHello = 4 << 10

// Meet reads the peer's hello. It fails with ErrProtocol for something that is no peer, with *VersionError for one of another time.
func Meet(r io.Reader) (Hello, error) {
	got := make([]byte, len(magic))
	if n, err := io.ReadFull(r, got); err != nil {
		return Hello{}, fmt.Errorf("waiting for the peer's hello (got %q): %w", got[:n], err)
	}
	if !bytes.Equal(got, magic) {
		return Hello{}, violation("the connection began with %q", got)
	}
	var h Hello
	if err := readHello(r, &h); err != nil {
		return Hello{}, err
	}
	if h.MinProtocol > MaxProtocol || h.MaxProtocol < MinProtocol {
		return h, &VersionError{Peer: h}
	}
	return h, nil
}

func readHello(r io.Reader, into any) error {
	head, err := readHeader(r, maxHello)
	if err != nil {
		return err
	}
	if head.typ != frameHello {
		return violation("frame type %d where a hello belongs", head.typ)
	}
	body := make([]byte, head.length)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return violation("hello: %v", err)
	}
	return nil
}
