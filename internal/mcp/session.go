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

// signer makes the ids of sessions. An id is random text and a MAC of it, so that an id of an
// earlier daemon differs from one that a client made up.
type signer struct {
	key []byte

	mu sync.Mutex
	// deleted are the sessions that clients have deleted, the latest maxDeleted.
	deleted []deletedSession
}

// deletedSession has its principal, because the id of a session says nothing about it: what another
// principal deletes is not gone.
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

// owners knows whose the sessions are. Its zero value has none.
type owners struct {
	mu       sync.Mutex
	sessions map[string]*ownedSession // by id
	reserved int                      // sessions that may be made just now
}

// ownedSession is a session of a principal.
type ownedSession struct {
	principal string
	used      time.Time
	requests  int // that are being served
}

// reserve counts a session that may be made, until release. Where there are maxSessions already, it
// takes the place of an idle one: that was used least recently, of the principals with the most
// sessions. Its id is returned, for the caller to end it. If none is idle, ok is false. alive
// reports whether there still is a session with an id.
func (o *owners) reserve(alive func(id string) bool) (idle string, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	counts := map[string]int{}
	for id, s := range o.sessions {
		if !alive(id) {
			delete(o.sessions, id)
			continue
		}
		counts[s.principal]++
	}
	if len(o.sessions)+o.reserved >= maxSessions {
		if idle, ok = o.leastUsed(counts); !ok {
			return "", false
		}
		delete(o.sessions, idle)
	}
	o.reserved++
	return idle, true
}

// leastUsed returns the idle session to end first.
func (o *owners) leastUsed(counts map[string]int) (id string, ok bool) {
	var best *ownedSession
	for candidate, s := range o.sessions {
		if s.requests > 0 {
			continue
		}
		n := counts[s.principal]
		if best == nil || n > counts[best.principal] ||
			n == counts[best.principal] && s.used.Before(best.used) {
			id, best = candidate, s
		}
	}
	return id, best != nil
}

// release ends a reservation.
func (o *owners) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reserved--
}

// add sets the principal of a session.
func (o *owners) add(principal, id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sessions == nil {
		o.sessions = map[string]*ownedSession{}
	}
	o.sessions[id] = &ownedSession{principal: principal, used: time.Now()}
}

// sessionWriter adds the session that a response announces, before the client can use it.
type sessionWriter struct {
	http.ResponseWriter
	owners    *owners
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
		w.owners.add(w.principal, id)
	}
	w.written = true
}

// isOthers reports whether another principal has a session.
func (o *owners) isOthers(principal, id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.sessions[id]
	return s != nil && s.principal != principal
}

// use says that a request of a session is served until done is called.
func (o *owners) use(id string) (done func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.sessions[id]
	if s == nil {
		return func() {}
	}
	s.requests++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		s.requests--
		s.used = time.Now()
	}
}
