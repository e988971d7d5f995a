package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/strictjson"
)

const (
	// maxWait is the maximum of wait_ms.
	maxWait = 24 * time.Hour
	// maxView is the maximum of view in bytes.
	maxView = 1 << 20
)

// callOptions are the arguments of a tool call that are not the tool's input.
type callOptions struct {
	Cwd            string            `json:"cwd"`
	Workspace      string            `json:"workspace"`
	Container      string            `json:"container"`
	Paths          dray.PathsSide    `json:"paths"`
	Env            map[string]string `json:"env"`
	Timeout        *float64          `json:"timeout_seconds"`
	WaitMS         *int64            `json:"wait_ms"`
	IdempotencyKey *string           `json:"idempotency_key"`
	Stdin          *string           `json:"stdin"`
	StdinOpen      bool              `json:"stdin_open"`
	View           *int              `json:"view"`
}

// split separates the options of a call from the input of its tool.
func split(arguments json.RawMessage, t *dray.Tool) (opts callOptions, input json.RawMessage,
	err error,
) {
	members := map[string]json.RawMessage{}
	if hasArguments(arguments) {
		if err := strictjson.Decode(arguments, &members); err != nil {
			return opts, nil, err
		}
	}
	own := map[string]json.RawMessage{}
	for _, o := range optionsOf(t) {
		if v, ok := members[o.name]; ok {
			own[o.name] = v
			delete(members, o.name)
		}
	}
	text, err := strictjson.Encode(own)
	if err == nil {
		err = strictjson.Decode(text, &opts)
	}
	if err != nil {
		return opts, nil, err
	}
	if w := opts.WaitMS; w != nil && (*w < 0 || *w > maxWait.Milliseconds()) {
		return opts, nil, dray.Errorf(dray.CodeInvalidRequest, "invalid wait_ms %d", *w).
			WithHint("use whole milliseconds from 0 to %d", maxWait.Milliseconds())
	}
	if v := opts.View; v != nil && (*v < 1 || *v > maxView) {
		return opts, nil, dray.Errorf(dray.CodeInvalidRequest, "invalid view %d", *v).
			WithHint("use 1 to %d bytes; read_output has all that is kept", maxView)
	}
	input, err = strictjson.Encode(members)
	return opts, input, err
}

// hasArguments reports whether there are arguments. Some clients send null for none.
func hasArguments(arguments json.RawMessage) bool {
	return len(arguments) > 0 && string(arguments) != "null"
}

// request returns the request of a tool call. The headers have the defaults of the client.
func (o callOptions) request(name string, input json.RawMessage, h http.Header) *call.Request {
	req := &call.Request{
		IdempotencyKey: o.IdempotencyKey, Tool: name, Input: input, Workspace: o.Workspace,
		Container: o.Container, Cwd: o.Cwd, Env: o.Env, Timeout: o.Timeout, Stdin: o.Stdin,
		Paths:     cmp.Or(o.Paths, dray.PathsSide(h.Get(pathsHeader))),
		StdinOpen: o.StdinOpen, OnDisconnect: call.DisconnectContinue,
		AwaitsApproval: o.WaitMS != nil,
	}
	if req.Workspace == "" && req.Container == "" {
		req.Workspace, req.Container = h.Get(workspaceHeader), h.Get(containerHeader)
	}
	// A relative directory is that of the workspace, or else of the client's own directory.
	base := h.Get(cwdHeader)
	if req.Paths == dray.PathsOfContainer {
		if req.Workspace == "" && req.Container == "" {
			req.Workspace = base
		}
		return req
	}
	req.CwdIsDefault = base != "" && o.Cwd == ""
	if base != "" && req.Workspace == "" && !path.IsAbs(req.Cwd) {
		joined := base + "/" + req.Cwd
		if slices.Contains(strings.Split(joined, "/"), "..") {
			req.Cwd = joined // for the check of the request, which path.Join would evade
		} else {
			req.Cwd = path.Clean(joined)
		}
	}
	return req
}

// callTool runs a call of a tool. What is wrong with a request is a result, so that the model can
// correct it.
func (s *Server) callTool(ctx context.Context, req *sdk.CallToolRequest, t *dray.Tool,
) (*sdk.CallToolResult, error) {
	ctx, stop := s.ended.follow(ctx, req.Extra.Header.Get(requestHeader))
	defer stop()
	opts, input, err := split(req.Params.Arguments, t)
	if err != nil {
		return failure(err), nil
	}
	approvalID, err := s.takeAnswer(ctx, req)
	if err != nil {
		return failure(err), nil
	}
	request := opts.request(t.Name, input, req.Extra.Header)
	if t.Workspace != "" && request.Workspace == "" && request.Container == "" {
		request.Workspace = t.Workspace
	}
	if approvalID != "" {
		setApprovalKey(request, approvalID)
	}
	task := taskRequestOf(ctx)
	if task != nil {
		request.AwaitsApproval = true // as a task, which asks the user if the client can
	} else if canElicit(req.Session) {
		request.AwaitsApproval = false // the user is asked, and the request repeated
	}
	current := s.cfg.Current()
	c, _, err := s.cfg.Calls.Begin(ctx, current.Intake, principalOf(req), request)
	if err != nil {
		return failure(err), nil
	}
	defer c.Leave(nil)
	wait := opts.wait()
	if wait < 0 && task != nil {
		wait = taskDelay
	}
	view := current.View
	if opts.View != nil {
		view = *opts.View
	}
	return s.await(ctx, req, c, wait, view)
}

func (o callOptions) wait() time.Duration {
	if o.WaitMS == nil {
		return -1
	}
	return time.Duration(*o.WaitMS) * time.Millisecond
}

func principalOf(req *sdk.CallToolRequest) string { return req.Extra.TokenInfo.UserID }

// await waits for the end of a call and returns its result. A negative wait has no limit. A client
// that can have a task gets it at once if the call waits for an approval. The call is cancelled when
// the request is (MC-04).
func (s *Server) await(ctx context.Context, req *sdk.CallToolRequest, c *call.Call,
	wait time.Duration, view int,
) (*sdk.CallToolResult, error) {
	stop := reportProgress(ctx, req, c)
	defer stop()
	var timeout <-chan time.Time
	if wait >= 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	var parked <-chan struct{}
	if taskRequestOf(ctx) != nil {
		parked = c.Parked()
	}
	select {
	case <-c.Done():
	case <-parked:
		return s.running(ctx, req, c, view)
	case <-timeout:
		return s.running(ctx, req, c, view)
	case <-ctx.Done():
		c.Cancel(executor.ErrCancelled)
		return nil, context.Cause(ctx) // the SDK drops it: the client does not wait any more
	}
	if err := c.Rejected(); err != nil {
		return failure(err), nil
	}
	encoded, _ := c.Encoded()
	if asked := s.askUser(ctx, req, encoded); asked != nil {
		return asked, nil
	}
	return endResult(encoded, view)
}

// running returns the result of a call that goes on after its wait. A client that can has a task
// instead.
func (s *Server) running(ctx context.Context, req *sdk.CallToolRequest, c *call.Call, view int,
) (*sdk.CallToolResult, error) {
	select {
	case <-c.Accepted():
	case <-c.Done():
		if err := c.Rejected(); err != nil {
			return failure(err), nil
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	encoded, ended := c.Encoded()
	if ended {
		if asked := s.askUser(ctx, req, encoded); asked != nil {
			return asked, nil
		}
		return endResult(encoded, view)
	}
	if task := taskRequestOf(ctx); task != nil {
		task.created = createdTask(c.Record())
	}
	return runningResult(c, view), nil
}

// failure returns the result of a request that became no call.
func failure(err error) *sdk.CallToolResult {
	e := dray.AsError(err)
	lines := []string{fmt.Sprintf("%s: %s", e.Code, e.Message)}
	for _, d := range e.Details {
		lines = append(lines, fmt.Sprintf("- %s: %s", d.Pointer, d.Message))
	}
	if e.Hint != "" {
		lines = append(lines, "hint: "+e.Hint)
	}
	return &sdk.CallToolResult{
		Content: []sdk.Content{&sdk.TextContent{Text: strings.Join(lines, "\n")}}, IsError: true,
		StructuredContent: map[string]any{"status": "rejected", "error": e},
	}
}
