package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// requestHeader tells callTool which request of an ended session it serves. No client sends it.
const requestHeader = "Dray-Request"

// inFlight are the requests of sessions that have ended. Each is served without a session, so the
// SDK connects no notification that cancels one to it (MC-04). It is safe for concurrent use.
type inFlight struct {
	mu   sync.Mutex
	last int
	// byKey has the numbers of requests, and contexts by number what ends when one is cancelled.
	byKey    map[requestKey]string
	contexts map[string]flight
}

type flight struct {
	context context.Context //nolint:containedctx // it only says that the request was cancelled
	cancel  context.CancelFunc
}

// requestKey identifies a request. The id is JSON.
type requestKey struct{ principal, session, id string }

// add adds a request until remove is called, and returns its number.
func (f *inFlight) add(key requestKey) (number string, remove func()) {
	ctx, cancel := context.WithCancel(context.Background())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byKey == nil {
		f.byKey, f.contexts = map[requestKey]string{}, map[string]flight{}
	}
	f.last++
	number = strconv.Itoa(f.last)
	f.byKey[key], f.contexts[number] = number, flight{ctx, cancel}
	return number, func() {
		cancel()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.contexts, number)
		if f.byKey[key] == number { // else the client has used the id again
			delete(f.byKey, key)
		}
	}
}

// cancel cancels a request, if there is one.
func (f *inFlight) cancel(key requestKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if request, ok := f.contexts[f.byKey[key]]; ok {
		request.cancel()
	}
}

// follow returns a context that also ends when the request with a number is cancelled.
func (f *inFlight) follow(ctx context.Context, number string) (context.Context, func()) {
	f.mu.Lock()
	request, ok := f.contexts[number]
	f.mu.Unlock()
	if !ok {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(request.context, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// serveEnded serves a request of a session that has ended. It has no events for the client.
func (s *Server) serveEnded(w http.ResponseWriter, r *http.Request, principal string) {
	session := r.Header.Get(sessionHeader)
	switch r.Method {
	case http.MethodDelete:
		s.sessions.delete(principal, session)
		w.WriteHeader(http.StatusNoContent)
		return
	case http.MethodPost:
	default:
		s.single.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		http.Error(w, "the message is too large", http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		return // the client has disconnected
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	m, err := parseMessage(body)
	switch {
	case err != nil: // the SDK says what is wrong
	case m.Method == "notifications/cancelled":
		s.ended.cancel(requestKey{principal, session, compact(m.params.RequestID)})
		w.WriteHeader(http.StatusAccepted)
		return
	case m.isRequest():
		number, remove := s.ended.add(requestKey{principal, session, compact(m.ID)})
		defer remove()
		r.Header.Set(requestHeader, number)
	}
	s.single.ServeHTTP(w, r)
}

// compact returns JSON without white space.
func compact(text json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return ""
	}
	return b.String()
}
