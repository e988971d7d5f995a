package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/transfer"
)

// Transfer copies files between the host and a container. *[transfer.Syncer] implements it.
type Transfer interface {
	Fetch(ctx context.Context, env dray.Environment, req transfer.Request) (dray.SyncReport, error)
	Push(ctx context.Context, env dray.Environment, req transfer.Request) (dray.SyncReport, error)
	FetchDeclared(ctx context.Context, env dray.Environment, req transfer.Request) dray.SyncReport
	Declare(env dray.Environment, req transfer.Request) *transfer.Declaration
	CheckHostWrite(path string) error
	CheckHostChange(path string, dir bool) error
}

// SyncInput is the input of the tool sync.
type SyncInput struct {
	Paths       []string `json:"paths"`
	Destination string   `json:"destination,omitzero"`
	DryRun      bool     `json:"dry_run,omitzero"`
	// OnRefused is "fail" or "skip". Empty is "fail".
	OnRefused string             `json:"on_refused,omitzero"`
	Direction transfer.Direction `json:"direction,omitzero"`
}

type syncOutput struct {
	Files   []dray.SyncedFile  `json:"files"`
	Refused []dray.RefusedPath `json:"refused"`
	Omitted int                `json:"refused_omitted,omitzero"`
	Bytes   int64              `json:"bytes"`
	DryRun  bool               `json:"dry_run"`
}

// Sync returns the tool sync with a fixed input, which its calls use instead of their own, and the
// encoded input for the invocation and its record. The caller has validated in.
func (r *Registry) Sync(in SyncInput) (*dray.Tool, json.RawMessage, error) {
	if err := r.States.check(r.sync.Name); err != nil {
		return nil, nil, err
	}
	input, err := jsonv2.Marshal(in)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the input of sync: %w", err)
	}
	d := *r.sync
	d.run = r.syncTool(func(dray.Call) (SyncInput, error) { return in, nil }).run
	return d.tool(), input, nil
}

// inputOfCall decodes the caller's form of the input: a sync maps its paths itself.
func inputOfCall(call dray.Call) (in SyncInput, err error) {
	if err = read(call.Invocation.Input, &in); err != nil {
		err = fmt.Errorf("decode the input of sync: %w", err)
	}
	return in, err
}

func (r *Registry) syncTool(input func(dray.Call) (SyncInput, error)) *definition {
	return &definition{
		Tool:  dray.Tool{Name: "sync", Timeout: r.SyncTimeout},
		paths: pathRules{mode: dray.MapNone},
		run: func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
			in, err := input(call)
			if err != nil {
				return dray.Result{}, err
			}
			return r.runSync(ctx, call, in, sink)
		},
	}
}

func (r *Registry) runSync(
	ctx context.Context, call dray.Call, in SyncInput, sink dray.Sink,
) (dray.Result, error) {
	if r.Transfer == nil {
		return dray.Result{}, dray.Errorf(dray.CodeSyncRefused, "this daemon syncs no files").
			WithHint("set sandbox.root in the configuration")
	}
	sink.Started()
	req := newTransferRequest(call, in.Paths, sink)
	req.Destination, req.DryRun, req.SkipRefused = in.Destination, in.DryRun, in.OnRefused == "skip"
	transferFiles, side := r.Transfer.Fetch, dray.KindHost
	if in.Direction == transfer.ToContainer {
		transferFiles, side = r.Transfer.Push, dray.KindContainer
	}
	report, err := transferFiles(ctx, call.Environment, req)
	res := dray.Result{Metadata: dray.Metadata{Sync: &report, Changes: transfer.Changes(report, side)}}
	if err != nil {
		if dray.CodeOf(err) == dray.CodeLimitExceeded {
			res.Reason = dray.ReasonInvalid // the request itself exceeds the limit
		}
		return res, err
	}
	return successResult(res, syncOutput{
		report.Files, report.Refused, report.RefusedOmitted, report.Bytes, report.DryRun,
	})
}

// newTransferRequest returns the request to sync paths for a call. Relative paths are allowed if
// the call has a workspace or a working directory.
func newTransferRequest(call dray.Call, paths []string, sink dray.Sink) transfer.Request {
	inv, started := call.Invocation, time.Now()
	req := transfer.Request{
		ID: inv.ID, Paths: paths, ContainerPaths: inv.Paths == dray.PathsOfContainer,
		Workspace: cmp.Or(call.Route.Workspace, inv.Workspace),
		Progress: func(p transfer.Progress) {
			megabytes := float64(p.Bytes) / 1e6
			sink.Progress("sync", fmt.Sprintf("%d files and directories, %.1f MB, %.1f MB/s", p.Files,
				megabytes, megabytes/time.Since(started).Seconds()))
		},
	}
	if req.Workspace != "" || inv.Cwd != "" {
		req.Dir = call.WorkDir
	}
	return req
}

// fetchOutputs runs next and then fetches what the tool and the call declare as outputs, however
// next ended (SY-11). The metadata report the outcome, which changes nothing else in the result. If
// nothing was started, nothing is fetched.
func (r *Registry) fetchOutputs(next dray.ExecutorFunc) dray.ExecutorFunc {
	return func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
		req := newTransferRequest(call, slices.Concat(call.Tool.Results, call.Invocation.Sync), sink)
		req.Dir = call.WorkDir
		if r.Transfer != nil && len(req.Paths) > 0 {
			req.Declaration = r.Transfer.Declare(call.Environment, req)
			defer req.Declaration.End()
		}
		res, err := next(ctx, call, sink)
		if res.Results != nil {
			defer res.Results.Remove()
			req.ResultsDir, res.Results = res.Results.Path, nil
		}
		if len(req.Paths) == 0 && req.ResultsDir == "" || !hasEnded(res) || r.Transfer == nil {
			return res, err
		}
		ctx, done := withoutDeadline(ctx)
		defer done()
		report := r.Transfer.FetchDeclared(ctx, call.Environment, req)
		res.Metadata.Sync = &report
		res.Metadata.Changes = append(res.Metadata.Changes, transfer.Changes(report, dray.KindHost)...)
		return res, err
	}
}

// hasEnded reports whether something was started and has ended: a process, which has a report of
// its end, or work on files.
func hasEnded(res dray.Result) bool {
	return res.Metadata.Kill != nil || res.Reason == dray.ReasonExited
}

// withoutDeadline returns a context that outlives the deadline of the call. It is cancelled when
// the daemon shuts down, or when the caller cancels while files are copied.
func withoutDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	ended := ctx.Err() != nil
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if errors.Is(cause, executor.ErrShutdown) || !ended && !errors.Is(cause, executor.ErrTimeout) {
			cancel(cause)
		}
	})
	return out, func() {
		stop()
		cancel(nil)
	}
}

// syncedMounts returns what was fetched as mounts, so that the paths in the output of the tool that
// were fetched become the host's.
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
