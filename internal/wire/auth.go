package wire

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/dray-dev/dray/internal/pack"
)

// DialTarget tells an agent, over the stdin of its exec, where the daemon waits for it and what to
// prove itself with. The secret is of one use.
type DialTarget struct {
	Path   string
	Secret []byte
}

func packDial(f *pack.Fields, d *DialTarget) {
	pack.Text(f, &d.Path)
	pack.Text(f, &d.Secret)
}

// SecretSize is the size of a secret, of a nonce and of a proof, in bytes.
const SecretSize = 32

// authMagic begins what a dialer says.
var authMagic = []byte("DRAYDIAL")

// The roles keep a proof of one side from being sent back as that of the other.
const (
	roleDaemon = "daemon"
	roleAgent  = "agent"
	welcome    = 1
)

// errBadSecret is a peer that does not know the secret.
var errBadSecret = protocolError("the peer does not know the secret")

// AuthenticateAgent is the daemon's side of the proof: who dialed shows that it knows the secret,
// and is shown that we do. Nothing that the peer says is answered but with a digest, and at most 72
// bytes of it are read.
//
//	agent   magic, nonce A
//	daemon  nonce D, HMAC(secret, "daemon" A D)
//	agent   HMAC(secret, "agent" A D)
//	daemon  1 (Welcome)
//
// Nonce is fresh randomness of ours, SecretSize bytes.
func AuthenticateAgent(conn io.ReadWriter, secret, nonce []byte) error {
	hail := make([]byte, len(authMagic)+SecretSize)
	if _, err := io.ReadFull(conn, hail); err != nil {
		return fmt.Errorf("waiting for the agent's nonce: %w", err)
	}
	theirs, ok := bytes.CutPrefix(hail, authMagic)
	if !ok {
		return protocolError("a dialer began with %q", hail[:len(authMagic)])
	}
	if _, err := conn.Write(append(bytes.Clone(nonce),
		computeMAC(secret, roleDaemon, theirs, nonce)...)); err != nil {
		return fmt.Errorf("proving the secret: %w", err)
	}
	shown := make([]byte, SecretSize)
	if _, err := io.ReadFull(conn, shown); err != nil {
		return fmt.Errorf("waiting for the agent's proof: %w", err)
	}
	if !hmac.Equal(shown, computeMAC(secret, roleAgent, theirs, nonce)) {
		return errBadSecret
	}
	return nil
}

// ConfirmAgent ends the daemon's side, once it has decided for this connection.
func ConfirmAgent(conn io.Writer) error {
	if _, err := conn.Write([]byte{welcome}); err != nil {
		return fmt.Errorf("welcoming the agent: %w", err)
	}
	return nil
}

// AuthenticateDaemon is the agent's side. It shows its own proof only to who has shown theirs.
func AuthenticateDaemon(conn io.ReadWriter, secret, nonce []byte) error {
	if _, err := conn.Write(append(bytes.Clone(authMagic), nonce...)); err != nil {
		return fmt.Errorf("greeting the socket: %w", err)
	}
	answer := make([]byte, 2*SecretSize)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return fmt.Errorf("waiting for the daemon's proof: %w", err)
	}
	theirs, shown := answer[:SecretSize], answer[SecretSize:]
	if !hmac.Equal(shown, computeMAC(secret, roleDaemon, nonce, theirs)) {
		return errBadSecret
	}
	if _, err := conn.Write(computeMAC(secret, roleAgent, nonce, theirs)); err != nil {
		return fmt.Errorf("proving the secret: %w", err)
	}
	var last [1]byte
	if _, err := io.ReadFull(conn, last[:]); err != nil {
		return fmt.Errorf("waiting for the daemon's welcome: %w", err)
	}
	if last[0] != welcome {
		return protocolError("a welcome of %d", last[0])
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
