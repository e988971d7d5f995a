package call

import (
	"context"
	"fmt"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/strictjson"
	"github.com/dray-dev/dray/internal/validate"
)

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

// PrepareSync validates a sync of principal and routes it, as Prepare does for a call. check accepts
// only inputs that the schema of the tool accepts.
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
	tool, err := in.Tools.Get(syncTool)
	if err != nil {
		return nil, err
	}
	return in.route(ctx, inv, tool)
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
