package features

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
)

// pythonContainer starts a container with python3 and a workspace, and returns its id.
func pythonContainer(t *testing.T, workspace string) string {
	t.Helper()
	id, err := docker(t.Context(), "run", "--detach", "--init", "--volume",
		workspace+":/workspaces/app", debian, "sleep", "1000000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = docker(context.WithoutCancel(t.Context()), "rm", "--force", id) })
	return id
}

// newPython returns a directory with a workspace, and the configuration of its container py.
func newPython(t *testing.T) (root, config string) {
	t.Helper()
	needsEngine(t)
	root = newDir(t)
	writeFiles(t, root, map[string]string{"app/sub/x": ""})
	return root, fmt.Sprintf("containers: {py: {id: %s, folder: /workspaces/app}}\n",
		pythonContainer(t, root+"/app"))
}

func TestPython(t *testing.T) {
	root, config := newPython(t)
	f := &fixture{
		daemon: startDaemon(t, config+"host: {roots: ["+root+"/app]}\n"), root: root,
		names: map[string]string{"workspace": root + "/app"},
	}
	runFeature(t, "python.feature", f)
}

// pythonDaemon is a daemon with a container that has Python.
type pythonDaemon struct {
	*daemon
	t *testing.T
}

// startPython starts a daemon that the test can restart.
func startPython(t *testing.T, root, config string) *pythonDaemon {
	t.Helper()
	writeFiles(t, root, map[string]string{"config.yaml": config})
	p := &pythonDaemon{t: t}
	p.start(root)
	t.Cleanup(func() { p.end(t) })
	return p
}

func (p *pythonDaemon) start(root string) {
	p.t.Helper()
	p.daemon = launch(root+"/state", root+"/config.yaml")
	if _, ok := p.log.await("ready"); !ok {
		p.t.Fatalf("the daemon does not start: %s", p.log.text())
	}
}

// python calls the tool with an input.
func (p *pythonDaemon) python(query, input string) answer {
	p.t.Helper()
	a, err := p.call(p.t.Context(), query, map[string]any{
		"tool": "python", "container": "py", "input": json.RawMessage(input),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

func (p *pythonDaemon) want(a answer, pointer string, want any) {
	p.t.Helper()
	if got := a.at(pointer); !same(got, want) {
		p.t.Errorf("%s is %v, want %v: %s", pointer, got, want, a.raw)
	}
}

// After a restart of the daemon the next call of a session reports the loss of its variables, once
// (PY-25). No process of the session is left in the container when the daemon has ended.
func TestPython_Restart(t *testing.T) {
	root, config := newPython(t)
	p := startPython(t, root, config)
	p.want(p.python("", `{"session":"s","code":"x = 1\nx"}`), "/output/value", json.Number("1"))
	id := fmt.Sprint(p.python("", `{"session":"other","operation":"status"}`).at("/metadata/container/id"))
	if code := p.end(t); code != 0 {
		t.Fatal(p.log.text())
	}
	if ps, err := docker(t.Context(), "top", id, "-eo", "pid,comm"); err != nil ||
		strings.Contains(ps, "python") {
		t.Errorf("%v; left: %s", err, ps)
	}
	p.start(root)
	first := p.python("", `{"session":"s","code":"'x' in globals()"}`)
	p.want(first, "/output/value", false)
	p.want(first, "/output/restarted", true)
	p.want(first, "/output/discarded_state", true)
	p.want(first, "/output/generation", json.Number("2"))
	p.want(p.python("", `{"session":"s","code":"1"}`), "/output/discarded_state", false)
	p.want(p.python("", `{"session":"new","code":"1"}`), "/output/discarded_state", false)
}

// Another principal cannot see, reset or use a session, and has its own of the same name (PY-17).
func TestPython_OtherPrincipal(t *testing.T) {
	root, config := newPython(t)
	writeFiles(t, root, map[string]string{"ci.token": "a-secret-of-ci-0123456789\n"})
	if err := os.Chmod(root+"/ci.token", 0o600); err != nil {
		t.Fatal(err)
	}
	p := startPython(t, root, config+"server: {tcp: 0, tokens: {ci: "+root+"/ci.token}}\n")
	ready, _ := p.log.await("ready")
	ci := keyed{daemon: p.daemon, t: t, tcp: fmt.Sprint(ready["tcp"])}
	p.want(p.python("", `{"session":"s","code":"x = 1"}`), "/status", "succeeded")
	for i, tt := range []struct {
		input, pointer string
		want           any
	}{
		{`{"session":"s","operation":"reset"}`, "/error/code", "not_found"},
		{`{"session":"s","operation":"interrupt"}`, "/error/code", "not_found"},
		{`{"session":"s","operation":"status"}`, "/error/code", "not_found"},
		{`{"operation":"status"}`, "/output/sessions", []any{}},
		{`{"session":"s","code":"'x' in globals()"}`, "/output/value", false},
	} {
		a, err := ci.send("", `{"tool":"python","container":"py","input":`+tt.input+`}`,
			fmt.Sprint("k", i), "a-secret-of-ci-0123456789", "application/json")
		if err != nil {
			t.Fatal(err)
		}
		p.want(a, tt.pointer, tt.want)
	}
	p.want(p.python("", `{"session":"s","code":"x"}`), "/output/value", json.Number("1"))
}

// Interrupt, status and reset act at once, also while the code that runs has the only slot, and
// other calls wait for it (PY-25).
func TestPython_OperationsDoNotWait(t *testing.T) {
	root, config := newPython(t)
	p := startPython(t, root, config+"limits: {concurrent: 1, per_container: 1}\n")
	begin := func() answer {
		t.Helper()
		a := p.python("?wait_ms=0", `{"session":"s","code":"kept = 1\nimport time\ntime.sleep(1000)"}`)
		if a.status != http.StatusAccepted {
			t.Fatalf("answered with %s", a.raw)
		}
		return a
	}
	end := func(a answer) answer {
		t.Helper()
		a, err := p.ask(t.Context(), http.MethodGet, "/v1/invocations/"+a.id()+"?wait_ms=20000", nil)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	busy := func() {
		t.Helper()
		for { // until the code runs
			a := p.python("", `{"operation":"status","session":"s"}`)
			if a.at("/output/sessions/0/state") == "busy" {
				return
			}
			if t.Context().Err() != nil {
				t.Fatal(string(a.raw))
			}
		}
	}
	running := begin()
	busy()
	p.want(p.python("", `{"operation":"interrupt","session":"s"}`), "/output/interrupted", true)
	running = end(running)
	p.want(running, "/reason", "exited")
	p.want(running, "/output/error/message", "KeyboardInterrupt")
	p.want(p.python("", `{"session":"s","code":"kept"}`), "/output/value", json.Number("1"))

	running = begin()
	busy()
	var waits sync.WaitGroup
	var next answer
	waits.Go(func() { next = p.python("", `{"session":"s","code":"'kept' in globals()"}`) })
	p.want(p.python("", `{"operation":"reset","session":"s"}`), "/output/discarded_state", true)
	running = end(running)
	p.want(running, "/reason", "cancelled")
	p.want(running, "/error/code", "conflict")
	waits.Wait()
	p.want(next, "/output/value", false)
	p.want(next, "/output/discarded_state", false) // the reset has said so
}

// A run that uses up its processor time is a timeout with its own text, on HTTP and on the command
// line (PY-06, PY-21).
func TestPython_ProcessorTime(t *testing.T) {
	root, config := newPython(t)
	p := startPython(t, root, config+"python: {cpu: 300ms}\n")
	for _, code := range []string{`while True: pass`, `sum(range(10**12))`} {
		a := p.python("", `{"session":"s","code":"`+code+`"}`)
		p.want(a, "/reason", "timeout")
		p.want(a, "/exit_code", nil)
		p.want(a, "/output/code", json.Number("124"))
		p.want(a, "/output/error/message", "CPU time limit exceeded")
		p.want(a, "/error/message", "CPU time limit exceeded")
	}
	out := p.dray(t.Context(), strings.NewReader(""), "python", "--container", "py", "-c",
		"while True: pass")
	if out.code != 124 || !strings.Contains(string(out.stderr), "CPU time limit exceeded") {
		t.Errorf("the command exits with %d: %s", out.code, out.stderr)
	}
	p.want(p.python("", `{"session":"s","code":"1 + 1"}`), "/output/value", json.Number("2"))
}

// Secrets in values, globals, errors and streams are replaced in every reply (AU-07).
func TestPython_Redaction(t *testing.T) {
	root, config := newPython(t)
	p := startPython(t, root, config+"audit: {redact: {patterns: ['sk-[0-9a-f]{8}']}}\n")
	a := p.python("", `{"session":"s","globals":["g"],
		"code":"g = {'sk-' + '0'*8: 'sk-' + '1'*8}\nprint('sk-' + '2'*8)\n['sk-' + '3'*8]"}`)
	b := p.python("", `{"session":"s","code":"raise ValueError('sk-' + '4'*8)"}`)
	for i, digits := range []string{"00000000", "11111111", "22222222", "33333333", "44444444"} {
		if raw := string(a.raw) + string(b.raw); strings.Contains(raw, "sk-"+digits) {
			t.Errorf("secret %d is in the reply: %s", i, raw)
		}
	}
	for _, pointer := range []string{"/output/value/0", "/output/stdout", "/stdout/text"} {
		if !strings.Contains(fmt.Sprint(a.at(pointer)), "[redacted:") {
			t.Errorf("%s has no mark: %s", pointer, a.raw)
		}
	}
	if !strings.Contains(fmt.Sprint(b.at("/output/error/message")), "[redacted:") {
		t.Errorf("the error has no mark: %s", b.raw)
	}
}

// Without a runtime there is no tool python (PY-17).
func TestPython_Disabled(t *testing.T) {
	p := startPython(t, newDir(t), "python: {runtime: null}\n")
	a := p.python("", `{"code":"1"}`)
	p.want(a, "/code", "unknown_tool")
}

// A container without python3 ends a call with what to install (PY-01).
func TestPython_NoInterpreter(t *testing.T) {
	root := newDir(t)
	p := startPython(t, root, "containers: {py: {id: "+plainContainer(t)+"}}\n")
	a := p.python("", `{"code":"1"}`)
	p.want(a, "/status", "failed")
	p.want(a, "/error/code", "helper_missing")
	if hint := fmt.Sprint(a.at("/error/hint")); !strings.Contains(hint, "install Python 3.9") {
		t.Errorf("the hint is %q", hint)
	}
}
