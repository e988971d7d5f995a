package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/dray-dev/dray"
	drayclient "github.com/dray-dev/dray/internal/client"
)

// web is a client of the daemon's HTTP interface, as a framework in any language has one: connections are kept, the answer is JSON.
type web struct{ client *http.Client }

func newHTTP(socket string) *web {
	dial := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &web{client: &http.Client{Transport: &direct{dial: dial}}}
}

// body is a call as a caller writes it.
type body struct {
	Tool        string                 `json:"tool"`
	Input       input                  `json:"input"`
	Workspace   string                 `json:"workspace"`
	Environment dray.EnvironmentChoice `json:"environment"`
}

type input struct {
	Argv []string `json:"argv"`
}

// call makes calls in a workspace. It is over when the record of the call was read and understood.
func (w *web) call(workspace string, where dray.EnvironmentChoice) runner {
	return func(ctx context.Context, c command) error {
		record, err := w.run(ctx, workspace, where, c.argv)
		if err != nil {
			return err
		}
		return expect(c, *record.ExitCode, record.Stdout.Text)
	}
}

// run gives the record of a call whose tool ended by itself, in the right place.
func (w *web) run(ctx context.Context, workspace string, where dray.EnvironmentChoice, argv []string) (record dray.Record, err error) {
	b, err := json.Marshal(body{Tool: "exec", Input: input{argv}, Workspace: workspace, Environment: where})
	if err != nil {
		return record, err
	}
	if record, err = w.post(ctx, b); err != nil {
		return record, err
	}
	if record.Error != nil {
		return record, fmt.Errorf("call %s failed: %w", record.ID, record.Error)
	}
	if record.ExitCode == nil || string(record.Route.Environment) != string(where) {
		return record, fmt.Errorf("call %s ran in %q and is %s", record.ID, record.Route.Environment, record.Status)
	}
	if m := record.Metadata.Container; where == dray.ChooseContainer && (m == nil || m.Transport != "agent") {
		return record, fmt.Errorf("call %s did not go through the agent", record.ID)
	}
	return record, nil
}

func (w *web) post(ctx context.Context, b []byte) (record dray.Record, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v1/invocations", bytes.NewReader(b))
	if err != nil {
		return record, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		return record, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return record, err
	}
	if resp.StatusCode != http.StatusOK {
		return record, fmt.Errorf("the daemon answered %s: %s", resp.Status, answer)
	}
	err = json.Unmarshal(answer, &record)
	return record, err
}

// recorded counts the calls in the trail that ended well, and all.
func recorded(ctx context.Context, socket string) (well, all int, err error) {
	c := drayclient.New(socket, nil)
	defer c.Close()
	filters := url.Values{"limit": {"1000"}}
	for {
		page, err := c.Invocations(ctx, filters)
		if err != nil {
			return 0, 0, fmt.Errorf("reading the trail: %w", err)
		}
		for _, record := range page.Value.Items {
			all++
			if record.Status == dray.StatusSucceeded && record.EndedAt != nil {
				well++
			}
		}
		if page.Value.NextCursor == "" {
			return well, all, nil
		}
		filters.Set("cursor", page.Value.NextCursor)
	}
}
