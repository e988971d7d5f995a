package hostiletest_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
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
	{"socket", func(s *containerSpec) { s.transport = docker.TransportSocket }},
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
	b.id = runContainer(t, api, s, p.tools.dir)
	b.spec = agent.Spec{User: s.user, WorkspaceFolder: "/"}
	p.renew(t)
	return p
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
