package api

import (
	"context"
	"encoding/json"
	"io"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
)

// AuditReader reads the trail; *[audit.Store] does.
type AuditReader interface {
	// Get gives one call, or not_found where there is none or it is another principal's.
	Get(ctx context.Context, principal, id string) (dray.Record, error)
	// List gives a page, newest first.
	List(ctx context.Context, q audit.Query) (audit.Page, error)
	// Changes gives a page of the files that dray changed, newest first.
	Changes(ctx context.Context, q audit.ChangeQuery) (audit.ChangePage, error)
}

// Tools finds tools; internal/tool implements it.
type Tools interface {
	// List returns all tools, sorted by name.
	List() []*dray.Tool
	// Get returns one tool. It fails with unknown_tool if there is none.
	Get(name string) (*dray.Tool, error)
}

// Tool is a tool as its callers see it.
type Tool struct {
	Name         string           `json:"name"`
	Description  string           `json:"description"`
	InputSchema  json.RawMessage  `json:"input_schema"`
	OutputSchema json.RawMessage  `json:"output_schema,omitempty"`
	Environment  any              `json:"environment,omitempty" doc:"auto, host, required, preferred, or {specific: NAME}."`
	Mapping      dray.MappingMode `json:"mapping,omitempty" enum:"schema,heuristic,none"`
	Results      []string         `json:"results,omitempty" doc:"Files and folders that come home when a call of it ends."`
	RewriteText  bool             `json:"rewrite_text,omitzero" doc:"Whether the paths in its text are rewritten in calls that do not say otherwise."`
	// Timeout is the tool's own in seconds; zero leaves it to the configured default.
	Timeout float64 `json:"timeout_seconds,omitzero"`
	// Stdin says that a call may bring a stdin of its own.
	Stdin bool `json:"stdin" doc:"Whether a call may bring a stdin of its own."`
}

func toolView(t *dray.Tool) Tool {
	return Tool{
		Name: t.Name, Description: t.Description, InputSchema: t.InputSchema,
		OutputSchema: t.OutputSchema, Environment: t.Environment, Mapping: t.Mapping,
		Results: t.Results, RewriteText: t.RewriteText, Timeout: t.Timeout.Seconds(),
		Stdin: t.AcceptsStdin,
	}
}

// Router decides where a call runs, without running it; internal/router does.
type Router interface {
	// Route is pure; need is the requirement of the call's tool. The route that it returns with an
	// error has only candidates.
	Route(inv dray.Invocation, need dray.Requirement) (dray.Route, error)
}

// RouteChecker knows the places that routes lead to.
type RouteChecker interface {
	// CheckRoute says what a call of the tool would be met with there, and changes nothing.
	CheckRoute(ctx context.Context, route dray.Route, inv dray.Invocation, tool *dray.Tool) error
}

// Workspaces are the host folders with a devcontainer. An id is one of the list, or an absolute
// host folder.
type Workspaces interface {
	List(ctx context.Context) ([]Workspace, error)
	// Run does one of the verbs and gives what the workspace is then. A long one tells its progress
	// meanwhile.
	Run(ctx context.Context, verb WorkspaceAction, id string,
		progress func(phase, message string)) (Workspace, error)
}

// WorkspaceAction is what can be done to a workspace.
type WorkspaceAction string

// The verbs.
const (
	WorkspaceUp    WorkspaceAction = "up"
	WorkspaceStop  WorkspaceAction = "stop"
	WorkspaceTrust WorkspaceAction = "trust"
)

// Workspace is a workspace as its callers see it.
type Workspace struct {
	ID      string `json:"id"`
	Folder  string `json:"folder"`
	State   string `json:"state"`
	Trusted bool   `json:"trusted"`
	// Container is the full id of its container, if there is one.
	Container string `json:"container,omitempty"`
	// Trust is what trusting it covers: the files of its configuration, what runs on the host, the
	// names of local variables.
	Trust json.RawMessage `json:"trust,omitempty"`
}

// Paths maps paths between host and container.
type Paths interface {
	Map(ctx context.Context, req PathsRequest) (PathsReply, error)
}

// PathsRequest names the container, itself or by its workspace, and the paths.
type PathsRequest struct {
	Workspace string    `json:"workspace,omitempty" doc:"An absolute host folder."`
	Container string    `json:"container,omitempty" doc:"A name or id."`
	Direction Direction `json:"direction" enum:"to_host,to_container"`
	Paths     []string  `json:"paths"`
}

// Direction is where paths are mapped to.
type Direction string

// The directions.
const (
	ToHost      Direction = "to_host"
	ToContainer Direction = "to_container"
)

// PathsReply keeps the order. What lies under no mapping stands unchanged in Paths, and again in
// Unmapped.
type PathsReply struct {
	Paths    []string `json:"paths"`
	Unmapped []string `json:"unmapped"`
}

// Captures opens what was kept of a call's output; executor/capture does.
type Captures interface {
	// Open opens a stream from its beginning, also while the call runs. One that was never written, or
	// is kept no more, is fs.ErrNotExist.
	Open(id string, stream dray.Stream) (io.ReadSeekCloser, error)
	// OpenRewritten does so for the stream after its paths were rewritten. Where none was rewritten it
	// may be fs.ErrNotExist, too.
	OpenRewritten(id string, stream dray.Stream) (io.ReadSeekCloser, error)
	// OpenAuto opens what live events show: the rewritten stream where there is one.
	OpenAuto(id string, stream dray.Stream) (io.ReadSeekCloser, error)
}
