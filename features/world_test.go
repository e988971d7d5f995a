package features

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cucumber/godog"
)

// fixture is shared by the scenarios of a feature: a daemon, and a workspace whose container the
// first call starts.
type fixture struct {
	daemon *daemon
	root   string
	// names are the names in braces in feature files, with their values.
	names map[string]string
}

// world is the state of a scenario.
type world struct {
	t *testing.T
	*fixture
	// body has the members of the next call request besides tool and input.
	body map[string]any
	// answer is the last response: the record of a call, a problem, or another resource.
	answer  answer
	running *runningCall
	// many are the responses of concurrent calls, by number.
	many map[int]answer
	// background are the calls that run in the background, by name.
	background map[string]*backgroundCall
	// command is the result of the last command line.
	command ran
	// release releases the lock of the audit log's database.
	release  func() error
	cleanups []func(context.Context) error
}

// runFeature runs one feature file; each scenario is a subtest.
func runFeature(t *testing.T, file string, f *fixture) {
	t.Helper()
	suite := godog.TestSuite{
		ScenarioInitializer: func(sc *godog.ScenarioContext) { newWorld(t, f).register(sc) },
		Options: &godog.Options{
			Format: "pretty", Output: t.Output(), NoColors: true,
			Strict: true, Paths: []string{file}, TestingT: t,
		},
	}
	if suite.Run() != 0 {
		t.Error("not all scenarios passed")
	}
}

func newWorld(t *testing.T, f *fixture) *world {
	own := *f
	own.names = maps.Clone(f.names)
	return &world{t: t, fixture: &own, body: map[string]any{}}
}

func (w *world) register(sc *godog.ScenarioContext) {
	w.placeSteps(sc)
	w.callSteps(sc)
	w.answerSteps(sc)
	w.trailSteps(sc)
	w.daemonSteps(sc)
	w.limitsSteps(sc)
	w.captureSteps(sc)
	w.syncSteps(sc)
	w.endToEndSteps(sc)
	sc.After(func(ctx context.Context, _ *godog.Scenario, _ error) (context.Context, error) {
		return ctx, w.clean(context.WithoutCancel(ctx))
	})
}

// clean calls the cleanup functions of the scenario, the last one first.
func (w *world) clean(ctx context.Context) error {
	w.running.leave()
	var errs []error
	for _, undo := range slices.Backward(w.cleanups) {
		errs = append(errs, undo(ctx))
	}
	return errors.Join(errs...)
}

func (w *world) later(do func(context.Context) error) { w.cleanups = append(w.cleanups, do) }

// named replaces the names in braces in a text by their values.
func (w *world) named(text string) string {
	for name, value := range w.names {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

// secret is a value in the environment of the daemon that no tool may see.
const secret = "of-the-daemon-alone"

const mainDevcontainer = `{
	// with comments and a trailing comma, as people write it
	"image": "DEBIAN",
	"remoteUser": "vscode",
	"updateRemoteUserUID": false,
	"containerEnv": {"FROM_CONTAINER": "contained"},
	"remoteEnv": {"FROM_CONFIG": "remote"},
	"mounts": ["type=bind,source=ROOT/data,target=/data", "type=bind,source=ROOT/app/inner,target=/inner"],
}`

const mainConfig = `
host: {roots: [ROOT/app]}
tools:
  - name: seen
    description: Says what it got.
    argv: [python3, -c, "import json, sys; print(json.dumps({'stdin': json.loads(sys.stdin.read()), 'arguments': sys.argv[1:]}))", --fixed]
    output: json
  - name: marked
    argv: [cat]
    output: json
    input_schema: MARKED
    output_schema: MARKED
  - name: odd
    argv: [printf, '{"file": "/workspaces/app/../up"}']
    output: json
    output_schema: {type: object, properties: {file: {type: string, format: path}}}
`

// marked is a schema with a path mark.
const marked = `{type: object, required: [file, files, note], additionalProperties: false, properties: {
      file: {type: string, format: path}, note: {type: string},
      files: {type: array, items: {type: object, properties: {at: {type: string, x-path: true}}}}}}`

// newFixture creates the workspace of most scenarios, trusted and not started, and a daemon.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	needsEngine(t)
	root := newDir(t)
	in := func(text string) string {
		return withImages(strings.NewReplacer("ROOT", root, "MARKED", marked).Replace(text))
	}
	writeFiles(t, root, map[string]string{
		"app/.devcontainer/devcontainer.json": in(mainDevcontainer), "app/sub/old.txt": "old\n", "app/tool.sh": "", "app/inner/x": "", "data/set": "",
	})
	if err := os.Chmod(root+"/app/sub", 0o777); err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t, in(mainConfig)+"trust: {workspaces: ["+root+"/app]}\n")
	t.Cleanup(func() { removeContainers(t, root+"/app") })
	return &fixture{daemon: d, root: root, names: map[string]string{
		"workspace": root + "/app", "data": root + "/data", "root": root, "secret": secret,
	}}
}

func TestContainerToolExec(t *testing.T) {
	needsEngine(t)
	t.Setenv("FEATURES_SECRET", secret)
	f := newFixture(t)
	f.names["other container"] = plainContainer(t)
	body := map[string]any{
		"tool": "exec", "input": map[string]any{"argv": []string{"true"}},
		"workspace": f.names["workspace"],
	}
	r, err := f.daemon.call(t.Context(), "?wait_ms=60000", body)
	if err != nil || r.at("/status") != "succeeded" {
		t.Fatalf("the workspace does not start: %v, %s", err, r.raw)
	}
	f.names["container"] = fmt.Sprint(r.at("/metadata/container/id"))
	runFeature(t, "container_tool_exec.feature", f)
}

func TestSync(t *testing.T) {
	needsEngine(t)
	root := newDir(t)
	writeFiles(t, root, map[string]string{"app/.devcontainer.json": withImages(`{"image": "DEBIAN", "remoteUser": "vscode", "updateRemoteUserUID": false}`)})
	if err := errors.Join(os.Chmod(root+"/app", 0o777), os.Mkdir(root+"/results", 0o700)); err != nil {
		t.Fatal(err)
	}
	f := &fixture{
		daemon: startDaemon(t, strings.ReplaceAll(syncConfig, "ROOT", root)), root: root,
		names: map[string]string{
			"root": root, "workspace": root + "/app", "home": root + "/results",
			"cli": devcontainerCLI(t),
		},
	}
	t.Cleanup(func() { removeContainers(t, root+"/app") })
	runFeature(t, "sync.feature", f)
}

const syncConfig = `
trust: {workspaces: [ROOT/app]}
sandbox: {root: ROOT/results, max_file: 1MiB, max_total: 2MiB, max_files: 50, max_depth: 5, deny: [forbidden.txt], timeout: 20s}
tools:
  - name: report
    argv: [sh, -c, "mkdir -p /tmp/declared && echo report >/tmp/declared/report.txt"]
    results: [/tmp/declared]
`

func TestRouting(t *testing.T) {
	needsEngine(t)
	root := newDir(t)
	writeFiles(t, root, map[string]string{
		"app/.devcontainer.json": withImages(`{"image": "BUSYBOX"}`), "app/part/.devcontainer/devcontainer.json": withImages(`{"image": "BUSYBOX"}`),
		"app/sub/x": "", "plain/x": "",
	})
	box := plainContainer(t, "--label", "dray.test="+filepath.Base(root))
	config := strings.NewReplacer("ROOT", root, "BOX", box, "LABEL", "dray.test="+filepath.Base(root)).
		Replace(routingConfig)
	f := &fixture{
		daemon: startDaemon(t, config), root: root,
		names: map[string]string{"root": root, "workspace": root + "/app", "box": box},
	}
	runFeature(t, "routing.feature", f)
}

const routingConfig = `
host: {roots: [ROOT]}
containers:
  box: {id: BOX}
  labelled: {label: LABEL}
  gone: {id: nobody-has-this}
  app: {workspace: ROOT/app}
routing:
  plans:
    p-box: {override: box}
    p-host: {override: host}
    p-back: {fallback: box}
tools:
  - {name: here, argv: [cat], environment: host}
  - {name: there, argv: [cat], environment: required}
  - {name: rather, argv: [cat], environment: preferred}
  - {name: boxed, argv: [cat], environment: {specific: box}}
`

func TestWorkspaces(t *testing.T) {
	needsEngine(t)
	t.Setenv("FEATURES_SECRET", secret)
	root := newDir(t)
	f := &fixture{daemon: startDaemon(t, ""), root: root, names: map[string]string{"root": root}}
	runFeature(t, "workspaces.feature", f)
}

func TestDaemon(t *testing.T) {
	needsEngine(t)
	root := newDir(t)
	runFeature(t, "daemon.feature", &fixture{
		root:  root,
		names: map[string]string{"root": root, "secret": secret},
	})
}

// Captures do not depend on the environment: these scenarios run on the host and need no engine.
func TestCapture(t *testing.T) {
	root := newDir(t)
	runFeature(t, "capture.feature", &fixture{root: root, names: map[string]string{"root": root}})
}

// plainContainer runs a container that belongs to no devcontainer until the end of the test.
func plainContainer(t *testing.T, options ...string) string {
	t.Helper()
	id, err := runContainer(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = docker(context.WithoutCancel(t.Context()), "rm", "--force", id) })
	return id
}

func runContainer(ctx context.Context, options ...string) (string, error) {
	args := append([]string{"run", "--detach", "--init"}, options...)
	return docker(ctx, append(args, busybox, "sleep", "1000000")...)
}
