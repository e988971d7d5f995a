package features

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// hostileModes are the ways in which a server misbehaves in a call, with the end of the call.
var hostileModes = []struct{ mode, reason, code string }{
	{"good", "exited", ""},
	{"crash", "unavailable", "agent_lost"},
	{"garbage", "unavailable", "agent_lost"},
	{"giant-line", "unavailable", "agent_lost"},
	{"flood", "unavailable", "agent_lost"},
	{"hang", "timeout", ""},
	{"children", "exited", ""},
}

// Tools of MCP servers on the host and in a container are listed and called like any other. A
// hostile server fails its own calls only, each of which is recorded; it opens no breaker, and
// nothing of it is left when the daemon has stopped (MC-06, EX-17).
func TestUpstreamServers(t *testing.T) {
	t.Parallel()
	needsEngine(t)
	for _, environment := range []string{"host", "container"} {
		t.Run(environment, func(t *testing.T) {
			root := newDir(t) + "/app"
			writeFiles(t, root, map[string]string{
				".devcontainer.json": withImages(`{"image": "BUSYBOX", "userEnvProbe": "none"}`),
			})
			t.Cleanup(func() { removeContainers(t, root) })
			d := startDaemon(t, upstreamConfig(t, root, environment))
			for _, m := range hostileModes {
				callHostile(t, d, root, m.mode, "t0", m.reason, m.code)
				checkExec(t, d, root)
			}
			listed := d.dray(t.Context(), strings.NewReader(""), "tools")
			for _, m := range hostileModes {
				if !strings.Contains(string(listed.stdout), m.mode+"__t0") {
					t.Errorf("%s__t0 is not listed: %s", m.mode, listed.stdout)
				}
			}
			if left := hostileProcesses(t, root, environment); !strings.Contains(left, "sleep 86399") {
				t.Fatalf("the check of processes shows none of a server that runs: %s", left)
			}
			d.end(t)
			if left := hostileProcesses(t, root, environment); left != "" {
				t.Errorf("left after the stop: %s", left)
			}
		})
	}
}

// A server in a container starts in a call, after its record and after policy has decided: neither
// an explanation nor a denied call brings up its container, nor the call of a tool that was
// disabled before its server has ever started (MC-06, SE-04, AU-01, RT-06).
func TestUpstreamServerStartsInCall(t *testing.T) {
	t.Parallel()
	needsEngine(t)
	root := newDir(t) + "/app"
	writeFiles(t, root, map[string]string{
		".devcontainer.json": withImages(`{"image": "BUSYBOX", "userEnvProbe": "none"}`),
		"../p.cedar": `permit (principal, action == Action::"call", resource);
			forbid (principal, action == Action::"call", resource) when { resource.name == "good__t1" };`,
	})
	t.Cleanup(func() { removeContainers(t, root) })
	d := startDaemon(t, "policy: {files: ["+filepath.Dir(root)+"/p.cedar]}\n"+
		upstreamConfig(t, root, "container"))
	noContainer := func(after string) {
		t.Helper()
		ids, err := exec.CommandContext(t.Context(), "docker", "ps", "-aq", "--filter",
			"label=devcontainer.local_folder="+root).Output()
		if err != nil || len(ids) > 0 {
			t.Errorf("%s has left a container: %s, %v", after, ids, err)
		}
	}
	explained := d.dray(t.Context(), strings.NewReader(""), "route", "explain", "good__t0")
	if !strings.Contains(string(explained.stdout), "container") {
		t.Errorf("explained: %s%s", explained.stdout, explained.stderr)
	}
	noContainer("an explanation")
	callHostile(t, d, root, "good", "t1", "denied", "denied")
	noContainer("a denied call")
	d.dray(t.Context(), strings.NewReader(""), "tools", "disable", "good__t0")
	refused, err := d.call(t.Context(), "", map[string]any{
		"tool": "good__t0", "workspace": root, "input": map[string]any{},
	})
	if err != nil || refused.at("/code") != "denied" {
		t.Errorf("a call of a disabled tool: %.500s, %v", refused.raw, err)
	}
	noContainer("a call of a disabled tool")
	d.dray(t.Context(), strings.NewReader(""), "tools", "enable", "good__t0")
	callHostile(t, d, root, "good", "nothing", "invalid", "unknown_tool")
	callHostile(t, d, root, "good", "t0", "exited", "")
}

// upstreamConfig returns a configuration with a server for each mode. It builds their program.
func upstreamConfig(t *testing.T, root, environment string) string {
	t.Helper()
	program := filepath.Join(root, "hostile")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program,
		"../internal/mcp/upstream/testdata/hostile")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if environment == "container" {
		program = "/workspaces/app/hostile"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "host: {roots: [%s]}\ntrust: {workspaces: [%[1]s]}\nlimits: {grace: 1s}\n", root)
	b.WriteString("breaker: {failures: 2}\nmcp:\n  servers:\n")
	for _, m := range hostileModes {
		fmt.Fprintf(&b, "    %s: {argv: [%s, %[1]s, %s], workspace: %[3]s, environment: %s}\n", m.mode,
			program, root, environment)
	}
	return b.String()
}

// callHostile calls a tool and checks its end, in the response and in the audit log.
func callHostile(t *testing.T, d *daemon, root, mode, tool, reason, code string) {
	t.Helper()
	body := map[string]any{"tool": mode + "__" + tool, "workspace": root, "input": map[string]any{}}
	if mode == "hang" {
		body["timeout_seconds"] = 2
	}
	a, err := d.call(t.Context(), "?wait_ms=120000", body)
	if err != nil {
		t.Fatal(err)
	}
	id := a.id()
	if a.at("/reason") != reason || code != "" && a.at("/error/code") != code {
		t.Errorf("%s: %.500s", mode, a.raw)
	}
	if reason == "exited" && mode == "good" && a.at("/stdout/text") != "ok" {
		t.Errorf("%s: %.500s", mode, a.raw)
	}
	row, err := d.ask(t.Context(), "GET", "/v1/invocations/"+id, nil)
	if err != nil || row.at("/reason") != reason || row.at("/tool") != mode+"__"+tool {
		t.Errorf("%s is recorded as %.500s, %v", mode, row.raw, err)
	}
}

// checkExec checks that calls of another tool go on.
func checkExec(t *testing.T, d *daemon, root string) {
	t.Helper()
	a, err := d.call(t.Context(), "?wait_ms=60000", map[string]any{
		"tool": "exec", "workspace": root, "input": map[string]any{"argv": []string{"echo", "on"}},
	})
	if err != nil || a.at("/status") != "succeeded" {
		t.Errorf("exec: %.500s, %v", a.raw, err)
	}
}

// hostileProcesses returns the command lines of servers, and of what they started, that still run.
func hostileProcesses(t *testing.T, root, environment string) string {
	t.Helper()
	var left []string
	note := func(command string) {
		if strings.Contains(command, "hostile ") || strings.Contains(command, "sleep 86399") {
			left = append(left, strings.TrimSpace(command))
		}
	}
	if environment == "container" {
		ids, err := exec.CommandContext(t.Context(), "docker", "ps", "-q", "--filter",
			"label=devcontainer.local_folder="+root).Output()
		if err != nil || len(ids) == 0 {
			t.Fatalf("no container: %v", err)
		}
		out, err := exec.CommandContext(t.Context(), "docker", "top", strings.TrimSpace(string(ids)),
			"-o", "pid,args").Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			note(line)
		}
		return strings.Join(left, "; ")
	}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		// the working directory shows that it belongs to this test
		if dir, _ := os.Readlink(filepath.Dir(file) + "/cwd"); dir != root {
			continue
		}
		text, _ := os.ReadFile(file)
		note(strings.ReplaceAll(string(text), "\x00", " "))
	}
	return strings.Join(left, "; ")
}
