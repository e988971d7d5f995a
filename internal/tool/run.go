package tool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
)

// processTool returns a built-in tool that starts a process: command returns its argv and, for an
// input that names a session, how it runs there. text is the member of the input that the argv
// consists of.
func processTool[In any](r *Registry, name string, command func(In) ([]string, sessionCall),
	text string,
) *definition {
	run := func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
		var in In
		if err := read(call.MappedInput, &in); err != nil {
			return dray.Result{}, fmt.Errorf("decode the input of %s: %w", name, err)
		}
		argv, inSession := command(in)
		if inSession.Session != "" {
			return r.runInSession(ctx, call, inSession, sink)
		}
		outcome, err := r.start(ctx, call, argv, call.Stdin, sink)
		defer outcome.Release()
		return outcome.Result, err
	}
	return &definition{
		Tool: dray.Tool{
			Name: name, StartsProcess: true, AcceptsStdin: true, SessionOf: sessionOf,
		},
		run:   r.fetchOutputs(run),
		paths: pathRules{texts: []string{text}},
	}
}

// Command is the program of a command tool.
type Command struct {
	// Argv is the program and its arguments. Elements take values of the input: ${input.NAME}.
	Argv []string
	// Stdin is StdinInput or StdinNone. Empty is none if Argv takes a value of the input, else input.
	Stdin string
	// Env are variables of the process. They take precedence over those of the call.
	Env map[string]string
	// SuccessCodes are the exit codes of calls that succeeded. Empty is 0.
	SuccessCodes []int
	// JSONOutput makes stdout, which is JSON, the output of the tool.
	JSONOutput bool
}

// The values of Command.Stdin.
const (
	StdinInput = "input" // one JSON object, then end of file (EX-03)
	StdinNone  = "none"
)

// commandDefinition is a command tool with its parsed argv.
type commandDefinition struct {
	*definition
	Command

	argv argvTemplate
}

// command returns a configured tool, or what is invalid in its declaration.
func (r *Registry) command(t dray.Tool, c Command) (*definition, []Violation) {
	t.StartsProcess = true
	t.Definition = definitionDigest(t, c)
	d := &definition{Tool: t}
	found := d.compile()
	if len(t.OutputSchema) > 0 && !c.JSONOutput {
		found = append(found, Violation{
			"output_schema", "has no effect, because output is text",
			"set output to json, or remove output_schema",
		})
	}
	argv, invalid := parseArgv(c.Argv, d.InputSchema)
	if found = append(found, invalid...); len(found) > 0 {
		return d, found
	}
	if c.Stdin == "" {
		c.Stdin = StdinInput
		if argv.takesInput() {
			c.Stdin = StdinNone
		}
	}
	d.paths.texts = argv.members()
	tool := &commandDefinition{d, c, argv}
	d.check = func(input json.RawMessage) []dray.Detail {
		_, details := tool.argv.expand(input)
		return details
	}
	d.Program = func(input json.RawMessage) (argv, variables []string) {
		argv, _ = tool.argv.expand(input)
		return argv, slices.Sorted(maps.Keys(c.Env))
	}
	d.run = r.fetchOutputs(func(ctx context.Context, call dray.Call, sink dray.Sink,
	) (dray.Result, error) {
		return tool.run(ctx, r, call, sink)
	})
	return d, nil
}

// definitionDigest returns a digest of what a command tool runs.
func definitionDigest(t dray.Tool, c Command) string {
	// strings, numbers and lists of them always have a JSON form
	text, _ := json.Marshal([]any{c, t.Results, t.InWorkspace, t.Workspace})
	return digest(text)
}

func (t *commandDefinition) run(ctx context.Context, r *Registry, call dray.Call, sink dray.Sink,
) (dray.Result, error) {
	argv, details := t.argv.expand(call.MappedInput)
	if len(details) > 0 {
		return dray.Result{}, t.inputError(details)
	}
	var stdin io.Reader
	if t.Stdin == StdinInput {
		stdin = bytes.NewReader(call.MappedInput)
	}
	env := maps.Clone(call.Invocation.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, t.Env)
	call.Invocation.Env = env
	outcome, err := r.start(ctx, call, argv, stdin, sink)
	defer outcome.Release()
	res := outcome.Result
	t.judgeExit(&res)
	// without a report of its end no process was started
	if !t.JSONOutput || res.Metadata.Kill == nil {
		return res, err
	}
	res, readErr := t.withOutput(res, outcome.Stdout())
	return res, cmp.Or(err, readErr)
}

// judgeExit decides by the exit code of a program that ended by itself whether the call succeeded.
// The error of a failure begins with the code (RT-14).
func (t *commandDefinition) judgeExit(res *dray.Result) {
	if res.Reason != dray.ReasonExited {
		return
	}
	code := *res.ExitCode
	if slices.Contains(t.SuccessCodes, code) || len(t.SuccessCodes) == 0 && code == 0 {
		res.Error, res.ExitAccepted = nil, true
		return
	}
	message := fmt.Sprintf("exit code %d", code)
	if res.Error != nil && res.Error.Message != "" {
		message += ": " + res.Error.Message
	}
	res.Error = &dray.Error{Message: message}
}

func (r *Registry) start(ctx context.Context, call dray.Call, argv []string, stdin io.Reader,
	sink dray.Sink,
) (executor.Outcome, error) {
	inv := call.Invocation
	spec := dray.ProcessSpec{
		Argv: argv, Env: withContext(inv), Dir: call.WorkDir, RealDir: call.RealDir,
		Terminal:      inv.Terminal,
		KeepLeftovers: inv.Leftovers == dray.KeepLeftovers, CallID: inv.ID,
	}
	opts := executor.Options{
		ID: inv.ID, Stdin: stdin, Control: call.Control, Rewrite: call.NewTextFilter,
		Redact: call.NewRedaction,
		Idle:   cmp.Or(inv.IdleTimeout, r.IdleTimeout),
	}
	return r.Processes.Run(ctx, call.Environment, spec, opts, sink)
}

// withContext returns the variables of a call with those of its context, which the call cannot
// replace.
func withContext(inv dray.Invocation) map[string]string {
	env := inv.Env
	for _, v := range inv.Context.Variables() {
		env = maps.Clone(env) // the record has the caller's
		if env == nil {
			env = map[string]string{}
		}
		env[v[0]] = v[1]
	}
	return env
}

// withOutput reads stdout as the output of a tool, whichever way the call ended (CA-06). A process
// that exited by itself and whose output violates the output schema has failed with output_invalid.
func (d *definition) withOutput(res dray.Result, stdout *capture.Capture) (dray.Result, error) {
	captured := stdout.Open()
	defer captured.Close()
	output, cause, err := parseOutput(captured, res.Stdout)
	if err != nil {
		return res, err
	}
	res.Output = output
	if cause != nil && cause.tooDeep {
		// the output stays raw, and the mapping report says so (PM-08)
		detail := dray.Detail{Pointer: "/output", Message: cause.message}
		res.Metadata.Mapping = &dray.MappingReport{Errors: []dray.Detail{detail}}
	}
	if d.output != nil && res.Error == nil && res.Reason == dray.ReasonExited {
		res.Error = d.checkOutput(output, cause)
	}
	return res, nil
}

// checkOutput returns how an output violates the output schema, or nil. Stdout that is not JSON
// violates every schema; cause is its syntax error.
func (d *definition) checkOutput(output json.RawMessage, cause *syntaxError) *dray.Error {
	var details []dray.Detail
	if cause != nil {
		details = violation("/output"+cause.pointer, cause.Error())
	} else {
		details = d.output.violations(output, "/output")
	}
	if len(details) == 0 {
		return nil
	}
	e := dray.Errorf(dray.CodeOutputInvalid,
		"output of tool %s does not match its output_schema: %s: %s",
		d.Name, details[0].Pointer, details[0].Message)
	e.Details = details
	return e.WithHint("fix the tool or its output_schema; output and stdout hold what it printed")
}

// fileTool returns a built-in tool that works on files: work gets the decoded input and returns the
// output. check returns the violations that the input schema cannot express; it may be nil.
func fileTool[In any](r *Registry, name string,
	work func(ctx context.Context, at fileScope, in In) (any, error), check func(in In) []dray.Detail,
) *definition {
	d := &definition{Tool: dray.Tool{Name: name}, paths: pathRules{errors: true}}
	run := func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
		var in In
		if err := read(call.MappedInput, &in); err != nil {
			return dray.Result{}, fmt.Errorf("decode the input of %s: %w", name, err)
		}
		return r.withFiles(ctx, call, sink, func(at fileScope) (any, error) { return work(ctx, at, in) })
	}
	d.run = r.fetchOutputs(run)
	if check != nil {
		d.check = func(input json.RawMessage) []dray.Detail {
			var in In
			if err := read(input, &in); err != nil {
				return violation("/input", err.Error())
			}
			return check(in)
		}
	}
	return d
}

// withFiles calls work with the files of the workspace folder.
func (r *Registry) withFiles(
	ctx context.Context, call dray.Call, sink dray.Sink, work func(at fileScope) (any, error),
) (dray.Result, error) {
	env := call.Environment.Capabilities()
	root, err := fileToolRoot(env, call.WorkDir)
	if err != nil {
		return dray.Result{}, err
	}
	files, err := call.Environment.Files(ctx, root)
	if err != nil {
		return dray.Result{}, fmt.Errorf("open the workspace folder: %w", err)
	}
	defer files.Close()
	sink.Started()
	var res dray.Result
	at := fileScope{
		files: files, root: root, dir: call.WorkDir, kind: env.Kind, changes: &res.Metadata.Changes,
		rewrite: call.NewTextFilter, locks: &locks, checkWrite: r.writeCheck(ctx, env.Kind),
	}
	out, err := work(at)
	if err != nil {
		return res, err // with the changes made before the error (AU-11)
	}
	return successResult(res, out)
}

// successResult returns the result of a tool that started no process. It reads like that of a
// program that exited with 0 and printed nothing.
func successResult(res dray.Result, output any) (dray.Result, error) {
	var err error
	if res.Output, err = jsonv2.Marshal(output); err != nil {
		return res, fmt.Errorf("encode the output: %w", err)
	}
	res.Reason, res.ExitCode = dray.ReasonExited, new(0)
	return res, nil
}

// fileToolRoot returns the directory beneath which file tools work: the workspace folder or, in a
// container without one, the working directory of the call.
func fileToolRoot(env dray.Capabilities, dir string) (string, error) {
	if env.Kind != dray.KindContainer || env.WorkspaceFolder != "" {
		return env.WorkspaceFolder, nil
	}
	if !path.IsAbs(dir) {
		return "", dray.Errorf(dray.CodePathInvalid,
			"the container has no workspace folder for file tools to work in").
			WithHint("set cwd to a directory of the container, or name the container's workspace in the " +
				"call or in the configuration")
	}
	return path.Clean(dir), nil
}
