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
	// rexFolder is where `scripts/setup swerex` installs the server, rexMount where the container sees
	// it.
	rexFolder = ".tools/swerex"
	rexMount  = "/opt/swerex"
	rexPort   = 8377
	// rexPatience bounds the wait for its first answer.
	rexPatience = 30 * time.Second
)

// findRex gives the folder of the installed server, empty where there is none.
func findRex() string {
	folder, err := filepath.Abs(rexFolder)
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(folder, "swerex", "server.py")); err != nil {
		return ""
	}
	return folder
}

// rex is SWE-ReX's server in the container. It runs each command by itself, without any shell
// session: its fastest way.
type rex struct {
	client *http.Client
	url    string
	token  string
	folder string // where commands run
}

// startRex starts the server in the container and waits for its first answer. It ends with the
// container.
func (r *testbed) startRex(ctx context.Context) error {
	inspected, err := r.api.ContainerInspect(ctx, r.container.ID, client.ContainerInspectOptions{})
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
		token: rand.Text(), folder: r.folder,
	}
	created, err := r.api.ExecCreate(ctx, r.container.ID, client.ExecCreateOptions{
		User: remoteUser, WorkingDir: "/", Env: []string{"PYTHONPATH=" + rexMount},
		Cmd: []string{
			"python3", "-m", "swerex.server", "--port", fmt.Sprint(rexPort), "--auth-token",
			x.token,
		},
	})
	if err != nil {
		return fmt.Errorf("starting SWE-ReX: %w", err)
	}
	if _, err := r.api.ExecStart(ctx, created.ID, client.ExecStartOptions{Detach: true}); err != nil {
		return fmt.Errorf("starting SWE-ReX: %w", err)
	}
	r.rex = x
	r.onClose(func(context.Context) error { x.client.CloseIdleConnections(); return nil })
	return x.await(ctx)
}

func (x *rex) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, rexPatience,
		errors.New("SWE-ReX's server did not answer"))
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := x.call(ctx, runTrue); err == nil {
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

// call is one command, until its answer was read and decoded.
func (x *rex) call(ctx context.Context, c command) error {
	body, err := x.execute(ctx, c.argv)
	if err != nil {
		return err
	}
	defer body.Close()
	var answer struct {
		Stdout string `json:"stdout"`
		Code   int    `json:"exit_code"`
	}
	if err := json.NewDecoder(body).Decode(&answer); err != nil {
		return fmt.Errorf("reading SWE-ReX's answer: %w", err)
	}
	_, _ = io.Copy(io.Discard, body) // so that the connection is kept
	return expect(c, answer.Code, answer.Stdout)
}

func (x *rex) execute(ctx context.Context, argv []string) (io.ReadCloser, error) {
	b, err := json.Marshal(map[string]any{"command": argv, "cwd": x.folder})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url+"/execute", bytes.NewReader(b))
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
		return nil, fmt.Errorf("SWE-ReX answered %s: %s", resp.Status, text)
	}
	return resp.Body, nil
}

// flood counts the answer instead of keeping it, which no client of it does: the memory that is
// measured is the server's alone.
func (x *rex) flood(ctx context.Context, n int64) error {
	body, err := x.execute(ctx, floodOf(n))
	if err != nil {
		return err
	}
	defer body.Close()
	got, err := io.Copy(io.Discard, body)
	if err == nil && got < n {
		err = fmt.Errorf("%d bytes were printed, and the answer has %d", n, got)
	}
	return err
}
