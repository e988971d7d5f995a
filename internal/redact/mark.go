package redact

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// markKey is the key of the marks.
type markKey []byte

const (
	markPrefix = "[redacted:"
	markDigits = 16
)

// mark returns what replaces a secret.
func (k markKey) mark(secret []byte) []byte {
	h := hmac.New(sha256.New, k)
	h.Write(secret)
	b := append(make([]byte, 0, len(markPrefix)+markDigits+1), markPrefix...)
	b = hex.AppendEncode(b, h.Sum(nil)[:markDigits/2])
	return append(b, ']')
}
