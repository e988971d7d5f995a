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

// fixture is what the scenarios of one feature share: a daemon, and a workspace whose container the
// first call brings up.
type fixture struct {
	daemon *daemon
	root   string
	// names are what feature files write in braces.
	names map[string]string
}

// world is one scenario.
type world struct {
	t *testing.T
	*fixture
	// body is what the next call says beside tool and input.
	body map[string]any
	// answer is the last answer: a record of a call, a problem, or whatever else was asked for.
	answer  answer
	running *runningCall
	// many are the answers of calls that ran at once, by number.
	many map[int]answer
	// background are the calls that were begun and not waited for, by name.
	background map[string]*backgroundCall
	// command is what the last command line did.
	command ran
	// release lets the trail's database go again.
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

// clean undoes what the scenario made, the last first.
func (w *world) clean(ctx context.Context) error {
	w.running.leave()
	var errs []error
	for _, undo := range slices.Backward(w.cleanups) {
		errs = append(errs, undo(ctx))
	}
	return errors.Join(errs...)
}

func (w *world) later(do func(context.Context) error) { w.cleanups = append(w.cleanups, do) }

// named puts the values of the names in braces into a text.
func (w *world) named(text string) string {
	for name, value := range w.names {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

// secret is a value in the environment of the daemon that no tool may see.
const secret = "of-the-daemon-alone"

const mainDevcontainer = `{
	// Comments and a trailing comma are what people write.
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

// marked is a schema that says what is a path.
const marked = `{type: object, required: [file, files, note], additionalProperties: false, properties: {
      file: {type: string, format: path}, note: {type: string},
      files: {type: array, items: {type: object, properties: {at: {type: string, x-path: true}}}}}}`

// newFixture makes the workspace that most scenarios use, trusted and not brought up, and a daemon
// beside it.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	needsEngine(t)
	root := newFolder(t)
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
		t.Fatalf("the workspace does not come up: %v, %s", err, r.raw)
	}
	f.names["container"] = fmt.Sprint(r.at("/metadata/container/id"))
	runFeature(t, "container_tool_exec.feature", f)
}

func TestSync(t *testing.T) {
	needsEngine(t)
	root := newFolder(t)
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
	root := newFolder(t)
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
	root := newFolder(t)
	f := &fixture{daemon: startDaemon(t, ""), root: root, names: map[string]string{"root": root}}
	runFeature(t, "workspaces.feature", f)
}

func TestDaemon(t *testing.T) {
	needsEngine(t)
	root := newFolder(t)
	runFeature(t, "daemon.feature", &fixture{
		root:  root,
		names: map[string]string{"root": root, "secret": secret},
	})
}

// What is kept has nothing to do with where a tool runs: these run on the host, and need no engine.
func TestCapture(t *testing.T) {
	root := newFolder(t)
	runFeature(t, "capture.feature", &fixture{root: root, names: map[string]string{"root": root}})
}

// plainContainer runs a container that no devcontainer knows, for the length of the test.
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
