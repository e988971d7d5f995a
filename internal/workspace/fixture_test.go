package workspace

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/executor/process/processtest"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
)

func TestMain(m *testing.M) {
	processtest.Main()
	goleak.VerifyTestMain(m)
}

const busybox = "dray-test/busybox:latest"

// fixture is a manager on the real engine and the real CLI.
type fixture struct {
	*Manager
	recorded     *recordedTransitions
	environments Environments
	t            *testing.T
	api          *client.Client
}

func newFixture(t *testing.T, cfg Config) fixture {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a container engine and the devcontainer CLI")
	}
	cli, err := exec.LookPath(cmp.Or(os.Getenv("DRAY_DEVCONTAINER_CLI"),
		"../../.tools/node_modules/.bin/devcontainer"))
	if err == nil {
		cfg.CLI, err = filepath.Abs(cli)
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.UpArgs = []string{"--buildkit", "never"}
	cfg.UpTimeout = cmp.Or(cfg.UpTimeout, 30*time.Minute)
	cfg.State = cmp.Or(cfg.State, t.TempDir())
	log := zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	cfg.Breakers = NewBreakers(5, 30*time.Second, log)
	engine, err := docker.NewEngine(docker.EndpointConfig{}, docker.Options{
		Lease: 30 * time.Second, Transport: docker.TransportAuto, RunDir: filepath.Join(cfg.State,
			"run"), Version: "test", Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	recorded := &recordedTransitions{}
	cfg.Record = recorded.record
	pool := process.NewPool(processtest.Launch())
	api, err := client.New(client.FromEnv)
	if err != nil {
		t.Fatal(err)
	}
	m := New(cfg, engine, pool, trust.NewStore(cfg.State, nil,
		NewCompose(pool, cfg.State, engine.Env(), cfg.LocalEnv)), log)
	w := fixture{Manager: m, recorded: recorded, t: t, api: api, environments: Environments{
		dray.KindHost:      NewHostProvider(host.New(host.Config{Homes: t.TempDir()}, pool)),
		dray.KindContainer: m,
	}}
	t.Cleanup(func() {
		w.Close()
		_ = engine.Close()
		pool.Close()
		_ = api.Close()
	})
	return w
}

// recordedTransitions are the changes of state that a manager recorded.
type recordedTransitions struct {
	mu    sync.Mutex
	all   []Transition
	added chan struct{} // closed at the next one
}

func (r *recordedTransitions) record(_ context.Context, t Transition) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, t)
	if r.added != nil {
		close(r.added)
		r.added = nil
	}
	return nil
}

// waitFor blocks until the last state of a workspace is the wanted one, for five minutes at most.
func (r *recordedTransitions) waitFor(t *testing.T, folder string, want State) {
	t.Helper()
	giveUp := time.After(5 * time.Minute)
	for {
		r.mu.Lock()
		if r.added == nil {
			r.added = make(chan struct{})
		}
		added := r.added
		r.mu.Unlock()
		states := r.states(folder)
		if len(states) > 0 && states[len(states)-1] == want {
			return
		}
		select {
		case <-added:
		case <-giveUp:
			t.Fatalf("states %v, want %s at the end", states, want)
		}
	}
}

// states returns the states of a workspace in their order.
func (r *recordedTransitions) states(folder string) (states []State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.all {
		if t.Workspace == folder {
			states = append(states, t.To)
		}
	}
	return states
}

// project creates a workspace. Its containers are removed at the end of the test.
func (w fixture) project(config string) string {
	w.t.Helper()
	parent, err := filepath.EvalSymlinks(w.t.TempDir())
	if err != nil {
		w.t.Fatal(err)
	}
	dir, err := os.MkdirTemp(parent, "project") // compose names its containers after it
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(dir, config)
	w.t.Cleanup(func() { w.removeAll(devcontainer.LabelFolder + "=" + dir) })
	return dir
}

func (w fixture) write(dir, config string) {
	w.t.Helper()
	if err := os.WriteFile(dir+"/.devcontainer.json", []byte(config), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w fixture) containers(label string) []string {
	w.t.Helper()
	res, err := w.api.ContainerList(context.Background(),
		client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", label)})
	if err != nil {
		w.t.Fatal(err)
	}
	var ids []string
	for _, c := range res.Items {
		ids = append(ids, c.ID)
	}
	return ids
}

func (w fixture) removeAll(label string) {
	for _, id := range w.containers(label) {
		if _, err := w.api.ContainerRemove(context.Background(), id,
			client.ContainerRemoveOptions{Force: true}); err != nil {
			w.t.Error(err)
		}
	}
}

// docker runs the docker CLI, as a user may do without the daemon.
func (w fixture) docker(args ...string) string {
	w.t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("docker %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func noProgress(string, string) {}

// env returns the environment of a request.
func (w fixture) env(req request) (dray.Environment, error) {
	return w.environment(w.t.Context(), req, noProgress)
}

// sh runs a script in an environment.
func (w fixture) sh(req request, script string) string {
	w.t.Helper()
	env, err := w.env(req)
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := env.Start(w.t.Context(), dray.ProcessSpec{Argv: []string{"sh", "-c", script}})
	if err != nil {
		w.t.Fatal(err)
	}
	_ = p.Stdin().Close()
	var errOut bytes.Buffer
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&errOut, p.Output(dray.Stderr)) })
	out, _ := io.ReadAll(p.Output(dray.Stdout))
	reading.Wait()
	if exit, err := p.Wait(); err != nil || exit.Code != 0 {
		w.t.Fatalf("got %+v, %v, %s", exit, err, errOut.String())
	}
	return strings.TrimSpace(string(out))
}

// settle repeats a request until its environment is cached: one that was resolved just after a
// change of its files is not.
func (w fixture) settle(req request) {
	w.t.Helper()
	for giveUp := time.Now().Add(10 * time.Second); w.lookupCached(w.t.Context(), req) == nil; {
		if _, err := w.env(req); err != nil || time.Now().After(giveUp) {
			w.t.Fatalf("the environment is not cached: %v", err)
		}
	}
}

func (w fixture) trustIt(dir string) {
	w.t.Helper()
	if err := w.trustPresent(dir); err != nil {
		w.t.Fatal(err)
	}
}

func wantCode(t *testing.T, what string, err error, code dray.Code) {
	t.Helper()
	if dray.CodeOf(err) != code || dray.AsError(err).Hint == "" {
		t.Errorf("%s: got %v (%s), want %s with a hint", what, err, dray.CodeOf(err), code)
	}
}

// trustPresent trusts a workspace as it is.
func (w fixture) trustPresent(dir string) error {
	w.t.Helper()
	review, err := w.Review(w.t.Context(), dir)
	if err != nil {
		return err
	}
	_, err = w.Trust(w.t.Context(), dir, review.Hash)
	return err
}
