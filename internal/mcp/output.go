package mcp

import (
	"context"
	"encoding/json"
	"fmt"
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

const (
	// defaultRead and maxRead bound the output that read_output returns, in bytes.
	defaultRead = 16 << 10
	maxRead     = 256 << 10
	// maxListedInput bounds what list_calls shows of an input, in bytes.
	maxListedInput = 200
)

// ownTool is a tool about the calls of a client. Calling it is not a call itself, and has no
// record.
type ownTool struct {
	name, description, schema string
	readOnly, destructive     bool
	// builtin reports whether there is a built-in tool of this name, for callers that do not use MCP.
	builtin bool
	run     func(*Server, context.Context, *sdk.CallToolRequest, ownArguments,
	) (*sdk.CallToolResult, error)
}

const idSchema = `"id":{"type":"string","description":"The id of the call."}`

var ownTools = []ownTool{
	{
		name: "read_output", readOnly: true, builtin: true, run: (*Server).readOutput,
		description: "Read the output that a call kept, from an offset in bytes. With wait_ms it first " +
			"waits for the end of a call that still runs. The first line says how the call ended, or that " +
			"it still runs.",
		schema: `{"type":"object","properties":{` + idSchema + `,` +
			`"stream":{"type":"string","enum":["stdout","stderr"],"description":"Default: stdout."},` +
			`"offset":{"type":"integer","minimum":0,"description":"Bytes to skip. Default: 0."},` +
			`"limit":{"type":"integer","minimum":1,"maximum":262144,"description":"Maximum number of ` +
			`bytes. Default: 16384."},` +
			`"wait_ms":{"type":"integer","minimum":0,"description":"How long to wait for the end of the ` +
			`call."}},"required":["id"],"additionalProperties":false}`,
	},
	{
		name: "write_stdin", run: (*Server).writeStdin,
		description: "Write to the standard input of a running call that was started with stdin_open.",
		schema: `{"type":"object","properties":{` + idSchema + `,` +
			`"text":{"type":"string","description":"The text to write."},` +
			`"eof":{"type":"boolean","description":"Close the standard input afterwards."}},` +
			`"required":["id"],"additionalProperties":false}`,
	},
	{
		name: "cancel_call", destructive: true, run: (*Server).cancelCall,
		description: "End a running call, or all of a session, and all processes that they started. A " +
			"call that has ended does not change.",
		schema: `{"type":"object","properties":{` + idSchema + `,` +
			`"session":{"type":"string","description":"The session whose calls to end, in place of id."}},` +
			`"additionalProperties":false}`,
	},
	{
		name: "list_calls", readOnly: true, run: (*Server).listCalls,
		description: "List your calls that still run.",
		schema: `{"type":"object","properties":{"session":{"type":"string","description":"Only calls ` +
			`of this session."}},"additionalProperties":false}`,
	},
}

func (s *Server) addOwnTools() {
	for _, t := range ownTools {
		open := false
		s.server.AddTool(&sdk.Tool{
			Name: t.name, Title: title(t.name), Description: t.description,
			InputSchema: json.RawMessage(t.schema),
			Annotations: &sdk.ToolAnnotations{
				Title: title(t.name), ReadOnlyHint: t.readOnly, DestructiveHint: &t.destructive,
				IdempotentHint: t.readOnly || t.destructive, OpenWorldHint: &open,
			},
		}, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			args, err := decodeOwn(req)
			if err != nil {
				return failure(err), nil
			}
			res, err := t.run(s, ctx, req, args)
			if err != nil && ctx.Err() == nil {
				return failure(err), nil
			}
			return res, err
		})
	}
}

// isOwn reports whether a name is that of a tool of this package, which hides a configured one.
func isOwn(name string) bool {
	return slices.ContainsFunc(ownTools, func(t ownTool) bool { return t.name == name })
}

// ownArguments are the arguments of all tools of this package.
type ownArguments struct {
	ID     string `json:"id"`
	Stream string `json:"stream"`
	Offset int64  `json:"offset"`
	Limit  int64  `json:"limit"`
	WaitMS int64  `json:"wait_ms"`
	Text   string `json:"text"`
	EOF    bool   `json:"eof"`
	// Session selects the calls of a session. Empty selects no session.
	Session string `json:"session"`
}

func (a *ownArguments) check() error {
	var pointer, problem string
	switch {
	case a.Stream != "stdout" && a.Stream != "stderr":
		pointer, problem = "/stream", "use stdout or stderr"
	case a.Offset < 0:
		pointer, problem = "/offset", "is negative"
	case a.Limit < 1 || a.Limit > maxRead:
		pointer, problem = "/limit", fmt.Sprintf("use 1 to %d", maxRead)
	case a.WaitMS < 0 || a.WaitMS > maxWait.Milliseconds():
		pointer, problem = "/wait_ms", fmt.Sprintf("use 0 to %d", maxWait.Milliseconds())
	default:
		return nil
	}
	e := dray.Errorf(dray.CodeInvalidInput, "invalid arguments").WithHint("see the input schema")
	e.Details = []dray.Detail{{Pointer: pointer, Message: problem}}
	return e
}

func decodeOwn(req *sdk.CallToolRequest) (ownArguments, error) {
	args := ownArguments{Stream: "stdout", Limit: defaultRead}
	if hasArguments(req.Params.Arguments) {
		if err := strictjson.Decode(req.Params.Arguments, &args); err != nil {
			return args, err
		}
	}
	err := args.check()
	return args, err
}

// readOutput returns a part of the retained output of a call.
func (s *Server) readOutput(ctx context.Context, req *sdk.CallToolRequest, args ownArguments,
) (*sdk.CallToolResult, error) {
	c, rec, err := s.cfg.Outputs.Find(ctx, principalOf(req), args.ID)
	if err != nil {
		return nil, err
	}
	if c != nil && args.WaitMS > 0 {
		defer reportProgress(ctx, req, c)()
		select {
		case <-c.Done():
		case <-time.After(time.Duration(args.WaitMS) * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		rec = c.Record()
	}
	stream := dray.Stdout
	if args.Stream == "stderr" {
		stream = dray.Stderr
	}
	part, err := s.cfg.Outputs.Part(c, rec, stream, args.Offset, args.Limit)
	if err != nil {
		return nil, err
	}
	return partResult(part), nil
}

func partResult(p call.OutputPart) *sdk.CallToolResult {
	outcome := callResult{ExitCode: p.ExitCode, Reason: p.Reason, Status: p.Status}.outcome()
	head := fmt.Sprintf("[%s · id %s · %s bytes %d to %d of %d]\n", outcome, p.ID, p.Stream, p.Offset,
		p.Next, p.Size)
	return &sdk.CallToolResult{
		Content:           []sdk.Content{&sdk.TextContent{Text: head + p.Text}},
		StructuredContent: p,
	}
}

// findRunning returns a call of a principal, which may just have ended. It fails with not_found,
// and with conflict for one that has long ended.
func (s *Server) findRunning(ctx context.Context, principal, id string) (*call.Call, error) {
	if c, ok := s.cfg.Calls.Find(id, principal); ok {
		return c, nil
	}
	if _, err := s.cfg.Outputs.Record(ctx, principal, id); err != nil {
		return nil, err
	}
	return nil, call.ErrCallEnded()
}

func (s *Server) writeStdin(ctx context.Context, req *sdk.CallToolRequest, args ownArguments,
) (*sdk.CallToolResult, error) {
	c, err := s.findRunning(ctx, principalOf(req), args.ID)
	if err != nil {
		return nil, err
	}
	pipe := c.Stdin()
	if pipe == nil {
		return nil, dray.Errorf(dray.CodeConflict, "the call was not started with stdin_open").
			WithHint("start it again with stdin_open: true")
	}
	written, err := pipe.Append(ctx, call.StdinAppend, []byte(args.Text), args.EOF)
	if err != nil {
		return nil, err
	}
	return message(map[string]any{"written": written}, "%d bytes written so far", written), nil
}

func (s *Server) cancelCall(ctx context.Context, req *sdk.CallToolRequest, args ownArguments,
) (*sdk.CallToolResult, error) {
	if (args.ID == "") == (args.Session == "") {
		return nil, dray.Errorf(dray.CodeInvalidInput, "name either a call or a session").
			WithHint("use id or session; list_calls has both")
	}
	if args.Session != "" {
		return s.cancelSession(ctx, principalOf(req), args.Session)
	}
	c, err := s.findRunning(ctx, principalOf(req), args.ID)
	if err != nil {
		return nil, err
	}
	c.Cancel(executor.ErrCancelled)
	select {
	case <-c.Done():
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	rec, err := c.FullRecord()
	if err != nil {
		return nil, err
	}
	res := endResult(rec, s.cfg.Current().View)
	res.IsError = false // the cancel succeeded
	return res, nil
}

func (s *Server) cancelSession(ctx context.Context, principal, session string,
) (*sdk.CallToolResult, error) {
	ids := []string{}
	for _, c := range s.cfg.Calls.CancelSession(ctx, principal, session) {
		ids = append(ids, c.ID())
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return message(map[string]any{"cancelled": ids}, "%d calls of session %s cancelled %s", len(ids),
		session, strings.Join(ids, " ")), nil
}

func (s *Server) listCalls(_ context.Context, req *sdk.CallToolRequest, args ownArguments,
) (*sdk.CallToolResult, error) {
	type runningCall struct {
		ID       string      `json:"id"`
		Tool     string      `json:"tool"`
		Status   dray.Status `json:"status"`
		Approval string      `json:"approval,omitempty"` // that it waits for
		Session  string      `json:"session,omitempty"`
		Input    string      `json:"input"` // its beginning
		Since    time.Time   `json:"started_at"`
	}
	list := []runningCall{}
	var b strings.Builder
	for _, c := range s.cfg.Calls.Active(principalOf(req)) {
		rec := c.Record()
		session := rec.Context.SessionID
		if args.Session != "" && session != args.Session {
			continue
		}
		input := textview.Prefix(string(rec.Input), maxListedInput)
		list = append(list, runningCall{
			rec.ID, rec.Tool, rec.Status, rec.Approval, session, input, rec.StartedAt,
		})
		fmt.Fprintf(&b, "%s %s %s, for %v", rec.ID, rec.Tool, rec.Status,
			time.Since(rec.StartedAt).Round(time.Second))
		if rec.Approval != "" {
			fmt.Fprintf(&b, ", waits for approval %s", rec.Approval)
		}
		if session != "" {
			fmt.Fprintf(&b, ", session %s", session)
		}
		fmt.Fprintf(&b, ": %s\n", input)
	}
	if len(list) == 0 {
		b.WriteString("no call is running")
	}
	return message(map[string]any{"calls": list}, "%s", b.String()), nil
}

func message(structured any, format string, args ...any) *sdk.CallToolResult {
	return &sdk.CallToolResult{
		Content:           []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}},
		StructuredContent: structured,
	}
}
