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

// readyTime bounds the daemon's start, stopTime its end.
const (
	readyTime = 20 * time.Second
	stopTime  = 20 * time.Second
)

// daemon is a `dray serve` of the bench's own.
type daemon struct {
	name   string // by the channel that it talks to the container over
	cmd    *exec.Cmd
	state  string
	socket string
	web    *web
	calls  atomic.Int64 // that went through it and ended well
	ended  chan error   // gets the end of the process, once
}

// settings are the configuration of a daemon that runs tools of the host in the workspace, and so
// many calls at once as are measured.
func settings(workspace, transport string) ([]byte, error) {
	return json.Marshal(map[string]any{ // JSON is YAML
		"host":   map[string]any{"roots": []string{workspace}},
		"agent":  map[string]any{"transport": transport},
		"limits": map[string]any{"concurrent": 2 * mostCallers, "per_container": mostCallers},
	})
}

// startDaemon starts one on a state folder below dir.
func startDaemon(ctx context.Context, program, dir, workspace, transport string) (*daemon, error) {
	d := &daemon{state: filepath.Join(dir, "state"), ended: make(chan error, 1)}
	d.socket = filepath.Join(d.state, "dray.sock")
	d.web = newHTTP(d.socket)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "config.yaml")
	text, err := settings(workspace, transport)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return nil, err
	}
	// Its life is the rig's, not the context's: the rig ends it in order, with what it has made.
	// what is measured
	d.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, "serve", "--state", d.state, "--config", config) //nolint:gosec
	// Ctrl-C is for the bench alone
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the daemon: %w", err)
	}
	ready := make(chan error, 1)
	go func() { // ends with the daemon
		err := untilReady(log, ready)
		_, _ = io.Copy(io.Discard, log)
		d.ended <- errors.Join(err, d.cmd.Wait())
	}()
	err = d.await(ctx, ready)
	return d, err
}

// untilReady reads the log as far as the line that says that calls are accepted.
func untilReady(log io.Reader, ready chan<- error) error {
	var last []byte
	for lines := bufio.NewScanner(log); lines.Scan(); last = bytes.Clone(lines.Bytes()) {
		var line struct{ Event string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Event == "ready" {
			ready <- nil
			return nil
		}
	}
	err := fmt.Errorf("the daemon ended before it was ready: %s", last)
	ready <- err
	return err
}

func (d *daemon) await(ctx context.Context, ready <-chan error) error {
	timer := time.NewTimer(readyTime)
	defer timer.Stop()
	var err error
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = fmt.Errorf("the daemon was not ready after %s", readyTime)
	}
	if err != nil {
		_ = d.stop() // why it is stopped is the error that counts
	}
	return err
}

// stop ends the daemon and waits for its end.
func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // one that is over takes none
	timer := time.AfterFunc(stopTime, func() { _ = d.cmd.Process.Kill() })
	defer timer.Stop()
	return <-d.ended
}

// The names of the daemons.
const (
	daemonSocket = "dray, HTTP, socket"
	daemonStdio  = "dray, HTTP, stdio"
)

// channel makes a call and gives the name that the daemon has by what its record says of the
// channel.
func (d *daemon) channel(ctx context.Context, workspace string) (string, error) {
	record, err := d.web.run(ctx, workspace, dray.ChooseContainer, runTrue.argv)
	if err != nil {
		return "", err
	}
	d.calls.Add(1)
	if c := record.Metadata.Container.Channel; c != "stdio" {
		return daemonSocket, nil
	}
	return daemonStdio, nil
}

// runDir is where the daemon keeps the folders that containers have of it.
func (d *daemon) runDir() string { return filepath.Join(d.state, "run") }

// pid is the daemon's process.
func (d *daemon) pid() int { return d.cmd.Process.Pid }

// counted counts the calls that went through the daemon and ended well: so many must be in its
// trail.
func (d *daemon) counted(run runner) runner {
	return func(ctx context.Context, c command) error {
		err := run(ctx, c)
		if err == nil {
			d.calls.Add(1)
		}
		return err
	}
}

// call runs commands through the daemon.
func (d *daemon) call(workspace string, where dray.EnvironmentChoice) runner {
	return d.counted(d.web.call(workspace, where))
}

// inTrail proves that every call that went through the daemon was recorded, begin and end.
func (d *daemon) inTrail(ctx context.Context) (calls int, err error) {
	well, all, err := recorded(ctx, d.socket)
	if err != nil {
		return 0, err
	}
	if calls = int(d.calls.Load()); well != calls || all != calls {
		return 0, fmt.Errorf("%d calls went through the daemon, its trail has %d, and %d that ended well",
			calls, all, well)
	}
	return calls, nil
}
