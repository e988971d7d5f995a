package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/moby/moby/client"
	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agentbin"
	"github.com/dray-dev/dray/executor/container"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process"
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
type programs struct{ dray, docker, devcontainer, rex string }

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
	p.rex = findRex()
	return p, nil
}

// testbed is what is measured on. Everything in it is its own, and close removes it.
type testbed struct {
	programs

	dir       string // holds the workspace and the state folders
	memory    string // a folder in the host's memory, where there is one
	workspace string
	folder    string // the workspace in the container
	container container.Container
	api       *client.Client // a bare client of the engine
	// daemon brought the container up. Stdio is a second one that uses it without the folder that the
	// first has in it; nil where the first talks over stdio itself.
	daemon, stdio *daemon
	environments  []environment
	rex           *rex // nil where it is not installed
	undo          []func(context.Context) error
}

// environment is a place for processes without a daemon.
type environment struct {
	dray.Environment

	name string
}

// newTestbed brings everything up. What was made until an error is removed.
func newTestbed(ctx context.Context, p programs, image string, progress func(string)) (r *testbed,
	err error,
) {
	r = &testbed{programs: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close(ctx))
		}
	}()
	progress("making a workspace")
	if err := r.makeWorkspace(ctx, image); err != nil {
		return r, err
	}
	progress("starting a daemon and bringing up the devcontainer with the reference CLI")
	if err := r.bringUp(ctx); err != nil {
		return r, err
	}
	if err := r.startStdio(ctx); err != nil {
		return r, err
	}
	if err := r.openEnvironments(ctx); err != nil {
		return r, err
	}
	if p.rex == "" {
		progress("SWE-ReX is not installed and left out: `scripts/setup swerex` installs it")
		return r, nil
	}
	progress("starting SWE-ReX's server")
	err = r.startRex(ctx)
	return r, err
}

func (r *testbed) makeWorkspace(ctx context.Context, image string) (err error) {
	if r.dir, err = os.MkdirTemp("", "dray-bench-"); err != nil {
		return err
	}
	r.onClose(func(context.Context) error { return os.RemoveAll(r.dir) })
	r.workspace = filepath.Join(r.dir, "workspace")
	r.folder = "/workspaces/workspace"
	// the container's user works in it
	if err := os.MkdirAll(filepath.Join(r.workspace, ".devcontainer"), 0o755); err != nil { //nolint:gosec
		return err
	}
	if err := compileTool(ctx, r.workspace); err != nil {
		return err
	}
	if r.memory, err = memoryFolder(); err != nil {
		return err
	}
	r.onClose(func(context.Context) error { return os.RemoveAll(r.memory) })
	config, err := devcontainerOf(image, r.programs.rex, r.memory)
	if err != nil {
		return err
	}
	// the same
	return os.WriteFile(filepath.Join(r.workspace, ".devcontainer", "devcontainer.json"), config, 0o644) //nolint:gosec
}

// devcontainerOf is the configuration of the workspace. It asks for no new image for the caller's
// uid, so that the bench leaves none behind.
func devcontainerOf(image, rexFolder, memory string) ([]byte, error) {
	mounts := []string{fmt.Sprintf("type=bind,source=%s,target=%s,readonly", memory, memoryMount)}
	if rexFolder != "" {
		mounts = append(mounts, fmt.Sprintf("type=bind,source=%s,target=%s,readonly", rexFolder,
			rexMount))
	}
	return json.Marshal(map[string]any{
		"image": image, "remoteUser": remoteUser,
		"updateRemoteUserUID": false, "mounts": mounts,
	})
}

// memoryFolder makes a folder in the host's memory, or an ordinary one where there is no such
// place.
func memoryFolder() (string, error) {
	const memory = "/dev/shm"
	parent := ""
	if info, err := os.Stat(memory); err == nil && info.IsDir() {
		parent = memory
	}
	dir, err := os.MkdirTemp(parent, "dray-bench-")
	if err == nil {
		err = os.Chmod(dir, 0o755) //nolint:gosec // the container's user reads it
	}
	return dir, err
}

// bringUp has a daemon trust the workspace and bring it up.
func (r *testbed) bringUp(ctx context.Context) (err error) {
	if r.daemon, err = startDaemon(ctx, r.dray, filepath.Join(r.dir, "daemon"), r.workspace,
		"auto"); err != nil {
		return err
	}
	r.onClose(func(context.Context) error { return r.daemon.stop() })
	c := drayclient.New(r.daemon.socket, nil)
	defer c.Close()
	if _, err := c.Trust(ctx, r.workspace); err != nil {
		return fmt.Errorf("trusting the workspace: %w", err)
	}
	up, err := c.Up(ctx, r.workspace, func(_, _ string) {})
	if err != nil {
		return fmt.Errorf("bringing the workspace up: %w", err)
	}
	engine, err := r.openEngine(container.TransportEngine, r.daemon.runDir())
	if err != nil {
		return err
	}
	if r.api, err = client.New(client.WithHost(engine.Host())); err != nil {
		return fmt.Errorf("making a client of the engine: %w", err)
	}
	r.onClose(func(context.Context) error { return r.api.Close() })
	if r.container, err = engine.Inspect(ctx, up.Value.Container); err != nil {
		return err
	}
	r.onClose(r.removeContainer)
	r.daemon.name, err = r.daemon.channel(ctx, r.workspace)
	return err
}

// startStdio starts a second daemon on the same container, unless the first one has no other
// transport than this one would have.
func (r *testbed) startStdio(ctx context.Context) (err error) {
	if r.daemon.name == daemonStdio {
		return nil
	}
	if r.stdio, err = startDaemon(ctx, r.dray, filepath.Join(r.dir, "stdio"), r.workspace,
		"stdio"); err != nil {
		return err
	}
	r.onClose(func(context.Context) error { return r.stdio.stop() })
	c := drayclient.New(r.stdio.socket, nil)
	defer c.Close()
	if _, err := c.Trust(ctx, r.workspace); err != nil {
		return fmt.Errorf("trusting the workspace: %w", err)
	}
	r.stdio.name, err = r.stdio.channel(ctx, r.workspace)
	if err == nil && r.stdio.name != daemonStdio {
		err = fmt.Errorf("a daemon that is to talk over stdio is %q", r.stdio.name)
	}
	return err
}

// daemons are those that run.
func (r *testbed) daemons() []*daemon {
	if r.stdio == nil {
		return []*daemon{r.daemon}
	}
	return []*daemon{r.daemon, r.stdio}
}

// openEngine makes an engine as a daemon has one. The folders that its containers have of it lie in
// runDir.
func (r *testbed) openEngine(transport container.Transport, runDir string) (*container.Engine,
	error,
) {
	return r.engineWith(container.Options{Transport: transport, RunDir: runDir})
}

func (r *testbed) engineWith(opts container.Options) (*container.Engine, error) {
	opts.Lease, opts.Version, opts.Log = 30*time.Second, "bench", zap.NewNop()
	engine, err := container.NewEngine(container.EndpointConfig{}, opts)
	if err == nil {
		r.onClose(func(context.Context) error { return engine.Close() })
	}
	return engine, err
}

// openEnvironments makes the places for processes that are measured without a daemon.
func (r *testbed) openEnvironments(ctx context.Context) error {
	if r.daemon.name == daemonSocket {
		if err := r.openContainer(ctx, waySocket, container.TransportSocket); err != nil {
			return err
		}
	}
	if err := r.openContainer(ctx, wayStdio, container.TransportStdio); err != nil {
		return err
	}
	return r.openHost()
}

// openContainer starts an agent beside the daemons' in the container.
func (r *testbed) openContainer(ctx context.Context, name string,
	transport container.Transport,
) error {
	engine, err := r.openEngine(transport, r.daemon.runDir())
	if err != nil {
		return err
	}
	env, err := engine.Environment(ctx, container.EnvironmentSpec{
		Container: r.container, User: remoteUser, WorkspaceFolder: r.folder, Probe: probe,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r.environments = append(r.environments, environment{env, name})
	return nil
}

// openHost makes the daemon's host environment, with the agent's program for its supervisors.
func (r *testbed) openHost() error {
	agent, err := agentbin.For(runtime.GOARCH)
	if err != nil {
		return err
	}
	path := filepath.Join(r.dir, "supervisor")
	if err := os.WriteFile(path, agent.Data, 0o700); err != nil { //nolint:gosec // it is executed
		return err
	}
	pool := process.NewPool(process.SupervisorConfig{
		Path: path,
		Args: []string{"dray-supervisor", "supervise"}, Env: []string{"GOMAXPROCS=2"},
	})
	r.onClose(func(context.Context) error { pool.Close(); return nil })
	env := host.New(host.Config{Roots: []string{r.workspace}, Homes: filepath.Join(r.dir, "homes")},
		pool).Environment(r.workspace)
	r.environments = append(r.environments, environment{env, wayPool})
	return nil
}

// removeContainer removes the container and the volume that shows the agent in it.
func (r *testbed) removeContainer(ctx context.Context) error {
	_, err := r.api.ContainerRemove(ctx, r.container.ID,
		client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if v := r.container.AgentVolume; v != "" {
		_, volumeErr := r.api.VolumeRemove(ctx, v, client.VolumeRemoveOptions{})
		err = errors.Join(err, volumeErr)
	}
	return err
}

func (r *testbed) onClose(undo func(context.Context) error) { r.undo = append(r.undo, undo) }

// close removes everything, the newest first, even if the context has ended.
func (r *testbed) close(ctx context.Context) error {
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
