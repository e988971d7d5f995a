package wire

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	"github.com/dray-dev/dray/internal/pack"
)

// Protocols that this build supports. Every change of a frame or a message needs a new number,
// because messages contain no field names.
//
//	7  Start has the directory that its directory must lead to
//	6  Exited has the state of a session
//	5  a start needs a permit
//	4  the agent listens and the daemon connects; Start has a call, and Exited its results
//	3  messages are packed; 1 and 2 were never released
const (
	MinProtocol = 7
	MaxProtocol = 7
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
	// Listen is sent by the daemon: the agent listens on a socket and sends Listening. Without it the
	// connection continues on stdio.
	Listen *Listen
	// SwitchUser is sent by the agent: it can run processes as any user (CAP_SETUID, CAP_SETGID and
	// CAP_KILL).
	SwitchUser bool
	// UID is sent by the agent: the user that it runs as.
	UID int
	// BootID and PID are sent by the agent: the id of its kernel's boot, and its pid in its own pid
	// namespace.
	BootID string
	PID    int
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
	pack.Optional(f, &h.Listen, packListen)
	pack.Bool(f, &h.SwitchUser)
	pack.Int(f, &h.UID)
	pack.Text(f, &h.BootID)
	pack.Int(f, &h.PID)
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
	return writeHelloFrame(w, bytes.Clone(magic), &h)
}

// writeHelloFrame appends a frame of type hello to b and sends both.
func writeHelloFrame(w io.Writer, b []byte, message Message) error {
	body := encode(message)
	//nolint:gosec // a few hundred bytes
	b = header{length: uint32(len(body)), typ: frameHello}.append(b)
	_, err := w.Write(append(b, body...))
	return err
}

// Listen asks an agent to listen on a socket. It is sent over the agent's stdin.
type Listen struct {
	// Secret authenticates both sides on the socket. It is used once.
	Secret []byte
	// HolderUID is the daemon's user if it may not open the agent's fds. The agent then starts a
	// process of that user, which holds the socket. 0 means that none is needed.
	HolderUID int
	// PrivatePIDs is set if the daemon has no pid in the agent's pid namespace. A peer with a pid
	// there is then not the daemon.
	PrivatePIDs bool
}

func packListen(f *pack.Fields, l *Listen) {
	pack.Text(f, &l.Secret)
	pack.Int(f, &l.HolderUID)
	pack.Bool(f, &l.PrivatePIDs)
}

// Listening is the reply of an agent to Hello.Listen.
type Listening struct {
	// PID is the process that has the socket, in the agent's pid namespace, and FD its fd for it.
	PID, FD int
	// Reason is why there is no socket: the connection continues on stdio. Empty with a socket.
	Reason string
}

func (l *Listening) fields(f *pack.Fields) {
	pack.Int(f, &l.PID)
	pack.Int(f, &l.FD)
	pack.Text(f, &l.Reason)
}

// StdioFallback is sent by a daemon that cannot use the socket of Listening. The connection
// continues on stdio.
type StdioFallback struct {
	Reason string
}

func (s *StdioFallback) fields(f *pack.Fields) { pack.Text(f, &s.Reason) }

// maxReason bounds the reasons in these messages, in bytes.
const maxReason = 1 << 10

func reasonOf(cause error) string {
	text := cause.Error()
	return text[:min(len(text), maxReason)]
}

// WriteListening sends where the agent listens.
func WriteListening(w io.Writer, l Listening) error { return writeHelloFrame(w, nil, &l) }

// WriteNotListening sends that the agent does not listen because of cause.
func WriteNotListening(w io.Writer, cause error) error {
	return writeHelloFrame(w, nil, &Listening{Reason: reasonOf(cause)})
}

// ReadListening blocks until the agent has replied to Hello.Listen.
func ReadListening(r io.Reader) (l Listening, err error) {
	err = readMessage(r, &l)
	return l, err
}

// WriteFallback sends a StdioFallback with the reason cause.
func WriteFallback(w io.Writer, cause error) error {
	return writeHelloFrame(w, nil, &StdioFallback{Reason: reasonOf(cause)})
}

// ReadFallback blocks until the daemon sends a StdioFallback. A daemon that uses the socket sends
// nothing here.
func ReadFallback(r io.Reader) (s StdioFallback, err error) {
	err = readMessage(r, &s)
	return s, err
}

func readMessage(r io.Reader, message Message) error {
	body, err := readHelloFrame(r)
	if err != nil {
		return err
	}
	return Decode(body, message)
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
	body, err := readHelloFrame(r)
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

// readHelloFrame returns the content of a frame of type hello.
func readHelloFrame(r io.Reader) ([]byte, error) {
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

// SecretSize is the size of a secret, a nonce and a MAC, in bytes.
const SecretSize = 32

// authMagic starts a connection on the socket.
var authMagic = []byte("DRAYDIAL")

// The roles prevent that the MAC of one side is sent back as that of the other.
const (
	roleDaemon = "daemon"
	roleAgent  = "agent"
	confirmed  = 1
)

// errBadSecret is returned for a peer without the secret.
var errBadSecret = protocolError("the peer does not know the secret")

// AuthenticateAgent is the daemon's side of a mutual challenge-response authentication. It reads at
// most 72 bytes of the peer, and replies only with a MAC.
//
//	agent   magic, nonce A
//	daemon  nonce D, HMAC(secret, "daemon" A D)
//	agent   HMAC(secret, "agent" A D)
//	daemon  1 (ConfirmAgent)
//
// nonce is SecretSize random bytes.
func AuthenticateAgent(conn io.ReadWriter, secret, nonce []byte) error {
	greeting := make([]byte, len(authMagic)+SecretSize)
	if _, err := io.ReadFull(conn, greeting); err != nil {
		return fmt.Errorf("receive the agent's nonce: %w", err)
	}
	theirs, ok := bytes.CutPrefix(greeting, authMagic)
	if !ok {
		return protocolError("the peer started with %q", greeting[:len(authMagic)])
	}
	if _, err := conn.Write(append(bytes.Clone(nonce),
		computeMAC(secret, roleDaemon, theirs, nonce)...)); err != nil {
		return fmt.Errorf("send the MAC: %w", err)
	}
	theirMAC := make([]byte, SecretSize)
	if _, err := io.ReadFull(conn, theirMAC); err != nil {
		return fmt.Errorf("receive the agent's MAC: %w", err)
	}
	if !hmac.Equal(theirMAC, computeMAC(secret, roleAgent, theirs, nonce)) {
		return errBadSecret
	}
	return nil
}

// ConfirmAgent completes the authentication after the daemon has chosen this connection.
func ConfirmAgent(conn io.Writer) error {
	if _, err := conn.Write([]byte{confirmed}); err != nil {
		return fmt.Errorf("confirm the agent: %w", err)
	}
	return nil
}

// AuthenticateDaemon is the agent's side. It sends its MAC only after it has verified the daemon's.
func AuthenticateDaemon(conn io.ReadWriter, secret, nonce []byte) error {
	if _, err := conn.Write(append(bytes.Clone(authMagic), nonce...)); err != nil {
		return fmt.Errorf("send the nonce: %w", err)
	}
	answer := make([]byte, 2*SecretSize)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return fmt.Errorf("receive the daemon's MAC: %w", err)
	}
	theirs, theirMAC := answer[:SecretSize], answer[SecretSize:]
	if !hmac.Equal(theirMAC, computeMAC(secret, roleDaemon, nonce, theirs)) {
		return errBadSecret
	}
	if _, err := conn.Write(computeMAC(secret, roleAgent, nonce, theirs)); err != nil {
		return fmt.Errorf("send the MAC: %w", err)
	}
	var last [1]byte
	if _, err := io.ReadFull(conn, last[:]); err != nil {
		return fmt.Errorf("receive the daemon's confirmation: %w", err)
	}
	if last[0] != confirmed {
		return protocolError("a confirmation of %d", last[0])
	}
	return nil
}

func computeMAC(secret []byte, role string, agent, daemon []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(role))
	mac.Write(agent)
	mac.Write(daemon)
	return mac.Sum(nil)
}
