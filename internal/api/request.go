package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call"
)

// callRequest is the body of a call.
type callRequest struct {
	Tool        string                 `json:"tool" maxLength:"128" doc:"The tool's name, compared exactly."`
	Input       json.RawMessage        `json:"input,omitempty" doc:"A JSON object that the tool's input schema accepts. Default: {}."`
	Workspace   string                 `json:"workspace,omitempty" doc:"An absolute host folder."`
	Container   string                 `json:"container,omitempty" doc:"A container's name or id."`
	Environment dray.EnvironmentChoice `json:"environment,omitempty" enum:"auto,host,container"`
	Cwd         string                 `json:"cwd,omitempty" doc:"A folder relative to the workspace, or an absolute host folder."`
	Env         map[string]string      `json:"env,omitempty" doc:"Variables laid over those of the environment."`
	LocalEnv    map[string]string      `json:"local_env,omitempty" doc:"The caller's values of ${localEnv:X}; neither stored nor logged."`
	Stdin       *string                `json:"stdin,omitempty" doc:"What the tool reads, as text."`
	StdinBase64 *[]byte                `json:"stdin_base64,omitempty" doc:"What the tool reads, as bytes."`
	StdinOpen   bool                   `json:"stdin_open,omitempty" doc:"The tool's stdin is written to while it runs."`
	TTY         *terminalBody          `json:"tty,omitempty" doc:"A terminal of that size instead of three pipes. What the tool prints is stdout alone."`
	Timeout     *float64               `json:"timeout_seconds,omitempty" exclusiveMinimum:"0" doc:"At most limits.max_timeout."`
	IdleTimeout *float64               `json:"idle_timeout_seconds,omitempty" exclusiveMinimum:"0" doc:"The longest silence; at most limits.max_timeout."`
	Context     dray.CallContext       `json:"context,omitzero"`
	Plan        dray.PlanRouting       `json:"plan,omitzero"`
	Mapping     dray.MappingMode       `json:"mapping,omitempty" enum:"schema,heuristic,none"`
	// OnDisconnect says what becomes of the call when its client goes away.
	OnDisconnect string `json:"on_disconnect,omitempty" enum:"cancel,continue"`
	// Leftovers says what becomes of processes that the tool leaves running.
	Leftovers dray.Leftovers `json:"leftovers,omitempty" enum:"kill,keep" doc:"Processes that the tool leaves running when it exits: kill (default) ends them, keep leaves them to the environment and records them."`
	// OnSlowReader says whether the tool waits for the stream that is the answer, as it would for a
	// pipe.
	OnSlowReader string `json:"on_slow_reader,omitempty" enum:"skip,wait" doc:"For an answer that is a stream. skip (default): the tool waits for nobody, and what is not read in time is sent as far as it is kept. wait: the tool waits for this one reader, unless that stands still for 30 s."`
	RewriteText  *bool  `json:"rewrite_text,omitempty" doc:"Whether paths in what the tool prints, and in files that it reads for the caller, are rewritten to the caller's. Default: the tool's own."`
	// Sync are paths to bring home when the call ends.
	Sync []string `json:"sync,omitempty" maxItems:"1000" doc:"Files and folders to bring home into the sandbox root when the call ends: the caller's paths, the environment's, or relative to the working folder."`
}

const (
	onDisconnectContinue = "continue"
	onDisconnectCancel   = "cancel"
	onSlowReaderWait     = "wait"
)

// decodeCall reads and validates the body of a call, as far as that is possible without knowing the
// tool.
func (s *Server) decodeCall(w http.ResponseWriter, r *http.Request) (*callRequest, dray.Invocation,
	error,
) {
	if err := refuseIdempotencyKey(r); err != nil {
		return nil, dray.Invocation{}, err
	}
	var b callRequest
	if err := s.decode(w, r, &b); err != nil {
		return nil, dray.Invocation{}, err
	}
	var m violations
	inv := b.invocation(&m, s.cfg.MaxTimeout)
	inv.Principal = principal(r)
	return &b, inv, m.err()
}

// refuseIdempotencyKey refuses the header of those who would repeat a call and take it for one.
func refuseIdempotencyKey(r *http.Request) error {
	if _, ok := r.Header["Idempotency-Key"]; ok {
		return invalid("", "Idempotency-Key is not supported yet").
			WithHint("leave the header out; a repeat is a second call")
	}
	return nil
}

// invocation makes the invocation, with every mistake told.
func (b *callRequest) invocation(m *violations, maxTimeout time.Duration) dray.Invocation {
	b.checkStdin(m)
	oneOf(m, "/on_disconnect", b.OnDisconnect, onDisconnectCancel, onDisconnectContinue)
	oneOf(m, "/on_slow_reader", b.OnSlowReader, "skip", onSlowReaderWait)
	if b.TTY != nil && b.RewriteText != nil && *b.RewriteText {
		m.add("/rewrite_text",
			"what a program prints on a terminal is not rewritten: it would not fit where the program puts it")
	}
	return dray.Invocation{
		Tool:      toolName(m, "/tool", b.Tool),
		Input:     b.input(m),
		Workspace: absolutePath(m, "/workspace", b.Workspace),
		Container: containerName(m, "/container", b.Container),
		Environment: oneOf(m, "/environment", b.Environment, dray.ChooseAuto, dray.ChooseHost,
			dray.ChooseContainer),
		Cwd:         workingFolder(m, "/cwd", b.Cwd),
		Env:         variables(m, "/env", b.Env),
		LocalEnv:    variables(m, "/local_env", b.LocalEnv),
		Timeout:     seconds(m, "/timeout_seconds", b.Timeout, maxTimeout),
		IdleTimeout: seconds(m, "/idle_timeout_seconds", b.IdleTimeout, maxTimeout),
		Mapping:     oneOf(m, "/mapping", b.Mapping, dray.MapSchema, dray.MapHeuristic, dray.MapNone),
		Leftovers:   oneOf(m, "/leftovers", b.Leftovers, dray.KillLeftovers, dray.KeepLeftovers),
		Terminal:    b.TTY.size(m, "/tty"),
		RewriteText: b.RewriteText,
		Sync:        namedPaths(m, "/sync", b.Sync, maxSync),
		Context:     callContext(m, b.Context),
		Plan: dray.PlanRouting{
			Override: routingTarget(m, "/plan/override", b.Plan.Override),
			Fallback: routingTarget(m, "/plan/fallback", b.Plan.Fallback),
		},
	}
}

// checkStdin allows one source of stdin. A text and more to follow would have to be one stream,
// which nothing says.
func (b *callRequest) checkStdin(m *violations) {
	switch {
	case b.Stdin != nil && b.StdinBase64 != nil:
		m.add("/stdin_base64", "stdin and stdin_base64 exclude each other")
	case b.StdinOpen && (b.Stdin != nil || b.StdinBase64 != nil):
		m.add("/stdin_open",
			"stdin_open excludes stdin and stdin_base64: write all of it while the call runs")
	}
}

func (b *callRequest) hasStdin() bool {
	return b.Stdin != nil || b.StdinBase64 != nil ||
		b.StdinOpen
}

// maxInput is what a tool gets at most, in bytes (EX-03).
const maxInput = 64 << 20

func (b *callRequest) input(m *violations) json.RawMessage {
	switch {
	case b.Input == nil:
		return json.RawMessage("{}")
	case b.Input[0] != '{':
		m.add("/input", "the input is not a JSON object")
	case len(b.Input) > maxInput:
		m.add("/input", "the input has %d bytes, and %d are the most", len(b.Input), maxInput)
	}
	return b.Input
}

func (b *callRequest) stdin() io.Reader {
	switch {
	case b.Stdin != nil:
		return strings.NewReader(*b.Stdin)
	case b.StdinBase64 != nil:
		return bytes.NewReader(*b.StdinBase64)
	default:
		return nil
	}
}

// newStartRequest holds the call against its tool and the routes. What is wrong here is wrong with
// the request, and nothing is accepted.
func (s *Server) newStartRequest(ctx context.Context, b *callRequest,
	inv dray.Invocation,
) (call.StartRequest, error) {
	tool, err := s.cfg.Tools.Get(inv.Tool)
	if err != nil {
		return call.StartRequest{}, err
	}
	if b.hasStdin() && !tool.AcceptsStdin {
		return call.StartRequest{}, invalid("/tool", "the tool %s takes no stdin of the caller's",
			inv.Tool).WithHint("give it everything in its input")
	}
	// there is nobody at the terminal, or it would show the input and cut it into lines
	if inv.Terminal != nil && !tool.AcceptsStdin {
		return call.StartRequest{}, invalid("/tty",
			"the tool %s runs on no terminal: it starts no process, or its input comes on stdin", inv.Tool).
			WithHint("leave tty out, or run the program with exec or shell")
	}
	if err := tool.CheckInput(inv.Input); err != nil {
		return call.StartRequest{}, err
	}
	route, err := s.checkRoute(ctx, inv, tool)
	if err != nil {
		return call.StartRequest{}, err
	}
	return call.StartRequest{
		Invocation: inv, Tool: tool, Route: route, Stdin: b.stdin(), StdinOpen: b.StdinOpen,
		BlockOnReader: b.OnSlowReader == onSlowReaderWait,
	}, nil
}

// checkRoute refuses a call whose own demands contradict each other, be it that its container is
// not its workspace's. A place that is not there is another matter: it ends the call. The route is
// the zero value where there is none.
func (s *Server) checkRoute(ctx context.Context, inv dray.Invocation,
	tool *dray.Tool,
) (dray.Route, error) {
	route, err := s.cfg.Router.Route(inv, tool.Environment)
	if err == nil && inv.Container != "" && inv.Workspace != "" {
		err = s.cfg.Places.CheckRoute(ctx, route, inv, tool)
	}
	switch dray.CodeOf(err) {
	case dray.CodeInvalidRequest, dray.CodeInvalidInput, dray.CodeRouteConflict, dray.CodeUnknownTool:
		return dray.Route{}, err
	case "":
		return route, nil
	default:
		return dray.Route{}, nil
	}
}
