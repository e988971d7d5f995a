package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
)

// inFlight are the requests of sessions that have ended. Each is served without a session, so the
// SDK connects no notification that cancels one to it (MC-04). It is safe for concurrent use.
type inFlight struct {
	mu       sync.Mutex
	requests map[requestKey]*context.CancelFunc
}

// requestKey identifies a request. The id is JSON.
type requestKey struct{ principal, session, id string }

// inFlightKey is the key of a request's own context in the context that the SDK gets, which keeps
// only its values.
type inFlightKey struct{}

// add adds a request and returns its context, which ends when the request is cancelled. remove
// removes it.
func (f *inFlight) add(key requestKey) (ctx context.Context, remove func()) {
	ctx, cancel := context.WithCancel(context.Background())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests == nil {
		f.requests = map[requestKey]*context.CancelFunc{}
	}
	f.requests[key] = &cancel
	return ctx, func() {
		cancel()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.requests[key] == &cancel { // else the client has used the id again
			delete(f.requests, key)
		}
	}
}

// cancel cancels a request, if there is one.
func (f *inFlight) cancel(key requestKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if cancel := f.requests[key]; cancel != nil {
		(*cancel)()
	}
}

// withCancel returns a context that also ends when a notification cancels the request that it
// belongs to. stop releases it.
func withCancel(ctx context.Context) (_ context.Context, stop func()) {
	request, ok := ctx.Value(inFlightKey{}).(context.Context)
	if !ok {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(request, cancel)
	return ctx, func() {
		unlink()
		cancel()
	}
}

// serveEnded serves a request of a session that has ended. It has no events for the client.
func (s *Server) serveEnded(w http.ResponseWriter, r *http.Request, principal string, body []byte) {
	session := r.Header.Get(sessionHeader)
	switch r.Method {
	case http.MethodDelete:
		s.ids.delete(principal, session)
		w.WriteHeader(http.StatusNoContent)
		return
	case http.MethodPost:
	default:
		s.stateless.ServeHTTP(w, r)
		return
	}
	m, err := parseMessage(body)
	switch {
	case err != nil: // the SDK says what is wrong
	case m.Method == methodCancelled:
		s.orphans.cancel(requestKey{principal, session, compact(m.params.RequestID)})
		w.WriteHeader(http.StatusAccepted)
		return
	case m.isRequest():
		request, remove := s.orphans.add(requestKey{principal, session, compact(m.ID)})
		defer remove()
		r = r.WithContext(context.WithValue(r.Context(), inFlightKey{}, request))
	}
	s.stateless.ServeHTTP(w, r)
}

// compact returns JSON without white space.
func compact(text json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return ""
	}
	return b.String()
}
