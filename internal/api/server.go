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
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/call"
)

const (
	// A request's headers end after this time or size. net/http allows 4 KiB more than it is told.
	headerTimeout = 10 * time.Second
	headerBytes   = 64<<10 - 4<<10
	idleTimeout   = 2 * time.Minute
	// flushTimeout is how long answers may take to reach their clients once the calls are over.
	flushTimeout = 2 * time.Second
)

// Config is what a server needs. Everything is required but Ready and Version.
type Config struct {
	// Executor runs whole calls: the trail's, with [call.MarkAccepted] directly inside.
	Executor   dray.Executor
	Records    AuditReader
	Tools      Tools
	Router     Router
	Places     RouteChecker
	Workspaces Workspaces
	Paths      Paths
	Captures   Captures
	Log        *zap.Logger
	// MaxBody bounds a request's body, in bytes; MaxTimeout a call's timeouts.
	MaxBody    int64
	MaxTimeout time.Duration
	// Ready says why the daemon cannot do its work, for /readyz.
	Ready func(context.Context) error
	// Version is the daemon's, for /openapi.json and the header Dray-Version of every answer.
	Version string
}

// Server answers HTTP requests. It starts no listener of its own; [unixsock.Listen] makes one.
type Server struct {
	cfg           Config
	calls         *call.Registry
	mux           *http.ServeMux
	openapi       []byte
	http          *http.Server
	stop          context.CancelCauseFunc
	bufferedBytes atomic.Int64 // bytes of the bodies that are being read

	mu          sync.Mutex
	active      int           // requests that are being answered
	lastRequest time.Time     // when one was last
	closed      bool          // no more requests come
	idle        chan struct{} // closed when none is left after that
}

// New makes a server. It fails where something that it needs is missing.
func New(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), lastRequest: time.Now(), idle: make(chan struct{})}
	s.calls = call.New(call.Options{
		Executor: cfg.Executor, Open: cfg.Captures.OpenAuto,
		Log: cfg.Log,
	})
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
		// OPTIONS * would be answered without us.
		DisableGeneralOptionsHandler: true,
	}
	return s, nil
}

func (c *Config) check() error {
	for what, missing := range map[string]bool{
		"Executor": c.Executor == nil, "Records": c.Records == nil, "Tools": c.Tools == nil, "Router": c.Router == nil,
		"Places": c.Places == nil, "Workspaces": c.Workspaces == nil, "Paths": c.Paths == nil, "Captures": c.Captures == nil, "Log": c.Log == nil,
		"MaxBody": c.MaxBody <= 0, "MaxTimeout": c.MaxTimeout <= 0,
	} {
		if missing {
			return fmt.Errorf("making the server: %s is missing", what)
		}
	}
	return nil
}

// Serve answers requests that arrive at a listener, until Shutdown. It closes the listener.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown ends the server. New calls are refused at once; those that run may end by themselves
// until the context is over, and are cancelled then. Their events and answers are delivered, the
// listeners closed. Nothing that the server started runs when it returns without an error.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.calls.Drain(ctx)
	ctx = context.WithoutCancel(ctx)
	if s.shutdownHTTP(ctx) != nil {
		s.stop(executor.ErrShutdown) // whoever still waits for something gives up
		if s.shutdownHTTP(ctx) != nil {
			err = errors.Join(err, s.http.Close())
		}
	}
	s.stop(executor.ErrShutdown)
	return errors.Join(err, s.waitForHandlers())
}

// waitForHandlers waits for requests whose connections were cut off.
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
		return fmt.Errorf("ending the server: requests are still being worked on")
	}
}

// signalIdle tells waitForHandlers that no request is left. The last of a server that is closed
// twice finds it told.
func (s *Server) signalIdle() {
	if s.closed && s.active == 0 {
		select {
		case <-s.idle:
		default:
			close(s.idle)
		}
	}
}

// shutdownHTTP closes the listeners and waits for the answers that are being written.
func (s *Server) shutdownHTTP(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return s.http.Shutdown(ctx)
}

// Idle says since when nothing was asked and no call has run; ok is false while something is.
func (s *Server) Idle() (since time.Time, ok bool) {
	running, ended := s.calls.Running()
	s.mu.Lock()
	defer s.mu.Unlock()
	since = s.lastRequest
	if ended.After(since) {
		since = ended
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

// withPrincipal remembers who is on the other side of a connection. A listener that does not know
// makes connections that may do nothing.
func withPrincipal(ctx context.Context, c net.Conn) context.Context {
	if p, ok := c.(interface{ Principal() string }); ok {
		return context.WithValue(ctx, principalKey{}, p.Principal())
	}
	return ctx
}

// principal names who makes a request.
func principal(r *http.Request) string {
	p, _ := r.Context().Value(principalKey{}).(string)
	return p
}

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
	if _, pattern := s.mux.Handler(r); pattern == "" ||
		r.URL.EscapedPath() != path.Clean(r.URL.EscapedPath()) {
		s.fail(t, s.notFoundOrMethod(r))
		return
	}
	s.mux.ServeHTTP(t, r)
}

// checkRequest holds a request against what is true of all requests.
func checkRequest(r *http.Request) error {
	if principal(r) == "" {
		return dray.Errorf(dray.CodeUnauthorized, "nobody knows who makes this request").
			WithHint("connect to the daemon's unix socket")
	}
	if encoding, ok := r.Header["Content-Encoding"]; ok {
		return dray.Errorf(dray.CodeUnsupportedMediaType, "the body is encoded as %q",
			truncate(strings.Join(encoding, ", "))).WithHint("send it as it is, without Content-Encoding")
	}
	return nil
}

// notFoundOrMethod says what is wrong with a request that no operation answers. The mux knows which
// methods a path has; it tells in a header.
func (s *Server) notFoundOrMethod(r *http.Request) error {
	probe := &methodProbe{header: http.Header{}}
	if h, pattern := s.mux.Handler(r); pattern == "" {
		h.ServeHTTP(probe, r)
	}
	if allow := probe.header.Get("Allow"); probe.status == http.StatusMethodNotAllowed {
		err := dray.Errorf(dray.CodeMethodNotAllowed, "%s is not a method of %s", truncate(r.Method),
			truncate(r.URL.Path)).WithHint("it takes %s", allow)
		return &httpError{err: err, allow: allow}
	}
	return notFound("there is no %s", truncate(r.URL.Path)).
		WithHint("/openapi.json lists what there is")
}

// methodProbe hears what the mux would answer.
type methodProbe struct {
	header http.Header
	status int
}

func (p *methodProbe) Header() http.Header         { return p.header }
func (p *methodProbe) WriteHeader(status int)      { p.status = status }
func (p *methodProbe) Write(b []byte) (int, error) { return len(b), nil }

// recoverHandler turns a panic of a handler into an internal error with an id that the log knows
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

// unwrap gives net/http's own writer, which learns from a body that is too large that the
// connection ends.
func unwrap(w http.ResponseWriter) http.ResponseWriter {
	if t, ok := w.(*responseTracker); ok {
		return t.ResponseWriter
	}
	return w
}
