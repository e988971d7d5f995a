package tool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/internal/transfer"
)

// Runner is the innermost executor: it starts what the tool is, or does the tool's work on files,
// in the call's environment. The call has its mapped input and its working folder by then.
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

func (r *Runner) start(ctx context.Context, t *Tool, call dray.Call, sink dray.Sink) (dray.Result,
	error,
) {
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
	// without a report of its end nothing was started
	if !t.program.jsonOutput || outcome.Result.Metadata.Kill == nil {
		return outcome.Result, err
	}
	res, unread := t.withOutput(outcome.Result, outcome.Stdout())
	if err == nil {
		err = unread
	}
	return res, err
}

// withOutput reads stdout as the tool's output, whichever way the call ended (CA-06). A tool that
// ended well and broke its promise has failed with output_invalid.
func (t *Tool) withOutput(res dray.Result, stdout *capture.Capture) (dray.Result, error) {
	kept := stdout.Open()
	defer kept.Close()
	output, cause, err := parseOutput(kept, res.Stdout)
	if err != nil {
		return res, err
	}
	res.Output = output
	if cause != nil && cause.tooDeep {
		// PM-08: raw, and told
		res.Metadata.Mapping = &dray.MappingReport{Errors: []dray.Detail{{
			Pointer: "/output",
			Message: cause.message,
		}}}
	}
	if t.output != nil && res.Error == nil && res.Reason == dray.ReasonExited {
		res.Error = t.checkOutputSchema(output, cause)
	}
	return res, nil
}

// checkOutputSchema says how an output breaks the tool's output schema; nil if it fits. What is no
// JSON fits no schema.
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
	e := dray.Errorf(dray.CodeOutputInvalid, "the output of tool %s is not what it promises: %s: %s",
		t.Name, details[0].Pointer, details[0].Message)
	e.Details = details
	return e.WithHint("mend the tool or its output_schema; output and stdout hold what it printed")
}

// runFileTool does a file tool's work.
func (r *Runner) runFileTool(ctx context.Context, t *Tool, call dray.Call,
	sink dray.Sink,
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
	out, err := t.files(ctx, fileScope{
		files, root, call.WorkDir, env.Kind, &res.Metadata.Changes,
		call.NewTextFilter, &r.fileLocks,
	}, call.MappedInput)
	if err != nil {
		return res, err // with what was changed before (AU-11)
	}
	return t.successResult(res, out)
}

// successResult is the end of a tool that starts no process: it reads as that of a program that
// exited with 0 and printed nothing.
func (t *Tool) successResult(res dray.Result, output any) (dray.Result, error) {
	var err error
	if res.Output, err = jsonv2.Marshal(output); err != nil {
		return res, fmt.Errorf("write the output of %s: %w", t.Name, err)
	}
	res.Reason, res.ExitCode = dray.ReasonExited, new(0)
	return res, nil
}

// fileToolRoot is the folder that a file tool works in: the workspace folder or, in a container
// that belongs to no workspace, the one that the call names as its working folder.
func fileToolRoot(env dray.Capabilities, dir string) (string, error) {
	if env.Kind != dray.KindContainer || env.WorkspaceFolder != "" {
		return env.WorkspaceFolder, nil
	}
	if !path.IsAbs(dir) {
		return "", dray.Errorf(dray.CodePathInvalid,
			"the container has no workspace folder, and file tools work in one").
			WithHint("name a folder of the container as cwd, and they work in there; or the workspace that it belongs to, in the call or in the configuration")
	}
	return path.Clean(dir), nil
}

// Transfer moves files between the host and a container; internal/transfer has the rules.
type Transfer interface {
	Fetch(ctx context.Context, env dray.Environment, req transfer.Request) (dray.SyncReport, error)
	Push(ctx context.Context, env dray.Environment, req transfer.Request) (dray.SyncReport, error)
	FetchDeclared(ctx context.Context, env dray.Environment, req transfer.Request) dray.SyncReport
}

// syncInput is the input of the tool sync.
type syncInput struct {
	Paths       []string           `json:"paths"`
	Destination string             `json:"destination"`
	DryRun      bool               `json:"dry_run"`
	OnRefused   string             `json:"on_refused"`
	Direction   transfer.Direction `json:"direction"`
}

type syncOutput struct {
	Files   []dray.SyncedFile  `json:"files"`
	Refused []dray.RefusedPath `json:"refused"`
	Bytes   int64              `json:"bytes"`
	DryRun  bool               `json:"dry_run"`
}

// runSync does the work of the tool sync. Its paths are the caller's own: what they mean on either
// side is for Transfer to find, which refuses them one by one.
func (r *Runner) runSync(ctx context.Context, t *Tool, call dray.Call, sink dray.Sink) (dray.Result,
	error,
) {
	var in syncInput
	if err := read(call.Invocation.Input, &in); err != nil {
		return dray.Result{}, fmt.Errorf("read the input of sync: %w", err)
	}
	if r.Transfer == nil {
		return dray.Result{}, dray.Errorf(dray.CodeSyncRefused, "this daemon moves no files").
			WithHint("set sandbox.root in the configuration")
	}
	sink.Started()
	req := newTransferRequest(call, in.Paths, sink)
	req.Destination, req.DryRun, req.SkipRefused = in.Destination, in.DryRun, in.OnRefused == "skip"
	move, side := r.Transfer.Fetch, dray.KindHost
	if in.Direction == transfer.ToContainer {
		move, side = r.Transfer.Push, dray.KindContainer
	}
	report, err := move(ctx, call.Environment, req)
	res := dray.Result{Metadata: dray.Metadata{Sync: &report, Changes: transfer.Changes(report, side)}}
	if err != nil {
		if dray.CodeOf(err) == dray.CodeLimitExceeded {
			res.Reason = dray.ReasonInvalid // it is what was asked for that is too much
		}
		return res, err
	}
	return t.successResult(res, syncOutput{report.Files, report.Refused, report.Bytes, report.DryRun})
}

// newTransferRequest is what a call asks to have moved. Without a workspace there is nothing that
// relative paths could begin at, but for a folder that the call names.
func newTransferRequest(call dray.Call, paths []string, sink dray.Sink) transfer.Request {
	inv := call.Invocation
	req := transfer.Request{
		ID: inv.ID, Paths: paths, Workspace: cmp.Or(call.Route.Workspace, inv.Workspace),
		Progress: func(p transfer.Progress) {
			sink.Progress("sync", fmt.Sprintf("%d files and folders, %.1f MB", p.Files,
				float64(p.Bytes)/1e6))
		},
	}
	if req.Workspace != "" || inv.Cwd != "" {
		req.Dir = call.WorkDir
	}
	return req
}

// FetchOutputs gives an executor that brings home what the tool or the call declares as its
// outputs, once next has ended, however it did (SY-11). How that goes is told in the metadata and
// changes nothing about the tool's own result. Where nothing was started nothing comes home.
func FetchOutputs(tools *Registry, files Transfer, next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		res, err := next.Execute(ctx, call, sink)
		t, unknown := tools.Get(call.Invocation.Tool)
		if unknown != nil || t.isSync || !ended(res) {
			return res, err
		}
		declared := slices.Concat(t.results, call.Invocation.Sync)
		if len(declared) == 0 {
			return res, err
		}
		req := newTransferRequest(call, declared, sink)
		req.Dir = call.WorkDir
		outlast, done := withoutDeadline(ctx)
		defer done()
		report := files.FetchDeclared(outlast, call.Environment, req)
		res.Metadata.Sync = &report
		res.Metadata.Changes = append(res.Metadata.Changes, transfer.Changes(report, dray.KindHost)...)
		return res, err
	})
}

// ended says that something was started, and is over: a process, of whose end there is a report, or
// work on files.
func ended(res dray.Result) bool {
	return res.Metadata.Kill != nil ||
		res.Reason == dray.ReasonExited
}

// withoutDeadline is a context that goes on when the call's time is over, or was when the tool
// ended, but not when the daemon ends or the caller cancels while files are moved.
func withoutDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	over := ctx.Err() != nil
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	off := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if errors.Is(cause, executor.ErrShutdown) || !over && !errors.Is(cause, executor.ErrTimeout) {
			cancel(cause)
		}
	})
	return out, func() {
		off()
		cancel(nil)
	}
}

// syncedMounts are what came home, as mounts: so the paths of the tool's output that came home are
// the host's.
func syncedMounts(r *dray.SyncReport) []dray.Mount {
	if r == nil || r.State != dray.SyncComplete || r.DryRun {
		return nil
	}
	mounts := make([]dray.Mount, len(r.Targets))
	for i, l := range r.Targets {
		mounts[i] = dray.Mount{Host: l.Path, Container: l.Source}
	}
	return mounts
}
