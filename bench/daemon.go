package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
)

// startTimeout bounds the daemon's start, stopTimeout its end.
const (
	startTimeout = 20 * time.Second
	stopTimeout  = 20 * time.Second
)

// daemon is a `dray serve` of the bench's own.
type daemon struct {
	name    string // by the channel to the container
	program string
	config  string // path
	state   string
	socket  string
	http    *httpClient
	calls   atomic.Int64 // that succeeded
	cmd     *exec.Cmd
	ended   chan error // receives the end of the process, once
}

// hostDir is the name of a directory beside the workspace that no container is configured for.
const hostDir = "host"

// settings returns a configuration that permits tools of the host in the workspace, and as many
// calls at once as are measured.
func settings(workspace, transport string) ([]byte, error) {
	return json.Marshal(map[string]any{ // JSON is YAML
		"host": map[string]any{"roots": []string{
			workspace, filepath.Join(filepath.Dir(workspace), hostDir),
		}},
		"agent":  map[string]any{"transport": transport},
		"limits": map[string]any{"concurrent": 2 * mostCallers, "per_container": mostCallers},
	})
}

// newDaemon configures and starts a daemon with its state below dir.
func newDaemon(ctx context.Context, program, dir, workspace, transport string) (*daemon, error) {
	d := &daemon{
		program: program, config: filepath.Join(dir, "config.yaml"), state: filepath.Join(dir, "state"),
	}
	d.socket = filepath.Join(d.state, "dray.sock")
	d.http = newHTTPClient(d.socket)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	text, err := settings(workspace, transport)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(d.config, text, 0o600); err != nil {
		return nil, err
	}
	err = d.start(ctx)
	return d, err
}

// start starts the process and waits until it accepts calls. It outlives ctx: stop ends it.
func (d *daemon) start(ctx context.Context) error {
	//nolint:gosec // what is measured
	d.cmd = exec.CommandContext(context.WithoutCancel(ctx), d.program, "serve", "--state", d.state,
		"--config", d.config)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the bench alone
	log, err := d.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	ready, ended, cmd := make(chan error, 1), make(chan error, 1), d.cmd
	d.ended = ended
	go func() { // ends with the daemon
		err := untilReady(log, ready)
		_, _ = io.Copy(io.Discard, log)
		ended <- errors.Join(err, cmd.Wait())
	}()
	return d.await(ctx, ready)
}

// untilReady reads the log up to the event ready.
func untilReady(log io.Reader, ready chan<- error) error {
	var last []byte
	for lines := bufio.NewScanner(log); lines.Scan(); last = bytes.Clone(lines.Bytes()) {
		var line struct{ Event string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Event == "ready" {
			ready <- nil
			return nil
		}
	}
	err := fmt.Errorf("the daemon exited before it was ready: %s", last)
	ready <- err
	return err
}

func (d *daemon) await(ctx context.Context, ready <-chan error) error {
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	var err error
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = fmt.Errorf("the daemon was not ready after %s", startTimeout)
	}
	if err != nil {
		_ = d.stop() // err is the cause
	}
	return err
}

// stop ends the daemon and waits until it has exited.
func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // fails if it has exited
	timer := time.AfterFunc(stopTimeout, func() { _ = d.cmd.Process.Kill() })
	defer timer.Stop()
	d.http.client.CloseIdleConnections()
	return <-d.ended
}

// The names of the daemons.
const (
	daemonSocket = "dray, HTTP, socket"
	daemonStdio  = "dray, HTTP, stdio"
)

// channel makes a call and returns the daemon's name by the channel in the call's record.
func (d *daemon) channel(ctx context.Context, workspace string) (string, error) {
	record, err := d.http.run(ctx, workspace, dray.ChooseContainer, runTrue.argv)
	if err != nil {
		return "", err
	}
	d.calls.Add(1)
	if c := record.Metadata.Container.Channel; c != "stdio" {
		return daemonSocket, nil
	}
	return daemonStdio, nil
}

// runDir returns the directory that the daemon mounts into containers.
func (d *daemon) runDir() string { return filepath.Join(d.state, "run") }

// pid returns the daemon's pid.
func (d *daemon) pid() int { return d.cmd.Process.Pid }

// counted returns a runner that counts its successful calls: its audit log must contain as many.
func (d *daemon) counted(run runner) runner {
	return func(ctx context.Context, c *command) error {
		err := run(ctx, c)
		if err == nil {
			d.calls.Add(1)
		}
		return err
	}
}

// call returns a runner of calls through the daemon.
func (d *daemon) call(workspace string, where dray.EnvironmentChoice) runner {
	return d.counted(d.http.call(workspace, where))
}

// checkAuditLog checks that every call that went through the daemon has its begin and end record.
func (d *daemon) checkAuditLog(ctx context.Context) (calls int, err error) {
	succeeded, all, err := countRecords(ctx, d.socket)
	if err != nil {
		return 0, err
	}
	if calls = int(d.calls.Load()); succeeded != calls || all != calls {
		return 0, fmt.Errorf("the daemon made %d calls; its audit log has %d, %d of them succeeded",
			calls, all, succeeded)
	}
	return calls, nil
}
