package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/transfer"
)

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

// runSync does the work of the tool sync. Its paths are the caller's own: what they mean on either side is for Transfer to find, which refuses
// them one by one.
func (r *Runner) runSync(ctx context.Context, t *Tool, call dray.Call, sink dray.Sink) (dray.Result, error) {
	var in syncInput
	if err := read(call.Invocation.Input, &in); err != nil {
		return dray.Result{}, fmt.Errorf("read the input of sync: %w", err)
	}
	if r.Transfer == nil {
		return dray.Result{}, dray.Errorf(dray.CodeSyncRefused, "this daemon moves no files").WithHint("set sandbox.root in the configuration")
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

// newTransferRequest is what a call asks to have moved. Without a workspace there is nothing that relative paths could begin at, but for a folder
// that the call names.
func newTransferRequest(call dray.Call, paths []string, sink dray.Sink) transfer.Request {
	inv := call.Invocation
	req := transfer.Request{
		ID: inv.ID, Paths: paths, Workspace: cmp.Or(call.Route.Workspace, inv.Workspace),
		Progress: func(p transfer.Progress) {
			sink.Progress("sync", fmt.Sprintf("%d files and folders, %.1f MB", p.Files, float64(p.Bytes)/1e6))
		},
	}
	if req.Workspace != "" || inv.Cwd != "" {
		req.Dir = call.WorkDir
	}
	return req
}

// FetchOutputs gives an executor that brings home what the tool or the call declares as its outputs, once next has ended, however it did (SY-11).
// How that goes is told in the metadata and changes nothing about the tool's own result. Where nothing was started nothing comes home.
func FetchOutputs(tools *Registry, files Transfer, next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
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

// ended says that something was started, and is over: a process, of whose end there is a report, or work on files.
func ended(res dray.Result) bool { return res.Metadata.Kill != nil || res.Reason == dray.ReasonExited }

// withoutDeadline is a context that goes on when the call's time is over, or was when the tool ended, but not when the daemon ends or the caller
// cancels while files are moved.
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

// syncedMounts are what came home, as mounts: so the paths of the tool's output that came home are the host's.
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
