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
	"syscall"
	"time"
)

// readyTime bounds the daemon's start, stopTime its end.
const (
	readyTime = 20 * time.Second
	stopTime  = 20 * time.Second
)

// daemon is a `dray serve` of the bench's own.
type daemon struct {
	cmd    *exec.Cmd
	state  string
	socket string
	ended  chan error // gets the end of the process, once
}

// startDaemon starts one on a state folder below dir, and allows it to run tools of the host in the workspace.
func startDaemon(ctx context.Context, program, dir, workspace string) (*daemon, error) {
	d := &daemon{state: filepath.Join(dir, "state"), ended: make(chan error, 1)}
	d.socket = filepath.Join(d.state, "dray.sock")
	config := filepath.Join(dir, "config.yaml")
	roots, err := json.Marshal(map[string]any{"host": map[string]any{"roots": []string{workspace}}}) // JSON is YAML
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, roots, 0o600); err != nil {
		return nil, err
	}
	// Its life is the rig's, not the context's: the rig ends it in order, with what it has made.
	d.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, "serve", "--state", d.state, "--config", config) //nolint:gosec // what is measured
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                                                           // Ctrl-C is for the bench alone
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
