package api

import (
	"context"
	"io"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/workspace"
)

// AuditReader reads the audit log; *[audit.Store] implements it.
type AuditReader interface {
	// Get returns one call. It fails with not_found for an unknown id and for the call of another
	// principal.
	Get(ctx context.Context, principal, id string) (dray.Record, error)
	// List returns a page of calls, newest first.
	List(ctx context.Context, q audit.Query) (audit.Page, error)
	// Changes returns a page of the files that dray changed, newest first.
	Changes(ctx context.Context, q audit.ChangeQuery) (audit.ChangePage, error)
}

// Tools lists the tools by name. Get fails with unknown_tool. *[tool.Registry] implements it.
type Tools interface {
	List() []*dray.Tool
	Get(name string) (*dray.Tool, error)
}

// Workspaces are the host directories with a devcontainer; *[workspace.Manager] implements it.
type Workspaces interface {
	List(ctx context.Context) ([]workspace.Info, error)
	// Run performs an action on the workspace with the given id or absolute host directory, and
	// returns its state afterwards.
	Run(ctx context.Context, action workspace.Action, id string,
		progress func(phase, message string)) (workspace.Info, error)
	// Mounts returns the mounts of a running container, given by its name or by its workspace.
	Mounts(ctx context.Context, workspace, container string) ([]dray.Mount, error)
}

// Captures opens the captured output of a call; *[capture.Store] implements it. All methods fail
// with fs.ErrNotExist for a stream that was never written or is no longer retained.
type Captures interface {
	// Open opens a stream from its beginning, also while the call runs.
	Open(id string, stream dray.Stream) (io.ReadSeekCloser, error)
	// OpenRewritten opens the stream with rewritten paths. If no path was rewritten it may fail with
	// fs.ErrNotExist.
	OpenRewritten(id string, stream dray.Stream) (io.ReadSeekCloser, error)
	// OpenAuto opens what live events contain: the rewritten stream if there is one, else the raw one.
	OpenAuto(id string, stream dray.Stream) (io.ReadSeekCloser, error)
}
