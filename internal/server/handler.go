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
	t := &tracked{ResponseWriter: w}
	defer s.recovered(t, r)
	defer steadied(t, r).leave(r, 2*s.cfg.MaxBody)
	if s.cfg.Version != "" {
		w.Header().Set("Dray-Version", s.cfg.Version)
	}
	if err := check(r); err != nil {
		s.fail(t, err)
		return
	}
	if _, pattern := s.mux.Handler(r); pattern == "" || r.URL.EscapedPath() != path.Clean(r.URL.EscapedPath()) {
		s.fail(t, s.unmatched(r))
		return
	}
	s.mux.ServeHTTP(t, r)
}

// check holds a request against what is true of all requests.
func check(r *http.Request) error {
	if principal(r) == "" {
		return dray.Errorf(dray.CodeUnauthorized, "nobody knows who makes this request").WithHint("connect to the daemon's unix socket")
	}
	if encoding, ok := r.Header["Content-Encoding"]; ok {
		return dray.Errorf(dray.CodeUnsupportedMediaType, "the body is encoded as %q", clip(strings.Join(encoding, ", "))).WithHint("send it as it is, without Content-Encoding")
	}
	return nil
}

// unmatched says what is wrong with a request that no operation answers. The mux knows which methods a path has; it tells in a header.
func (s *Server) unmatched(r *http.Request) error {
	probe := &allowProbe{header: http.Header{}}
	if h, pattern := s.mux.Handler(r); pattern == "" {
		h.ServeHTTP(probe, r)
	}
	if allow := probe.header.Get("Allow"); probe.status == http.StatusMethodNotAllowed {
		err := dray.Errorf(dray.CodeMethodNotAllowed, "%s is not a method of %s", clip(r.Method), clip(r.URL.Path)).WithHint("it takes %s", allow)
		return &httpError{err: err, allow: allow}
	}
	return notFound("there is no %s", clip(r.URL.Path)).WithHint("/openapi.json lists what there is")
}

// allowProbe hears what the mux would answer.
type allowProbe struct {
	header http.Header
	status int
}

func (p *allowProbe) Header() http.Header         { return p.header }
func (p *allowProbe) WriteHeader(status int)      { p.status = status }
func (p *allowProbe) Write(b []byte) (int, error) { return len(b), nil }

// recovered turns a panic of a handler into an internal error with an id that the log knows (EX-18).
func (s *Server) recovered(t *tracked, r *http.Request) {
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
	s.fail(t, dray.Defect(dray.CodeInternal, id, "the request"))
}

// tracked knows whether an answer has begun.
type tracked struct {
	http.ResponseWriter
	written bool
}

func (t *tracked) WriteHeader(status int) {
	t.written = true
	t.ResponseWriter.WriteHeader(status)
}

func (t *tracked) Write(p []byte) (int, error) {
	t.written = true
	return t.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (t *tracked) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// unwrap gives net/http's own writer, which learns from a body that is too large that the connection ends.
func unwrap(w http.ResponseWriter) http.ResponseWriter {
	if t, ok := w.(*tracked); ok {
		return t.ResponseWriter
	}
	return w
}
