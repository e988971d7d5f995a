package tool

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python"
)

// pythonCall is a call of the tool python.
type pythonCall struct {
	dray.Call
	in           pythonInput
	key          python.Key
	sessions     *python.Sessions
	capabilities python.Capabilities
}

func (r *Registry) runPython(ctx context.Context, call dray.Call, sink dray.Sink,
) (dray.Result, error) {
	c, err := r.newPythonCall(call)
	if err != nil {
		return c.refused(err)
	}
	switch c.in.Operation {
	case opReset:
		return c.operate(sink, func(out *pythonOutput) (err error) {
			out.DiscardedState, err = c.sessions.Reset(ctx, c.key)
			return err
		})
	case opInterrupt:
		return c.operate(sink, func(out *pythonOutput) error {
			interrupted, err := c.sessions.Interrupt(c.key)
			out.Interrupted = &interrupted
			return err
		})
	case opStatus:
		return c.operate(sink, c.status)
	case opPrepare:
		return c.operate(sink, func(out *pythonOutput) error {
			return c.prepare(ctx, r.Python.Prepare, sink, out)
		})
	default:
		return r.execPython(ctx, c, sink)
	}
}

// newPythonCall decodes the input of a call and checks it against the runtime. It fails with
// unsupported if the runtime cannot do what the input asks for; nothing has run then (PY-01).
func (r *Registry) newPythonCall(call dray.Call) (pythonCall, error) {
	c := pythonCall{Call: call, sessions: r.Python.Sessions}
	var err error
	if c.in, err = decodePython(call.MappedInput); err != nil {
		return c, err
	}
	if c.sessions == nil {
		return c, dray.Errorf(dray.CodeUnsupported, "this daemon runs no Python sessions").
			WithHint("set python.runtime in the configuration")
	}
	c.key = python.Key{
		Principal: call.Invocation.Principal, Runtime: r.Python.runtime(c.in), Name: c.in.Session,
	}
	c.key.Environment = sessionEnvironmentID(call, c.key.Runtime)
	var known bool
	if c.capabilities, known = c.sessions.Runtimes()[c.key.Runtime]; !known {
		return c, dray.Errorf(dray.CodeUnsupported, "this daemon has no Python runtime %s",
			c.key.Runtime).WithHint("omit runtime: the configured one is %s", r.Python.Runtime)
	}
	if err = c.checkSupport(); err == nil {
		err = c.checkDir()
	}
	return c, err
}

// checkDir refuses a relative working directory. On the host it is relative to the workspace, and
// there may be none.
func (c *pythonCall) checkDir() error {
	if c.WorkDir == "" || path.IsAbs(c.WorkDir) {
		return nil
	}
	return dray.Errorf(dray.CodeBadCwd,
		"the working directory %s is relative, and the call names no workspace", c.WorkDir).
		WithHint("set cwd to an absolute path, or set workspace")
}

// sessionEnvironmentID returns what identifies the environment of a session, also after a restart
// of the daemon: the container of the call or, for the runtime pyodide, the host. Each workspace
// has its own sessions there; its calls share them whatever their working directory is (PY-17).
func sessionEnvironmentID(call dray.Call, runtime string) string {
	container := call.Environment.Capabilities().Container
	if runtime == python.RuntimePyodide || container == nil {
		return string(dray.KindHost) + ":" + cmp.Or(call.Invocation.Workspace, call.Route.Workspace)
	}
	return container.ID
}

// checkSupport fails with unsupported for what the runtime of the session does not support.
func (c *pythonCall) checkSupport() error {
	if c.Invocation.Terminal != nil {
		return c.unsupported("a terminal", "omit tty; for a REPL run python3 with the tool exec")
	}
	if c.Invocation.Leftovers == dray.KeepLeftovers {
		return c.unsupported("leftovers keep", "omit it: processes that code starts belong to the "+
			"session, and end with it")
	}
	for _, f := range pythonFeatures {
		if f.asks != nil && f.asks(c.in) && !f.has(c.capabilities) {
			return c.unsupported(f.name, f.hint)
		}
	}
	return nil
}

func (c *pythonCall) unsupported(what, hint string) error {
	return dray.Errorf(dray.CodeUnsupported, "the Python runtime %s does not support %s",
		c.key.Runtime, what).WithHint("%s", hint)
}

// refused returns the result of a call that the runtime does not support. Its output has the code 2
// of a wrong command line, as python3 has it (PY-13).
func (c *pythonCall) refused(err error) (dray.Result, error) {
	if c.in.Operation != opExec || dray.CodeOf(err) != dray.CodeUnsupported {
		return dray.Result{}, err
	}
	out := c.newOutput()
	out.fail(codeUsage, dray.AsError(err).Message)
	out.Error.Code = string(dray.CodeUnsupported)
	if slices.Contains(installers, c.in.Module) {
		out.Error.Code = python.CodeInstallUnsupported
	}
	return c.withOutput(dray.Result{}, out, err)
}

// installers are the modules that install packages (PY-12).
var installers = []string{"pip", "ensurepip", "micropip"}

// sessionEnvironment is the environment of a call whose process is code in a session.
type sessionEnvironment struct {
	dray.Environment
	call *pythonCall
	// options are those of the tool.
	options PythonOptions
	files   python.Workspace
	run     *python.Run // nil before Start
}

// Start starts the code.
func (e *sessionEnvironment) Start(ctx context.Context, spec dray.ProcessSpec) (dray.Process,
	error,
) {
	run, err := e.call.sessions.Start(ctx, e.call.key, e.Environment, python.CallSpec{
		Request: e.request(spec), Files: e.files, Permissions: e.call.in.Permissions,
	})
	if err != nil {
		return nil, err // a nil *Run is no nil Process
	}
	e.run = run
	return run, nil
}

// request returns what the worker gets, with what the code can ask the daemon for.
func (e *sessionEnvironment) request(spec dray.ProcessSpec) python.Request {
	req := e.call.request(spec, e.options.CPU)
	req.Services.Files = func(ctx context.Context) (dray.Files, error) {
		return e.files.Open(ctx, req.Cwd) // host.roots bounds what dray.read_text_file reads too
	}
	req.Services.CallTool = e.toolCaller()
	return req
}

func (e *sessionEnvironment) release() {
	if e.run != nil {
		e.run.Release()
	}
}

// request returns what the worker gets. Relative paths begin at the working directory of the call.
func (c *pythonCall) request(spec dray.ProcessSpec, cpu time.Duration) python.Request {
	env := maps.Clone(spec.Env)
	if env == nil {
		env = map[string]string{}
	}
	env[dray.EnvCallID] = spec.CallID
	in := c.in
	req := python.Request{
		Code: in.Code, Module: in.Module, Name: in.Name, Argv: in.Argv, Inputs: in.Inputs,
		Globals: in.Globals, State: in.State, Cwd: cmp.Or(spec.Dir, "/"), Env: env, CPU: cpu,
		ReadOnly: in.ReadOnly,
	}
	if in.File != "" {
		req.File = in.File
		if !path.IsAbs(in.File) {
			req.File = path.Join(req.Cwd, in.File)
		}
	}
	return req
}

// execPython runs code. The runner decides once whether the code or something else ended the call,
// and the output, the reason and the exit code follow from that (PY-21).
func (r *Registry) execPython(ctx context.Context, c pythonCall, sink dray.Sink,
) (dray.Result, error) {
	env := &sessionEnvironment{
		Environment: c.Environment, call: &c, options: r.Python, files: c.workspace(r.Transfer, r.Python),
	}
	defer env.release()
	call := c.Call
	call.Environment = env
	outcome, err := r.start(ctx, call, []string{"python"}, call.Stdin, sink)
	defer outcome.Release()
	res := outcome.Result
	out := c.newOutput()
	switch {
	case env.run != nil:
		res.Metadata.Fetches, res.Metadata.FetchesOmitted = env.run.Fetches()
		err = c.ended(ctx, env.run, &res, &out, err)
	case res.Reason != "":
		c.stopped(&res, &out)
	case errors.Is(err, python.ErrReset):
		err = c.lost(&res, &out, err)
	default:
		return res, err // the code was not run
	}
	return c.withOutput(res, out, err)
}

// ended sets the result and the output of code that ran. If the code ended its own process, the
// error is in the result and not returned, so that the breaker of the container does not count it.
func (c *pythonCall) ended(ctx context.Context, run *python.Run, res *dray.Result,
	out *pythonOutput, err error,
) error {
	info := run.Session()
	out.Generation, out.Restarted = info.Generation, info.Restarted
	out.DiscardedState = info.DiscardedState
	reply, ok := run.Reply()
	out.Usage = reply.Usage
	if !ok {
		out.Usage.WallMS = float64(res.ExecDuration.Microseconds()) / 1000
	}
	switch {
	case err != nil && run.Crashed():
		res.Error, res.Reason = dray.AsError(c.lost(res, out, err)), dray.ReasonUnavailable
	case err != nil:
		return c.lost(res, out, err)
	case res.Reason == dray.ReasonExited && ok && reply.CPULimit:
		c.cpuLimit(res, out)
	case res.Reason == dray.ReasonExited && ok:
		return c.exited(ctx, run, reply, res, out)
	default:
		c.stopped(res, out)
	}
	return nil
}

// The messages of runs that exceeded a budget (PY-06).
const (
	cpuMessage  = "CPU time limit exceeded"
	wallMessage = "wall time limit exceeded"
)

// The codes of runs that did not start or did not end by themselves.
const (
	codeUsage       = 2
	codeTimeout     = 124
	codeInterrupted = 130
	codeSignal      = 128 // plus the number of the signal
)

func (c *pythonCall) cpuLimit(res *dray.Result, out *pythonOutput) {
	res.Reason, res.ExitCode = dray.ReasonTimeout, nil
	res.Error = (&dray.Error{Message: cpuMessage}).
		WithHint("run it in parts, or raise python.cpu in the configuration")
	out.fail(codeTimeout, cpuMessage)
	c.warnLost(res)
}

// exited sets the outcome of code that ended by itself, and commits its files (PY-18).
func (c *pythonCall) exited(ctx context.Context, run *python.Run, reply python.Reply,
	res *dray.Result, out *pythonOutput,
) error {
	files, err := run.Commit(context.WithoutCancel(ctx))
	if err != nil {
		err = c.lost(res, out, err)
		if errors.Is(err, python.ErrReadOnly) {
			out.Error.Code = python.CodeAccess
		}
		return err
	}
	if c.capabilities.Transactional {
		out.Files = &files
	}
	res.Metadata.Changes = append(res.Metadata.Changes, files.Audit...)
	out.OK, out.Code = reply.OK, reply.Code
	out.Value, out.Missing = orNull(reply.Value), reply.Missing
	if reply.Globals != nil {
		out.Globals = reply.Globals
	}
	if e := reply.Error; e != nil {
		out.Error = &pythonError{e.Code, e.Message, c.rewritten(e.Traceback)}
		res.Error = &dray.Error{
			Code: closedCode(e.Code), Message: e.Message, Hint: failureHints[e.Code],
		}
		if res.Error.Code == dray.CodeBadCwd { // as for a program, nothing was started
			res.Reason, res.ExitCode = dray.ReasonStartFailed, nil
		}
	}
	return nil
}

// failureHints are the hints of errors that a worker reports, by code.
var failureHints = map[string]string{
	string(dray.CodeNotFound): "check the path of file: a relative one begins at the working " +
		"directory of the call",
	string(dray.CodeBadCwd): "use a cwd that exists and that the user may enter",
}

// closedCode returns a code of a reply if it is one of the closed list. The others are only in the
// output.
func closedCode(code string) dray.Code {
	switch code {
	case "", python.CodeAccess, python.CodeNoSystem, python.CodePayloadTooLarge,
		python.CodeInstallUnsupported:
		return ""
	default:
		return dray.Code(code)
	}
}

// stopped sets the output of code that did not end by itself but by a timeout, a cancel, a limit or
// a signal.
func (c *pythonCall) stopped(res *dray.Result, out *pythonOutput) {
	message := res.Error.Message // the runner sets an error with each of these reasons
	switch res.Reason {
	case dray.ReasonTimeout:
		message = wallMessage + ": " + message
		res.Error = withMessage(res.Error, message)
		out.fail(codeTimeout, message)
	case dray.ReasonIdleTimeout:
		out.fail(codeTimeout, message)
	case dray.ReasonSignalled:
		out.fail(codeSignal+res.Signal.Number, message)
	case dray.ReasonOOM:
		out.fail(codeSignal+9, message)
	default:
		out.fail(codeInterrupted, message)
	}
	c.warnLost(res)
}

func withMessage(e *dray.Error, message string) *dray.Error {
	changed := *e
	changed.Message = message
	return &changed
}

// warnLost warns that the session has lost its state if its process was killed. If the session goes
// on, processes of earlier calls may still run, and nothing proves that those of this call have
// ended: the keeper that kills them is a process of the same user. So survivors are unknown.
func (c *pythonCall) warnLost(res *dray.Result) {
	st, err := c.sessions.Status(c.key)
	if err == nil && st.StateLost {
		res.Metadata.Warnings = append(res.Metadata.Warnings, fmt.Sprintf(
			"the process of the Python session %q was killed: its variables are lost", c.key.Name))
		return
	}
	if kill := res.Metadata.Kill; kill != nil {
		kill.Survivors.Proven = false
	}
}

// lost sets the outcome of code whose end is unknown, and returns the error.
func (c *pythonCall) lost(res *dray.Result, out *pythonOutput, err error) error {
	e := dray.AsError(err)
	out.fail(1, e.Message)
	out.Error.Code = string(e.Code)
	if res.Reason = ""; errors.Is(err, python.ErrReset) {
		res.Reason = dray.ReasonCancelled
	}
	res.ExitCode, res.Signal, res.Error = nil, nil, nil
	return err
}

// rewritten returns a text with the paths of the caller, if the call asked for that.
func (c *pythonCall) rewritten(text string) string {
	if c.NewTextFilter == nil || text == "" {
		return text
	}
	var b bytes.Buffer
	filter := c.NewTextFilter(&b)
	_, _ = filter.Write([]byte(text)) // a buffer takes all
	_ = filter.Close()
	return b.String()
}
