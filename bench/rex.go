package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/moby/moby/client"
)

const (
	// rexDir is where `scripts/setup swerex` installs the server, rexMount its mount point.
	rexDir   = ".tools/swerex"
	rexMount = "/opt/swerex"
	rexPort  = 8377
	// rexTimeout bounds the wait for its first response.
	rexTimeout = 30 * time.Second
)

// findRex returns the directory of the installed server, or "".
func findRex() string {
	dir, err := filepath.Abs(rexDir)
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(dir, "swerex", "server.py")); err != nil {
		return ""
	}
	return dir
}

// rex is a client of SWE-ReX's server in the container. But for the part sessions it runs each
// command without a shell session, which is the fastest that the server offers.
type rex struct {
	client *http.Client
	url    string
	token  string
	folder string // where commands run
}

// startRex starts the server in the container and waits for its first response. It ends with the
// container.
func (b *testbed) startRex(ctx context.Context) error {
	inspected, err := b.api.ContainerInspect(ctx, b.container.ID, client.ContainerInspectOptions{})
	if err != nil {
		return err
	}
	var address string
	for _, network := range inspected.Container.NetworkSettings.Networks {
		address = fmt.Sprintf("%s:%d", network.IPAddress, rexPort)
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	}
	x := &rex{
		client: &http.Client{Transport: &direct{dial: dial}}, url: "http://" + address,
		token: rand.Text(), folder: b.folder,
	}
	created, err := b.api.ExecCreate(ctx, b.container.ID, client.ExecCreateOptions{
		User: remoteUser, WorkingDir: "/", Env: []string{"PYTHONPATH=" + rexMount},
		Cmd: []string{
			"python3", "-m", "swerex.server", "--port", fmt.Sprint(rexPort), "--auth-token",
			x.token,
		},
	})
	if err != nil {
		return fmt.Errorf("start SWE-ReX: %w", err)
	}
	if _, err := b.api.ExecStart(ctx, created.ID, client.ExecStartOptions{Detach: true}); err != nil {
		return fmt.Errorf("start SWE-ReX: %w", err)
	}
	b.rex = x
	b.onClose(func(context.Context) error { x.client.CloseIdleConnections(); return nil })
	return x.await(ctx)
}

func (x *rex) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, rexTimeout,
		errors.New("SWE-ReX's server did not respond"))
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := x.call(ctx, &runTrue); err == nil {
			return nil
		} else if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// call runs one command and decodes the response.
func (x *rex) call(ctx context.Context, c *command) error {
	body, err := x.execute(ctx, c.argv)
	if err != nil {
		return err
	}
	defer body.Close()
	var response struct {
		Stdout string `json:"stdout"`
		Code   int    `json:"exit_code"`
	}
	if err := json.NewDecoder(body).Decode(&response); err != nil {
		return fmt.Errorf("decode SWE-ReX's response: %w", err)
	}
	_, _ = io.Copy(io.Discard, body) // so that the connection can be used again
	return expect(c, response.Code, response.Stdout)
}

func (x *rex) execute(ctx context.Context, argv []string) (io.ReadCloser, error) {
	return x.open(ctx, "/execute", map[string]any{"command": argv, "cwd": x.folder})
}

// post makes a request and returns the whole response.
func (x *rex) post(ctx context.Context, path string, request map[string]any) ([]byte, error) {
	body, err := x.open(ctx, path, request)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

func (x *rex) open(ctx context.Context, path string, request map[string]any,
) (io.ReadCloser, error) {
	text, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-API-Key", x.token)
	resp, err := x.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, fmt.Errorf("SWE-ReX responded %s: %s", resp.Status, text)
	}
	return resp.Body, nil
}

// flood counts the bytes of the response and drops them: only the server's memory is measured.
func (x *rex) flood(ctx context.Context, n int64) error {
	body, err := x.execute(ctx, floodArgs(n))
	if err != nil {
		return err
	}
	defer body.Close()
	got, err := io.Copy(io.Discard, body)
	if err == nil && got < n {
		err = fmt.Errorf("%d bytes were written, and the response has %d", n, got)
	}
	return err
}
