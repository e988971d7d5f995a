// Package api serves dray's HTTP interface. Handlers translate requests and responses; the rules of
// a call are in internal/call, on which MCP stands beside HTTP.
//
// # Rejected requests and failed calls
//
// An invalid request gets a 4xx status and has no effect. [statusOf] maps codes to statuses. A call
// that was accepted has an id and a row in the audit log, and its response is 200 with the
// invocation, however it ended.
//
// # Huma
//
// huma registers the operations on the standard mux and generates the OpenAPI document from the Go
// types that are decoded and encoded. Decoding and errors are our own: huma's decoder accepts
// duplicate names and unknown members, which the contract refuses, and its error format is a global
// variable.
package api

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/validate"
	"github.com/dray-dev/dray/internal/workspace"
)

const (
	// headerTimeout and headerBytes bound the headers of a request. net/http adds 4 KiB to the size.
	headerTimeout = 10 * time.Second
	headerBytes   = 64<<10 - 4<<10
	idleTimeout   = 2 * time.Minute
	// flushTimeout bounds how long responses may take to reach their clients once all calls have
	// ended.
	flushTimeout = 2 * time.Second
)

// Config has the dependencies of a server. All are required except Ready, Warnings, TCP, Access and
// ConfigDigest.
type Config struct {
	Configured
	Calls      *call.Registry
	Audit      AuditReader
	Prover     AuditProver
	Workspaces Workspaces
	Captures   Captures
	Daemon     Daemon
	Approvals  Approvals
	// Record commits an event to the audit log.
	Record func(ctx context.Context, body audit.Body) error
	// Rejected counts a request of a principal, if it is known, that was refused with a code.
	Rejected func(principal string, code dray.Code)
	Log      *zap.Logger
	// MaxBody is the maximum size of a request body in bytes.
	MaxBody int64
	// BodyDir is an existing directory for large bodies while they are received.
	BodyDir string
	// Ready returns why the daemon cannot accept calls, for /readyz and /healthz; nil is always ready.
	Ready func(context.Context) error
	// Warnings returns why it soon will not, for /healthz; nil has none.
	Warnings func(context.Context) []*dray.Error
	// AwaitTools blocks while tools are being found out, for a short time. Nil does not.
	AwaitTools func(ctx context.Context)
	// ToolWarnings returns why tools are missing, for those who see the calls of all. Nil has none.
	ToolWarnings func() []string
	// TCP decides which requests are served over TCP: without tokens none.
	TCP TCPAccess
	// Access decides whose calls and workspaces a principal may see.
	Access call.Access
	// MCP serves /mcp. Nil: there is no such path.
	MCP MCP
	// Version is the version of the daemon, for /openapi.json and the Dray-Version header.
	Version string
}

// MCP serves the Model Context Protocol; *[mcp.Server] implements it.
type MCP interface {
	// Serve serves a request of a principal, whose body is in memory. inCall reports whether a process
	// of a call makes it.
	Serve(w http.ResponseWriter, r *http.Request, principal string, inCall func() bool)
	// Close ends all sessions and the responses that have no end of their own.
	Close()
}

// Configured is what requests get from the daemon's configuration. A server replaces it as a whole
// ([Server.Configure]), so that a request sees one configuration.
type Configured struct {
	Intake *call.Intake
	Tools  Tools
	// ProjectTools returns the tools that a workspace declares, nil if none. It may be nil.
	ProjectTools func(ctx context.Context, workspace string) (Tools, error)
	// Denies reports whether policy denies a principal every call of a tool, which is then not listed.
	// Nil denies none.
	Denies func(principal string, t *dray.Tool) bool
	// ConfigDigest is the digest of the configuration, for the Dray-Config header, with which commands
	// find out that they have another one. Empty: no header.
	ConfigDigest string
}

// AuditReader reads the audit log; *[audit.Store] implements it.
type AuditReader interface {
	// Get returns one call. It fails with not_found for an unknown id and for the call of another
	// principal.
	Get(ctx context.Context, principal, id string) (dray.Record, error)
	// List returns a page of calls, newest first.
	List(ctx context.Context, q audit.Query) (audit.Page, error)
	// Stats returns statistics of calls by a key.
	Stats(ctx context.Context, by audit.StatsKey, q audit.Query) ([]dray.Stat, error)
	// Export passes on calls with their complete inputs and outputs.
	Export(ctx context.Context, q audit.Query, to audit.Exporter) error
	// LastSeq returns the number of the last event. Follow passes on the calls that later events end,
	// until ctx ends.
	LastSeq(ctx context.Context) (int64, error)
	Follow(ctx context.Context, q audit.FollowQuery, to audit.Follower) error
	// Changes returns a page of the files that dray changed, newest first.
	Changes(ctx context.Context, q audit.ChangeQuery) (audit.ChangePage, error)
	// Events returns a page of events, newest first.
	Events(ctx context.Context, q audit.EventQuery) (audit.EventPage, error)
}

// Tools lists the tools by name and sets their states. Find fails with unknown_tool.
// *[tool.Registry] implements it.
type Tools interface {
	List() []*dray.Tool
	Find(name string) (*dray.Tool, error)
	// State returns the state of a tool, and why calls of it are refused.
	State(ctx context.Context, name string) (tool.State, error)
	SetState(ctx context.Context, principal, name string, state tool.State) error
}

// Workspaces are the host directories with a devcontainer; *[workspace.Manager] implements it.
type Workspaces interface {
	List(ctx context.Context) ([]workspace.Info, error)
	Containers(ctx context.Context) ([]workspace.ContainerState, error)
	// Register gives a container a name, Unregister removes it.
	Register(ctx context.Context, name string, reg workspace.Registration,
	) (workspace.ContainerState, error)
	Unregister(name string) error
	// Run performs an action on the workspace with the given id or absolute host directory, and
	// returns its state afterwards.
	Run(ctx context.Context, action workspace.Action, id string,
		progress func(phase, message string)) (workspace.Info, error)
	// Review returns what a trust in a workspace covers, Trust records it for the hash of a review,
	// and Revoke ends it.
	Review(ctx context.Context, id string) (trust.Review, error)
	Trust(ctx context.Context, id, hash string) (workspace.Info, error)
	Revoke(ctx context.Context, id string) (workspace.Info, error)
	// ToolFolders returns the workspaces whose tools are listed.
	ToolFolders() ([]string, error)
	// Mounts returns the mounts of a running container, given by its name or by its workspace.
	Mounts(ctx context.Context, workspace, container string) ([]dray.Mount, error)
}

// Captures opens the captured output of a call; *[capture.Store] implements it. All methods fail
// with fs.ErrNotExist for a stream that was never written or is no longer retained.
type Captures interface {
	// Open opens a stream from its beginning, also while the call runs.
	Open(id string, stream dray.Stream) (io.ReadSeekCloser, error)
	// OpenRewritten opens the stream with rewritten paths. If no path was rewritten it may fail with
	// fs.ErrNotExist.
	OpenRewritten(id string, stream dray.Stream) (io.ReadSeekCloser, error)
	// OpenAuto opens what live events contain: the rewritten stream if there is one, else the raw one.
	OpenAuto(id string, stream dray.Stream) (io.ReadSeekCloser, error)
}

// Server serves HTTP on listeners that the caller opens: those of [unixsock.Listen], and of TCP.
type Server struct {
	cfg     Config
	guard   guard
	bodies  *bodyReader
	current atomic.Pointer[Configured]
	mux     *http.ServeMux
	openapi []byte
	http    *http.Server
	stop    context.CancelCauseFunc
	// following ends when the calls are drained: it bounds responses that have no end of their own.
	following    context.Context //nolint:containedctx // of the server, not of a request
	endFollowing context.CancelFunc

	mu          sync.Mutex
	active      int       // requests in progress
	lastRequest time.Time // end of the last request
	closed      bool
	idle        chan struct{} // closed when closed is set and no request is in progress
	closeIdle   func()
}

// New returns a server. It fails if a required dependency is missing.
func New(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Ready == nil {
		cfg.Ready = func(context.Context) error { return nil }
	}
	if cfg.Warnings == nil {
		cfg.Warnings = func(context.Context) []*dray.Error { return nil }
	}
	s := &Server{
		cfg: cfg, guard: newGuard(cfg.TCP), mux: http.NewServeMux(), lastRequest: time.Now(),
		idle: make(chan struct{}), bodies: &bodyReader{dir: cfg.BodyDir, max: cfg.MaxBody},
	}
	s.closeIdle = sync.OnceFunc(func() { close(s.idle) })
	s.Configure(&cfg.Configured)
	s.following, s.endFollowing = context.WithCancel(context.Background())
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
		ConnContext:       withConn,
		ConnState:         onState,
		// net/http would answer OPTIONS * without checkRequest
		DisableGeneralOptionsHandler: true,
	}
	return s, nil
}

func (c *Config) check() error {
	for name, missing := range map[string]bool{
		"Intake": c.Intake == nil, "Calls": c.Calls == nil, "Audit": c.Audit == nil,
		"Prover": c.Prover == nil,
		"Tools":  c.Tools == nil, "Workspaces": c.Workspaces == nil, "Captures": c.Captures == nil,
		"Daemon": c.Daemon == nil, "Approvals": c.Approvals == nil,
		"Record": c.Record == nil, "Rejected": c.Rejected == nil,
		"Log": c.Log == nil, "MaxBody": c.MaxBody <= 0, "BodyDir": c.BodyDir == "",
		"Version": c.Version == "",
	} {
		if missing {
			return fmt.Errorf("create the HTTP server: %s is missing", name)
		}
	}
	return nil
}

// Configure replaces what requests get from the configuration. Requests that have begun keep what
// they have. c must not change afterwards.
func (s *Server) Configure(c *Configured) { s.current.Store(c) }

// Serve serves requests of a listener until Shutdown, and closes the listener.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(problemListener{l, s.cfg.Version, s.cfg.Rejected})
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown drains the calls as [call.Registry.Drain] does, delivers their responses and closes the
// listeners. If it returns nil, nothing that the server started is running.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.cfg.Calls.Drain(ctx)
	s.endFollowing()
	if s.cfg.MCP != nil {
		s.cfg.MCP.Close()
	}
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
		s.closeIdle()
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

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.begin()
	defer s.end()
	setHandled(r)
	t := &responseTracker{ResponseWriter: w}
	defer func() {
		if t.rejected != "" {
			s.cfg.Rejected(principal(r), t.rejected)
		}
	}()
	defer s.recoverHandler(t, r)
	r, body := withBodyDeadline(t, r)
	defer body.drain(t, r, 2*s.cfg.MaxBody)
	w.Header().Set("Dray-Version", s.cfg.Version)
	if digest := s.current.Load().ConfigDigest; digest != "" {
		w.Header().Set("Dray-Config", digest)
	}
	r, handled, err := s.checkRequest(t, r)
	if err != nil {
		s.fail(t, err)
	}
	if err != nil || handled {
		return
	}
	if !s.serves(r, r.Method) {
		s.fail(t, s.notFoundOrMethod(r))
		return
	}
	if r.ContentLength > s.cfg.MaxBody {
		w.Header().Set("Connection", "close") // the response must not wait for the body
		s.fail(t, tooLarge(s.cfg.MaxBody))
		return
	}
	s.mux.ServeHTTP(t, r) // it sets the path values, which the handler alone would not
}

// checkRequest checks what all requests must meet. It returns the request with its principal, and
// whether it has got its response.
func (s *Server) checkRequest(w http.ResponseWriter, r *http.Request) (_ *http.Request,
	handled bool, err error,
) {
	if isTCP(r) {
		if r, handled, err = s.guard.admit(w, r); err != nil || handled {
			return r, handled, err
		}
	}
	return r, false, checkHeader(r)
}

func checkHeader(r *http.Request) error {
	if principal(r) == "" {
		return dray.Errorf(dray.CodeUnauthorized, "the peer of this connection is unknown").
			WithHint("connect through the daemon's unix socket")
	}
	if r.URL.Host != "" {
		return invalid("", "the request line has an absolute URI").
			WithHint("send only the path; the daemon is no proxy")
	}
	if encoding, ok := r.Header["Content-Encoding"]; ok {
		return dray.Errorf(dray.CodeUnsupportedMediaType, "unsupported Content-Encoding %q",
			validate.Quote(strings.Join(encoding, ", "))).WithHint("send the body without Content-Encoding")
	}
	return nil
}

// serves reports whether an operation serves the path of a request, as it was sent, with a method.
func (s *Server) serves(r *http.Request, method string) bool {
	_, pattern := s.mux.Handler(&http.Request{Method: method, Host: r.Host, URL: r.URL})
	escaped := r.URL.EscapedPath()
	return pattern != "" && escaped == path.Clean(escaped)
}

// notFoundOrMethod returns the error of a request that no operation serves.
func (s *Server) notFoundOrMethod(r *http.Request) error {
	var allowed []string
	for _, method := range []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete,
	} {
		if s.serves(r, method) {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) > 0 {
		allow := strings.Join(allowed, ", ")
		err := dray.Errorf(dray.CodeMethodNotAllowed, "method %s is not allowed for %s",
			validate.Quote(r.Method), validate.Quote(r.URL.Path)).WithHint("use %s", allow)
		return &httpError{err: err, allow: allow}
	}
	return notFound("no such endpoint: %s", validate.Quote(r.URL.Path)).
		WithHint("GET /openapi.json lists all endpoints")
}

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

// responseTracker records whether a response has begun, and whether the request was refused.
type responseTracker struct {
	http.ResponseWriter
	written  bool
	rejected dray.Code // the code of a request that was refused, else empty
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
