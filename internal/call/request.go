package call

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path"
	"strings"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/strictjson"
	"github.com/dray-dev/dray/internal/validate"
)

const (
	maxInput       = 64 << 20 // bytes of a tool's input (EX-03)
	maxSyncPaths   = 1000
	maxSyncBytes   = 64 << 10 // bytes of these paths in total: each record of the call contains them
	maxLabels      = 64
	maxID          = 256            // bytes of an id of the context, or of the name of a label
	maxLabel       = 1024           // bytes of the value of a label
	maxEnv         = 6 << 20        // bytes of all variables: Linux starts no process with more
	maxTerminalDim = math.MaxUint16 // the kernel stores the size of a terminal in 16 bits
)

// Request is a call as its caller sends it: the JSON body of a call over HTTP.
type Request struct {
	// IdempotencyKey makes repeats of the request one call; nil for none. It is not part of the body.
	IdempotencyKey *string `json:"-"`
	// AwaitsApproval is [Prepared.AwaitsApproval]. It is not part of the body.
	AwaitsApproval bool `json:"-"`

	Tool         string                 `json:"tool" maxLength:"128" doc:"The tool's name, compared exactly."`
	Input        json.RawMessage        `json:"input,omitempty" doc:"A JSON object that the tool's input schema accepts. Default: {}."`
	Workspace    string                 `json:"workspace,omitempty" doc:"An absolute host directory."`
	Container    string                 `json:"container,omitempty" doc:"A container's name or id."`
	Environment  dray.EnvironmentChoice `json:"environment,omitempty" enum:"auto,host,container"`
	Cwd          string                 `json:"cwd,omitempty" doc:"A directory relative to the workspace, or an absolute host directory."`
	CwdIsDefault bool                   `json:"cwd_is_default,omitempty" doc:"With a session of exec or shell: cwd is only where the session begins. Its later commands start where the one before has left it."`
	Env          map[string]string      `json:"env,omitempty" doc:"Variables that are added to those of the environment."`
	LocalEnv     map[string]string      `json:"local_env,omitempty" doc:"The caller's values of ${localEnv:X}; neither stored nor logged."`
	Stdin        *string                `json:"stdin,omitempty" doc:"The tool's stdin, as text."`
	StdinBase64  *[]byte                `json:"stdin_base64,omitempty" doc:"The tool's stdin, as bytes."`
	StdinOpen    bool                   `json:"stdin_open,omitempty" doc:"The tool's stdin is written while the call runs."`
	TTY          *TerminalSize          `json:"tty,omitempty" doc:"Run the tool on a terminal of this size. All output is stdout."`
	Timeout      *float64               `json:"timeout_seconds,omitempty" exclusiveMinimum:"0" doc:"Maximum: limits.max_timeout."`
	IdleTimeout  *float64               `json:"idle_timeout_seconds,omitempty" exclusiveMinimum:"0" doc:"The longest time without output. Maximum: limits.max_timeout."`
	Context      dray.CallContext       `json:"context,omitzero"`
	Plan         dray.PlanRouting       `json:"plan,omitzero"`
	Mapping      dray.MappingMode       `json:"mapping,omitempty" enum:"schema,heuristic,none"`
	Paths        dray.PathsSide         `json:"paths,omitempty" enum:"host,container" doc:"Whose paths the caller writes and reads. host: the host's; rewrite_text is then true unless the call says otherwise. container: the container's; nothing is mapped, cwd is relative to the container's workspace folder or a path of the container, and the call cannot run on the host. Default: the host's, and rewrite_text is the tool's own."`
	OnDisconnect string                 `json:"on_disconnect,omitempty" enum:"cancel,continue" doc:"Whether the call is cancelled when its client disconnects."`
	Leftovers    dray.Leftovers         `json:"leftovers,omitempty" enum:"kill,keep" doc:"Processes that the tool leaves running when it exits: kill (default) ends them, keep leaves them running and records them."`
	OnSlowReader string                 `json:"on_slow_reader,omitempty" enum:"skip,wait" doc:"For a response that is a stream. skip (default): output that is not read in time is sent only as far as it is retained. wait: the tool waits for this reader, unless the reader stalls for 30 s."`
	RewriteText  *bool                  `json:"rewrite_text,omitempty" doc:"Whether paths in the tool's output, and in files that it reads for the caller, are rewritten to the caller's, and the caller's paths in arguments and commands to the container's. Default: true if paths is host, else the tool's own."`
	Sync         []string               `json:"sync,omitempty" maxItems:"1000" doc:"Files and directories that are fetched into the sandbox root when the call ends: the caller's paths, the environment's, or relative to the working directory."`
}

// Values of on_disconnect and on_slow_reader.
const (
	DisconnectCancel   = "cancel"
	DisconnectContinue = "continue"
	SlowReaderSkip     = "skip"
	SlowReaderWait     = "wait"
)

// invocation returns the invocation of a valid request and adds the violations of an invalid one.
func (r *Request) invocation(v *validate.Violations, maxTimeout time.Duration) dray.Invocation {
	r.checkStdin(v)
	validate.OneOf(v, "/on_disconnect", r.OnDisconnect, DisconnectCancel, DisconnectContinue)
	validate.OneOf(v, "/on_slow_reader", r.OnSlowReader, SlowReaderSkip, SlowReaderWait)
	if r.TTY != nil && r.RewriteText != nil && *r.RewriteText {
		v.Add("/rewrite_text", "cannot be used with tty: rewritten text would not fit the layout "+
			"of the terminal")
	}
	r.checkPaths(v)
	checkSyncPaths(v, "/sync", r.Sync)
	checkVariables(v, "/env", r.Env)
	checkVariables(v, "/local_env", r.LocalEnv)
	checkContext(v, r.Context)
	return dray.Invocation{
		Tool:      validate.ToolName(v, "/tool", r.Tool),
		Input:     r.input(v),
		Workspace: validate.AbsolutePath(v, "/workspace", r.Workspace),
		Container: validate.ContainerName(v, "/container", r.Container),
		Environment: validate.OneOf(v, "/environment", r.Environment,
			dray.ChooseAuto, dray.ChooseHost, dray.ChooseContainer),
		Cwd: workDir(v, "/cwd", r.Cwd), CwdIsDefault: r.CwdIsDefault,
		Env:         r.Env,
		LocalEnv:    r.LocalEnv,
		Timeout:     timeout(v, "/timeout_seconds", r.Timeout, maxTimeout),
		IdleTimeout: timeout(v, "/idle_timeout_seconds", r.IdleTimeout, maxTimeout),
		Mapping: validate.OneOf(v, "/mapping", r.Mapping,
			dray.MapSchema, dray.MapHeuristic, dray.MapNone),
		Leftovers: validate.OneOf(v, "/leftovers", r.Leftovers,
			dray.KillLeftovers, dray.KeepLeftovers),
		Paths:       validate.OneOf(v, "/paths", r.Paths, dray.PathsOfHost, dray.PathsOfContainer),
		Terminal:    r.TTY.Size(v, "/tty"),
		RewriteText: r.RewriteText,
		Sync:        r.Sync,
		Context:     r.Context,
		Plan: dray.PlanRouting{
			Override: routingTarget(v, "/plan/override", r.Plan.Override),
			Fallback: routingTarget(v, "/plan/fallback", r.Plan.Fallback),
		},
	}
}

// checkPaths refuses a mapping of paths that are the container's already.
func (r *Request) checkPaths(v *validate.Violations) {
	if r.Paths != dray.PathsOfContainer {
		return
	}
	if r.RewriteText != nil && *r.RewriteText {
		v.Add("/rewrite_text", "cannot be true with paths container: no path is rewritten")
	}
	if r.Mapping != "" && r.Mapping != dray.MapNone {
		v.Add("/mapping", "cannot be %s with paths container: no path is mapped", r.Mapping)
	}
}

// checkStdin allows one source of stdin.
func (r *Request) checkStdin(v *validate.Violations) {
	switch {
	case r.Stdin != nil && r.StdinBase64 != nil:
		v.Add("/stdin_base64", "cannot be used with stdin")
	case r.StdinOpen && (r.Stdin != nil || r.StdinBase64 != nil):
		v.Add("/stdin_open", "cannot be used with stdin or stdin_base64: "+
			"write all of stdin while the call runs")
	}
}

func (r *Request) hasStdin() bool { return r.Stdin != nil || r.StdinBase64 != nil || r.StdinOpen }

func (r *Request) stdin() io.Reader {
	switch {
	case r.Stdin != nil:
		return strings.NewReader(*r.Stdin)
	case r.StdinBase64 != nil:
		return bytes.NewReader(*r.StdinBase64)
	default:
		return nil
	}
}

func (r *Request) input(v *validate.Violations) json.RawMessage {
	switch {
	case len(r.Input) == 0:
		return json.RawMessage("{}")
	case r.Input[0] != '{':
		v.Add("/input", "the input is not a JSON object")
	case len(r.Input) > maxInput:
		v.Add("/input", "the input has %d bytes, the maximum is %d", len(r.Input), maxInput)
	}
	return r.Input
}

// TerminalSize is the size of a terminal in a request. Both members are required.
type TerminalSize struct {
	Columns int64 `json:"columns" minimum:"1" maximum:"65535" doc:"Characters in a row."`
	Rows    int64 `json:"rows" minimum:"1" maximum:"65535"`
}

// Size checks the size and returns it, nil for nil.
func (t *TerminalSize) Size(v *validate.Violations, pointer string) *dray.TerminalSize {
	if t == nil {
		return nil
	}
	checkTerminalDim(v, pointer+"/columns", t.Columns)
	checkTerminalDim(v, pointer+"/rows", t.Rows)
	return &dray.TerminalSize{Columns: uint16(t.Columns), Rows: uint16(t.Rows)} //nolint:gosec // a request with violations is not used
}

func checkTerminalDim(v *validate.Violations, pointer string, n int64) {
	if n < 1 || n > maxTerminalDim {
		v.Add(pointer, "%d is not in the range 1 to %d", n, maxTerminalDim)
	}
}

// routingTarget checks a value of a plan: host, the name of a container, or a workspace directory.
func routingTarget(v *validate.Violations, pointer, s string) string {
	if strings.HasPrefix(s, "/") {
		return validate.AbsolutePath(v, pointer, s)
	}
	return validate.ContainerName(v, pointer, s)
}

// workDir checks a relative or absolute directory and returns it cleaned, "" for the workspace
// itself.
func workDir(v *validate.Violations, pointer, s string) string {
	if validate.IsBlank(s) {
		return ""
	}
	if problem := validate.PathProblem(s); problem != "" {
		v.Add(pointer, "%s", problem)
	}
	if s = path.Clean(s); s == "." {
		return ""
	}
	return s
}

// checkSyncPaths checks paths that are passed on unchanged: the tool finds out later whether one is
// the host's or the container's.
func checkSyncPaths(v *validate.Violations, pointer string, paths []string) {
	if len(paths) > maxSyncPaths {
		v.Add(pointer, "there are %d paths, the maximum is %d", len(paths), maxSyncPaths)
		return
	}
	total := 0
	for i, p := range paths {
		total += len(p)
		at := fmt.Sprintf("%s/%d", pointer, i)
		if p == "" {
			v.Add(at, "the path is empty")
		} else if problem := validate.PathProblem(p); problem != "" {
			v.Add(at, "%s", problem)
		}
	}
	if total > maxSyncBytes {
		v.Add(pointer, "the paths have %d bytes in total, the maximum is %d", total, maxSyncBytes)
	}
}

// checkVariables checks the names and values of environment variables.
func checkVariables(v *validate.Violations, pointer string, env map[string]string) {
	total := 0
	for name, value := range env {
		total += len(name) + len(value)
		at := dray.JSONPointer(pointer, validate.Quote(name))
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			v.Add(at, "invalid variable name %q: it is empty or contains '=' or NUL",
				validate.Quote(name))
		case strings.ContainsRune(value, 0):
			v.Add(at, "the value contains a NUL character")
		}
	}
	if total > maxEnv {
		v.Add(pointer, "the variables have %d bytes in total, the maximum is %d", total, maxEnv)
	}
}

// timeout checks a number of seconds, which must be positive and at most limit. It is rounded up to
// nanoseconds. nil is 0.
func timeout(v *validate.Violations, pointer string, s *float64,
	limit time.Duration,
) time.Duration {
	if s == nil {
		return 0
	}
	ns := math.Ceil(*s * float64(time.Second))
	switch {
	case *s <= 0:
		v.Add(pointer, "%v is not positive: omit the member for the default", *s)
	case ns > float64(limit):
		v.Add(pointer, "%v is more than limits.max_timeout (%v seconds)", *s, limit.Seconds())
	default:
		return time.Duration(ns)
	}
	return 0
}

// checkContext bounds the recorded context of a call, which dray does not interpret.
func checkContext(v *validate.Violations, c dray.CallContext) {
	validate.Text(v, "/context/plan_id", c.PlanID, maxID)
	validate.Text(v, "/context/session_id", c.SessionID, maxID)
	validate.Text(v, "/context/sandbox_id", c.SandboxID, maxID)
	if len(c.Labels) > maxLabels {
		v.Add("/context/labels", "there are %d labels, the maximum is %d", len(c.Labels), maxLabels)
		return
	}
	for name, value := range c.Labels {
		at := dray.JSONPointer("/context/labels", validate.Quote(name))
		validate.Text(v, at, name, maxID)
		validate.Text(v, at, value, maxLabel)
	}
}

// syncTool is the tool of every sync.
const syncTool = "sync"

// SyncRequest is a sync as its caller sends it: the JSON body of POST /v1/sync.
type SyncRequest struct {
	Workspace   string            `json:"workspace,omitempty" doc:"An absolute host directory."`
	Container   string            `json:"container,omitempty" doc:"A container's name or id."`
	Paths       []string          `json:"paths" minItems:"1" maxItems:"1000" doc:"Files and directories: the container's own paths, or the caller's."`
	Destination string            `json:"destination,omitempty" doc:"A directory below the sandbox root, or below the container's workspace folder. It is created if it does not exist."`
	DryRun      bool              `json:"dry_run,omitempty" doc:"Report what would be done, and write nothing."`
	OnRefused   string            `json:"on_refused,omitempty" enum:"fail,skip" doc:"fail (default): nothing is written if one path is refused. skip: the other paths are written."`
	Direction   Direction         `json:"direction,omitempty" enum:"to_host,to_container" doc:"Default: to_host."`
	Context     dray.CallContext  `json:"context,omitzero"`
	LocalEnv    map[string]string `json:"local_env,omitempty" doc:"The caller's values of ${localEnv:X}; neither stored nor logged."`
}

// Direction is the side that files are written to, or that paths are mapped to.
type Direction string

// The directions.
const (
	ToHost      Direction = "to_host"
	ToContainer Direction = "to_container"
)

// syncInput is the recorded input of a sync.
type syncInput struct {
	Paths       []string  `json:"paths"`
	Destination string    `json:"destination,omitzero"`
	DryRun      bool      `json:"dry_run,omitzero"`
	OnRefused   string    `json:"on_refused,omitzero"`
	Direction   Direction `json:"direction,omitzero"`
}

// PrepareSync validates a sync of principal and routes it, as Prepare does for a call. check
// accepts only inputs that the schema of the tool accepts.
func (in *Intake) PrepareSync(ctx context.Context, principal string, req *SyncRequest) (*Prepared,
	error,
) {
	var v validate.Violations
	inv := req.invocation(&v)
	inv.Principal = principal
	if err := v.Err(); err != nil {
		return nil, err
	}
	input, err := strictjson.Encode(syncInput{
		req.Paths, req.Destination, req.DryRun, req.OnRefused, req.Direction,
	})
	if err != nil {
		return nil, dray.Errorf(dray.CodeInternal, "encode the input of tool %s: %w", syncTool, err)
	}
	inv.Input = input
	tool, err := in.Tools.Get(ctx, syncTool)
	if err != nil {
		return nil, err
	}
	redactor := in.redactor(inv, tool)
	p, err := in.route(ctx, inv, tool)
	if err != nil {
		return nil, redactor.Error(err)
	}
	p.Redactor = redactor
	return p, nil
}

func (r *SyncRequest) invocation(v *validate.Violations) dray.Invocation {
	r.check(v)
	checkVariables(v, "/local_env", r.LocalEnv)
	checkContext(v, r.Context)
	inv := dray.Invocation{
		Tool:      syncTool,
		Workspace: validate.AbsolutePath(v, "/workspace", r.Workspace),
		Container: validate.ContainerName(v, "/container", r.Container),
		Context:   r.Context,
		LocalEnv:  r.LocalEnv,
	}
	if r.Container == "" {
		inv.Environment = dray.ChooseContainer
	}
	return inv
}

// check checks what is particular to a sync. The tool decides about each path by itself.
func (r *SyncRequest) check(v *validate.Violations) {
	if validate.IsBlank(r.Workspace) && validate.IsBlank(r.Container) {
		v.Add("/workspace", "a workspace or a container is required")
	}
	validate.OneOf(v, "/on_refused", r.OnRefused, "fail", "skip")
	validate.OneOf(v, "/direction", r.Direction, ToHost, ToContainer)
	validate.Text(v, "/destination", r.Destination, validate.MaxPath)
	if len(r.Paths) == 0 || len(r.Paths) > maxSyncPaths {
		v.Add("/paths", "a list of 1 to %d paths is required", maxSyncPaths)
		return
	}
	for i, p := range r.Paths {
		if p == "" || len(p) > validate.MaxPath {
			v.Add(fmt.Sprintf("/paths/%d", i), "the path must have 1 to %d bytes", validate.MaxPath)
		}
	}
}

// SyncReport returns the report of a sync that succeeded. Otherwise it returns the report as far as
// there is one, and the error of the sync. Its code is that of the call; an end without a code gets
// the nearest one.
func SyncReport(rec dray.Record) (*dray.SyncReport, error) {
	report := rec.Metadata.Sync
	if rec.Status == dray.StatusSucceeded && report != nil {
		return report, nil
	}
	if rec.Error == nil {
		return report, dray.Errorf(dray.CodeInternal, "the sync ended without a report").
			WithHint("see GET /v1/invocations/%s", rec.ID)
	}
	e := *rec.Error
	switch {
	case report != nil && report.State == dray.SyncRefused:
		e.Code = dray.CodeSyncRefused
	case e.Code == "" && rec.Reason == dray.ReasonTimeout:
		e.Code = dray.CodeLimitExceeded
	case e.Code == "":
		e.Code = dray.CodeTransferFailed
	}
	if e.Message == "" {
		e.Message = "the sync ended: " + string(rec.Reason)
	}
	if e.Hint == "" {
		e.Hint = fmt.Sprintf("repeat the sync; see GET /v1/invocations/%s for this one", rec.ID)
	}
	return report, &e
}
