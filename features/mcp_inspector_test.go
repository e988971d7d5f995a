package features

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mcpNode returns the directory of what scripts/setup mcp has installed, and its Node.js.
func mcpNode(t *testing.T) (tools, node string) {
	t.Helper()
	tools = installed(t, "DRAY_TEST_MCP", "../.tools/mcp", "mcp")
	found, err := filepath.Glob(filepath.Join(tools, "node_modules", "node-linux-*", "bin", "node"))
	if err != nil || len(found) != 1 {
		t.Fatalf("Node.js is missing: run scripts/setup mcp (%v)", err)
	}
	return tools, found[0]
}

// inspector is the command line of the inspector that the protocol's maintainers publish.
type inspector struct {
	t                               *testing.T
	node, program, url, home, token string
}

// run returns the result of a request, and the exit code.
func (i inspector) run(era string, args ...string) (result map[string]any, stderr string,
	code int,
) {
	i.t.Helper()
	cmd := exec.CommandContext(i.t.Context(), i.node, append([]string{
		i.program, "--cli", i.url, "--transport", "http", "--protocol-era", era, "--format", "json", "-q",
		"--header", "Authorization: Bearer " + i.token,
	}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+i.home, "PATH="+filepath.Dir(i.node)+":"+os.Getenv("PATH"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		i.t.Fatal(err)
	}
	var reply struct {
		Result map[string]any `json:"result"`
	}
	if json.Unmarshal(out.Bytes(), &reply) != nil {
		i.t.Fatalf("%s %v: exit %d: %s %s", era, args, code, out.Bytes(), errs.Bytes())
	}
	return reply.Result, errs.String(), code
}

// The inspector finds every schema portable, in each era: of the built-in tools, of the daemon's
// and a project's own, and of another MCP server. It calls them (MC-02, MC-03, RT-15).
func TestMCPInspector(t *testing.T) {
	t.Parallel()
	needsEngine(t)
	tools, node := mcpNode(t)
	root := newDir(t)
	app := root + "/app"
	writeFiles(t, app, map[string]string{
		".devcontainer.json": withImages(`{"image": "BUSYBOX", "userEnvProbe": "none"}`),
		".dray/tools.yaml": "- name: where\n  argv: [hostname]\n  description: Print the host name.\n" +
			"  input_schema: {type: object, properties: {full: {type: boolean}}}\n",
	})
	t.Cleanup(func() { removeContainers(t, app) })
	config := strings.Replace(upstreamConfig(t, app, "host"), "host:", "server: {tcp: 0}\ntools:\n"+`
  - name: greet
    argv: [echo, hello, "${input.name}"]
    input_schema: {type: object, properties: {name: {type: string}}, required: [name]}
    environment: host
host:`, 1)
	d := startDaemon(t, config)
	ready, _ := d.log.await("ready")
	token, err := os.ReadFile(filepath.Join(d.state, "token"))
	if err != nil {
		t.Fatal(err)
	}
	i := inspector{
		t: t, node: node, home: newDir(t), token: string(bytes.TrimSpace(token)),
		program: filepath.Join(tools, "node_modules", "@modelcontextprotocol", "inspector", "clients",
			"launcher", "build", "index.js"),
		url: fmt.Sprintf("http://%s/mcp?workspace=%s", ready["tcp"], app),
	}
	for _, era := range []string{"legacy", "modern", "auto"} {
		t.Run(era, func(t *testing.T) {
			i := i
			i.t = t
			i.check(era)
		})
	}
}

func (i inspector) check(era string) {
	t := i.t
	list, problems, code := i.run(era, "--method", "tools/list", "--strict")
	if code != 0 || problems != "" {
		t.Errorf("tools/list --strict: exit %d: %s", code, problems)
	}
	var names []string
	all, _ := list["tools"].([]any)
	for _, tool := range all {
		name, _ := tool.(map[string]any)["name"].(string)
		names = append(names, name)
	}
	for _, name := range []string{
		"exec", "shell", "python", "sync", "read_file", "grep", "read_output", "cancel_call", "greet",
		"where", "good__t0",
	} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not listed: %s", name, names)
		}
	}
	if slices.Contains(names, "_project") {
		t.Error("an internal tool is listed")
	}
	for _, tt := range []struct {
		tool, argument, text string
		code                 int
	}{
		{"exec", `argv=["echo","hi"]`, "hi\n", 0},
		{"greet", "name=Ada", "hello Ada\n", 0},
		{"where", "full=true", "[exit 0 ", 0},
		{"good__t0", "", "ok", 0},
		{"exec", `argv=["no-such-program"]`, "executable_not_found", 5},
		{"greet", `name=["a"]`, "invalid_input", 5},
	} {
		args := []string{"--method", "tools/call", "--tool-name", tt.tool}
		if tt.argument != "" {
			args = append(args, "--tool-arg", tt.argument)
		}
		result, stderr, code := i.run(era, args...)
		text, _ := json.Marshal(result)
		want, _ := json.Marshal(tt.text)
		if code != tt.code || !bytes.Contains(text, bytes.Trim(want, `"`)) {
			t.Errorf("%s %s: exit %d: %s %s", tt.tool, tt.argument, code, text, stderr)
		}
	}
}
