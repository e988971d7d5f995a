package proof

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint is the state of a log: its name, its number of events and its root hash.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   tlog.Hash
}

// text returns the signed part of the note.
func (c Checkpoint) text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, c.Root)
}

// Signer is the private key of a log.
type Signer struct {
	note     note.Signer
	verifier Verifier
}

// NewKey makes a key with a new random origin. It returns the key in the text form of package note.
func NewKey() (private string, err error) {
	private, _, err = note.GenerateKey(rand.Reader, "dray/"+strings.ToLower(rand.Text()))
	if err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}
	return private, nil
}

// NewSigner returns the signer of a private key in text form.
func NewSigner(private string) (*Signer, error) {
	private = strings.TrimSpace(private)
	s, err := note.NewSigner(private)
	if err != nil {
		return nil, fmt.Errorf("read the private key: %w", err)
	}
	public, err := publicKey(private)
	if err != nil {
		return nil, err
	}
	v, err := NewVerifier(public)
	if err != nil {
		return nil, err
	}
	return &Signer{note: s, verifier: v}, nil
}

// Verifier returns the public key.
func (s *Signer) Verifier() Verifier { return s.verifier }

// Sign returns the signed note of a log with this number of events and this root hash.
func (s *Signer) Sign(size int64, root tlog.Hash) ([]byte, error) {
	c := Checkpoint{Origin: s.note.Name(), Size: size, Root: root}
	signed, err := note.Sign(&note.Note{Text: c.text()}, s.note)
	if err != nil {
		return nil, fmt.Errorf("sign the checkpoint: %w", err)
	}
	return signed, nil
}

// Verifier is the public key of a log.
type Verifier struct {
	note note.Verifier
	text string
}

// NewVerifier returns the verifier of a public key in the text form of package note,
// ORIGIN+HASH+BASE64.
func NewVerifier(public string) (Verifier, error) {
	public = strings.TrimSpace(public)
	v, err := note.NewVerifier(public)
	if err != nil {
		return Verifier{}, fmt.Errorf("read the public key: %w", err)
	}
	return Verifier{note: v, text: public}, nil
}

// String returns the key in text form, without a line feed.
func (v Verifier) String() string { return v.text }

// Open verifies a checkpoint. It must be signed with this key; other signatures are ignored, as
// witnesses add theirs.
func (v Verifier) Open(signed []byte) (Checkpoint, error) {
	n, err := note.Open(signed, note.VerifierList(v.note))
	if err != nil {
		return Checkpoint{}, v.openError(err)
	}
	return v.parse(n)
}

// openExact is Open that accepts no other signature and no other encoding of this one: package note
// ignores the unused bits of base64.
func (v Verifier) openExact(signed []byte) (Checkpoint, error) {
	n, err := note.Open(signed, note.VerifierList(v.note))
	if err != nil {
		return Checkpoint{}, v.openError(err)
	}
	if again, err := canonicalNote(n); err != nil || !bytes.Equal(again, signed) {
		return Checkpoint{}, errors.New("the checkpoint has more than the signature of its log")
	}
	return v.parse(n)
}

// parse returns the checkpoint of a note whose signature was verified.
func (v Verifier) parse(n *note.Note) (Checkpoint, error) {
	lines := strings.Split(n.Text, "\n")
	if len(lines) < 3 {
		return Checkpoint{}, errors.New("the note is not a checkpoint")
	}
	size, sizeErr := strconv.ParseInt(lines[1], 10, 64)
	root, rootErr := tlog.ParseHash(lines[2])
	c := Checkpoint{Origin: lines[0], Size: size, Root: root}
	if sizeErr != nil || rootErr != nil || size < 0 || c.text() != n.Text {
		return Checkpoint{}, errors.New("the note is not a checkpoint")
	}
	if c.Origin != v.note.Name() {
		return Checkpoint{}, fmt.Errorf("the checkpoint belongs to the log %q, and the key to %q",
			c.Origin, v.note.Name())
	}
	return c, nil
}

func (v Verifier) openError(err error) error {
	switch {
	case errors.As(err, new(*note.InvalidSignatureError)):
		return errors.New("the signature of the checkpoint is invalid")
	case errors.As(err, new(*note.UnverifiedNoteError)):
		return fmt.Errorf("the checkpoint is not signed with the key %s", v.text)
	default:
		return fmt.Errorf("the checkpoint cannot be read: %w", err)
	}
}
