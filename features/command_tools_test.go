package features

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// argvTool prints the arguments that its input became.
const argvTool = `
  - name: NAME
    environment: ENVIRONMENT
    output: json
    mapping: none
    argv:
      - python3
      - -c
      - "import json, sys; json.dump(sys.argv[1:], sys.stdout)"
      - first
      - ${input.value}
      - --value=${input.value}
      - ${input.list}
      - ${input.absent}
      - --absent=${input.absent}
      - last
`

// hostileValues are values of an input. Those that are refused become no argument.
var hostileValues = []struct {
	value   string
	refused bool
}{
	{"-", true},
	{"--", true},
	{"-x", true},
	{"--output=/etc/passwd", true},
	{"-exec", true},
	{"---", true},
	{"-\n", true},
	{"-\u0301", true},
	{"\x00", true},
	{"a\x00b", true},
	{"a\x00", true},
	{"-\x00", true},
	{"", false},
	{" ", false},
	{" -x", false},
	{"\t-x", false},
	{"\n-x", false},
	{"\u2010x", false}, // hyphens that begin no option
	{"\u2212x", false},
	{"\ufe63x", false},
	{"\uff0dx", false},
	{"a b", false},
	{"a  b  ", false},
	{`"`, false},
	{`'`, false},
	{`'; touch /tmp/x; '`, false},
	{`"; touch /tmp/x; "`, false},
	{"$(touch /tmp/x)", false},
	{"`touch /tmp/x`", false},
	{"${HOME}", false},
	{"${input.value}", false},
	{"${input.list}${input.absent}", false},
	{"*", false},
	{"/etc/*", false},
	{"[a-z]?{a,b}", false},
	{"~", false},
	{"a\nb\r\nc", false},
	{"\x1b[31m\x07\x7f", false},
	{`\`, false},
	{`\n\x00\`, false},
	{"a;b|c&d>e<f", false},
	{"%s%n%d", false},
	{"@/etc/passwd", false},
	{"é\U0001f600\u202e", false},
	{strings.Repeat("x", 100_000), false},
	{strings.Repeat("é \n", 25_000), false},
}

// Each value arrives as one argument, byte for byte, or is refused before anything starts, alike on
// the host and in a container. None becomes an option (RT-14, EX-04, EX-17).
func TestArgumentTemplates(t *testing.T) {
	t.Parallel()
	needsEngine(t)
	root := newDir(t)
	writeFiles(t, root, map[string]string{
		"app/.devcontainer.json": withImages(`{"image": "DEBIAN", "userEnvProbe": "none"}`),
	})
	config := fmt.Sprintf("host: {roots: [%s]}\ntrust: {workspaces: [%[1]s/app]}\ntools:", root)
	for _, kind := range []string{"host", "required"} {
		config += strings.NewReplacer("NAME", kind+"_args", "ENVIRONMENT", kind).Replace(argvTool)
	}
	d := startDaemon(t, config)
	t.Cleanup(func() { removeContainers(t, root+"/app") })
	for _, tool := range []string{"host_args", "required_args"} {
		for _, tt := range hostileValues {
			a, err := d.call(t.Context(), "?wait_ms=60000", map[string]any{
				"tool": tool, "workspace": root + "/app",
				"input": map[string]any{"value": tt.value, "list": []string{tt.value, "second"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"first", tt.value, "--value=" + tt.value, tt.value, "second", "last"}
			switch got := printedArguments(t, a); {
			case tt.refused && (a.status != 400 || a.at("/code") != "invalid_input" ||
				a.at("/errors/0/pointer") != "/input/value"):
				t.Errorf("%s: %.40q is not refused: %.500s", tool, tt.value, a.raw)
			case !tt.refused && !slices.Equal(got, want):
				t.Errorf("%s: %.40q became %.200q: %.500s", tool, tt.value, got, a.raw)
			}
		}
	}
}

// printedArguments returns what a call of argvTool printed.
func printedArguments(t *testing.T, a answer) []string {
	t.Helper()
	var rec struct{ Output struct{ Result []string } }
	if err := json.Unmarshal(a.raw, &rec); err != nil {
		t.Fatalf("%v: %s", err, a.raw)
	}
	return rec.Output.Result
}

// The tools of docs/how-to/write-a-command-tool.md run as the page says: pytest in a container,
// eslint and go test on the host, none with a wrapper script (RT-14).
func TestDocumentedCommandTools(t *testing.T) {
	needsEngine(t)
	root := newDir(t)
	writeFiles(t, root, map[string]string{
		"app/.devcontainer.json": withImages(`{
			"image": "DEBIAN", "userEnvProbe": "none",
			"containerEnv": {"PYTHONPATH": "/workspaces/app/.lib", "PYTHONDONTWRITEBYTECODE": "1"}
		}`),
		"app/tests/test_app.py": "def test_good(): pass\ndef test_bad(): assert 1 == 2\n",
		"app/tests/args":        "--version\n",
		"web/eslint.config.js":  "module.exports = [{rules: {'no-unused-vars': 'error'}}];\n",
		"web/src/index.js":      "const unused = 1;\n",
		"mod/go.mod":            "module example.com/mod\n",
		"mod/mod_test.go": "package mod\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) {}\n\n" +
			"func TestBad(t *testing.T) { t.Error(\"bad\") }\n",
	})
	install(t, root+"/app", "python3", "-m", "pip", "install", "--quiet", "--target", ".lib", "pytest")
	install(t, root+"/web", "npm", "install", "--silent", "--no-audit", "--no-fund", "eslint@9")
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(cache))) // without it go would build all of its library
	config := fmt.Sprintf("host: {roots: [%s], env: [PATH, GOCACHE]}\ntrust: {workspaces: [%[1]s/app]}\n", root)
	d := startDaemon(t, config+documentedTools(t))
	t.Cleanup(func() { removeContainers(t, root+"/app") })
	for _, tt := range []struct {
		tool, workspace, input string
		code                   float64
		says                   string
	}{
		{"pytest", "app", `{}`, 1, "1 failed, 1 passed"},
		{"pytest", "app", `{"paths": ["ROOT/app/tests"], "keyword": "good"}`, 0, "1 passed, 1 deselected"},
		{"pytest", "app", `{"paths": ["tests/test_app.py"], "max_failures": 1}`, 1, "1 failed"},
		{"pytest", "app", `{"paths": ["--version"]}`, -1, "begins with"},
		{"pytest", "app", `{"paths": ["@tests/args"]}`, -1, "does not match pattern"},
		{"eslint", "web", `{"paths": ["src"]}`, 1, "no-unused-vars"},
		{"eslint", "web", `{"paths": ["eslint.config.js"]}`, 0, `"errorCount":0`},
		{"eslint", "web", `{"paths": ["--fix"]}`, -1, "begins with"},
		{"go_test", "mod", `{"packages": ["./..."]}`, 1, "--- FAIL: TestBad"},
		{"go_test", "mod", `{"packages": ["./..."], "run": "TestGood", "count": 1}`, 0, "ok"},
		{"go_test", "mod", `{"packages": ["-exec=touch ROOT/x"]}`, -1, "begins with"},
	} {
		input := json.RawMessage(strings.ReplaceAll(tt.input, "ROOT", root))
		a, err := d.call(t.Context(), "", map[string]any{
			"tool": tt.tool, "workspace": root + "/" + tt.workspace, "input": input,
		})
		if err != nil {
			t.Fatal(err)
		}
		refused := tt.code < 0 && a.status == 400 && a.at("/code") == "invalid_input"
		ran := a.at("/status") == "succeeded" && fmt.Sprint(a.at("/exit_code")) == fmt.Sprint(tt.code)
		if !refused && !ran || !strings.Contains(string(a.raw), strings.ReplaceAll(tt.says, `"`, `\"`)) {
			t.Errorf("%s %s: %.3000s", tt.tool, input, a.raw)
		}
	}
}

// install installs packages from a public registry, or skips the test where that cannot be reached.
func install(t *testing.T, dir string, argv ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("cannot install what the documented tools run: %v: %s", err, out)
	}
}

// documentedTools returns the first YAML block of the page.
func documentedTools(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/how-to/write-a-command-tool.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	return block
}

// A tool that requires the approval of a human is denied on the host and in a container, with a
// record, and nothing of it runs (RT-05).
func TestApprovalIsRequired(t *testing.T) {
	needsEngine(t)
	root := newDir(t)
	writeFiles(t, root, map[string]string{"app/.devcontainer.json": withImages(`{"image": "BUSYBOX"}`)})
	d := startDaemon(t, strings.ReplaceAll(`
host: {roots: [ROOT]}
trust: {workspaces: [ROOT/app]}
tools: [{name: deploy, argv: [touch, deployed], capabilities: [network, human_approval_required]}]
`, "ROOT", root))
	t.Cleanup(func() { removeContainers(t, root+"/app") })
	for _, environment := range []string{"host", "container"} {
		body := map[string]any{
			"tool": "deploy", "workspace": root + "/app", "environment": environment,
		}
		a, err := d.call(t.Context(), "", body)
		if err != nil || a.status != 200 || a.at("/status") != "failed" || a.at("/reason") != "denied" ||
			a.at("/error/code") != "approval_required" || a.at("/route/environment") != environment {
			t.Errorf("%v: %s", err, a.raw)
		}
		a, err = d.ask(t.Context(), http.MethodPost, "/v1/route", body)
		if err != nil || a.at("/environment") != environment ||
			a.at("/error/code") != "approval_required" {
			t.Errorf("the route of the call: %v: %s", err, a.raw)
		}
	}
	if exists(root + "/app/deployed") {
		t.Error("the tool ran")
	}
	if ids, err := containersOf(t.Context(), root+"/app"); err != nil || len(ids) > 0 {
		t.Errorf("containers were started: %v, %v", ids, err)
	}
	a, err := d.ask(t.Context(), http.MethodGet, "/v1/tools/deploy", nil)
	if got := fmt.Sprint(a.at("/capabilities")); err != nil || got != "[network human_approval_required]" {
		t.Errorf("capabilities %s, %v", got, err)
	}
}

// A tool is disabled while a call of it runs: that call goes on, later ones are denied, also after
// a reload and a restart (RT-06).
func TestDisabledTool(t *testing.T) {
	root := newDir(t)
	d := startDaemon(t, fmt.Sprintf("host: {roots: [%s]}\ntools: [{name: wait, argv: [sh, -c, "+
		"'while [ ! -e go ]; do sleep 0.01; done']}]\n", root))
	wait := map[string]any{"tool": "wait", "workspace": root}
	status := func(method, path string, body any) answer {
		t.Helper()
		a, err := d.ask(t.Context(), method, path, body)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	running := status(http.MethodPost, "/v1/invocations?wait_ms=0", wait).id()
	if a := status(http.MethodPost, "/v1/tools/wait/disable", nil); a.at("/state") != "disabled" {
		t.Fatalf("%s", a.raw)
	}
	denied := func() {
		t.Helper()
		a := status(http.MethodPost, "/v1/invocations", wait)
		if a.status != 403 || a.at("/code") != "denied" {
			t.Errorf("a call of the disabled tool: %s", a.raw)
		}
		if a := status(http.MethodGet, "/v1/tools/wait", nil); a.at("/state") != "disabled" {
			t.Errorf("the tool: %s", a.raw)
		}
	}
	denied()
	writeFiles(t, root, map[string]string{"go": ""})
	a := status(http.MethodGet, "/v1/invocations/"+running+"?wait_ms=60000", nil)
	if a.at("/status") != "succeeded" {
		t.Errorf("the call that ran: %s", a.raw)
	}
	status(http.MethodPost, "/v1/reload", nil)
	denied()
	d.end(t)
	d = launch(d.state, d.config)
	defer func() { d.end(t) }()
	if _, ok := d.log.await("ready"); !ok {
		t.Fatal("the daemon does not start again")
	}
	denied()
	status(http.MethodPost, "/v1/tools/wait/enable", nil)
	if a := status(http.MethodPost, "/v1/invocations", wait); a.at("/status") != "succeeded" {
		t.Errorf("a call of the enabled tool: %s", a.raw)
	}
}
