package docker_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/internal/devcontainer"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "serve" { // in a container, in the agent's place
		hostileAgent()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == occupyArg {
		fmt.Fprintln(os.Stderr, occupySockets())
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

const debian, busybox = "dray-test/debian:latest", "dray-test/busybox:latest"

// newEngine connects to the engine that the docker CLI would use. The tests fail without one.
func newEngine(t testing.TB, transport docker.Transport) *docker.Engine {
	return newEngineWith(t, docker.Options{Transport: transport})
}

func newEngineWith(t testing.TB, opts docker.Options) *docker.Engine {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a container engine")
	}
	if opts.RunDir == "" {
		opts.RunDir = t.TempDir()
	}
	opts.Lease, opts.Version = cmp.Or(opts.Lease, 30*time.Second), "test"
	if opts.Log == nil {
		opts.Log = zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	}
	e, err := docker.NewEngine(docker.EndpointConfig{}, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// newAPI returns a plain client of the engine.
func newAPI(t testing.TB) *client.Client {
	t.Helper()
	api, err := client.New(client.FromEnv)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api
}

// environment returns an environment of a container.
func environment(t testing.TB, e *docker.Engine, c devcontainer.ContainerInfo, spec agent.Spec,
) dray.Environment {
	t.Helper()
	env, err := e.Environment(t.Context(), c, spec)
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// runContainer starts a container that only sleeps. It is removed at the end of the test.
func runContainer(t testing.TB, e *docker.Engine, image string,
	change func(*container.Config, *container.HostConfig),
) devcontainer.ContainerInfo {
	t.Helper()
	api := newAPI(t)
	cfg := &container.Config{
		Image: image, Cmd: []string{"sleep", "1000000"},
		Labels: map[string]string{"dev.dray.test": t.Name()},
	}
	host := &container.HostConfig{Init: new(true), NetworkMode: "none"}
	if change != nil {
		change(cfg, host)
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
	c, err := e.Inspect(t.Context(), created.ID)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type ended struct {
	stdout, stderr string
	exit           dray.Exit
}

func run(t *testing.T, env dray.Environment, spec dray.ProcessSpec, stdin string) ended {
	t.Helper()
	p, err := env.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	var got ended
	var out, errOut bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(&out, p.Output(dray.Stdout)) })
	wg.Go(func() { _, _ = io.Copy(&errOut, p.Output(dray.Stderr)) })
	_, _ = io.WriteString(p.Stdin(), stdin)
	_ = p.Stdin().Close()
	if got.exit, err = p.Wait(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	got.stdout, got.stderr = out.String(), errOut.String()
	return got
}

// With the agent and with the engine's exec, a process runs as the user, with exact bytes and its
// exit code (EX-15).
func TestRun(t *testing.T) {
	for _, transport := range []docker.Transport{docker.TransportStdio, docker.TransportEngine} {
		t.Run(string(transport), func(t *testing.T) {
			e := newEngine(t, transport)
			c := runContainer(t, e, "dray-test/debian:latest", nil)
			env, err := e.Environment(t.Context(),
				c, agent.Spec{
					User: "vscode", Probe: "loginInteractiveShell",
					RemoteEnv: map[string]string{"FROM_REMOTE": "yes"},
				})
			if err != nil {
				t.Fatal(err)
			}
			got := run(t, env, dray.ProcessSpec{Argv: []string{
				"sh", "-c",
				"id; pwd; cat; echo $FROM_REMOTE $HOME; umask; echo err >&2; exit 7",
			}, Dir: "/tmp"}, "in\x00\xff\n")
			if !strings.Contains(got.stdout, "uid=1000(vscode)") ||
				!strings.Contains(got.stdout, "/tmp\nin\x00\xff\nyes /home/vscode\n0022\n") ||
				got.stderr != "err\n" || got.exit.Code != 7 {
				t.Errorf("got %+v", got)
			}
			_, err = env.Start(t.Context(), dray.ProcessSpec{Argv: []string{"no-such-program"}, Dir: "/"})
			if dray.CodeOf(err) != dray.CodeExecutableNotFound {
				t.Errorf("absent program: %v (%s)", err, dray.CodeOf(err))
			}
			_, err = env.Start(t.Context(), dray.ProcessSpec{Argv: []string{"true"}, Dir: "/no/such"})
			if dray.CodeOf(err) != dray.CodeBadCwd {
				t.Errorf("absent directory: %v (%s)", err, dray.CodeOf(err))
			}
		})
	}
}

// A warning names the variables of a call that remoteEnv replaces, without their values (EX-07).
func TestOverriddenVariables(t *testing.T) {
	for _, transport := range []docker.Transport{docker.TransportStdio, docker.TransportEngine} {
		t.Run(string(transport), func(t *testing.T) {
			e := newEngine(t, transport)
			env := environment(t, e, runContainer(t, e, "dray-test/debian:latest", nil), agent.Spec{
				User: "vscode", RemoteEnv: map[string]string{"A": "remote", "B": "remote", "SAME": "x"},
			})
			for want, vars := range map[string]map[string]string{
				"variables of the call: A, B": {"B": "secret", "A": "secret", "SAME": "x", "MINE": "y"},
				"":                            {"SAME": "x", "MINE": "y"},
			} {
				p, err := env.Start(t.Context(), dray.ProcessSpec{
					Argv: []string{"sh", "-c", `test "$A$B" = remoteremote`}, Dir: "/", Env: vars,
				})
				if err != nil {
					t.Fatal(err)
				}
				_ = p.Stdin().Close()
				if exit, err := p.Wait(); err != nil || exit.Code != 0 {
					t.Errorf("%v, %v", exit, err)
				}
				warner, ok := p.(interface{ Warnings() []string })
				if !ok {
					t.Fatalf("%T has no warnings", p)
				}
				warned := strings.Join(warner.Warnings(), "\n")
				if strings.Contains(warned, "secret") || want == "" && strings.Contains(warned, "remoteEnv") ||
					!strings.HasSuffix(warned, want) {
					t.Errorf("%v: the warnings are %q", vars, warned)
				}
			}
		})
	}
}
