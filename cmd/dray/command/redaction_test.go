package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// canaries are secrets, by the place where a call has them. That of stdin is recorded nowhere.
var canaries = map[string]string{
	"argument": "canary-pattern-argument", "label": "canary-pattern-label", "stdout": "canary-pattern-stdout",
	"split": "canary-pattern-split", "stderr": "canary-pattern-stderr", "structured": "canary-pattern-structured",
	"up": "canary-pattern-up", "path": "canary-pattern-path",
	"environment": "kept-in-a-variable/1", "field": "kept-in-a-field/2", "stdin": "kept-in-stdin/3",
}

// secretCalls calls tools with all canaries, on the host and in a container.
type secretCalls struct {
	wholeDaemonProcess

	image   string
	work    string
	replies bytes.Buffer
	ids     []string
}

var invocationID = regexp.MustCompile(`"id":"([0-9a-f-]{36})"`)

// request sends a request and keeps the response.
func (c *secretCalls) request(method, path string, body any) {
	c.t.Helper()
	b, err := json.Marshal(body)
	var out []byte
	if err == nil {
		out, err = c.do(c.t.Context(), method, path, string(b))
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.replies.Write(out)
	c.replies.WriteByte('\n')
	if id := invocationID.FindSubmatch(out); id != nil {
		c.ids = append(c.ids, string(id[1]))
	}
}

func (c *secretCalls) call(body map[string]any) {
	c.t.Helper()
	body["context"] = map[string]any{"labels": map[string]string{"note": canaries["label"]}}
	c.request(http.MethodPost, "/v1/invocations", body)
}

// script prints the canaries; one of them byte by byte.
func script(argument string) []string {
	var split strings.Builder
	for _, c := range canaries["split"] {
		fmt.Fprintf(&split, "printf %%s %c; ", c)
	}
	return []string{
		"sh", "-c", "echo an argument is " + argument + "; echo " + canaries["stdout"] + "; " + split.String() +
			`echo; cat >/dev/null; echo "$MY_TOKEN"; printf "%s" "$MY_TOKEN" | base64; ` +
			"echo " + canaries["stderr"] + " >&2; exit 3",
	}
}

func (c *secretCalls) run() {
	for _, environment := range []string{"host", "container"} {
		call := map[string]any{
			"tool": "exec", "input": map[string]any{"argv": script(canaries["argument"])},
			"workspace": c.work, "environment": environment, "stdin": canaries["stdin"],
			"env": map[string]string{"MY_TOKEN": canaries["environment"]},
		}
		c.call(call) // in the container: `up` prints a canary and fails
		c.call(call)
	}
	for _, password := range []any{canaries["field"], canaries["field"] + strings.Repeat("x", 100)} {
		c.call(map[string]any{
			"tool": "echo_input", "workspace": c.work, "environment": "host",
			"input": map[string]any{"login": map[string]any{"password": password}, "note": canaries["structured"]},
		})
	}
	c.call(map[string]any{
		"tool": "read_file", "workspace": c.work, "environment": "host",
		"input": map[string]any{"path": canaries["path"]},
	})
	c.request(http.MethodPost, "/v1/workspaces/"+strings.ReplaceAll(c.work, "/", "%2F")+"/rebuild", struct{}{})
	for _, id := range c.ids {
		for _, path := range []string{"", "/events", "/output/stdout", "/output/stderr"} {
			c.request(http.MethodGet, "/v1/invocations/"+id+path, nil)
		}
	}
	for _, path := range []string{
		"/v1/invocations", "/v1/workspaces", "/v1/containers", "/v1/audit/events", "/v1/audit/export",
		"/v1/audit/files", "/v1/audit/verify", "/healthz", "/metrics",
	} {
		c.request(http.MethodGet, path, nil)
	}
}

// stored returns all bytes of the state directory.
func (c *secretCalls) stored() []byte {
	c.t.Helper()
	var all []byte
	err := filepath.WalkDir(c.state, func(name string, entry fs.DirEntry, err error) error {
		all = append(all, name...)
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		all = append(all, text...)
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return all
}

// prepare makes a workspace whose `up` prints a canary, and fails the first time.
func (c *secretCalls) prepare() {
	c.t.Helper()
	command := "echo " + canaries["up"] + "; test -e failed || { touch failed; exit 1; }"
	config := fmt.Sprintf(`{"image": %q, "updateRemoteUserUID": false, "postCreateCommand": %q}`, c.image, command)
	if err := errors.Join(os.Mkdir(c.work+"/.devcontainer", 0o700),
		os.WriteFile(configOf(c.work), []byte(config), 0o600)); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { removeContainers(c.work) })
}

const secretTool = `
tools:
- {name: echo_input, argv: [cat], output: json, input_schema: {type: object, properties: {
    login: {$ref: "#/$defs/login"}}, $defs: {login: {properties: {password: {type: string, maxLength: 50, %s}}}}}}
`

// A canary in arguments, variables, stdin, output, an error, a label, a path or the log of `up` is in no
// file of the state directory, log line or response where it is marked as secret; without marks it
// is, so the search can find it (AU-07, CA-02, CA-05).
func TestRedaction(t *testing.T) {
	image, cli := needEngine(t)
	for name, marked := range map[string]bool{"marked": true, "not marked": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			settings := fmt.Sprintf("host: {roots: [%s]}\ntrust: {workspaces: [%s]}\n", work, work)
			if marked {
				settings += `audit: {redact: {patterns: ["canary-pattern-[a-z]+"], env: ["*_token"]}}` +
					fmt.Sprintf(secretTool, "x-secret: true")
			} else {
				settings += fmt.Sprintf(secretTool, "description: none")
			}
			c := &secretCalls{
				wholeDaemonProcess: startWholeDaemon(t, cli, settings), image: image, work: work,
			}
			c.prepare()
			c.run()
			c.check("while the daemon runs", marked)
			_ = c.cmd.Process.Signal(syscall.SIGTERM)
			<-c.exited
			c.check("after its end", marked)
			if found := canariesIn(c.log.Bytes()); marked && len(found) > 0 {
				t.Errorf("in the log: %v", found)
			}
		})
	}
}

func (c *secretCalls) check(when string, marked bool) {
	c.t.Helper()
	for place, text := range map[string][]byte{"responses": c.replies.Bytes(), "state": c.stored()} {
		found := canariesIn(text)
		if marked && len(found) > 0 {
			c.t.Errorf("%s, %s: %v", when, place, found)
		}
		if marked && !bytes.Contains(text, []byte("[redacted:")) {
			c.t.Errorf("%s, %s: nothing is redacted", when, place)
		}
		if !marked && len(found) != len(canaries)-1 {
			c.t.Errorf("%s, %s: only %v, so the search finds too little", when, place, found)
		}
	}
}

func canariesIn(text []byte) []string {
	var found []string
	for place, canary := range canaries {
		if bytes.Contains(text, []byte(canary)) {
			found = append(found, place)
		}
	}
	return found
}
