package hostiletest_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process"
)

const (
	debian, busybox = "dray-test/debian:latest", "dray-test/busybox:latest"
	toolFolder      = "/tools"
)

// newHost returns the host environment.
func newHost(t *testing.T, copies int, grace time.Duration) *testEnv {
	t.Helper()
	program, err := supervisorProgram()
	if err != nil {
		t.Fatal(err)
	}
	pool := process.NewPool(process.SupervisorConfig{
		Path: program,
		Args: []string{"dray-supervisor", "supervise"}, Env: []string{"GOMAXPROCS=2"},
	})
	t.Cleanup(pool.Close)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a := newToolCopies(t, max(copies, 2))
	h := host.New(host.Config{Roots: []string{dir}, Homes: filepath.Join(dir, "homes")}, pool)
	return &testEnv{
		name: "host", env: h.Environment(dir), tools: a, path: a.dir,
		run: newRunner(t, grace),
	}
}

// testContainer is a container with the engine that calls in it.
type testContainer struct {
	id     string
	engine *docker.Engine
	api    *client.Client
	spec   agent.Spec
}

// containerSpec is how a container is created and used.
type containerSpec struct {
	image     string // default debian
	user      string
	transport docker.Transport // default auto
	lease     time.Duration
	folder    bool   // mounts dray's directory, as `up` does
	engine    string // the address of an engine; default the machine's
	copies    int
	grace     time.Duration
	change    func(*container.Config, *container.HostConfig)
}

var inspectPlain = client.ContainerInspectOptions{}

// channelMode is how the daemon connects to the agent.
type channelMode struct {
	name   string
	choose func(*containerSpec)
}

var channelModes = []channelMode{
	{"socket", func(s *containerSpec) { s.transport, s.folder = docker.TransportSocket, true }},
	{"stdio", func(s *containerSpec) { s.transport = docker.TransportStdio }},
}

// newAPI returns a client of an engine; an empty host is the machine's.
func newAPI(t *testing.T, host string) *client.Client {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a container engine")
	}
	options := []client.Opt{client.FromEnv}
	if host != "" {
		options = append(options, client.WithHost(host))
	}
	api, err := client.New(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api
}

func newEngine(t *testing.T, s containerSpec) *docker.Engine {
	t.Helper()
	e, err := docker.NewEngine(docker.EndpointConfig{Host: s.engine}, docker.Options{
		RunDir: t.TempDir(), Lease: s.lease, Transport: s.transport, Version: "hostiletest", Log: zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// newTestContainer creates a container with the tools in it, and its environment.
func newTestContainer(t *testing.T, name string, s containerSpec) *testEnv {
	t.Helper()
	api := newAPI(t, s.engine)
	if s.image == "" {
		s.image = debian
	}
	if s.transport == "" {
		s.transport = docker.TransportAuto
	}
	if s.lease == 0 {
		s.lease = 30 * time.Second
	}
	b := &testContainer{api: api, engine: newEngine(t, s)}
	p := &testEnv{
		name: name, tools: newToolCopies(t, max(s.copies, 2)), path: toolFolder, box: b,
		run: newRunner(t, s.grace),
	}
	if s.folder {
		s.change = b.withFolder(t, s.engine != "", s.change)
	}
	b.id = runContainer(t, api, s, p.tools.dir)
	b.spec = agent.Spec{User: s.user, WorkspaceFolder: "/"}
	p.renew(t)
	return p
}

// withFolder mounts dray's directory into the container, and removes its volume after the test.
func (b *testContainer) withFolder(t *testing.T, ofTest bool,
	change func(*container.Config,
		*container.HostConfig),
) func(*container.Config, *container.HostConfig) {
	t.Helper()
	spec, err := b.engine.Mount(t.Context(), t.Name())
	_, rest, ok := strings.Cut(spec, "source=")
	if err != nil || !ok {
		t.Fatalf("no directory can be shared with the container: %q, %v", spec, err)
	}
	name, _, _ := strings.Cut(rest, ",")
	t.Cleanup(func() {
		if ofTest {
			return // it is removed with its engine, which may not release the volume after a restart
		}
		if _, err := b.api.VolumeRemove(context.Background(), name,
			client.VolumeRemoveOptions{}); err != nil {
			t.Error(err)
		}
	})
	return func(cfg *container.Config, host *container.HostConfig) {
		host.Mounts = append(host.Mounts, mount.Mount{
			Type: mount.TypeVolume, Source: name,
			Target: "/.dray",
		})
		if change != nil {
			change(cfg, host)
		}
	}
}

// as returns the environment of another user in the same container.
func (p *testEnv) as(t *testing.T, user string) *testEnv {
	t.Helper()
	other, b := *p, *p.box
	other.box = &b
	b.spec.User = user
	other.renew(t)
	return &other
}

// renew looks the environment up again, as the daemon does for every call.
func (p *testEnv) renew(t testing.TB) {
	t.Helper()
	c, err := p.box.engine.Inspect(t.Context(), p.box.id)
	if err != nil {
		t.Fatal(err)
	}
	if p.env, err = p.box.engine.Environment(t.Context(), c, p.box.spec); err != nil {
		t.Fatal(err)
	}
}

func runContainer(t *testing.T, api *client.Client, s containerSpec, tools string) string {
	t.Helper()
	cfg := &container.Config{
		Image: s.image, Cmd: []string{"sleep", "1000000"},
		Labels: map[string]string{"dev.dray.test": t.Name()},
	}
	host := &container.HostConfig{
		Init: new(true), NetworkMode: "none",
		Binds: []string{tools + ":" + toolFolder + ":ro"},
	}
	if s.change != nil {
		s.change(cfg, host)
	}
	created, err := api.ContainerCreate(t.Context(),
		client.ContainerCreateOptions{Config: cfg, HostConfig: host})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := api.ContainerRemove(context.Background(), created.ID,
			client.ContainerRemoveOptions{Force: true})
		if err != nil && !errdefs.IsNotFound(err) {
			t.Error(err)
		}
	})
	if _, err := api.ContainerStart(t.Context(), created.ID,
		client.ContainerStartOptions{}); err != nil {
		t.Fatal(err)
	}
	return created.ID
}
