package mcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
)

// signer makes the ids of sessions. An id is random text and a MAC of it, so that an id of an
// earlier daemon is told from one that a client made up.
type signer struct {
	key []byte

	mu sync.Mutex
	// deleted are the ids that clients have deleted, the latest maxDeleted.
	deleted []string
}

const maxDeleted = 1024

// delete makes isDeleted report an id that newID made.
func (s *signer) delete(id string) {
	if !s.signed(id) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted = append(s.deleted[max(0, len(s.deleted)-maxDeleted+1):], id)
}

func (s *signer) isDeleted(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.deleted, id)
}

const sessionLabel = "mcp session "

func (s *signer) newID() string {
	id := rand.Text()
	return id + "-" + s.mac(id)
}

// signed reports whether newID made an id.
func (s *signer) signed(id string) bool {
	text, mac, ok := strings.Cut(id, "-")
	return ok && hmac.Equal([]byte(mac), []byte(s.mac(text)))
}

func (s *signer) mac(id string) string {
	h := hmac.New(sha256.New, s.key)
	_, _ = h.Write([]byte(sessionLabel + id)) // a hash takes all
	return hex.EncodeToString(h.Sum(nil)[:16])
}
