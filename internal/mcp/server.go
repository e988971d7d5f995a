package mcp

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call"
)

const (
	// statelessRevision is the first revision without sessions.
	statelessRevision = "2026-07-28"
	// maxSessions bounds the sessions of all clients together: a new one ends one that is idle, of
	// the principal with the most. sessionIdle is the time that one is kept without a request. A
	// client whose session has ended is served without one.
	maxSessions = 256
	sessionIdle = 30 * time.Minute
)

// Names of headers of the protocol.
const (
	versionHeader = "Mcp-Protocol-Version"
	sessionHeader = "Mcp-Session-Id"
	methodHeader  = "Mcp-Method"
	nameHeader    = "Mcp-Name"
)

// Config has the dependencies of a server. All are required.
type Config struct {
	// Current returns what requests get from the daemon's configuration.
	Current func() Configured
	Calls   *call.Registry
	Outputs *call.Outputs
	Access  call.Access
	// Nearest returns the workspace that contains a directory, or "".
	Nearest func(ctx context.Context, dir string) string
	// AwaitTools blocks for a short time while upstream servers list their tools.
	AwaitTools func(ctx context.Context)
	// Approvals are decided by the users of clients.
	Approvals Approvals
	// SessionKey signs the ids of sessions and the questions about approvals.
	SessionKey []byte
	// MaxBody is the maximum size of a request body in bytes.
	MaxBody int64
	Version string
	Log     *slog.Logger
}

// Configured is what requests get from the daemon's configuration.
type Configured struct {
	Intake *call.Intake
	Tools  Tools
	// ProjectTools returns the tools that a workspace declares and that may run. Nil has none.
	ProjectTools func(ctx context.Context, workspace string) ([]*dray.Tool, error)
	// View is the maximum size in bytes of each output stream in the result of a call.
	View int
	// Denies reports whether policy denies a principal every call of a tool, which is then not listed.
	// Nil denies none.
	Denies func(principal string, t *dray.Tool) bool
}

// Tools are the tools of the daemon.
type Tools interface {
	// Active returns the tools that may run.
	Active(ctx context.Context) []*dray.Tool
	// Get returns the tool with exactly the given name. It fails unless the tool may run.
	Get(ctx context.Context, name string) (*dray.Tool, error)
}

// Server serves /mcp. It is safe for concurrent use.
type Server struct {
	cfg      Config
	ids      *signer
	sessions sessions
	server   *sdk.Server
	stateful http.Handler
	// stateless serves requests without a session.
	stateless http.Handler
	// orphans are the requests of sessions that have ended.
	orphans inFlight

	mu    sync.Mutex            // guards the fields below
	tools map[string]*dray.Tool // that the SDK's server has
	// hidden are the tools with a name of ownTools that a warning was logged for.
	hidden map[string]bool
}

// New returns a server.
func New(cfg Config) *Server {
	s := &Server{
		cfg: cfg, ids: &signer{key: cfg.SessionKey}, tools: map[string]*dray.Tool{},
		hidden: map[string]bool{},
	}
	opts := &sdk.ServerOptions{
		Instructions: instructions,
		Logger:       cfg.Log,
		PageSize:     1000,
		Capabilities: &sdk.ServerCapabilities{
			Tools:      &sdk.ToolCapabilities{ListChanged: true},
			Extensions: map[string]any{tasksExtension: map[string]any{}},
		},
		GetSessionID: s.ids.newID,
	}
	fixtureOptions(opts)
	s.server = sdk.NewServer(s.implementation(), opts)
	s.server.AddReceivingMiddleware(s.awaitTools, s.serveProjectTools, s.hideDenied)
	s.addOwnTools()
	s.addProjectTool()
	s.addTasks(addFixtures(s.server, callTasks{s}))
	s.stateful = s.handler(sdk.StreamableHTTPOptions{SessionTimeout: sessionIdle})
	s.stateless = s.handler(sdk.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true,
	})
	return s
}

// implementation returns the name and the version of this server for its clients.
func (s *Server) implementation() *sdk.Implementation {
	return &sdk.Implementation{Name: "dray", Title: "dray", Version: s.cfg.Version}
}

const instructions = "dray runs tools in the project's devcontainer, or on the host, as its " +
	"operator configured. Each result begins with a line that has the id of the call. Output that " +
	"was left out can be read with read_output and that id. For a call that takes longer than a " +
	"minute set wait_ms; it keeps running, and read_output waits for its end."

// handler returns a handler of the SDK that gets the principal of a request as its token. Host and
// Origin are checked before, with those of every path (SE-02).
func (s *Server) handler(opts sdk.StreamableHTTPOptions) http.Handler {
	opts.DisableLocalhostProtection = true
	opts.MaxRequestBodyBytes = s.cfg.MaxBody
	opts.Logger = s.cfg.Log
	get := func(*http.Request) *sdk.Server { return s.server }
	verify := func(ctx context.Context, principal string, _ *http.Request) (*auth.TokenInfo, error) {
		inCall := ctx.Value(inCallKey{})
		return &auth.TokenInfo{UserID: principal, Extra: map[string]any{inCallExtra: inCall}}, nil
	}
	return auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{
		AllowMissingExpiration: true,
	})(sdk.NewStreamableHTTPHandler(get, &opts))
}

// inCallKey is the key of the inCall of a request in its context, inCallExtra in its token.
type inCallKey struct{}

const inCallExtra = "in call"

// Serve serves a request of a principal, whose body is in memory. inCall reports whether a process
// of a call makes it.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, principal string,
	inCall func() bool,
) {
	r = r.Clone(context.WithValue(r.Context(), inCallKey{}, inCall))
	body, ok := readMessage(w, r)
	if !ok {
		return
	}
	// The SDK takes the principal of a request from its token. Sessions belong to one principal.
	r.Header.Set("Authorization", "Bearer "+principal)
	setDefaults(r.Header, r.URL.Query())
	if s.serveDirect(w, r, principal, body) {
		return
	}
	if r.Method == http.MethodPost {
		mw := &methodWriter{ResponseWriter: w, body: body}
		defer mw.release()
		w = mw
	}
	// here, because the SDK asks for its server twice a request
	s.updateTools(r.Context()) //nolint:contextcheck // r has the context of the request
	id := r.Header.Get(sessionHeader)
	switch {
	case id == "" && r.Header.Get(versionHeader) >= statelessRevision:
		s.stateless.ServeHTTP(w, r)
	case id == "":
		s.serveNew(w, r, principal)
	case s.sessions.isOfOther(principal, id):
		http.Error(w, "session not found", http.StatusNotFound) // as for one that there never was
	case s.ids.isDeleted(principal, id):
		http.Error(w, "the session was deleted: initialize a new one", http.StatusNotFound)
	case s.ids.signed(id) && s.session(id) == nil:
		s.serveEnded(w, r, principal, body)
	case r.Method == http.MethodDelete:
		defer s.ids.delete(principal, id)
		s.stateful.ServeHTTP(w, r)
	default:
		if r.Method == http.MethodPost { // a GET is open as long as the session
			defer s.sessions.use(id)()
		}
		s.stateful.ServeHTTP(w, r)
	}
}

// serveNew serves a request without a session, which may begin one.
func (s *Server) serveNew(w http.ResponseWriter, r *http.Request, principal string) {
	idle, ok := s.sessions.reserve(s.sessionIDs)
	if !ok {
		http.Error(w, "too many MCP sessions, and all have requests: close some, or repeat the request "+
			"later", http.StatusServiceUnavailable)
		return
	}
	defer s.sessions.release()
	if session := s.session(idle); session != nil {
		// Its client finds out with its next request. A session that has just begun would delay Close.
		go session.Close()
	}
	s.stateful.ServeHTTP(&sessionWriter{
		ResponseWriter: w, sessions: &s.sessions, principal: principal,
	}, r)
}

// Close ends all sessions.
func (s *Server) Close() {
	for session := range s.server.Sessions() {
		_ = session.Close() // its client finds out with its next request
	}
}

// session returns the session with an id, or nil.
func (s *Server) session(id string) *sdk.ServerSession {
	if id == "" {
		return nil
	}
	for session := range s.server.Sessions() {
		if session.ID() == id {
			return session
		}
	}
	return nil
}

// sessionIDs returns the ids of the sessions that the SDK has.
func (s *Server) sessionIDs() map[string]bool {
	ids := map[string]bool{}
	for session := range s.server.Sessions() {
		ids[session.ID()] = true
	}
	return ids
}

// The headers with the defaults of all calls of a client. A URL can state them too: workspace, cwd,
// container and paths.
const (
	workspaceHeader = "Dray-Workspace"
	containerHeader = "Dray-Container"
	cwdHeader       = "Dray-Cwd"
	pathsHeader     = "Dray-Paths"
)

// setDefaults copies the defaults of calls from the query to headers, which tool calls get.
func setDefaults(h http.Header, query url.Values) {
	for name, header := range map[string]string{
		"workspace": workspaceHeader, "container": containerHeader, "cwd": cwdHeader,
		"paths": pathsHeader,
	} {
		if v := query.Get(name); v != "" {
			h.Set(header, v)
		}
	}
}
