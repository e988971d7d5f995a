package mcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// signer creates the ids of sessions. An id is random text with its MAC, so that an id of an
// earlier daemon differs from one that a client made up.
type signer struct {
	key []byte

	mu sync.Mutex
	// deleted are the sessions that clients have deleted, the latest maxDeleted.
	deleted []deletedSession
}

// deletedSession has its principal, because an id does not contain one: a principal that deletes
// the session of another deletes it only for itself.
type deletedSession struct{ principal, id string }

const maxDeleted = 1024

// delete makes isDeleted report an id that newID made, to the same principal.
func (s *signer) delete(principal, id string) {
	if !s.signed(id) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted = append(s.deleted[max(0, len(s.deleted)-maxDeleted+1):],
		deletedSession{principal, id})
}

func (s *signer) isDeleted(principal, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.deleted, deletedSession{principal, id})
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

// sessions has the principals of the sessions. Its zero value has none. It is safe for concurrent
// use.
type sessions struct {
	mu       sync.Mutex
	byID     map[string]*ownedSession
	reserved int // requests that may begin a session
}

// ownedSession is a session of a principal.
type ownedSession struct {
	principal string
	used      time.Time
	requests  int // that are being served
}

// reserve reserves the place of a new session, until release is called. If there are maxSessions
// already, it removes an idle one and returns its id, which the caller must end: of the principals
// with the most sessions, the session that was used least recently. If none is idle, ok is false.
// live returns the ids of the sessions that have not ended.
func (s *sessions) reserve(live func() map[string]bool) (idle string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := live() // under mu, because add is called while the SDK has the session
	counts := map[string]int{}
	for id, owned := range s.byID {
		if !ids[id] {
			delete(s.byID, id)
			continue
		}
		counts[owned.principal]++
	}
	if len(s.byID)+s.reserved >= maxSessions {
		if idle, ok = s.leastUsed(counts); !ok {
			return "", false
		}
		delete(s.byID, idle)
	}
	s.reserved++
	return idle, true
}

// leastUsed returns the idle session to end first.
func (s *sessions) leastUsed(counts map[string]int) (id string, ok bool) {
	var best *ownedSession
	for candidate, owned := range s.byID {
		if owned.requests > 0 {
			continue
		}
		n := counts[owned.principal]
		if best == nil || n > counts[best.principal] ||
			n == counts[best.principal] && owned.used.Before(best.used) {
			id, best = candidate, owned
		}
	}
	return id, best != nil
}

// release ends a reservation.
func (s *sessions) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved--
}

// add sets the principal of a session.
func (s *sessions) add(principal, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[string]*ownedSession{}
	}
	s.byID[id] = &ownedSession{principal: principal, used: time.Now()}
}

// sessionWriter adds the session that a response announces, before the client can use it.
type sessionWriter struct {
	http.ResponseWriter
	sessions  *sessions
	principal string
	written   bool
}

func (w *sessionWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *sessionWriter) WriteHeader(status int) {
	w.announce()
	w.ResponseWriter.WriteHeader(status)
}

func (w *sessionWriter) Write(p []byte) (int, error) {
	w.announce()
	return w.ResponseWriter.Write(p)
}

func (w *sessionWriter) announce() {
	if id := w.Header().Get(sessionHeader); !w.written && id != "" {
		w.sessions.add(w.principal, id)
	}
	w.written = true
}

// isOfOther reports whether a session belongs to another principal.
func (s *sessions) isOfOther(principal, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	owned := s.byID[id]
	return owned != nil && owned.principal != principal
}

// use counts a request of a session, until done is called.
func (s *sessions) use(id string) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owned := s.byID[id]
	if owned == nil {
		return func() {}
	}
	owned.requests++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		owned.requests--
		owned.used = time.Now()
	}
}
