package proof

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// publicKey returns the public key of a private key, both in the text form of package note:
// PRIVATE+KEY+ORIGIN+HASH+BASE64, where the decoded part is a byte for Ed25519 and the seed.
func publicKey(private string) (string, error) {
	parts := strings.SplitN(private, "+", 5)
	if len(parts) != 5 {
		return "", errors.New("read the private key: it is malformed")
	}
	seed, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return "", errors.New("read the private key: it is malformed")
	}
	public, _ := ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey)
	text, err := note.NewEd25519VerifierKey(parts[2], public)
	if err != nil {
		return "", fmt.Errorf("read the private key: %w", err)
	}
	return text, nil
}

// canonicalNote returns the note as [note.Sign] writes it, with the verified signatures only.
func canonicalNote(n *note.Note) ([]byte, error) {
	var b strings.Builder
	b.WriteString(n.Text + "\n")
	for _, sig := range n.Sigs {
		raw, err := base64.StdEncoding.DecodeString(sig.Base64)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "— %s %s\n", sig.Name, base64.StdEncoding.EncodeToString(raw))
	}
	return []byte(b.String()), nil
}
