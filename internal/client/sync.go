package client

import (
	"context"
	"net/http"
)

// Sync is the body of a sync: files and folders that move between the sandbox root and a container, all of them or none. It has a Workspace or a
// Container.
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

// Sync starts a sync, which is a call of the tool sync, and gives its events while it runs. Leaving the stream cancels it, as for Start.
func (c *Client) Sync(ctx context.Context, sync Sync) (*Stream, error) {
	return c.stream(ctx, "/v1/sync", sync)
}

// stream makes a request whose answer is the events of a call.
func (c *Client) stream(ctx context.Context, path string, body any) (*Stream, error) {
	resp, err := c.send(ctx, http.MethodPost, path, body, ndjson) //nolint:bodyclose // the stream closes it
	if err != nil {
		return nil, err
	}
	s, err := newStream(resp)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	return s, err
}
