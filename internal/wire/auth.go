package wire

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/dray-dev/dray/internal/pack"
)

// DialTarget is the daemon's socket and the secret for it, which is used once. The agent receives
// it over its stdin.
type DialTarget struct {
	Path   string
	Secret []byte
}

func packDial(f *pack.Fields, d *DialTarget) {
	pack.Text(f, &d.Path)
	pack.Text(f, &d.Secret)
}

// SecretSize is the size of a secret, a nonce and a MAC, in bytes.
const SecretSize = 32

// authMagic starts a connection to the daemon's socket.
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
