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

// mcpStory is a daemon with a workspace in whose container clients build a Go module.
type mcpStory struct {
	*daemon
	t             *testing.T
	app, tcp      string
	token         string
	node, clients string
	sdk           string
}

// Clients that others wrote build and test a Go module in its devcontainer: they list and call
// tools, get progress, cancel, read cut output, and go on after a restart (MC-01, MC-03, MC-04).
func TestMCPClients(t *testing.T) {
	needsEngine(t)
	s := startMCPStory(t)
	dray := filepath.Join(newDir(t), "dray")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dray, "../cmd/dray")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build dray: %v: %s", err, out)
	}
	bridge := []string{"mcp", "--state", s.state, "--config", s.config, "--workspace", s.app}
	for _, c := range []struct {
		name, environment, script string
		given                     map[string]any
	}{
		{"Python SDK", "sdk", "python_sdk.py", map[string]any{"mode": "2026-07-28"}},
		{"Python SDK, earlier revision", "sdk", "python_sdk.py", map[string]any{"mode": "legacy"}},
		{"Python SDK, stdio", "sdk", "python_sdk.py", map[string]any{"mode": "auto", "dray": dray, "args": bridge}},
		{"LangChain", "langchain", "langchain_adapter.py", nil},
		{"OpenAI Agents SDK", "sdk", "openai_agents.py", nil},
		{"TypeScript SDK", "", "typescript_sdk.mjs", map[string]any{"sdk": s.sdk}},
		{"TypeScript SDK, restart", "", "typescript_sdk.mjs", map[string]any{"sdk": s.sdk, "restart": true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.t = t
			program := s.node
			if c.environment != "" {
				program = filepath.Join(s.clients, c.environment, "bin", "python")
			}
			s.tell(program, c.script, c.given)
		})
	}
}

// startMCPStory starts the daemon and the container, and finds what scripts/setup has installed.
func startMCPStory(t *testing.T) *mcpStory {
	t.Helper()
	root := newDir(t)
	app := root + "/app"
	writeFiles(t, root, map[string]string{"app/.devcontainer/devcontainer.json": strings.ReplaceAll(
		withImages(goContainer), "GOROOT,", goRoot(t)+",")})
	s := &mcpStory{t: t, app: app}
	s.sdk = installed(t, "DRAY_TEST_MCP", "../.tools/mcp", "mcp")
	s.clients = installed(t, "DRAY_TEST_MCPCLIENTS", "../.tools/mcpclients", "mcpclients")
	node, err := filepath.Glob(filepath.Join(s.sdk, "node_modules", "node-linux-*", "bin", "node"))
	if err != nil || len(node) != 1 {
		t.Fatalf("Node.js is missing: run scripts/setup mcp (%v)", err)
	}
	s.node = node[0]
	t.Cleanup(func() { removeContainers(t, app) })
	s.daemon = startDaemon(t, fmt.Sprintf(
		"server: {tcp: 0}\nhost: {roots: [%s]}\ntrust: {workspaces: [%[1]s]}\n", app))
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

// tell runs a client and checks that the process of its cancelled call is gone.
func (s *mcpStory) tell(program, script string, more map[string]any) {
	s.t.Helper()
	before := len(s.processes())
	mark := fmt.Sprint(70_000 + time.Now().UnixNano()%10_000)
	dir := "project" + mark
	project := filepath.Join(s.app, dir)
	if err := os.Mkdir(project, 0o755); err != nil {
		s.t.Fatal(err)
	}
	given := map[string]any{"token": s.token, "dir": dir, "folder": project, "mark": mark}
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
}

// interact starts a client, restarts the daemon when the client asks for that, and waits for its
// last line.
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
		switch lines.Text() {
		case "restart":
			s.restart()
			_, _ = io.WriteString(stdin, "restarted\n")
		case "done":
			done = true
		}
	}
	if !done {
		s.t.Error("the client did not finish its story")
	}
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
	s.t.Cleanup(func() { next.end(s.t) })
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
