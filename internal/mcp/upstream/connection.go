package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// connection is one process of a server.
type connection struct {
	cfg     Config
	proc    dray.Process
	session *sdk.ClientSession
	stdout  *meteredReader
	stderr  tail
	tools   []Tool
	done    chan struct{} // closed when the process and its descendants have ended
	removed chan struct{} // closed when its Server does not have it any more

	mu          sync.Mutex // guards the fields below
	cause, exit error      // why it was stopped, and how the process ended
}

// open starts a process, initializes the session and lists the tools.
func open(ctx context.Context, cfg Config) (*connection, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.StartTimeout,
		fmt.Errorf("it was not ready within %v", cfg.StartTimeout))
	defer cancel()
	env, err := cfg.Environment(ctx)
	if err != nil {
		return nil, err
	}
	proc, err := env.Start(ctx, cfg.Spec)
	if err != nil {
		return nil, startError(cfg.Name, err)
	}
	c := &connection{
		cfg: cfg, proc: proc, stdout: &meteredReader{from: proc.Output(dray.Stdout)},
		done: make(chan struct{}), removed: make(chan struct{}),
	}
	go c.wait()
	stop := context.AfterFunc(ctx, func() { c.stop(context.Cause(ctx)) })
	err = c.initialize(ctx)
	if stop() && err == nil {
		return c, nil
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	c.stop(err)
	<-c.done
	return nil, dray.Errorf(dray.CodeHelperMissing, "MCP server %s cannot be used: %w", cfg.Name,
		c.reason()).WithHint("correct mcp.servers.%s; %s", cfg.Name, c.stderr.hint())
}

// startError names the server whose program does not exist: the hint of the error is that of a
// call, which cannot correct it.
func startError(name string, err error) error {
	switch code := dray.CodeOf(err); code {
	case dray.CodeExecutableNotFound, dray.CodeNotExecutable:
		return dray.Errorf(code, "start MCP server %s: %w", name, err).
			WithHint("correct mcp.servers.%s.argv: its program must be installed where the server runs",
				name)
	default:
		return err
	}
}

// wait reads stderr to its end and waits for the process.
func (c *connection) wait() {
	defer close(c.done)
	_, _ = io.Copy(&c.stderr, c.proc.Output(dray.Stderr))
	exit, err := c.proc.Wait()
	switch {
	case err != nil:
	case exit.Signal != 0:
		err = fmt.Errorf("it was ended by the signal %v", exit.Signal)
	default:
		err = fmt.Errorf("it exited with code %d", exit.Code)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exit = err
}

// initialize begins the session and lists the tools. The client has no capabilities, so the
// server's requests for sampling, elicitation and roots are refused.
func (c *connection) initialize(ctx context.Context) error {
	client := sdk.NewClient(&sdk.Implementation{Name: "dray", Version: c.cfg.Version},
		&sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}})
	var err error
	c.session, err = client.Connect(ctx, guardedTransport{
		Transport: exactTransport{&sdk.IOTransport{
			Reader: c.stdout, Writer: c.proc.Stdin(), MaxLineLength: maxFrame,
		}},
		grace: c.cfg.Grace, stop: c.stop,
	}, nil)
	if err != nil {
		return c.explain(err)
	}
	return c.listTools(ctx)
}

func (c *connection) listTools(ctx context.Context) error {
	params, size := &sdk.ListToolsParams{}, 0
	for range maxPages {
		page, err := c.session.ListTools(ctx, params)
		if err != nil {
			return c.explain(err)
		}
		if len(c.tools)+len(page.Tools) > maxTools {
			return fmt.Errorf("it has more than %d tools", maxTools)
		}
		for _, t := range page.Tools {
			tool, err := newTool(t)
			if err != nil {
				return err
			}
			size += len(tool.Name) + len(tool.Description) + len(tool.InputSchema) + len(tool.OutputSchema)
			if size > maxToolBytes {
				return fmt.Errorf("its tools have more than %d bytes of texts and schemas", maxToolBytes)
			}
			c.tools = append(c.tools, tool)
		}
		if params.Cursor = page.NextCursor; params.Cursor == "" {
			return nil
		}
	}
	return fmt.Errorf("its list of tools has more than %d pages", maxPages)
}

func newTool(t *sdk.Tool) (tool Tool, err error) {
	tool = Tool{Name: t.Name, Description: t.Description}
	if tool.InputSchema, err = schemaText(t.InputSchema); err == nil {
		tool.OutputSchema, err = schemaText(t.OutputSchema)
	}
	if err != nil {
		return tool, fmt.Errorf("tool %s: %w", lexical.PlainLine(t.Name, maxLine), err)
	}
	return tool, nil
}

// schemaText returns a schema as JSON, nil for none.
func schemaText(schema any) (json.RawMessage, error) {
	if schema == nil {
		return nil, nil
	}
	text, err := json.Marshal(schema)
	if err == nil && len(text) > maxSchema {
		err = fmt.Errorf("a schema exceeds %d bytes", maxSchema)
	}
	return text, err
}

// isBroken reports whether an error of the session means that the connection cannot be used again,
// and not that the server replied with an error.
func isBroken(err error) bool {
	_, replied := errors.AsType[*jsonrpc.Error](err)
	return !replied
}

// explain returns the cause of an error of the session: the exceeded bound, or for a syntax error
// the line of stdout.
func (c *connection) explain(err error) error {
	c.stdout.mu.Lock()
	defer c.stdout.mu.Unlock()
	switch {
	case c.stdout.err != nil:
		return c.stdout.err
	case strings.Contains(err.Error(), "invalid character"): // the SDK does not wrap it
		return fmt.Errorf("it printed a line that is not JSON: %q",
			lexical.PlainLine(string(c.stdout.line), maxLine))
	case errors.Is(err, sdk.ErrConnectionClosed):
		return errors.New("it closed its stdout")
	default:
		return err
	}
}

// stop ends the process with all its descendants. The first cause is kept.
func (c *connection) stop(cause error) {
	cause = c.explain(cause)
	c.mu.Lock()
	if c.cause == nil {
		c.cause = cause
	}
	c.mu.Unlock()
	c.proc.Stop(c.cfg.Grace)
}

// reason returns why a process has ended.
func (c *connection) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		return c.exit
	}
	return fmt.Errorf("%w; %w", c.cause, c.exit)
}
