package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// Direction is the direction in which paths are mapped or files are synced.
type Direction string

// The directions.
const (
	ToHost      Direction = "to_host"
	ToContainer Direction = "to_container"
)

// MapPathsRequest is the body of POST /v1/paths. Exactly one of Workspace and Container is set.
type MapPathsRequest struct {
	Workspace string    `json:"workspace,omitzero"`
	Container string    `json:"container,omitzero"`
	Direction Direction `json:"direction"`
	Paths     []string  `json:"paths"`
}

// MapPathsReply contains the paths in the order of the request. Paths without a mapping are
// unchanged in Paths, and also in Unmapped.
type MapPathsReply struct {
	Paths    []string `json:"paths"`
	Unmapped []string `json:"unmapped"`
}

// MapPaths maps paths without looking them up in a file system.
func (c *Client) MapPaths(ctx context.Context, m MapPathsRequest) (Reply[MapPathsReply], error) {
	return post[MapPathsReply](ctx, c, "/v1/paths", m)
}

// Sync is the body of POST /v1/sync: files and directories to copy between the sandbox root and a
// container. Exactly one of Workspace and Container is set.
type Sync struct {
	Workspace string `json:"workspace,omitzero"`
	Container string `json:"container,omitzero"`
	// Paths are container paths or host paths.
	Paths []string `json:"paths"`
	// Destination is a directory below the root on the receiving side; empty is the default.
	Destination string `json:"destination,omitzero"`
	DryRun      bool   `json:"dry_run,omitzero"`
	// OnRefused is "skip" to skip refused paths instead of failing.
	OnRefused string `json:"on_refused,omitzero"`
	// Direction is ToHost by default.
	Direction Direction         `json:"direction,omitzero"`
	LocalEnv  map[string]string `json:"local_env,omitempty"`
	Context   dray.CallContext  `json:"context,omitzero"`
}

// Sync starts a sync, which is a call of the tool sync, and returns its events. Cancelling ctx or
// closing the stream cancels the sync.
func (c *Client) Sync(ctx context.Context, sync Sync) (*Stream, error) {
	return c.stream(ctx, "/v1/sync", sync)
}

// stream makes a request whose response is the events of a call.
func (c *Client) stream(ctx context.Context, path string, body any) (*Stream, error) {
	resp, err := c.send(ctx, http.MethodPost, path, body, ndjson) //nolint:bodyclose // by the stream
	if err != nil {
		return nil, err
	}
	s, err := newStream(resp)
	return s, preferCause(ctx, err)
}

// preferCause returns the cause of a context that has ended instead of an error.
func preferCause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Tool describes a tool.
type Tool struct {
	Name        string `json:"name"`
	State       string `json:"state"`
	Description string `json:"description"`
	// Workspace declares the tool. It is empty for the tools of the daemon.
	Workspace string `json:"workspace"`
	// Reason is why calls of the tool are refused.
	Reason string `json:"reason"`
	// Environment is a kind, or {"specific": NAME}.
	Environment  jsontext.Value `json:"environment"`
	InputSchema  jsontext.Value `json:"input_schema"`
	OutputSchema jsontext.Value `json:"output_schema"`
}

// Tools is a list of tools. Warnings are about workspaces whose tools cannot be called.
type Tools struct {
	Items    []Tool   `json:"items"`
	Warnings []string `json:"warnings"`
}

// Tools returns the tools of the daemon, and those that a workspace declares: an empty one stands
// for all known ones.
func (c *Client) Tools(ctx context.Context, workspace string) (Reply[Tools], error) {
	return get[Tools](ctx, c, "/v1/tools", inWorkspace(workspace))
}

// Tool returns the tool with the given name, of the daemon or declared by the workspace.
func (c *Client) Tool(ctx context.Context, name, workspace string) (Reply[Tool], error) {
	return get[Tool](ctx, c, "/v1/tools/"+url.PathEscape(name), inWorkspace(workspace))
}

// SetToolState enables or disables a tool, as Tool finds it. action is "enable" or "disable".
func (c *Client) SetToolState(ctx context.Context, name, action, workspace string,
) (Reply[Tool], error) {
	path := "/v1/tools/" + url.PathEscape(name) + "/" + action
	if workspace != "" {
		path += "?" + inWorkspace(workspace).Encode()
	}
	return post[Tool](ctx, c, path, nil)
}

func inWorkspace(folder string) url.Values {
	if folder == "" {
		return nil
	}
	return url.Values{"workspace": {folder}}
}

// Workspace is a host directory with a devcontainer configuration.
type Workspace struct {
	ID      string `json:"id"`
	Folder  string `json:"folder"`
	State   string `json:"state"`
	Trusted bool   `json:"trusted"`
	// Container is the full id of its container, or empty.
	Container string `json:"container"`
	// Outdated is true if the container was created from an earlier configuration.
	Outdated bool `json:"outdated"`
	// Failure is the error of the last up if the state is failed.
	Failure string `json:"failure"`
	// Trust is the summary of what its trust covers.
	Trust jsontext.Value `json:"trust"`
}

// Workspaces returns the workspaces known to the daemon.
func (c *Client) Workspaces(ctx context.Context) (Reply[Page[Workspace]], error) {
	return get[Page[Workspace]](ctx, c, "/v1/workspaces", nil)
}

// TrustReview is what a trust in a workspace covers. Hash identifies it.
type TrustReview struct {
	Hash string `json:"hash"`
}

// ReviewTrust returns what a trust in a workspace covers.
func (c *Client) ReviewTrust(ctx context.Context, workspace string) (Reply[TrustReview], error) {
	return get[TrustReview](ctx, c, workspacePath(workspace, "trust"), nil)
}

// Trust trusts what a review with this hash shows.
func (c *Client) Trust(ctx context.Context, workspace, hash string) (Reply[Workspace], error) {
	return post[Workspace](ctx, c, workspacePath(workspace, "trust"), TrustReview{hash})
}

// RevokeTrust ends the trust in a workspace.
func (c *Client) RevokeTrust(ctx context.Context, workspace string) (Reply[Workspace], error) {
	return exchange[Workspace](ctx, c, http.MethodDelete, workspacePath(workspace, "trust"), nil)
}

// Change starts, stops, rebuilds or removes the containers of a workspace, with progress. The
// action is "up", "stop", "rebuild" or "rm"; the workspace is an id or a directory.
func (c *Client) Change(ctx context.Context, workspace, action string,
	progress func(phase, message string),
) (Reply[Workspace], error) {
	method, path := http.MethodPost, workspacePath(workspace, action)
	if action == "rm" {
		method, path = http.MethodDelete, "/v1/workspaces/"+url.PathEscape(workspace)
	}
	return runAction[Workspace](ctx, c, method, path, nil, progress,
		func(end actionEvent) jsontext.Value { return end.Workspace })
}

// Container is a container that calls can name.
type Container struct {
	Name      string `json:"name"`
	ID        string `json:"id"`
	State     string `json:"state"`
	Breaker   string `json:"breaker"`
	Workspace string `json:"workspace"`
}

// Containers returns the containers known to the daemon.
func (c *Client) Containers(ctx context.Context) (Reply[Page[Container]], error) {
	return get[Page[Container]](ctx, c, "/v1/containers", nil)
}

// Registration names a container that dray did not make, by its id or name or by a label.
type Registration struct {
	ID       string    `json:"id,omitzero"`
	Label    string    `json:"label,omitzero"`
	Mappings []Mapping `json:"mappings,omitempty"`
	User     string    `json:"user,omitzero"`
	Folder   string    `json:"folder,omitzero"`
}

// Mapping maps a directory of the host to one of a container.
type Mapping struct {
	Host      string `json:"host"`
	Container string `json:"container"`
}

// Register gives a container a name.
func (c *Client) Register(ctx context.Context, name string, reg Registration,
) (Reply[Container], error) {
	return post[Container](ctx, c, "/v1/containers/"+url.PathEscape(name), reg)
}

// Unregister removes a name that Register gave.
func (c *Client) Unregister(ctx context.Context, name string) (Reply[struct{}], error) {
	path := "/v1/containers/" + url.PathEscape(name)
	return exchange[struct{}](ctx, c, http.MethodDelete, path, nil)
}

// actionEvent is a line of the response. The last one contains the result or the error.
type actionEvent struct {
	Name      string         `json:"event"`
	Phase     string         `json:"phase"`
	Message   string         `json:"message"`
	Workspace jsontext.Value `json:"workspace"`
	Pruned    jsontext.Value `json:"pruned"`
	Error     *dray.Error    `json:"error"`
}

// runAction sends a request and calls progress with what the daemon does until it is done. result
// returns the result in the last event.
func runAction[T any](ctx context.Context, c *Client, method, path string, body any,
	progress func(phase, message string), result func(actionEvent) jsontext.Value,
) (reply Reply[T], err error) {
	resp, err := c.send(ctx, method, path, body, ndjson)
	if err != nil {
		return reply, err
	}
	defer resp.Body.Close()
	end, err := followAction(jsontext.NewDecoder(resp.Body), progress)
	if err != nil {
		return reply, preferCause(ctx, err)
	}
	reply.JSON = result(end)
	if err := json.Unmarshal(reply.JSON, &reply.Value); err != nil {
		return reply, disconnectedError(err)
	}
	return reply, nil
}

// followAction returns the last event.
func followAction(dec *jsontext.Decoder, progress func(phase, message string),
) (actionEvent, error) {
	for {
		var ev actionEvent
		if err := json.UnmarshalDecode(dec, &ev); err != nil {
			return ev, disconnectedError(err)
		}
		switch {
		case ev.Name == EventProgress:
			progress(ev.Phase, ev.Message)
		case ev.Name == EventEnd && ev.Error != nil:
			return ev, ev.Error
		case ev.Name == EventEnd:
			return ev, nil
		}
	}
}

func workspacePath(workspace, action string) string {
	return "/v1/workspaces/" + url.PathEscape(workspace) + "/" + action
}

// Checkpoint returns a signed checkpoint of the audit log.
func (c *Client) Checkpoint(ctx context.Context) ([]byte, error) {
	return c.getBytes(ctx, "/v1/audit/checkpoint", "text/plain")
}

// Consistency returns a checkpoint with the proof that the log extends its first old events.
func (c *Client) Consistency(ctx context.Context, old int64) ([]byte, error) {
	return c.getBytes(ctx, "/v1/audit/checkpoint?old="+strconv.FormatInt(old, 10), "text/plain")
}

// Receipt returns the receipt of a call, with the bodies of its events or only their hashes.
func (c *Client) Receipt(ctx context.Context, id string, bodies bool) ([]byte, error) {
	path := "/v1/audit/receipt/" + url.PathEscape(id) + "?body=" + strconv.FormatBool(bodies)
	return c.getBytes(ctx, path, "application/json")
}

// getBytes requests a response whose every byte counts.
func (c *Client) getBytes(ctx context.Context, path, accept string) ([]byte, error) {
	resp, err := c.send(ctx, http.MethodGet, path, nil, accept)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := readAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the response of GET %s: %w", path, err)
	}
	return b, nil
}
