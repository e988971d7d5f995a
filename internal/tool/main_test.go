package tool

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process/processtest"
)

func TestMain(m *testing.M) {
	processtest.Main()
	goleak.VerifyTestMain(m)
}

// fixture is a registry whose tools run on this host. exec finds the tool of a call, as intake
// does, and runs it.
type fixture struct {
	tools  *Registry
	exec   dray.Executor
	shells *ShellSessions // of newSessions
	folder string
	env    dray.Environment
}

// newFixture returns a fixture whose workspace is a new directory.
func newFixture(t *testing.T, commands ...commandTool) *fixture {
	t.Helper()
	captures, err := capture.NewStore(capture.Options{
		Dir: t.TempDir(), Limit: 1 << 20, SummaryBytes: 16 << 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(captures.Close)
	pool := processtest.NewPool(t)
	folder := realDir(t)
	env := host.New(host.Config{Roots: []string{folder}, Homes: t.TempDir()}, pool).Environment(folder)
	tools := registryWith(t, Options{Processes: &executor.Runner{Captures: captures}}, commands...)
	return &fixture{tools: tools, exec: resolving(tools, dray.RunTool), folder: folder, env: env}
}

// resolving returns an executor that finds the tool with the name that a call's invocation has, and
// passes the call on.
func resolving(tools *Registry, next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		var err error
		if call.Tool, err = tools.Get(ctx, call.Invocation.Tool); err != nil {
			return dray.Result{}, err
		}
		return next.Execute(ctx, call, sink)
	})
}

// commandTool is a configured tool.
type commandTool struct {
	dray.Tool
	Command
}

func registry(t testing.TB, commands ...commandTool) *Registry {
	t.Helper()
	return registryWith(t, Options{}, commands...)
}

func registryWith(t testing.TB, opts Options, commands ...commandTool) *Registry {
	t.Helper()
	r, err := NewRegistry(opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands {
		if err := r.AddCommand(c.Tool, c.Command); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// defined returns the definition of a built-in tool, or of one of the given commands.
func defined(t testing.TB, r *Registry, name string, commands ...commandTool) *definition {
	t.Helper()
	all, err := r.builtins()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands {
		d, invalid := r.command(c.Tool, c.Command)
		if len(invalid) > 0 {
			t.Fatal(invalid)
		}
		all = append(all, d)
	}
	for _, d := range all {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("no tool %s", name)
	return nil
}

// replaced returns an executor of calls of d that maps their paths around next in place of the
// tool.
func replaced(d *definition, next dray.ExecutorFunc) dray.Executor {
	d.run = next
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		call.Tool = d.tool()
		return d.mapPaths(ctx, call, sink)
	})
}

func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// mountedEnv is the host environment seen as a container whose directory has another path on the
// host. The processes and files are real. The caller's paths do not exist, so a path that is not
// mapped is found.
type mountedEnv struct {
	dray.Environment
	mounts []dray.Mount
}

func (r mountedEnv) Capabilities() dray.Capabilities {
	caps := r.Environment.Capabilities()
	caps.Kind, caps.Mounts = dray.KindContainer, r.mounts
	return caps
}

// contain makes the environment a container whose workspace is /srv/app for the caller.
func (b *fixture) contain() {
	b.env = mountedEnv{b.env, []dray.Mount{{Host: "/srv/app", Container: b.folder}}}
}

// call checks the input, as intake does, runs a tool and normalizes the result.
func (b *fixture) call(t *testing.T, name string, input any,
	change ...func(*dray.Call),
) dray.Result {
	t.Helper()
	call := dray.Call{
		Invocation:  dray.Invocation{ID: rand.Text(), Tool: name, Input: js(t, input)},
		Environment: b.env,
	}
	for _, c := range change {
		c(&call)
	}
	tool, err := b.tools.Get(t.Context(), name)
	if err != nil {
		return dray.NormalizeResult(dray.Result{}, err)
	}
	if err := tool.CheckInput(call.Invocation.Input); err != nil {
		return dray.NormalizeResult(dray.Result{}, err)
	}
	return dray.NormalizeResult(b.exec.Execute(t.Context(), call, dray.Discard))
}

func (b *fixture) write(t *testing.T, name, content string, mode fs.FileMode) {
	t.Helper()
	full := filepath.Join(b.folder, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(full, mode); err != nil {
		t.Fatal(err)
	}
}

// object is shorthand for JSON in tests.
type object = map[string]any

func js(t *testing.T, v any) json.RawMessage {
	t.Helper()
	if raw, ok := v.(string); ok {
		return json.RawMessage(raw)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// output decodes the output of a call.
func output[T any](t *testing.T, res dray.Result) T {
	t.Helper()
	var out T
	if err := read(res.Output, &out); err != nil {
		t.Fatalf("output %q of a call with error %+v: %v", res.Output, res.Error, err)
	}
	return out
}

func succeeded(t *testing.T, res dray.Result) {
	t.Helper()
	if res.Status != dray.StatusSucceeded {
		t.Fatalf("%s, reason %s, error %+v", res.Status, res.Reason, res.Error)
	}
}

func failedWith(t *testing.T, res dray.Result, code dray.Code) {
	t.Helper()
	if res.Error == nil || res.Error.Code != code {
		t.Fatalf("want %s, got %s with error %+v", code, res.Status, res.Error)
	}
	if res.Error.Hint == "" {
		t.Errorf("%q says not what to do next", res.Error.Message)
	}
}

// cancelled returns a context that has ended with the given cause.
func cancelled(cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx
}

func sum(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }
