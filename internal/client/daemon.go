package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// Status is the state of the daemon.
type Status struct {
	Version   string    `json:"version"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	State     string    `json:"state"`
	Socket    string    `json:"socket"`
	// Draining means that the daemon is shutting down.
	Draining bool `json:"draining"`
	Config   struct {
		File     string    `json:"file"`
		LoadedAt time.Time `json:"loaded_at"`
	} `json:"config"`
	Calls struct {
		Running int `json:"running"`
		Queued  int `json:"queued"`
	} `json:"calls"`
	Audit struct {
		Path     string        `json:"path"`
		Error    *dray.Error   `json:"error"`
		Warnings []*dray.Error `json:"warnings"`
	} `json:"audit"`
	Engine struct {
		Host   string      `json:"host"`
		Source string      `json:"source"`
		Error  *dray.Error `json:"error"`
	} `json:"engine"`
	Workspaces struct {
		Known   int `json:"known"`
		Running int `json:"running"`
	} `json:"workspaces"`
}

// Status returns the state of the daemon.
func (c *Client) Status(ctx context.Context) (Reply[Status], error) {
	return get[Status](ctx, c, "/v1/status", nil)
}

// Active returns the calls that run or wait for a slot, newest first within each of the two.
func (c *Client) Active(ctx context.Context, session string) ([]Reply[dray.Record], error) {
	var active []Reply[dray.Record]
	seen := map[string]bool{} // a call may leave the queue between two requests
	for _, status := range []dray.Status{dray.StatusQueued, dray.StatusRunning} {
		filters := url.Values{"status": {string(status)}, "limit": {"1000"}}
		if session != "" {
			filters.Set("session_id", session)
		}
		for more := true; more; {
			page, err := FetchPage[jsontext.Value](ctx, c, Invocations, filters)
			if err != nil {
				return nil, err
			}
			for _, item := range page.Items {
				reply := Reply[dray.Record]{JSON: item}
				if err := json.Unmarshal(item, &reply.Value); err != nil {
					return nil, dray.Errorf(dray.CodeInternal, "decode a call: %w", err).
						WithHint("the daemon may be of another version: run `dray stop`, and try again")
				}
				if id := reply.Value.ID; !seen[id] {
					seen[id] = true
					active = append(active, reply)
				}
			}
			filters.Set("cursor", page.NextCursor)
			more = page.NextCursor != ""
		}
	}
	return active, nil
}

// Prune is the body of POST /v1/audit/prune. Without a time, audit.keep decides.
type Prune struct {
	Before time.Time `json:"before,omitzero"`
	DryRun bool      `json:"dry_run,omitzero"`
}

// Pruned is what was removed from the audit log, or would be.
type Pruned struct {
	Before    time.Time `json:"before"`
	Events    int64     `json:"events"`
	Calls     int64     `json:"calls"`
	Bytes     int64     `json:"bytes"`
	Files     int64     `json:"files"`
	FileBytes int64     `json:"file_bytes"`
	HeldBy    string    `json:"held_by"`
}

// Prune removes expired records of the audit log, and calls progress with what it removed so far.
func (c *Client) Prune(ctx context.Context, prune Prune, progress func(phase, message string),
) (Reply[Pruned], error) {
	return runAction[Pruned](ctx, c, http.MethodPost, "/v1/audit/prune", prune, progress,
		func(end actionEvent) jsontext.Value { return end.Pruned })
}

// Reload is the outcome of a reload.
type Reload struct {
	// Changed are the keys that have changed.
	Changed []string `json:"changed"`
}

// Reload makes the daemon read its configuration again.
func (c *Client) Reload(ctx context.Context) (Reply[Reload], error) {
	return post[Reload](ctx, c, "/v1/reload", nil)
}
