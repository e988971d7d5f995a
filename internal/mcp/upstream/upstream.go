// Package upstream is the client of MCP servers that run as processes of an environment and speak
// over their stdin and stdout (MC-06).
//
// A server is hostile input: it can crash, hang, flood or print anything. Frames, bytes, tools,
// schemas, concurrent calls and the start are bounded. A server that exceeds a bound is stopped
// with all its descendants; its calls fail with a code, and the next call starts it again.
package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

const (
	// maxFrame is the maximum size in bytes of one message, maxBytes that of all messages between two
	// starts of calls.
	maxFrame, maxBytes = 16 << 20, 64 << 20
	// maxTools is the maximum number of tools of a server, maxPages that of the pages of their list,
	// maxSchema the maximum size in bytes of one schema, maxToolBytes that of all tools together: a
	// compiled schema takes 30 times the memory of its text, and is compiled again at each reload.
	maxTools, maxPages, maxSchema, maxToolBytes = 500, 100, 256 << 10, 2 << 20
	// maxDelay bounds the delay between two starts of a server that keeps failing.
	maxDelay = 30 * time.Second
)

// Config has the parameters of a server.
type Config struct {
	// Name is the name of the server in the configuration.
	Name string
	// Environment makes the environment of the server ready. It is called before each start.
	Environment func(ctx context.Context) (dray.Environment, error)
	// Spec is the process of the server.
	Spec dray.ProcessSpec
	// StartTimeout bounds a start until the tools are listed. Grace is the time between TERM and KILL,
	// and the time in which a server must answer after a call was cancelled.
	StartTimeout, Grace time.Duration
	// MaxCalls is the maximum number of concurrent calls.
	MaxCalls int
	// Delay is the delay after the second failure in a row. It doubles with each further failure.
	Delay time.Duration
	// Version is the version of dray.
	Version string
}

// Tool is a tool as its server describes it.
type Tool struct {
	Name, Description         string
	InputSchema, OutputSchema json.RawMessage
}

// Server is an upstream server, which runs from its first use until it fails or Close is called. It
// is safe for concurrent use.
type Server struct {
	cfg   Config
	slots chan struct{}

	starting chan struct{} // holds a token while a process is started

	mu       sync.Mutex  // guards the fields below
	current  *connection // nil if none runs
	closed   bool
	failures int // in a row
	retryAt  time.Time
	last     error // the last failure
}

// New returns a server that does not run yet.
func New(cfg Config) *Server {
	return &Server{
		cfg: cfg, slots: make(chan struct{}, cfg.MaxCalls), starting: make(chan struct{}, 1),
	}
}

// Tools returns the tools of the server. It starts the server if none runs.
func (s *Server) Tools(ctx context.Context) ([]Tool, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c.tools, nil
}

// Call calls a tool and blocks until it has ended. It fails with busy above MaxCalls, with
// agent_lost if the server ends first, with helper_missing if it cannot be started, and with the
// cause of ctx.
func (s *Server) Call(ctx context.Context, tool string, arguments json.RawMessage) (Reply, error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return Reply{}, dray.Errorf(dray.CodeBusy, "MCP server %s runs %d calls", s.cfg.Name,
			s.cfg.MaxCalls).WithHint("repeat the call when another has ended")
	}
	c, err := s.connect(ctx)
	if err != nil {
		return Reply{}, err
	}
	c.stdout.renew()
	res, err := c.session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: arguments})
	switch {
	case ctx.Err() != nil:
		s.checkAlive(ctx, c)
		return Reply{}, context.Cause(ctx)
	case err != nil && isBroken(err):
		c.stop(err)
		<-c.removed // so that the next call starts a new process
		return Reply{}, s.lost(c)
	case err != nil: // the server refused the call
		return Reply{}, dray.Errorf(dray.CodeInvalidInput, "MCP server %s refused the call: %s",
			s.cfg.Name, lexical.PlainLine(err.Error(), maxLine)).WithHint("check the input of the tool")
	}
	s.mu.Lock()
	s.failures, s.last = 0, nil
	s.mu.Unlock()
	return newReply(res), nil
}

// checkAlive stops a server that does not answer within the grace after a call was cancelled.
func (s *Server) checkAlive(ctx context.Context, c *connection) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Grace)
	defer cancel()
	if _, err := c.session.ListTools(ctx, nil); err != nil {
		c.stop(fmt.Errorf("it did not answer after a call was cancelled: %w", err))
		<-c.removed
	}
}

// lost returns the error of a call whose server has ended.
func (s *Server) lost(c *connection) error {
	return dray.Errorf(dray.CodeAgentLost, "MCP server %s ended while the call ran: %w", s.cfg.Name,
		c.reason()).WithHint("check what the call did before you repeat it; %s", c.stderr.hint())
}

// connect returns the connection to the running server. It starts one if there is none. It fails
// with the cause of ctx, also while another call starts the server.
func (s *Server) connect(ctx context.Context) (*connection, error) {
	select {
	case s.starting <- struct{}{}:
		defer func() { <-s.starting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	c, err := s.current, s.refusal()
	s.mu.Unlock()
	if c != nil || err != nil {
		return c, err
	}
	c, err = open(ctx, s.cfg)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx) // shows nothing about the server
	case err != nil:
		s.fail(err)
		return nil, err
	}
	s.current = c
	go s.watch(c)         // ends with the process, for which Close waits
	return c, s.refusal() // if Close was called meanwhile
}

var errClosed = errors.New("the daemon shut down")

// watch removes a connection whose process has ended.
func (s *Server) watch(c *connection) {
	<-c.done
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.fail(c.reason())
	}
	s.current = nil
	close(c.removed)
}

// refusal returns why no server may be started now. mu must be held.
func (s *Server) refusal() error {
	switch {
	case s.closed:
		return dray.Errorf(dray.CodeShuttingDown, "MCP server %s is closed", s.cfg.Name)
	case time.Now().Before(s.retryAt):
		return dray.Errorf(dray.CodeHelperMissing, "MCP server %s failed %d times in a row: %w",
			s.cfg.Name, s.failures, s.last).
			WithHint("correct mcp.servers.%s; it is tried again in %v", s.cfg.Name,
				time.Until(s.retryAt).Round(time.Millisecond))
	default:
		return nil
	}
}

// fail counts a failure. The server may start at once after the first. mu must be held.
func (s *Server) fail(err error) {
	s.failures++
	s.last = err
	if s.failures > 1 {
		delay := s.cfg.Delay << min(s.failures-2, 16)
		s.retryAt = time.Now().Add(min(delay, max(maxDelay, s.cfg.Delay)))
	}
}

// Close stops the server with all its descendants and blocks until they have ended.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.starting <- struct{}{} // a start that was in progress has ended
	defer func() { <-s.starting }()
	s.mu.Lock()
	c := s.current
	s.mu.Unlock()
	if c != nil {
		c.stop(errClosed)
		<-c.removed
	}
}
