package features

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// realServers are the programs of published servers, in one environment.
type realServers struct {
	environment, root  string
	node, modules, git string
}

// Published servers of npm and PyPI run on the host and in a container: their tools are listed with
// a prefix, their paths mapped, their calls decided by policy, recorded and bounded (MC-06, EX-17).
func TestPublishedUpstreamServers(t *testing.T) {
	t.Parallel()
	needsEngine(t)
	for _, environment := range []string{"host", "container"} {
		t.Run(environment, func(t *testing.T) {
			u := &upstreamStory{realServers: findServers(t, environment), t: t}
			u.daemon = startDaemon(t, u.config())
			u.listed()
			u.mapped()
			u.policed()
			u.bounded()
			u.cancelled()
			u.recorded()
			u.overMCP()
		})
	}
}

// findServers returns the servers that scripts/setup has installed. The container has them by
// mounts; its Python and its Node.js find their libraries there.
func findServers(t *testing.T, environment string) realServers {
	t.Helper()
	tools, err := filepath.Abs("../.tools")
	if err != nil {
		t.Fatal(err)
	}
	s := realServers{environment: environment, root: newDir(t) + "/app"}
	modules := tools + "/mcp/node_modules"
	packages := tools + "/mcpclients/sdk/lib/python3*/site-packages"
	node, _ := filepath.Glob(modules + "/node-linux-*/bin/node")
	python, _ := filepath.Glob(packages)
	if len(node) != 1 || len(python) != 1 {
		t.Fatal("the servers are missing: run scripts/setup mcp mcpclients")
	}
	s.modules, s.node = modules, node[0]
	s.git = tools + "/mcpclients/sdk/bin/python, -m, mcp_server_git"
	if environment == "container" {
		s.modules = "/opt/mcp/node_modules"
		s.node = s.modules + strings.TrimPrefix(node[0], modules)
		s.git = "env, PYTHONPATH=/opt/python, python3, -m, mcp_server_git"
	}
	writeFiles(t, s.root, map[string]string{
		"a.txt": "hello\n",
		".devcontainer.json": withImages(fmt.Sprintf(`{"image": "DEBIAN", "userEnvProbe": "none", "mounts": [
			"type=bind,source=%s,target=/opt/mcp/node_modules,readonly", "type=bind,source=%s,target=/opt/python,readonly"]}`,
			modules, python[0])),
	})
	t.Cleanup(func() { removeContainers(t, s.root) })
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", s.root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return s
}

// upstreamStory is what a user does with the servers.
type upstreamStory struct {
	realServers
	*daemon
	t   *testing.T
	ids []string // of the calls
}

func (u *upstreamStory) config() string {
	policies := filepath.Join(filepath.Dir(u.root), "p.cedar")
	writeFiles(u.t, filepath.Dir(u.root), map[string]string{"p.cedar": `
		permit (principal, action == Action::"call", resource);
		forbid (principal, action == Action::"call", resource)
		when { resource.name == "files__move_file" };
		@ask("it writes")
		permit (principal, action == Action::"call", resource)
		when { resource.name == "files__write_file" };`})
	inside := u.root
	if u.environment == "container" {
		inside = "/workspaces/app"
	}
	server := func(name, argv string) string {
		return fmt.Sprintf("    %s: {argv: [%s], workspace: %s, environment: %s}\n", name, argv, u.root,
			u.environment)
	}
	index := func(name string) string {
		return fmt.Sprintf("%s, %s/@modelcontextprotocol/%s/dist/index.js", u.node, u.modules, name)
	}
	return fmt.Sprintf("host: {roots: [%s]}\ntrust: {workspaces: [%[1]s]}\npolicy: {files: [%s]}\n"+
		"mcp:\n  servers:\n", u.root, policies) +
		server("everything", index("server-everything")) +
		server("files", index("server-filesystem")+", "+inside) +
		server("git", u.git+", --repository, "+inside)
}

// call makes a call of a server's tool and returns its result.
func (u *upstreamStory) call(tool string, input map[string]any, more ...any) answer {
	u.t.Helper()
	body := map[string]any{"tool": tool, "workspace": u.root, "input": input}
	for i := 0; i < len(more); i += 2 {
		body[fmt.Sprint(more[i])] = more[i+1]
	}
	a, err := u.daemon.call(u.t.Context(), "", body)
	if err != nil || a.at("/id") == nil {
		u.t.Fatalf("%s: %s, %v", tool, a.raw, err)
	}
	u.ids = append(u.ids, a.id())
	return a
}

// wants makes a call that succeeds, and checks its text.
func (u *upstreamStory) wants(tool string, input map[string]any, text string, more ...any) {
	u.t.Helper()
	a := u.call(tool, input, more...)
	got := fmt.Sprint(a.at("/stdout/text"))
	if a.at("/status") != "succeeded" || !strings.Contains(got, text) {
		u.t.Errorf("%s: want %q: %.1500s", tool, text, a.raw)
	}
}

// listed lists the tools: those of the host as soon as their servers have started, which can take
// longer than one list waits, those of a container after the first call.
func (u *upstreamStory) listed() {
	u.t.Helper()
	if u.environment == "container" {
		u.wants("everything__echo", map[string]any{"message": "first"}, "Echo: first")
		u.call("files__list_allowed_directories", map[string]any{})
		u.call("git__git_status", map[string]any{"repo_path": u.root})
	}
	for _, name := range []string{"everything__echo", "files__read_text_file", "git__git_status"} {
		var out ran
		for range 6 { // lists, which wait 5 seconds each for a start of at most 30
			out = u.dray(u.t.Context(), strings.NewReader(""), "tools")
			if strings.Contains(string(out.stdout), name) {
				break
			}
		}
		if !strings.Contains(string(out.stdout), name) {
			u.t.Errorf("%s is not listed: %s\n%s", name, out.stdout, u.log.text())
		}
	}
}

// mapped gives the servers paths of the host.
func (u *upstreamStory) mapped() {
	u.t.Helper()
	file := map[string]any{"path": u.root + "/a.txt"}
	u.wants("files__read_text_file", file, "hello\n")
	u.wants("files__search_files", map[string]any{"path": u.root, "pattern": "**/*.txt"},
		u.root+"/a.txt", "rewrite_text", true)
	repository := map[string]any{"repo_path": u.root}
	u.wants("git__git_status", repository, "a.txt")
	u.wants("git__git_add", map[string]any{"repo_path": u.root, "files": []string{"a.txt"}}, "")
	u.wants("git__git_status", repository, "new file:")
}

// policed makes calls that a policy denies or asks about.
func (u *upstreamStory) policed() {
	u.t.Helper()
	moved := u.call("files__move_file", map[string]any{
		"source": u.root + "/a.txt", "destination": u.root + "/b.txt",
	})
	written := map[string]any{"path": u.root + "/new.txt", "content": "x"}
	asked := u.call("files__write_file", written)
	if moved.at("/reason") != "denied" || asked.at("/error/code") != "approval_required" {
		u.t.Errorf("policy decided %s\n%s", moved.raw, asked.raw)
	}
	if _, err := os.Stat(u.root + "/new.txt"); err == nil {
		u.t.Error("the call ran without its approval")
	}
	id := fmt.Sprint(asked.at("/error/errors/0/message"))
	out := u.dray(u.t.Context(), strings.NewReader(""), "approvals", "approve", id)
	if out.code != 0 {
		u.t.Fatalf("approve %s: %s", id, out.stderr)
	}
	if a := u.call("files__write_file", written); a.at("/status") != "succeeded" {
		u.t.Errorf("approved: %s", a.raw)
	}
	if text, err := os.ReadFile(u.root + "/new.txt"); err != nil || string(text) != "x" {
		u.t.Errorf("the file is %q, %v", text, err)
	}
}

// bounded reads a file whose message is larger than one may be. The server is started again.
func (u *upstreamStory) bounded() {
	u.t.Helper()
	writeFiles(u.t, u.root, map[string]string{"large.txt": strings.Repeat("0123456789abcde\n", 1<<20)})
	a := u.call("files__read_text_file", map[string]any{"path": u.root + "/large.txt"})
	if a.at("/error/code") != "agent_lost" {
		u.t.Errorf("a message of more than 16 MiB: %.1500s", a.raw)
	}
	u.wants("files__read_text_file", map[string]any{"path": u.root + "/a.txt"}, "hello\n")
}

// cancelled ends a call that takes too long, and goes on.
func (u *upstreamStory) cancelled() {
	u.t.Helper()
	a := u.call("everything__trigger-long-running-operation",
		map[string]any{"duration": 600, "steps": 600}, "timeout_seconds", 1)
	if a.at("/reason") != "timeout" {
		u.t.Errorf("the long operation: %s", a.raw)
	}
	u.wants("everything__echo", map[string]any{"message": "after"}, "Echo: after")
}

// recorded finds every call in the audit log, with its container.
func (u *upstreamStory) recorded() {
	u.t.Helper()
	for _, id := range u.ids {
		row := getFrom(u.t, u.daemon, "/v1/invocations/"+id)
		container := row.at("/metadata/container/id")
		if row.at("/status") == "succeeded" && (container != nil) != (u.environment == "container") {
			u.t.Errorf("the record has the container %v: %s", container, row.raw)
		}
	}
}

// overMCP calls a tool over dray's own MCP, in both revisions.
func (u *upstreamStory) overMCP() {
	u.t.Helper()
	for _, revision := range revisions {
		c := connectMCP(u.t, u.daemon, revision, "workspace="+u.root)
		r := c.call("everything__get-sum", map[string]any{"a": 2, "b": 3})
		r.has(u.t, "The sum of 2 and 3 is 5.")
		list, err := c.ListTools(u.t.Context(), nil)
		if err != nil {
			u.t.Fatal(err)
		}
		text, _ := json.Marshal(list)
		if !strings.Contains(string(text), `"git__git_log"`) {
			u.t.Error("git__git_log is not listed over MCP")
		}
		if strings.Contains(string(text), `"files__move_file"`) {
			u.t.Error("a tool is listed whose calls are denied")
		}
	}
}
