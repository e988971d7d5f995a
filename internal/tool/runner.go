package tool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
)

// Runner is the innermost executor: it starts what the tool is, or does the tool's work on files, in the call's environment. The
// call has its mapped input and its working folder by then.
type Runner struct {
	Tools     *Registry
	Processes *executor.Runner
	// Transfer does the work of the tool sync.
	Transfer Transfer
	// IdleTimeout is the longest silence where the call names none; zero is no limit.
	IdleTimeout time.Duration

	fileLocks fileLocks // at files that are changed
}

// Execute runs the call.
func (r *Runner) Execute(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
	t, err := r.Tools.Get(call.Invocation.Tool)
	if err != nil {
		return dray.Result{}, err
	}
	if call.Stdin != nil && !t.AcceptsStdin() {
		return dray.Result{}, dray.Errorf(dray.CodeInvalidRequest, "tool %s takes no stdin", t.Name).
			WithHint("leave out stdin: what the tool needs is in its input")
	}
	if t.isSync {
		return r.runSync(ctx, t, call, sink)
	}
	if t.files != nil {
		return r.runFileTool(ctx, t, call, sink)
	}
	return r.start(ctx, t, call, sink)
}

func (r *Runner) start(ctx context.Context, t *Tool, call dray.Call, sink dray.Sink) (dray.Result, error) {
	argv, err := t.program.argv(call.MappedInput)
	if err != nil {
		return dray.Result{}, err
	}
	spec := dray.ProcessSpec{
		Argv: argv, Env: call.Invocation.Env, Dir: call.WorkDir, Terminal: call.Invocation.Terminal,
		KeepLeftovers: call.Invocation.Leftovers == dray.KeepLeftovers,
	}
	opts := executor.Options{
		ID: call.Invocation.ID, Stdin: call.Stdin, Control: call.Control, Idle: cmp.Or(call.Invocation.IdleTimeout, r.IdleTimeout),
		Rewrite: call.NewTextFilter,
	}
	if t.program.inputOnStdin {
		opts.Stdin = bytes.NewReader(call.MappedInput)
	}
	outcome, err := r.Processes.Run(ctx, call.Environment, spec, opts, sink)
	defer outcome.Release()
	if !t.program.jsonOutput || outcome.Result.Metadata.Kill == nil { // without a report of its end nothing was started
		return outcome.Result, err
	}
	res, unread := t.withOutput(outcome.Result, outcome.Stdout())
	if err == nil {
		err = unread
	}
	return res, err
}

// withOutput reads stdout as the tool's output, whichever way the call ended (CA-06). A tool that ended well and broke its promise
// has failed with output_invalid.
func (t *Tool) withOutput(res dray.Result, stdout *capture.Capture) (dray.Result, error) {
	kept := stdout.Open()
	defer kept.Close()
	output, cause, err := parseOutput(kept, res.Stdout)
	if err != nil {
		return res, err
	}
	res.Output = output
	if cause != nil && cause.tooDeep {
		res.Metadata.Mapping = &dray.MappingReport{Errors: []dray.Detail{{Pointer: "/output", Message: cause.message}}} // PM-08: raw, and told
	}
	if t.output != nil && res.Error == nil && res.Reason == dray.ReasonExited {
		res.Error = t.checkOutputSchema(output, cause)
	}
	return res, nil
}

// checkOutputSchema says how an output breaks the tool's output schema; nil if it fits. What is no JSON fits no schema.
func (t *Tool) checkOutputSchema(output json.RawMessage, cause *syntaxError) *dray.Error {
	details := []dray.Detail{}
	if cause != nil {
		details = append(details, withPointer(cause, "/output"))
	} else {
		details = t.output.violations(output, "/output")
	}
	if len(details) == 0 {
		return nil
	}
	e := dray.Errorf(dray.CodeOutputInvalid, "the output of tool %s is not what it promises: %s: %s", t.Name, details[0].Pointer, details[0].Message)
	e.Details = details
	return e.WithHint("mend the tool or its output_schema; output and stdout hold what it printed")
}

// runFileTool does a file tool's work.
func (r *Runner) runFileTool(ctx context.Context, t *Tool, call dray.Call, sink dray.Sink) (dray.Result, error) {
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
	out, err := t.files(ctx, fileScope{files, root, call.WorkDir, env.Kind, &res.Metadata.Changes, call.NewTextFilter, &r.fileLocks}, call.MappedInput)
	if err != nil {
		return res, err // with what was changed before (AU-11)
	}
	return t.successResult(res, out)
}

// successResult is the end of a tool that starts no process: it reads as that of a program that exited with 0 and printed nothing.
func (t *Tool) successResult(res dray.Result, output any) (dray.Result, error) {
	var err error
	if res.Output, err = jsonv2.Marshal(output); err != nil {
		return res, fmt.Errorf("write the output of %s: %w", t.Name, err)
	}
	res.Reason, res.ExitCode = dray.ReasonExited, new(0)
	return res, nil
}

// fileToolRoot is the folder that a file tool works in: the workspace folder or, in a container that belongs to no workspace, the one that the call
// names as its working folder.
func fileToolRoot(env dray.Capabilities, dir string) (string, error) {
	if env.Kind != dray.KindContainer || env.WorkspaceFolder != "" {
		return env.WorkspaceFolder, nil
	}
	if !path.IsAbs(dir) {
		return "", dray.Errorf(dray.CodePathInvalid, "the container has no workspace folder, and file tools work in one").
			WithHint("name a folder of the container as cwd, and they work in there; or the workspace that it belongs to, in the call or in the configuration")
	}
	return path.Clean(dir), nil
}
