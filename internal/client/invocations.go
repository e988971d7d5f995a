package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// Call is the body of a call. Strings that are not UTF-8 cannot be sent: JSON has no form for them.
type Call struct {
	Tool string `json:"tool"`
	// Input may be left out where a call is routed only.
	Input       jsontext.Value         `json:"input,omitzero"`
	Workspace   string                 `json:"workspace,omitzero"`
	Container   string                 `json:"container,omitzero"`
	Environment dray.EnvironmentChoice `json:"environment,omitzero"`
	Cwd         string                 `json:"cwd,omitzero"`
	Env         map[string]string      `json:"env,omitempty"`
	// Leftovers "keep" leaves the processes that the tool leaves running to the environment.
	Leftovers dray.Leftovers `json:"leftovers,omitzero"`
	// RewriteText has the paths in text rewritten; nil leaves it to the tool.
	RewriteText *bool `json:"rewrite_text,omitempty"`
	// Sync are files and folders to bring home when the call ends.
	Sync []string `json:"sync,omitempty"`
	// OnSlowReader "wait" has the tool wait for the stream of Start, as it would for a pipe.
	OnSlowReader string `json:"on_slow_reader,omitzero"`
	// StdinOpen announces that Stdin follows.
	StdinOpen bool `json:"stdin_open,omitzero"`
	// TTY asks for a terminal of that size.
	TTY *dray.TerminalSize `json:"tty,omitzero"`
	// TimeoutSeconds is absent where it is 0: then the tool's or the configured default holds.
	TimeoutSeconds float64 `json:"timeout_seconds,omitzero"`
	// LocalEnv holds the caller's values of the ${localEnv:X} that the workspace's configuration uses.
	LocalEnv map[string]string `json:"local_env,omitempty"`
}

// Page is one page of a list. NextCursor is empty on the last.
type Page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor"`
}

// Start starts a call and gives its events while it runs. Ending the context, or closing the stream, takes the client away, and with it the call.
func (c *Client) Start(ctx context.Context, call Call) (*Stream, error) {
	return c.stream(ctx, "/v1/invocations", call)
}

// Cancel asks that a call ends. Its stream tells when it has.
func (c *Client) Cancel(ctx context.Context, id string) error {
	resp, err := c.send(ctx, http.MethodPost, "/v1/invocations/"+url.PathEscape(id)+"/cancel", nil, "application/json")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Invocation gives one call of the trail.
func (c *Client) Invocation(ctx context.Context, id string) (Reply[dray.Record], error) {
	return get[dray.Record](ctx, c, "/v1/invocations/"+url.PathEscape(id), nil)
}

// The texts of a stream. Shown is the one whose paths were rewritten, where there is one, else what was printed.
const (
	TextRaw       = "false"
	TextRewritten = "true"
	TextAuto      = "auto"
)

// Output gives what is kept of one text of a call's stdout or stderr, while it runs what is kept so far. The caller closes it.
func (c *Client) Output(ctx context.Context, id, stream, text string) (io.ReadCloser, error) {
	path := "/v1/invocations/" + url.PathEscape(id) + "/output/" + stream + "?" + url.Values{"rewritten": {text}}.Encode()
	resp, err := c.send(ctx, http.MethodGet, path, nil, "*/*")
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Invocations gives a page of the trail, newest first. The filters are those of the HTTP interface.
func (c *Client) Invocations(ctx context.Context, filters url.Values) (Reply[Page[dray.Record]], error) {
	return get[Page[dray.Record]](ctx, c, "/v1/invocations", filters)
}

// ChangedFiles gives a page of the files that dray changed, newest first. The filters are those of the HTTP interface.
func (c *Client) ChangedFiles(ctx context.Context, filters url.Values) (Reply[Page[ChangedFile]], error) {
	return get[Page[ChangedFile]](ctx, c, "/v1/audit/files", filters)
}

// ChangedFile is a file that dray changed for a call, which ended at At.
type ChangedFile struct {
	Invocation string `json:"invocation"`
	PlanID     string `json:"plan_id"`
	dray.FileChange
	At time.Time `json:"at"`
}

// Route says where a call would run, and why. Nothing runs.
func (c *Client) Route(ctx context.Context, call Call) (Reply[Route], error) {
	return exchange[Route](ctx, c, http.MethodPost, "/v1/route", call)
}

// Route is the decision for a call. Where the call would be refused, Error says why, and the rest what was looked at.
type Route struct {
	dray.Route
	Error *dray.Error `json:"error"`
}

// Resize changes the size of the terminal of a call that was started with one. It waits until the call's process runs.
func (c *Client) Resize(ctx context.Context, id string, size dray.TerminalSize) error {
	resp, err := c.send(ctx, http.MethodPost, "/v1/invocations/"+url.PathEscape(id)+"/resize", size, "application/json")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
