package features

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// goContainer is a devcontainer with the Go of this machine, which downloads nothing.
const goContainer = `{
	"image": "DEBIAN",
	"remoteUser": "root",
	"runArgs": ["--init"],
	"mounts": ["type=bind,source=GOROOT,target=/usr/local/go,readonly"],
	"remoteEnv": {
		"PATH": "/usr/local/go/bin:${containerEnv:PATH}", "GOROOT": "/usr/local/go", "GOCACHE": "/tmp/go",
		"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"
	}
}`

// publishing asks about calls that run tee, with which clients publish a version.
const (
	publishing = `
@id("any") permit (principal, action == Action::"call", resource);
@id("ask-publish") @ask("` + whyPublishing + `")
permit (principal, action == Action::"call", resource) when { context.programs.contains("tee") };
`
	whyPublishing = "versions that are published cannot be taken back"
)

// mcpStory is a daemon with a workspace in whose container clients build a Go module.
type mcpStory struct {
	*daemon
	t             *testing.T
	app, tcp      string
	token         string
	node, clients string
	sdk           string
	binary        string // dray
}

// Clients that others wrote build and test a Go module in its devcontainer: they list and call
// tools, get progress, ask their user what policy asks, or have the call decided about outside,
// cancel, read cut output, and go on after a restart (MC-01, MC-03, MC-04, MC-05).
func TestMCPClients(t *testing.T) {
	t.Parallel()
	needsEngine(t)
	s := startMCPStory(t)
	bridge := []string{"mcp", "--state", s.state, "--config", s.config, "--workspace", s.app}
	stdio := func(mode string) map[string]any {
		return map[string]any{"mode": mode, "dray": s.binary, "args": bridge}
	}
	const python, typescript = "python_sdk.py", "typescript_sdk.mjs"
	for _, c := range []struct {
		name, environment, script string
		given                     map[string]any
		asks                      bool // the daemon can ask the user of the client
	}{
		{"Python SDK", "sdk", python, map[string]any{"mode": "2026-07-28"}, true},
		{"Python SDK, earlier revision", "sdk", python, map[string]any{"mode": "legacy"}, true},
		{"Python SDK, stdio", "sdk", python, stdio("auto"), true},
		{"Python SDK, stdio, earlier revision", "sdk", python, stdio("legacy"), true},
		{"LangChain", "langchain", "langchain_adapter.py", nil, true},
		{"OpenAI Agents SDK", "sdk", "openai_agents.py", nil, false}, // it has no elicitation
		{"TypeScript SDK", "", typescript, nil, true},
		// A session that has ended has no capabilities, so its user is not asked.
		{"TypeScript SDK, restart", "", typescript, map[string]any{"restart": true}, false},
		{"TypeScript SDK 2", "", typescript, map[string]any{"revision": "2026-07-28"}, true},
		{"TypeScript SDK 2, restart", "", typescript, map[string]any{
			"revision": "2026-07-28", "restart": true,
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.t = t
			program := s.node
			if c.environment != "" {
				program = filepath.Join(s.clients, c.environment, "bin", "python")
			}
			project := s.tell(program, c.script, c.given, c.asks)
			s.checkApprovals(project, c.asks)
		})
	}
}

// startMCPStory starts the daemon and the container, and finds what scripts/setup has installed.
func startMCPStory(t *testing.T) *mcpStory {
	t.Helper()
	root := newDir(t)
	app := root + "/app"
	writeFiles(t, root, map[string]string{
		"app/.devcontainer/devcontainer.json": strings.ReplaceAll(
			withImages(goContainer), "GOROOT,", goRoot(t)+","),
		"policy.cedar": publishing,
	})
	s := &mcpStory{t: t, app: app, binary: root + "/dray"}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", s.binary, "../cmd/dray")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build dray: %v: %s", err, out)
	}
	s.sdk = installed(t, "DRAY_TEST_MCP", "../.tools/mcp", "mcp")
	s.clients = installed(t, "DRAY_TEST_MCPCLIENTS", "../.tools/mcpclients", "mcpclients")
	node, err := filepath.Glob(filepath.Join(s.sdk, "node_modules", "node-linux-*", "bin", "node"))
	if err != nil || len(node) != 1 {
		t.Fatalf("Node.js is missing: run scripts/setup mcp (%v)", err)
	}
	s.node = node[0]
	t.Cleanup(func() { removeContainers(t, app) })
	s.daemon = startDaemon(t, fmt.Sprintf(
		"server: {tcp: 0}\nhost: {roots: [%s]}\ntrust: {workspaces: [%[1]s]}\npolicy: {files: [%s]}\n",
		app, root+"/policy.cedar"))
	t.Cleanup(func() { s.end(t) }) // the daemon after a restart
	ready, _ := s.log.await("ready")
	s.tcp = fmt.Sprint(ready["tcp"])
	token, err := os.ReadFile(filepath.Join(s.state, "token"))
	if err != nil {
		t.Fatal(err)
	}
	s.token = string(bytes.TrimSpace(token))
	up := s.dray(t.Context(), nil, "exec", "--workspace", app, "--", "go", "version")
	if up.code != 0 || !strings.Contains(string(up.stdout), runtime.GOOS) {
		t.Fatalf("Go in the container: %+v", up)
	}
	return s
}

// installed returns the path of something that a step of scripts/setup installs.
func installed(t *testing.T, variable, path, step string) string {
	t.Helper()
	if value := os.Getenv(variable); value != "" {
		path = value
	}
	path, err := filepath.Abs(path)
	if _, statErr := os.Stat(path); err != nil || statErr != nil {
		t.Fatalf("%s is missing: run scripts/setup %s", path, step)
	}
	return path
}

func goRoot(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(out))
}

// tell runs a client and checks that the process of its cancelled call is gone. It returns the
// directory of the client's calls.
func (s *mcpStory) tell(program, script string, more map[string]any, asks bool) string {
	s.t.Helper()
	before := len(s.processes())
	mark := fmt.Sprint(70_000 + time.Now().UnixNano()%10_000)
	dir := "project" + mark
	project := filepath.Join(s.app, dir)
	if err := os.Mkdir(project, 0o755); err != nil {
		s.t.Fatal(err)
	}
	given := map[string]any{
		"token": s.token, "dir": dir, "folder": project, "mark": mark, "why": whyPublishing,
		"asks": asks, "sdk": s.sdk,
	}
	if _, stdio := more["dray"]; !stdio {
		given["url"] = "http://" + s.tcp + "/mcp?workspace=" + s.app
	}
	maps.Copy(given, more)
	text, err := json.Marshal(given)
	if err != nil {
		s.t.Fatal(err)
	}
	folder, _ := filepath.Abs("testdata/mcpclients")
	cmd := exec.CommandContext(s.t.Context(), program, filepath.Join(folder, script), string(text))
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	s.interact(cmd)
	if err := cmd.Wait(); err != nil {
		s.t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left := s.processes()
		if !strings.Contains(strings.Join(left, "\n"), "sleep "+mark) {
			break
		}
		if time.Now().After(end) {
			s.t.Fatalf("%d processes before, and now %s", before, left)
		}
	}
	return project
}

// interact starts a client, restarts the daemon or decides about an approval when the client asks
// for that, and waits for its last line.
func (s *mcpStory) interact(cmd *exec.Cmd) {
	s.t.Helper()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	done := false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		switch what, id, _ := strings.Cut(lines.Text(), " "); what {
		case "restart":
			s.restart()
		case "approve", "deny":
			s.cli("approvals", what, id)
		case "done":
			done = true
			continue
		}
		_, _ = io.WriteString(stdin, "done\n") // a client that has ended is seen below
	}
	if !done {
		s.t.Error("the client did not finish its story")
	}
}

// cli runs dray as another process than the daemon, and returns its output.
func (s *mcpStory) cli(args ...string) []byte {
	s.t.Helper()
	args = append(args, "--state", s.state, "--config", s.config)
	out, err := exec.CommandContext(s.t.Context(), s.binary, args...).CombinedOutput()
	if err != nil {
		s.t.Errorf("dray %v: %v: %s", args, err, out)
	}
	return out
}

// checkApprovals checks the approvals of a client's calls, their steps in the audit log with how
// each was decided, and that what was approved ran, once.
func (s *mcpStory) checkApprovals(project string, asks bool) {
	s.t.Helper()
	want, ran := map[string]string{
		"1.0 beta": "used: pending, approved by http, used",
		"1.1 beta": "denied: pending, denied by http",
	}, "1.0 beta\n"
	if asks {
		want, ran = map[string]string{
			"1.0 beta": "used: pending, approved by elicitation, used",
			"1.1 beta": "denied: pending, denied by elicitation",
			"1.2 beta": "used: pending, approved by http, used",
		}, "1.0 beta\n1.2 beta\n"
	}
	list := getFrom(s.t, s.daemon, "/v1/approvals?state=all")
	items, _ := list.at("/items").([]any)
	steps := s.approvalSteps()
	got := map[string]string{}
	for i := range items {
		at := func(path string) string { return fmt.Sprint(list.at(fmt.Sprint("/items/", i, path))) }
		if at("/request/cwd") != filepath.Base(project) {
			continue
		}
		version := at("/request/input/argv/3")
		if got[version] != "" {
			s.t.Errorf("%s has two approvals", version)
		}
		got[version] = at("/state") + ": " + strings.Join(steps[at("/id")], ", ")
		if at("/state") != "used" {
			continue
		}
		row := getFrom(s.t, s.daemon, "/v1/invocations/"+at("/used_by"))
		if row.at("/reason") != "exited" || row.at("/stdout/text") != version+"\n" {
			s.t.Errorf("the call that used the approval of %s: %s", version, row.raw)
		}
	}
	if !maps.Equal(got, want) {
		s.t.Errorf("the steps are %v, want %v", got, want)
	}
	text, err := os.ReadFile(filepath.Join(project, "published"))
	if err != nil || string(text) != ran {
		s.t.Errorf("%v: the calls that ran published %q, want %q", err, text, ran)
	}
}

// approvalSteps returns the steps of each approval in the audit log, the first first.
func (s *mcpStory) approvalSteps() map[string][]string {
	s.t.Helper()
	var events struct {
		Items []struct {
			Body struct{ Approval, State, Via string }
		}
	}
	out := s.cli("audit", "events", "--kind", "approval", "--all", "--json")
	if err := json.Unmarshal(out, &events); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	steps := map[string][]string{}
	for _, e := range events.Items {
		step := e.Body.State
		if e.Body.Via != "" {
			step += " by " + e.Body.Via
		}
		steps[e.Body.Approval] = append([]string{step}, steps[e.Body.Approval]...)
	}
	return steps
}

// restart restarts the daemon at the same address.
func (s *mcpStory) restart() {
	s.t.Helper()
	if code := s.end(s.t); code != 0 {
		s.t.Errorf("the daemon ended with %d: %s", code, s.log.text())
	}
	config, err := os.ReadFile(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	port := s.tcp[strings.LastIndexByte(s.tcp, ':')+1:]
	if err := os.WriteFile(s.config, bytes.Replace(config, []byte("tcp: 0"), []byte("tcp: "+port), 1),
		0o600); err != nil {
		s.t.Fatal(err)
	}
	next := launch(s.state, s.config)
	if _, ok := next.log.await("ready"); !ok {
		s.t.Fatal(next.log.text())
	}
	s.daemon = next
}

// processes lists the processes of the workspace's container, as the engine sees them.
func (s *mcpStory) processes() []string {
	s.t.Helper()
	ids, err := containersOf(s.t.Context(), s.app)
	if err != nil || len(ids) != 1 {
		s.t.Fatalf("the containers are %v: %v", ids, err)
	}
	out, err := docker(s.t.Context(), "top", ids[0], "-eo", "pid,args")
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Split(out, "\n")
}
