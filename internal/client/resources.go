package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// Direction is which way paths are mapped.
type Direction string

// The directions.
const (
	ToHost      Direction = "to_host"
	ToContainer Direction = "to_container"
)

// MapPathsRequest asks for the other name of paths. Exactly one of Workspace and Container is set.
type MapPathsRequest struct {
	Workspace string    `json:"workspace,omitzero"`
	Container string    `json:"container,omitzero"`
	Direction Direction `json:"direction"`
	Paths     []string  `json:"paths"`
}

// MapPathsReply has the paths in the order in which they were asked for. Those that have no other
// name stand unchanged in Paths and again in Unmapped.
type MapPathsReply struct {
	Paths    []string `json:"paths"`
	Unmapped []string `json:"unmapped"`
}

// MapPaths maps paths. Nothing is looked up on a disk.
func (c *Client) MapPaths(ctx context.Context, m MapPathsRequest) (Reply[MapPathsReply], error) {
	return exchange[MapPathsReply](ctx, c, http.MethodPost, "/v1/paths", m)
}

// Sync is the body of a sync: files and folders that move between the sandbox root and a container,
// all of them or none. It has a Workspace or a Container.
type Sync struct {
	Workspace string `json:"workspace,omitzero"`
	Container string `json:"container,omitzero"`
	// Paths are the container's own names, or the caller's.
	Paths []string `json:"paths"`
	// Destination is a folder below the root of what they go to; empty leaves it to the daemon.
	Destination string `json:"destination,omitzero"`
	DryRun      bool   `json:"dry_run,omitzero"`
	// OnRefused "skip" goes on without the paths that are refused.
	OnRefused string `json:"on_refused,omitzero"`
	// Direction is ToHost where it is empty.
	Direction Direction         `json:"direction,omitzero"`
	LocalEnv  map[string]string `json:"local_env,omitempty"`
}

// Sync starts a sync, which is a call of the tool sync, and gives its events while it runs. Leaving
// the stream cancels it, as for Start.
func (c *Client) Sync(ctx context.Context, sync Sync) (*Stream, error) {
	return c.stream(ctx, "/v1/sync", sync)
}

// stream makes a request whose answer is the events of a call.
func (c *Client) stream(ctx context.Context, path string, body any) (*Stream, error) {
	// the stream closes it
	resp, err := c.send(ctx, http.MethodPost, path, body, ndjson) //nolint:bodyclose
	if err != nil {
		return nil, err
	}
	s, err := newStream(resp)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	return s, err
}

// Tool is one tool as it is listed.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Environment is a word, or {"specific": NAME}.
	Environment  jsontext.Value `json:"environment"`
	InputSchema  jsontext.Value `json:"input_schema"`
	OutputSchema jsontext.Value `json:"output_schema"`
}

// Tools lists what can be called.
func (c *Client) Tools(ctx context.Context) (Reply[Page[Tool]], error) {
	return get[Page[Tool]](ctx, c, "/v1/tools", nil)
}

// Tool gives one tool.
func (c *Client) Tool(ctx context.Context, name string) (Reply[Tool], error) {
	return get[Tool](ctx, c, "/v1/tools/"+url.PathEscape(name), nil)
}

// Workspace is a host folder with a devcontainer configuration.
type Workspace struct {
	ID      string `json:"id"`
	Folder  string `json:"folder"`
	State   string `json:"state"`
	Trusted bool   `json:"trusted"`
	// Container is the full id of its container, empty if there is none.
	Container string `json:"container"`
	// Trust is what trusting it covers.
	Trust jsontext.Value `json:"trust"`
}

// Workspaces lists the workspaces that the daemon knows.
func (c *Client) Workspaces(ctx context.Context) (Reply[Page[Workspace]], error) {
	return get[Page[Workspace]](ctx, c, "/v1/workspaces", nil)
}

// Stop stops the container of a workspace, named by its id or folder.
func (c *Client) Stop(ctx context.Context, workspace string) (Reply[Workspace], error) {
	return exchange[Workspace](ctx, c, http.MethodPost, workspacePath(workspace, "stop"), nil)
}

// Trust trusts the configuration of a workspace as it is now.
func (c *Client) Trust(ctx context.Context, workspace string) (Reply[Workspace], error) {
	return exchange[Workspace](ctx, c, http.MethodPost, workspacePath(workspace, "trust"), nil)
}

// Up brings the container of a workspace up, and tells what it waits for.
func (c *Client) Up(ctx context.Context, workspace string,
	progress func(phase, message string),
) (Reply[Workspace], error) {
	resp, err := c.send(ctx, http.MethodPost, workspacePath(workspace, "up"), nil, ndjson)
	if err != nil {
		return Reply[Workspace]{}, err
	}
	defer resp.Body.Close()
	reply, err := followUp(jsontext.NewDecoder(resp.Body), progress)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return reply, cause
	}
	return reply, err
}

// upEvent is one line of the answer. The last has the workspace, or why it is not up.
type upEvent struct {
	Name      string         `json:"event"`
	Phase     string         `json:"phase"`
	Message   string         `json:"message"`
	Workspace jsontext.Value `json:"workspace"`
	Error     *dray.Error    `json:"error"`
}

func followUp(dec *jsontext.Decoder, progress func(phase, message string)) (Reply[Workspace],
	error,
) {
	for {
		var ev upEvent
		if err := json.UnmarshalDecode(dec, &ev); err != nil {
			return Reply[Workspace]{}, disconnectedError(err)
		}
		switch {
		case ev.Name == EventProgress:
			progress(ev.Phase, ev.Message)
		case ev.Name == EventEnd && ev.Error != nil:
			return Reply[Workspace]{}, ev.Error
		case ev.Name == EventEnd:
			reply := Reply[Workspace]{JSON: ev.Workspace}
			if err := json.Unmarshal(ev.Workspace, &reply.Value); err != nil {
				return reply, disconnectedError(err)
			}
			return reply, nil
		}
	}
}

func workspacePath(workspace, verb string) string {
	return "/v1/workspaces/" + url.PathEscape(workspace) + "/" + verb
}
