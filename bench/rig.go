package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"
	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/container"
	drayclient "github.com/dray-dev/dray/internal/client"
)

const (
	// remoteUser is who the command runs as in the container; the image has it.
	remoteUser = "vscode"
	// probe is the userEnvProbe of a configuration that names none.
	probe = "loginInteractiveShell"
	// cleanTime bounds the removal of what was made.
	cleanTime = 30 * time.Second
)

// programs are the paths of what is compared.
type programs struct{ dray, docker, devcontainer string }

func findPrograms(dray string) (p programs, err error) {
	if p.dray, err = filepath.Abs(dray); err == nil {
		_, err = os.Stat(p.dray)
	}
	if err != nil {
		return p, fmt.Errorf("looking for the daemon's program: %w (run `make build`)", err)
	}
	if p.docker, err = exec.LookPath("docker"); err != nil {
		return p, fmt.Errorf("looking for the docker CLI: %w (run `make setup`)", err)
	}
	if p.devcontainer = os.Getenv("DRAY_DEVCONTAINER_CLI"); p.devcontainer == "" {
		p.devcontainer, err = exec.LookPath("devcontainer")
	}
	if err != nil {
		return p, fmt.Errorf("looking for the devcontainer CLI: %w (run `make setup`)", err)
	}
	return p, nil
}

// rig is what is measured on. Everything in it is its own, and close removes it.
type rig struct {
	programs

	dir       string // holds the workspace and both state folders
	workspace string
	daemon    *daemon
	engine    *container.Engine // a second one, beside the daemon's, for calls without the daemon
	api       *client.Client
	container container.Container
	env       dray.Environment
	folder    string       // the workspace in the container
	calls     atomic.Int64 // that went through the daemon
	undo      []func(context.Context) error
}

// newRig brings everything up. What was made until an error is removed.
func newRig(ctx context.Context, p programs, image string, progress func(string)) (r *rig, err error) {
	r = &rig{programs: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close(ctx))
		}
	}()
	progress("making a workspace")
	if err := r.makeWorkspace(image); err != nil {
		return r, err
	}
	progress("starting a daemon")
	if r.daemon, err = startDaemon(ctx, p.dray, r.dir, r.workspace); err != nil {
		return r, err
	}
	r.later(func(context.Context) error { return r.daemon.stop() })
	if err := r.openEngine(); err != nil {
		return r, err
	}
	progress("bringing up the devcontainer with the reference CLI")
	err = r.bringUp(ctx)
	return r, err
}

func (r *rig) makeWorkspace(image string) (err error) {
	if r.dir, err = os.MkdirTemp("", "dray-bench-"); err != nil {
		return err
	}
	r.later(func(context.Context) error { return os.RemoveAll(r.dir) })
	r.workspace = filepath.Join(r.dir, "workspace")
	r.folder = "/workspaces/workspace"
	if err := os.MkdirAll(filepath.Join(r.workspace, ".devcontainer"), 0o755); err != nil { //nolint:gosec // the container's user works in it
		return err
	}
	// Without a new image for the caller's uid, so that the bench leaves no image behind.
	config := fmt.Sprintf(`{"image": %q, "remoteUser": %q, "updateRemoteUserUID": false}`, image, remoteUser)
	return os.WriteFile(filepath.Join(r.workspace, ".devcontainer", "devcontainer.json"), []byte(config), 0o644) //nolint:gosec // the same
}

// openEngine makes the two engine clients: ours, as the daemon has one, and a bare one to the same address.
func (r *rig) openEngine() (err error) {
	r.engine, err = container.FindEngine(container.Choice{}, container.Options{
		Lease: 30 * time.Second, Transport: container.TransportStdio, RunDir: filepath.Join(r.dir, "run"), Version: "bench", Log: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	r.later(func(context.Context) error { return r.engine.Close() })
	if r.api, err = client.New(client.WithHost(r.engine.Host())); err != nil {
		return fmt.Errorf("making a client of the engine: %w", err)
	}
	r.later(func(context.Context) error { return r.api.Close() })
	return nil
}

// bringUp has the daemon trust the workspace and bring it up, and connects to the container beside it.
func (r *rig) bringUp(ctx context.Context) error {
	c := drayclient.New(r.daemon.socket, nil)
	defer c.Close()
	if _, err := c.Trust(ctx, r.workspace); err != nil {
		return fmt.Errorf("trusting the workspace: %w", err)
	}
	up, err := c.Up(ctx, r.workspace, nil, func(_, _ string) {})
	if err != nil {
		return fmt.Errorf("bringing the workspace up: %w", err)
	}
	if r.container, err = r.engine.Inspect(ctx, up.Value.Container); err != nil {
		return err
	}
	r.later(r.removeContainer)
	r.env, err = r.engine.Environment(ctx, container.Target{
		Container: r.container, User: remoteUser, WorkspaceFolder: r.folder, Probe: probe,
	})
	return err
}

// removeContainer removes the container and the volume that shows the agent in it.
func (r *rig) removeContainer(ctx context.Context) error {
	_, err := r.api.ContainerRemove(ctx, r.container.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if v := r.container.AgentVolume; v != "" {
		_, volumeErr := r.api.VolumeRemove(ctx, v, client.VolumeRemoveOptions{})
		err = errors.Join(err, volumeErr)
	}
	return err
}

func (r *rig) later(undo func(context.Context) error) { r.undo = append(r.undo, undo) }

// close removes everything, the newest first, even if the context has ended.
func (r *rig) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	var errs []error
	for len(r.undo) > 0 {
		last := len(r.undo) - 1
		errs = append(errs, r.undo[last](ctx))
		r.undo = r.undo[:last]
	}
	return errors.Join(errs...)
}
