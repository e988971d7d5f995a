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

// direct is a transport over kept connections that writes a request and reads its answer in the
// caller's own goroutine. The transport of package net/http hands both to goroutines of the
// connection: on few cores their changing of places costs a client as much as some servers need for
// the whole call, and the servers are what is compared.
type direct struct {
	dial func(ctx context.Context) (net.Conn, error)

	mu   sync.Mutex
	idle []*kept
}

// kept is a connection between two requests, or with one.
type kept struct {
	net.Conn
	from *bufio.Reader
	used bool
}

// RoundTrip makes one request. A kept connection that its server has closed meanwhile gives way to
// a new one.
func (d *direct) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		c, err := d.take(req.Context())
		if err != nil {
			return nil, err
		}
		resp, err := d.ask(c, req)
		if err == nil {
			return resp, nil
		}
		_ = c.Close()
		if !c.used || req.GetBody == nil || !gone(err) {
			return nil, err
		}
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
}

// gone says that the server had closed the connection; whether the write or the read tells so is
// chance.
func gone(err error) bool {
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

func (d *direct) ask(c *kept, req *http.Request) (*http.Response, error) {
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
	resp.Body = &answer{ReadCloser: resp.Body, done: func(whole bool) {
		if stop() && whole && !resp.Close {
			d.put(c)
			return
		}
		_ = c.Close()
	}}
	return resp, nil
}

func (d *direct) take(ctx context.Context) (*kept, error) {
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
	return &kept{Conn: conn, from: bufio.NewReaderSize(conn, 64<<10)}, nil
}

func (d *direct) put(c *kept) {
	c.used = true
	d.mu.Lock()
	defer d.mu.Unlock()
	d.idle = append(d.idle, c)
}

// CloseIdleConnections is what http.Client asks for.
func (d *direct) CloseIdleConnections() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.idle {
		_ = c.Close()
	}
	d.idle = nil
}

// answer is a body whose connection is kept if it was read to its end.
type answer struct {
	io.ReadCloser
	done  func(whole bool)
	whole bool
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	a.whole = a.whole || err == io.EOF
	return n, err
}

func (a *answer) Close() error {
	err := a.ReadCloser.Close()
	if a.done != nil {
		a.done(a.whole)
		a.done = nil
	}
	return err
}

// web is a client of the daemon's HTTP interface, as a framework in any language has one:
// connections are kept, the answer is JSON.
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
func (w *web) run(ctx context.Context, workspace string, where dray.EnvironmentChoice,
	argv []string,
) (record dray.Record, err error) {
	b, err := json.Marshal(body{
		Tool: "exec", Input: input{argv}, Workspace: workspace,
		Environment: where,
	})
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
		return record, fmt.Errorf("call %s ran in %q and is %s", record.ID, record.Route.Environment,
			record.Status)
	}
	if m := record.Metadata.Container; where == dray.ChooseContainer &&
		(m == nil || m.Transport != "agent") {
		return record, fmt.Errorf("call %s did not go through the agent", record.ID)
	}
	return record, nil
}

func (w *web) post(ctx context.Context, b []byte) (record dray.Record, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v1/invocations",
		bytes.NewReader(b))
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
