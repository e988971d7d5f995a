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
	"github.com/dray-dev/dray/internal/textview"
)

// maxWait is the maximum of wait_ms.
const maxWait = 24 * time.Hour

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
	if slices.ContainsFunc(options, func(o option) bool { return members[o.name] != nil }) {
		given := map[string]json.RawMessage{}
		for _, o := range optionsOf(t) {
			if v, ok := members[o.name]; ok {
				given[o.name] = v
				delete(members, o.name)
			}
		}
		if opts, err = decodeOptions(given); err != nil {
			return opts, nil, err
		}
	}
	input, err = strictjson.Encode(members)
	return opts, input, err
}

func decodeOptions(given map[string]json.RawMessage) (opts callOptions, err error) {
	text, err := strictjson.Encode(given)
	if err == nil {
		err = strictjson.Decode(text, &opts)
	}
	if err != nil {
		return opts, err
	}
	if w := opts.WaitMS; w != nil && (*w < 0 || *w > maxWait.Milliseconds()) {
		return opts, dray.Errorf(dray.CodeInvalidRequest, "invalid wait_ms %d", *w).
			WithHint("use whole milliseconds from 0 to %d", maxWait.Milliseconds())
	}
	if v := opts.View; v != nil && (*v < 1 || *v > textview.MaxBytes) {
		return opts, dray.Errorf(dray.CodeInvalidRequest, "invalid view %d", *v).
			WithHint("use 1 to %d bytes; read_output has all that is kept", textview.MaxBytes)
	}
	return opts, nil
}

// hasArguments reports whether there are arguments. Some clients send null for none.
func hasArguments(arguments json.RawMessage) bool {
	return len(arguments) > 0 && string(arguments) != "null"
}

// request returns the request of a call of a tool. The headers have the defaults of the client.
func (o callOptions) request(t *dray.Tool, input json.RawMessage, h http.Header) *call.Request {
	req := &call.Request{
		IdempotencyKey: o.IdempotencyKey, Tool: t.Name, Input: input, Workspace: o.Workspace,
		Container: o.Container, Cwd: o.Cwd, Env: o.Env, Timeout: o.Timeout, Stdin: o.Stdin,
		Paths:     cmp.Or(o.Paths, dray.PathsSide(h.Get(pathsHeader))),
		StdinOpen: o.StdinOpen, OnDisconnect: call.DisconnectContinue,
	}
	if req.Workspace == "" && req.Container == "" {
		req.Workspace, req.Container = h.Get(workspaceHeader), h.Get(containerHeader)
	}
	base := h.Get(cwdHeader)
	switch {
	case base == "":
	case req.Paths == dray.PathsOfContainer: // base is a path of the host
		if req.Workspace == "" && req.Container == "" {
			req.Workspace = base
		}
	default:
		req.CwdIsDefault = o.Cwd == ""
		if req.Workspace == "" && !path.IsAbs(req.Cwd) {
			req.Cwd = joinDir(base, req.Cwd)
		}
	}
	if req.Workspace == "" && req.Container == "" {
		req.Workspace = t.Workspace
	}
	return req
}

// joinDir returns the directory that dir is relative to base. It leaves ".." segments, which the
// check of the request refuses, in their place: path.Join would hide them.
func joinDir(base, dir string) string {
	joined := base + "/" + dir
	if slices.Contains(strings.Split(joined, "/"), "..") {
		return joined
	}
	return path.Clean(joined)
}

// callTool runs a call of a tool. An error of the request is a result, so that the model can
// correct the request. A request that is cancelled cancels the call, unless another one with its
// idempotency key waits for it too (MC-04).
func (s *Server) callTool(ctx context.Context, req *sdk.CallToolRequest, t *dray.Tool,
) (*sdk.CallToolResult, error) {
	ctx, stop := withCancel(ctx)
	defer stop()
	opts, input, err := split(req.Params.Arguments, t)
	if err != nil {
		return failure(err), nil
	}
	approvalID, err := s.takeAnswer(ctx, req)
	if err != nil {
		return failure(err), nil
	}
	request := opts.request(t, input, req.Extra.Header)
	if approvalID != "" {
		setApprovalKey(request, approvalID)
	}
	request.AwaitsApproval = opts.awaitsApproval(ctx, req)
	current := s.cfg.Current()
	c, _, err := s.cfg.Calls.Begin(ctx, current.Intake, principalOf(req), request)
	if err != nil {
		return failure(err), nil
	}
	var cancelled error // nil while this request does not cancel the call
	defer func() { c.Leave(cancelled) }()
	wait := opts.wait()
	if wait < 0 && taskRequestOf(ctx) != nil {
		wait = taskDelay
	}
	view := current.View
	if opts.View != nil {
		view = *opts.View
	}
	res, err := s.await(ctx, req, c, wait, view)
	if err != nil && ctx.Err() != nil { // the SDK drops the result: the client does not wait any more
		cancelled = executor.ErrCancelled
	}
	return res, err
}

// awaitsApproval reports whether a call waits for its approval: as a task, or until wait_ms is
// over. For a client that can ask its user it ends, and the client repeats it with the answer.
func (o callOptions) awaitsApproval(ctx context.Context, req *sdk.CallToolRequest) bool {
	return taskRequestOf(ctx) != nil || o.WaitMS != nil && !canElicit(req.Session)
}

// wait returns how long the client waits, negative without a limit.
func (o callOptions) wait() time.Duration {
	if o.WaitMS == nil {
		return -1
	}
	return time.Duration(*o.WaitMS) * time.Millisecond
}

// principalOf returns the principal of a request. Each has one: Serve sets it.
func principalOf(req sdk.Request) string { return req.GetExtra().TokenInfo.UserID }

// await waits for the end of a call and returns its result. A negative wait has no limit. A client
// that can have a task gets it at once if the call waits for an approval. await fails with the
// cause of ctx.
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
		return nil, context.Cause(ctx)
	}
	return s.ended(ctx, req, c, view)
}

// ended returns the result of a call that has ended: a question to the user if it needs an approval
// that its client can ask for.
func (s *Server) ended(ctx context.Context, req *sdk.CallToolRequest, c *call.Call, view int,
) (*sdk.CallToolResult, error) {
	if err := c.Rejected(); err != nil {
		return failure(err), nil
	}
	rec, err := c.FullRecord()
	if err != nil {
		return nil, err
	}
	if question := s.askUser(ctx, req, rec); question != nil {
		return question, nil
	}
	return endResult(rec, view), nil
}

// running returns the result of a call that continues after its wait: a task, for a client that can
// have one.
func (s *Server) running(ctx context.Context, req *sdk.CallToolRequest, c *call.Call, view int,
) (*sdk.CallToolResult, error) {
	select {
	case <-c.Accepted():
	case <-c.Done():
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case <-c.Done():
		return s.ended(ctx, req, c, view)
	default:
	}
	if task := taskRequestOf(ctx); task != nil {
		task.created = createdTask(c.Record())
	}
	return runningResult(c, view), nil
}

// failure returns the result of a request that became no call.
func failure(err error) *sdk.CallToolResult {
	e := modelHint(dray.AsError(err))
	lines := []string{fmt.Sprintf("%s: %s", e.Code, e.Message)}
	for _, d := range e.Details {
		if strings.Contains(e.Message, d.Pointer+": "+d.Message) {
			continue
		}
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

// modelHint replaces a hint for users of the HTTP interface, which a model cannot reach.
func modelHint(e *dray.Error) *dray.Error {
	if !strings.Contains(e.Hint, "GET /v1/") {
		return e
	}
	switch e.Code {
	case dray.CodeNotFound:
		return e.WithHint("use the whole id from the result of a call; list_calls has those that run")
	case dray.CodeInvalidInput:
		return e.WithHint("see the input schema of the tool")
	case dray.CodeConflict:
		return e.WithHint("read_output has its result and its output")
	default:
		return e
	}
}
