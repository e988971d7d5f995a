package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

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
func (c *Client) Up(ctx context.Context, workspace string, progress func(phase, message string)) (Reply[Workspace], error) {
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

func followUp(dec *jsontext.Decoder, progress func(phase, message string)) (Reply[Workspace], error) {
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
