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
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/agentbin"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process"
	drayclient "github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/devcontainer"
)

const (
	// remoteUser is the user in the container; the image has it.
	remoteUser = "vscode"
	// probe is the default of userEnvProbe.
	probe = "loginInteractiveShell"
	// closeTimeout bounds the removal of what was made.
	closeTimeout = 30 * time.Second
)

// programs are the paths of what is compared.
type programs struct{ dray, docker, devcontainer, rex string }

func findPrograms(dray string) (p programs, err error) {
	if p.dray, err = filepath.Abs(dray); err == nil {
		_, err = os.Stat(p.dray)
	}
	if err != nil {
		return p, fmt.Errorf("find the daemon's program: %w (run `make build`)", err)
	}
	if p.docker, err = exec.LookPath("docker"); err != nil {
		return p, fmt.Errorf("find the docker CLI: %w (run `make setup`)", err)
	}
	if p.devcontainer = os.Getenv("DRAY_DEVCONTAINER_CLI"); p.devcontainer == "" {
		p.devcontainer, err = exec.LookPath("devcontainer")
	}
	if err != nil {
		return p, fmt.Errorf("find the devcontainer CLI: %w (run `make setup`)", err)
	}
	p.rex = findRex()
	return p, nil
}

// testbed is what is measured on: workspace, container, daemons. close removes all of it.
type testbed struct {
	programs

	dir       string // of the workspace and the state directories
	memory    string // a directory in the host's memory if possible
	workspace string
	folder    string // the workspace in the container
	container devcontainer.ContainerInfo
	api       *client.Client // a bare client of the engine
	// daemon brought the container up. stdio is a second one on the same container that is configured
	// to use stdio; nil if the first uses stdio itself.
	daemon, stdio *daemon
	environments  []environment
	rex           *rex // nil where it is not installed
	floor         *floorProgram
	plain         string // the plain client's program
	undo          []func(context.Context) error
}

// environment is an environment that is used without a daemon.
type environment struct {
	dray.Environment

	name string
}

// newTestbed brings everything up. If it fails it removes what it made.
func newTestbed(ctx context.Context, p programs, image string) (b *testbed, err error) {
	b = &testbed{programs: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close(ctx))
		}
	}()
	progress("making a workspace")
	if err := b.makeWorkspace(ctx, image); err != nil {
		return b, err
	}
	progress("starting a daemon and bringing up the devcontainer with the reference CLI")
	if err := b.bringUp(ctx); err != nil {
		return b, err
	}
	if err := b.startStdio(ctx); err != nil {
		return b, err
	}
	if err := b.openEnvironments(ctx); err != nil {
		return b, err
	}
	if p.rex == "" {
		progress("SWE-ReX is not installed and is left out; to install it run scripts/setup swerex")
		return b, nil
	}
	progress("starting SWE-ReX's server")
	err = b.startRex(ctx)
	return b, err
}

func (b *testbed) makeWorkspace(ctx context.Context, image string) (err error) {
	if b.dir, err = os.MkdirTemp("", "dray-bench-"); err != nil {
		return err
	}
	b.onClose(func(context.Context) error { return os.RemoveAll(b.dir) })
	b.workspace = filepath.Join(b.dir, "workspace")
	b.folder = "/workspaces/workspace"
	//nolint:gosec // the container's user works in it
	if err := os.MkdirAll(filepath.Join(b.workspace, ".devcontainer"), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(b.dir, hostDir), 0o700); err != nil {
		return err
	}
	if err := compileTool(ctx, b.workspace); err != nil {
		return err
	}
	if err := b.compileClients(ctx); err != nil {
		return err
	}
	if b.memory, err = memoryDir(); err != nil {
		return err
	}
	b.onClose(func(context.Context) error { return os.RemoveAll(b.memory) })
	config, err := devcontainerJSON(image, b.programs.rex, b.memory)
	if err != nil {
		return err
	}
	path := filepath.Join(b.workspace, ".devcontainer", "devcontainer.json")
	return os.WriteFile(path, config, 0o644) //nolint:gosec // the same
}

// compileClients builds the programs that are compared with dray.
func (b *testbed) compileClients(ctx context.Context) (err error) {
	b.plain = filepath.Join(b.dir, "plainclient")
	if _, err := output(ctx, "go", "build", "-o", b.plain, "./bench/plainclient"); err != nil {
		return err
	}
	b.floor, err = compileFloor(ctx, b.dir)
	return err
}

// devcontainerJSON returns the configuration of the workspace. updateRemoteUserUID is off, because
// it would leave an image behind.
func devcontainerJSON(image, rexDir, memory string) ([]byte, error) {
	mounts := []string{fmt.Sprintf("type=bind,source=%s,target=%s,readonly", memory, memoryMount)}
	if rexDir != "" {
		mounts = append(mounts, fmt.Sprintf("type=bind,source=%s,target=%s,readonly", rexDir,
			rexMount))
	}
	return json.Marshal(map[string]any{
		"image": image, "remoteUser": remoteUser,
		"updateRemoteUserUID": false, "mounts": mounts,
	})
}

// memoryDir makes a directory in the host's memory if there is a file system in it.
func memoryDir() (string, error) {
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

// bringUp starts a daemon that trusts the workspace and brings it up.
func (b *testbed) bringUp(ctx context.Context) (err error) {
	if b.daemon, err = newDaemon(ctx, b.dray, filepath.Join(b.dir, "daemon"), b.workspace,
		"auto"); err != nil {
		return err
	}
	b.onClose(func(context.Context) error { return b.daemon.stop() })
	c := drayclient.New(b.daemon.socket, nil)
	defer c.Close()
	if err := trust(ctx, c, b.workspace); err != nil {
		return fmt.Errorf("trust the workspace: %w", err)
	}
	up, err := c.Change(ctx, b.workspace, "up", func(_, _ string) {})
	if err != nil {
		return fmt.Errorf("bring the workspace up: %w", err)
	}
	engine, err := b.openEngine(docker.TransportEngine, b.daemon.runDir())
	if err != nil {
		return err
	}
	if b.api, err = client.New(client.WithHost(engine.Host())); err != nil {
		return fmt.Errorf("connect to the engine: %w", err)
	}
	b.onClose(func(context.Context) error { return b.api.Close() })
	if b.container, err = engine.Inspect(ctx, up.Value.Container); err != nil {
		return err
	}
	b.onClose(b.removeContainer)
	b.daemon.name, err = b.daemon.channel(ctx, b.workspace)
	return err
}

// trust trusts a workspace as it is.
func trust(ctx context.Context, c *drayclient.Client, workspace string) error {
	review, err := c.ReviewTrust(ctx, workspace)
	if err == nil {
		_, err = c.Trust(ctx, workspace, review.Value.Hash)
	}
	return err
}

// startStdio starts a second daemon on the same container unless the first one uses stdio.
func (b *testbed) startStdio(ctx context.Context) (err error) {
	if b.daemon.name == daemonStdio {
		return nil
	}
	if b.stdio, err = newDaemon(ctx, b.dray, filepath.Join(b.dir, "stdio"), b.workspace,
		"stdio"); err != nil {
		return err
	}
	b.onClose(func(context.Context) error { return b.stdio.stop() })
	c := drayclient.New(b.stdio.socket, nil)
	defer c.Close()
	if err := trust(ctx, c, b.workspace); err != nil {
		return fmt.Errorf("trust the workspace: %w", err)
	}
	b.stdio.name, err = b.stdio.channel(ctx, b.workspace)
	if err == nil && b.stdio.name != daemonStdio {
		err = fmt.Errorf("a daemon with transport stdio is %q", b.stdio.name)
	}
	return err
}

// daemons returns the running daemons.
func (b *testbed) daemons() []*daemon {
	if b.stdio == nil {
		return []*daemon{b.daemon}
	}
	return []*daemon{b.daemon, b.stdio}
}

// openEngine connects to the engine as a daemon does. runDir is mounted into containers.
func (b *testbed) openEngine(transport docker.Transport, runDir string) (*docker.Engine,
	error,
) {
	return b.engineWith(docker.Options{Transport: transport, RunDir: runDir})
}

func (b *testbed) engineWith(opts docker.Options) (*docker.Engine, error) {
	opts.Lease, opts.Version, opts.Log = 30*time.Second, "bench", zap.NewNop()
	engine, err := docker.NewEngine(docker.EndpointConfig{}, opts)
	if err == nil {
		b.onClose(func(context.Context) error { return engine.Close() })
	}
	return engine, err
}

// openEnvironments opens the environments that are measured without a daemon.
func (b *testbed) openEnvironments(ctx context.Context) error {
	if b.daemon.name == daemonSocket {
		if err := b.openContainer(ctx, methodSocket, docker.TransportSocket); err != nil {
			return err
		}
	}
	if err := b.openContainer(ctx, methodStdio, docker.TransportStdio); err != nil {
		return err
	}
	return b.openHost()
}

// openContainer starts another agent in the container.
func (b *testbed) openContainer(ctx context.Context, name string,
	transport docker.Transport,
) error {
	engine, err := b.openEngine(transport, b.daemon.runDir())
	if err != nil {
		return err
	}
	env, err := engine.Environment(ctx, b.container,
		agent.Spec{User: remoteUser, WorkspaceFolder: b.folder, Probe: probe})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	b.environments = append(b.environments, environment{env, name})
	return nil
}

// supervisors returns a pool of the host, with the agent's program for its supervisors.
func (b *testbed) supervisors() (*process.Pool, error) {
	agent, err := agentbin.For(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(b.dir, fmt.Sprint("supervisor", len(b.undo)))
	if err := os.WriteFile(path, agent.Data, 0o700); err != nil { //nolint:gosec // it is executed
		return nil, err
	}
	pool := process.NewPool(process.SupervisorConfig{
		Path: path,
		Args: []string{"dray-supervisor", "supervise"}, Env: []string{"GOMAXPROCS=2"},
	})
	b.onClose(func(context.Context) error { pool.Close(); return nil })
	return pool, nil
}

// openHost opens the host environment.
func (b *testbed) openHost() error {
	pool, err := b.supervisors()
	if err != nil {
		return err
	}
	env := host.New(host.Config{Roots: []string{b.workspace}, Homes: filepath.Join(b.dir, "homes")},
		pool).Environment(b.workspace)
	b.environments = append(b.environments, environment{env, methodPool})
	return nil
}

// removeContainer removes the container.
func (b *testbed) removeContainer(ctx context.Context) error {
	_, err := b.api.ContainerRemove(ctx, b.container.ID,
		client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	return err
}

func (b *testbed) onClose(undo func(context.Context) error) { b.undo = append(b.undo, undo) }

// close removes everything, the newest first, even if ctx is done.
func (b *testbed) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var errs []error
	for len(b.undo) > 0 {
		last := len(b.undo) - 1
		errs = append(errs, b.undo[last](ctx))
		b.undo = b.undo[:last]
	}
	return errors.Join(errs...)
}
