package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/validate"
)

const (
	// headerTimeout and headerBytes bound the headers of a request. net/http adds 4 KiB to the size.
	headerTimeout = 10 * time.Second
	headerBytes   = 64<<10 - 4<<10
	idleTimeout   = 2 * time.Minute
	// flushTimeout bounds how long responses may take to reach their clients once all calls have ended.
	flushTimeout = 2 * time.Second
)

// Config has the dependencies of a server. All are required except Ready and Version.
type Config struct {
	Intake     *call.Intake
	Calls      *call.Registry
	Audit      AuditReader
	Tools      Tools
	Workspaces Workspaces
	Captures   Captures
	Log        *zap.Logger
	// MaxBody is the maximum size of a request body in bytes.
	MaxBody int64
	// Ready returns why the daemon cannot accept calls, for /readyz.
	Ready func(context.Context) error
	// Version is the version of the daemon, for /openapi.json and the Dray-Version header.
	Version string
}

// Server serves HTTP on listeners that the caller opens, such as [unixsock.Listen].
type Server struct {
	cfg     Config
	mux     *http.ServeMux
	openapi []byte
	http    *http.Server
	stop    context.CancelCauseFunc

	mu          sync.Mutex
	active      int       // requests in progress
	lastRequest time.Time // end of the last request
	closed      bool
	idle        chan struct{} // closed when closed is set and no request is in progress
}

// New returns a server. It fails if a required dependency is missing.
func New(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), lastRequest: time.Now(), idle: make(chan struct{})}
	if err := s.register(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(context.Background())
	s.stop = stop
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		MaxHeaderBytes:    headerBytes,
		IdleTimeout:       idleTimeout,
		ErrorLog:          zap.NewStdLog(cfg.Log.Named("http")),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withPrincipal,
		// net/http would answer OPTIONS * without checkRequest
		DisableGeneralOptionsHandler: true,
	}
	return s, nil
}

func (c *Config) check() error {
	for name, missing := range map[string]bool{
		"Intake": c.Intake == nil, "Calls": c.Calls == nil, "Audit": c.Audit == nil,
		"Tools": c.Tools == nil, "Workspaces": c.Workspaces == nil, "Captures": c.Captures == nil,
		"Log": c.Log == nil, "MaxBody": c.MaxBody <= 0,
	} {
		if missing {
			return fmt.Errorf("create the HTTP server: %s is missing", name)
		}
	}
	return nil
}

// Serve serves requests of a listener until Shutdown, and closes the listener.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown drains the calls as [call.Registry.Drain] does, delivers their responses and closes the
// listeners. If it returns nil, nothing that the server started is running.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.cfg.Calls.Drain(ctx)
	ctx = context.WithoutCancel(ctx)
	if s.shutdownHTTP(ctx) != nil {
		s.stop(executor.ErrShutdown) // cancels what the remaining requests wait for
		if s.shutdownHTTP(ctx) != nil {
			err = errors.Join(err, s.http.Close())
		}
	}
	s.stop(executor.ErrShutdown)
	return errors.Join(err, s.waitForHandlers())
}

// waitForHandlers waits for the handlers of closed connections.
func (s *Server) waitForHandlers() error {
	s.mu.Lock()
	s.closed = true
	s.signalIdle()
	s.mu.Unlock()
	timer := time.NewTimer(flushTimeout)
	defer timer.Stop()
	select {
	case <-s.idle:
		return nil
	case <-timer.C:
		return errors.New("shut down the HTTP server: requests are still in progress")
	}
}

// signalIdle closes idle if the server is closed and no request is in progress.
func (s *Server) signalIdle() {
	if s.closed && s.active == 0 {
		select {
		case <-s.idle:
		default:
			close(s.idle)
		}
	}
}

// shutdownHTTP closes the listeners and waits for responses in progress.
func (s *Server) shutdownHTTP(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return s.http.Shutdown(ctx)
}

// Idle returns since when there has been no request and no active call. ok is false while there is
// one.
func (s *Server) Idle() (since time.Time, ok bool) {
	running, lastEnded := s.cfg.Calls.Running()
	s.mu.Lock()
	defer s.mu.Unlock()
	since = s.lastRequest
	if lastEnded.After(since) {
		since = lastEnded
	}
	return since, s.active == 0 && running == 0
}

func (s *Server) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active++
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	s.lastRequest = time.Now()
	s.signalIdle()
}

type principalKey struct{}

// withPrincipal adds the peer of a connection to its context. Requests on a connection without a
// principal are refused.
func withPrincipal(ctx context.Context, c net.Conn) context.Context {
	if p, ok := c.(interface{ Principal() string }); ok {
		return context.WithValue(ctx, principalKey{}, p.Principal())
	}
	return ctx
}

// principal returns who makes a request.
func principal(r *http.Request) string {
	p, _ := r.Context().Value(principalKey{}).(string)
	return p
}

// ServeHTTP serves one request.
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
	h, pattern := s.mux.Handler(r)
	if pattern == "" || r.URL.EscapedPath() != path.Clean(r.URL.EscapedPath()) {
		s.fail(t, notFoundOrMethod(h, pattern, r))
		return
	}
	s.mux.ServeHTTP(t, r) // it sets the path values, which the handler alone would not
}

// checkRequest checks what all requests must meet.
func checkRequest(r *http.Request) error {
	if principal(r) == "" {
		return dray.Errorf(dray.CodeUnauthorized, "the peer of this connection is unknown").
			WithHint("connect through the daemon's unix socket")
	}
	if encoding, ok := r.Header["Content-Encoding"]; ok {
		return dray.Errorf(dray.CodeUnsupportedMediaType, "unsupported Content-Encoding %q",
			validate.Quote(strings.Join(encoding, ", "))).WithHint("send the body without Content-Encoding")
	}
	return nil
}

// notFoundOrMethod returns the error of a request that no operation serves. h is what the mux would
// answer it with: the Allow header of a 405 has the methods of the path.
func notFoundOrMethod(h http.Handler, pattern string, r *http.Request) error {
	probe := &methodProbe{header: http.Header{}}
	if pattern == "" {
		h.ServeHTTP(probe, r)
	}
	if allow := probe.header.Get("Allow"); probe.status == http.StatusMethodNotAllowed {
		err := dray.Errorf(dray.CodeMethodNotAllowed, "method %s is not allowed for %s",
			validate.Quote(r.Method), validate.Quote(r.URL.Path)).WithHint("use %s", allow)
		return &httpError{err: err, allow: allow}
	}
	return notFound("no such endpoint: %s", validate.Quote(r.URL.Path)).
		WithHint("GET /openapi.json lists all endpoints")
}

// methodProbe records the status and headers of a response and discards its body.
type methodProbe struct {
	header http.Header
	status int
}

func (p *methodProbe) Header() http.Header         { return p.header }
func (p *methodProbe) WriteHeader(status int)      { p.status = status }
func (p *methodProbe) Write(b []byte) (int, error) { return len(b), nil }

// recoverHandler turns a panic of a handler into an internal error with the id of its log entry
// (EX-18).
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
		panic(http.ErrAbortHandler) // the client must not take a part of a response for all of it
	}
	s.fail(t, dray.InternalError(dray.CodeInternal, id, "the request"))
}

// responseTracker records whether a response has begun.
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

// Unwrap returns the underlying writer, for http.ResponseController.
func (t *responseTracker) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// unwrap returns net/http's own writer, which http.MaxBytesReader needs to close the connection.
func unwrap(w http.ResponseWriter) http.ResponseWriter {
	if t, ok := w.(*responseTracker); ok {
		return t.ResponseWriter
	}
	return w
}
