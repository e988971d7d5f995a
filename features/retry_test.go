package features

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// retryConfig has tools that wait in their first attempt and succeed in any later one.
const retryConfig = `
containers: {box: {id: BOX}}
retry: {attempts: 3, budget: 20s}
breaker: {failures: 3, open: 2s}
tools:
  - {name: quiet, idempotent: true, argv: [sh, -c, "SCRIPT"]}
  - {name: loud, idempotent: true, argv: [sh, -c, "echo begun; SCRIPT"]}
  - {name: once, argv: [sh, -c, "SCRIPT"]}
`

const retryScript = "echo x >>/tmp/$DRAY_PLAN_ID; " +
	"[ $(wc -l </tmp/$DRAY_PLAN_ID) -gt 1 ] && exit; exec sleep 1000"

// A call whose agent was killed is repeated if its tool is idempotent, nothing of the first attempt
// is left and its output was not passed on. Other calls fail, and a cancelled one is not repeated
// (RE-02).
func TestRetryAfterAgentWasKilled(t *testing.T) {
	needsEngine(t)
	box := plainContainer(t)
	d := startDaemon(t, strings.NewReplacer("BOX", box, "SCRIPT", retryScript).Replace(retryConfig))
	for _, c := range []struct {
		tool     string
		attempts int
		code     any
		cancel   bool
	}{
		{tool: "quiet", attempts: 2},
		{tool: "loud", attempts: 1, code: "agent_lost"},
		{tool: "once", attempts: 1, code: "agent_lost"},
		{tool: "quiet", attempts: 1, cancel: true},
	} {
		t.Run(fmt.Sprintf("%s, cancelled %v", c.tool, c.cancel), func(t *testing.T) {
			plan := fmt.Sprintf("%s-%v", c.tool, c.cancel)
			body := map[string]any{
				"tool": c.tool, "input": map[string]any{}, "container": "box",
				"context": map[string]any{"plan_id": plan},
			}
			a, err := d.call(t.Context(), "?wait_ms=1", body)
			if err != nil || a.status != http.StatusAccepted {
				t.Fatalf("%v: %s", err, a.raw)
			}
			awaitFile(t, box, "/tmp/"+plan)
			if c.cancel {
				if _, err := d.ask(t.Context(), http.MethodPost, "/v1/invocations/"+a.id()+"/cancel",
					nil); err != nil {
					t.Fatal(err)
				}
			}
			killAgent(t, box)
			a, err = d.ask(t.Context(), http.MethodGet, "/v1/invocations/"+a.id()+"?wait_ms=60000", nil)
			if err != nil {
				t.Fatal(err)
			}
			lines, err := docker(t.Context(), "exec", box, "cat", "/tmp/"+plan)
			if err != nil || len(strings.Fields(lines)) != c.attempts {
				t.Errorf("attempts: %q, want %d (%v)", lines, c.attempts, err)
			}
			if a.at("/error/code") != c.code {
				t.Errorf("the call ended with %s", a.raw)
			}
			retried := a.at("/metadata/retries/0/code") == "agent_lost"
			if retried != (c.attempts > 1) || retried != (a.at("/status") == "succeeded") {
				t.Errorf("the result says of retries: %s", a.raw)
			}
			events, err := d.ask(t.Context(), http.MethodGet, "/v1/invocations/"+a.id()+"/events", nil)
			told := strings.Contains(string(events.raw), `"phase":"retry"`)
			if err != nil || told != retried || strings.Count(string(events.raw), `"started"`) > 1 {
				t.Errorf("the events say: %s (%v)", events.raw, err)
			}
		})
	}
}

func awaitFile(t *testing.T, box, path string) {
	t.Helper()
	script := "while [ ! -e " + path + " ]; do sleep 0.02; done"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := docker(ctx, "exec", box, "sh", "-c", script); err != nil {
		t.Fatal(err)
	}
}

// killAgent kills the agents of a container from the host.
func killAgent(t *testing.T, box string) {
	t.Helper()
	out, err := docker(t.Context(), "top", box, "-eo", "pid,comm")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		pid, err := strconv.Atoi(fields[0])
		command, _ := os.ReadFile("/proc/" + fields[0] + "/cmdline")
		if err == nil && strings.Contains(string(command), "serve") &&
			strings.Contains(string(command), "dray-agent") {
			killed++
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if killed == 0 {
		t.Fatalf("no agent runs in the container:\n%s", out)
	}
}

// After calls in a row that fail because of the container, further ones are refused, also by the
// dry run; the list shows it. When the time is over one call tries again, and its success closes
// the breaker (RE-03).
func TestBreakerOfPausedContainer(t *testing.T) {
	needsEngine(t)
	root := newDir(t)
	writeFiles(t, root, map[string]string{"app/.devcontainer.json": withImages(
		`{"image": "BUSYBOX", "updateRemoteUserUID": false}`)})
	d := startDaemon(t, "trust: {workspaces: ["+root+"/app]}\nbreaker: {failures: 3, open: 2s}\n")
	t.Cleanup(func() { removeContainers(t, root+"/app") })
	call := func() answer {
		t.Helper()
		a, err := d.call(t.Context(), "", map[string]any{
			"tool": "exec", "input": map[string]any{"argv": []string{"true"}}, "workspace": root + "/app",
		})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	state := func() any {
		a, err := d.ask(t.Context(), http.MethodGet, "/v1/workspaces", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; a.at(fmt.Sprintf("/items/%d", i)) != nil; i++ {
			if a.at(fmt.Sprintf("/items/%d/folder", i)) == root+"/app" {
				return a.at(fmt.Sprintf("/items/%d/breaker", i))
			}
		}
		return nil
	}
	id := fmt.Sprint(call().at("/metadata/container/id"))
	if state() != "closed" {
		t.Errorf("the breaker is %v", state())
	}
	if _, err := docker(t.Context(), "pause", id); err != nil {
		t.Fatal(err)
	}
	opened := answer{}
	for range 3 {
		opened = call()
		if opened.at("/error/code") != "container_unavailable" ||
			strings.Contains(string(opened.raw), "circuit breaker of "+root+"/app is open:") {
			t.Errorf("got %s", opened.raw)
		}
	}
	if w := fmt.Sprint(opened.at("/metadata/warnings")); !strings.Contains(w, "breaker") {
		t.Errorf("the call that opens the breaker does not say so: %s", opened.raw)
	}
	refused := call()
	if m := fmt.Sprint(refused.at("/error/message")); state() != "open" ||
		!strings.Contains(m, "circuit breaker") || !strings.Contains(m, "paused") {
		t.Errorf("the breaker is %v, the call says %s", state(), refused.raw)
	}
	dry, err := d.ask(t.Context(), http.MethodPost, "/v1/route", map[string]any{
		"tool": "exec", "workspace": root + "/app",
	})
	if err != nil || !strings.Contains(fmt.Sprint(dry.at("/error/message")), "circuit breaker") {
		t.Errorf("the dry run says %s (%v)", dry.raw, err)
	}
	if _, err := docker(t.Context(), "unpause", id); err != nil {
		t.Fatal(err)
	}
	up := "/v1/workspaces/" + strings.ReplaceAll(root+"/app", "/", "%2F") + "/up"
	if a, err := d.ask(t.Context(), http.MethodPost, up, map[string]any{}); err != nil ||
		a.at("/breaker") != "closed" {
		t.Errorf("up does not close the breaker: %s (%v)", a.raw, err)
	}
	if _, err := docker(t.Context(), "pause", id); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		call()
	}
	if list, err := d.ask(t.Context(), http.MethodGet, "/v1/containers", nil); err != nil ||
		!strings.Contains(string(list.raw), `"breaker":"open"`) {
		t.Errorf("the list of containers says %s (%v)", list.raw, err)
	}
	if _, err := docker(t.Context(), "unpause", id); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for state() != "half_open" {
		if time.Now().After(deadline) {
			t.Fatalf("the breaker stays %v", state())
		}
	}
	if a := call(); a.at("/status") != "succeeded" || state() != "closed" {
		t.Errorf("the breaker is %v after %s", state(), a.raw)
	}
}

// Without an engine an idempotent call is attempted as often as configured, with the failed
// attempts in its result; another one once. No call runs on the host (RE-02, RT-02).
func TestRetryWithoutEngine(t *testing.T) {
	root := newDir(t)
	d := startDaemon(t, "engine: {host: unix://"+root+"/none}\nhost: {roots: ["+root+"]}\n"+
		"retry: {attempts: 3}\ntools: [{name: again, idempotent: true, argv: [touch, "+root+"/ran]}, "+
		"{name: once, argv: [touch, "+root+"/ran]}]\n")
	for tool, retries := range map[string]int{"again": 2, "once": 0} {
		a, err := d.call(t.Context(), "", map[string]any{
			"tool": tool, "input": map[string]any{}, "container": "box",
		})
		list, _ := a.at("/metadata/retries").([]any)
		if err != nil || a.at("/error/code") != "engine_unavailable" || len(list) != retries {
			t.Errorf("%s: %s (%v)", tool, a.raw, err)
		}
	}
	if _, err := os.Stat(root + "/ran"); err == nil {
		t.Error("a call ran on the host")
	}
}
