package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	drayclient "github.com/dray-dev/dray/internal/client"
)

// direct is a transport over persistent connections that writes a request and reads its response
// in the caller's goroutine. The transport of package net/http passes both to other goroutines,
// which on few cores costs as much as some servers need for the whole call; the servers are what is
// compared.
type direct struct {
	dial func(ctx context.Context) (net.Conn, error)

	mu   sync.Mutex
	idle []*persistent
}

// persistent is a connection for one request after the other.
type persistent struct {
	net.Conn
	from *bufio.Reader
	used bool
}

// RoundTrip makes one request. It retries on another connection if the server had closed an idle
// one.
func (d *direct) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		c, err := d.acquire(req.Context())
		if err != nil {
			return nil, err
		}
		resp, err := c.exchange(d, req)
		if err == nil {
			return resp, nil
		}
		_ = c.Close()
		if !c.used || req.GetBody == nil || !isClosed(err) {
			return nil, err
		}
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
}

// isClosed reports whether err is what a write or a read returns if the server closed the
// connection.
func isClosed(err error) bool {
	for _, end := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.EPIPE,
		syscall.ECONNRESET,
	} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

func (c *persistent) exchange(d *direct, req *http.Request) (*http.Response, error) {
	stop := context.AfterFunc(req.Context(), func() { _ = c.SetDeadline(time.Now()) })
	to := bufio.NewWriterSize(c, 16<<10)
	err := req.Write(to)
	if err == nil {
		err = to.Flush()
	}
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(c.from, req)
	}
	if err != nil {
		stop()
		return nil, err
	}
	resp.Body = &responseBody{ReadCloser: resp.Body, done: func(whole bool) {
		if stop() && whole && !resp.Close {
			d.put(c)
			return
		}
		_ = c.Close()
	}}
	return resp, nil
}

func (d *direct) acquire(ctx context.Context) (*persistent, error) {
	d.mu.Lock()
	if n := len(d.idle); n > 0 {
		c := d.idle[n-1]
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		return c, nil
	}
	d.mu.Unlock()
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &persistent{Conn: conn, from: bufio.NewReaderSize(conn, 64<<10)}, nil
}

func (d *direct) put(c *persistent) {
	c.used = true
	d.mu.Lock()
	defer d.mu.Unlock()
	d.idle = append(d.idle, c)
}

// CloseIdleConnections closes the idle connections; http.Client calls it.
func (d *direct) CloseIdleConnections() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.idle {
		_ = c.Close()
	}
	d.idle = nil
}

// responseBody is a body whose connection is used again if it was read to its end.
type responseBody struct {
	io.ReadCloser
	done  func(whole bool)
	whole bool
}

func (a *responseBody) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	a.whole = a.whole || err == io.EOF
	return n, err
}

func (a *responseBody) Close() error {
	err := a.ReadCloser.Close()
	if a.done != nil {
		a.done(a.whole)
		a.done = nil
	}
	return err
}

// httpClient is a client of the daemon's HTTP interface over persistent connections.
type httpClient struct{ client *http.Client }

func newHTTPClient(socket string) *httpClient {
	dial := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &httpClient{client: &http.Client{Transport: &direct{dial: dial}}}
}

// body is the body of a request.
type body struct {
	Tool        string                 `json:"tool"`
	Input       input                  `json:"input"`
	Workspace   string                 `json:"workspace"`
	Environment dray.EnvironmentChoice `json:"environment"`
}

type input struct {
	Argv []string `json:"argv"`
}

func newBody(workspace string, where dray.EnvironmentChoice, argv []string) body {
	return body{Tool: "exec", Input: input{argv}, Workspace: workspace, Environment: where}
}

// call returns a runner of calls in a workspace. A call has ended when its record was decoded.
func (h *httpClient) call(workspace string, where dray.EnvironmentChoice) runner {
	return func(ctx context.Context, c *command) error {
		record, err := h.run(ctx, workspace, where, c.argv)
		if err != nil {
			return err
		}
		return expect(c, *record.ExitCode, record.Stdout.Text)
	}
}

// run makes a call and returns its record. It fails if the tool did not exit, or ran elsewhere.
func (h *httpClient) run(ctx context.Context, workspace string, where dray.EnvironmentChoice,
	argv []string,
) (record dray.Record, err error) {
	b, err := json.Marshal(newBody(workspace, where, argv))
	if err != nil {
		return record, err
	}
	if record, err = h.post(ctx, b); err != nil {
		return record, err
	}
	if record.Error != nil {
		return record, fmt.Errorf("call %s failed: %w", record.ID, record.Error)
	}
	if record.ExitCode == nil || string(record.Route.Environment) != string(where) {
		return record, fmt.Errorf("call %s ran in %q and is %s", record.ID, record.Route.Environment,
			record.Status)
	}
	if m := record.Metadata.Container; where == dray.ChooseContainer &&
		(m == nil || m.Transport != "agent") {
		return record, fmt.Errorf("call %s did not go through the agent", record.ID)
	}
	return record, nil
}

func (h *httpClient) post(ctx context.Context, b []byte) (record dray.Record, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v1/invocations",
		bytes.NewReader(b))
	if err != nil {
		return record, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.client.Do(req)
	if err != nil {
		return record, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return record, err
	}
	if resp.StatusCode != http.StatusOK {
		return record, fmt.Errorf("the daemon responded %s: %s", resp.Status, text)
	}
	err = json.Unmarshal(text, &record)
	return record, err
}

// countRecords counts the invocations in the audit log that succeeded, and all.
func countRecords(ctx context.Context, socket string) (succeeded, all int, err error) {
	c := drayclient.New(socket, nil)
	defer c.Close()
	filters := url.Values{"limit": {"1000"}}
	for {
		page, err := c.Invocations(ctx, filters)
		if err != nil {
			return 0, 0, fmt.Errorf("read the audit log: %w", err)
		}
		for _, record := range page.Items {
			all++
			if record.Status == dray.StatusSucceeded && record.EndedAt != nil {
				succeeded++
			}
		}
		if page.NextCursor == "" {
			return succeeded, all, nil
		}
		filters.Set("cursor", page.NextCursor)
	}
}
