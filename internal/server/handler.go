package server

import (
	"errors"
	"net/http"
	"path"
	"runtime/debug"
	"strings"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.begin()
	defer s.end()
	t := &responseTracker{ResponseWriter: w}
	defer s.recoverHandler(t, r)
	defer withBodyDeadline(t, r).drain(r, 2*s.cfg.MaxBody)
	if s.cfg.Version != "" {
		w.Header().Set("Dray-Version", s.cfg.Version)
	}
	if err := checkRequest(r); err != nil {
		s.fail(t, err)
		return
	}
	if _, pattern := s.mux.Handler(r); pattern == "" || r.URL.EscapedPath() != path.Clean(r.URL.EscapedPath()) {
		s.fail(t, s.notFoundOrMethod(r))
		return
	}
	s.mux.ServeHTTP(t, r)
}

// checkRequest holds a request against what is true of all requests.
func checkRequest(r *http.Request) error {
	if principal(r) == "" {
		return dray.Errorf(dray.CodeUnauthorized, "nobody knows who makes this request").WithHint("connect to the daemon's unix socket")
	}
	if encoding, ok := r.Header["Content-Encoding"]; ok {
		return dray.Errorf(dray.CodeUnsupportedMediaType, "the body is encoded as %q", truncate(strings.Join(encoding, ", "))).WithHint("send it as it is, without Content-Encoding")
	}
	return nil
}

// notFoundOrMethod says what is wrong with a request that no operation answers. The mux knows which methods a path has; it tells in a header.
func (s *Server) notFoundOrMethod(r *http.Request) error {
	probe := &methodProbe{header: http.Header{}}
	if h, pattern := s.mux.Handler(r); pattern == "" {
		h.ServeHTTP(probe, r)
	}
	if allow := probe.header.Get("Allow"); probe.status == http.StatusMethodNotAllowed {
		err := dray.Errorf(dray.CodeMethodNotAllowed, "%s is not a method of %s", truncate(r.Method), truncate(r.URL.Path)).WithHint("it takes %s", allow)
		return &httpError{err: err, allow: allow}
	}
	return notFound("there is no %s", truncate(r.URL.Path)).WithHint("/openapi.json lists what there is")
}

// methodProbe hears what the mux would answer.
type methodProbe struct {
	header http.Header
	status int
}

func (p *methodProbe) Header() http.Header         { return p.header }
func (p *methodProbe) WriteHeader(status int)      { p.status = status }
func (p *methodProbe) Write(b []byte) (int, error) { return len(b), nil }

// recoverHandler turns a panic of a handler into an internal error with an id that the log knows (EX-18).
func (s *Server) recoverHandler(t *responseTracker, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	id := uuid.NewString()
	s.cfg.Log.Error("request panicked", zap.String("id", id), zap.String("method", r.Method),
		zap.String("path", r.URL.Path), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
	if t.written {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	s.fail(t, dray.InternalError(dray.CodeInternal, id, "the request"))
}

// responseTracker knows whether an answer has begun.
type responseTracker struct {
	http.ResponseWriter
	written bool
}

func (t *responseTracker) WriteHeader(status int) {
	t.written = true
	t.ResponseWriter.WriteHeader(status)
}

func (t *responseTracker) Write(p []byte) (int, error) {
	t.written = true
	return t.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (t *responseTracker) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// unwrap gives net/http's own writer, which learns from a body that is too large that the connection ends.
func unwrap(w http.ResponseWriter) http.ResponseWriter {
	if t, ok := w.(*responseTracker); ok {
		return t.ResponseWriter
	}
	return w
}
