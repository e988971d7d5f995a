package features

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/python/assets/assetstest"
)

// startBroker starts a daemon with one slot and no queue, whose sessions of Python have all
// permissions.
func startBroker(t *testing.T) (d *daemon, folder string) {
	folder = newDir(t)
	writeFiles(t, folder, map[string]string{"a.txt": "text", "sub/b.txt": "below"})
	return startDaemon(t, fmt.Sprintf(`
host: {roots: [%s]}
limits: {concurrent: 1, queue: 0}
tools:
  - {name: look, description: Look., argv: [cat, a.txt], environment: host, capabilities: [read_only]}
  - {name: risky, description: Ask., argv: ["true"], environment: host,
     capabilities: [read_only, human_approval_required]}
python:
  runtime: pyodide
  permissions: {fs: write, network: [localhost, example.org], env: [LANG]}
  pyodide: {assets: %s}
`, folder, assetstest.Dir(t))), folder
}

// brokerCall calls the tool python in a directory.
func (d *daemon) brokerCall(t *testing.T, dir, session, code string, more map[string]any) answer {
	t.Helper()
	input := map[string]any{"code": "import dray, errno\n" + code, "session": session}
	maps.Copy(input, more)
	a, err := d.call(t.Context(), "", map[string]any{
		"tool": "python", "input": input, "workspace": dir,
		"context": map[string]any{"plan_id": "p", "labels": map[string]string{"dray.parent": "forged"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// caughtCall returns code whose value is that of a call, or [errno name, code] of its error.
func caughtCall(call string) string {
	return "try:\n  r = " + call + "\nexcept dray.DrayError as e:\n  r = [errno.errorcode[e.errno], e.code]\nr"
}

// Code calls tools in the slot of its own call; each has a record of its own, with the id of the
// call in a label, and its own rules (PY-11, PY-27).
func TestPyodide_CallTool(t *testing.T) {
	t.Parallel()
	d, folder := startBroker(t)
	a := d.brokerCall(t, folder, "s", `
r = [
  dray.call_tool("read_file", {"path": "a.txt"})["content"],
  dray.call_tool("write_file", {"path": "new.txt", "content": "written"})["action"],
  dray.call_tool("exec", {"argv": ["sh", "-c", "echo out; exit 3"]}),
  dray.read_text_file("sub/b.txt"),
]
r[2].pop("id")
r`, nil)
	if got, want := a.at("/output/value"), []any{
		"text", "created", map[string]any{
			"exit_code": json.Number("3"), "stdout": "out\n", "stderr": "",
		}, "below",
	}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %v: %s", got, a.raw)
	}
	content, err := os.ReadFile(filepath.Join(folder, "new.txt"))
	if err != nil || string(content) != "written" {
		t.Errorf("the file is %q, %v", content, err)
	}
	list, err := d.ask(t.Context(), http.MethodGet,
		"/v1/invocations?label=dray.parent:"+a.id(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, tool := range []string{"exec", "write_file", "read_file"} { // the newest is the first
		at := fmt.Sprintf("/items/%d", i)
		if list.at(at+"/tool") != tool || list.at(at+"/principal") != a.at("/principal") ||
			list.at(at+"/workspace") != folder || list.at(at+"/context/plan_id") != "p" {
			t.Errorf("record %d: %s", i, list.raw)
		}
	}
	out := d.dray(t.Context(), nil, "audit", "list", "--label", "dray.parent="+a.id())
	if lines := strings.Count(string(out.stdout), "\n"); out.code != 0 || lines != 4 {
		t.Errorf("audit list: %d, %s%s", out.code, out.stdout, out.stderr)
	}
}

// What a session may not do it cannot do by a tool either (PY-11, PY-19, PY-27).
func TestPyodide_CallToolNeedsPermissions(t *testing.T) {
	t.Parallel()
	d, folder := startBroker(t)
	const denied = "[EACCES denied]"
	for i, tt := range []struct {
		permissions string
		want        map[string]string // by the call
	}{
		{`{}`, map[string]string{
			`dray.call_tool("look")["stdout"]`:                                "text",
			`dray.call_tool("python", {"code": "1"})`:                         denied,
			`dray.call_tool("risky")`:                                         "[EACCES approval_required]",
			`dray.call_tool("none")`:                                          "[ENOENT unknown_tool]",
			`dray.call_tool("read_file", {})`:                                 "[EINVAL invalid_input]",
			`dray.call_tool("read_file", {"path": "../x"})`:                   "[EINVAL path_invalid]",
			`dray.call_tool("exec", {"argv": ["/nonexistent"]})`:              "[EIO executable_not_found]",
			`dray.fetch("http://localhost/")`:                                 denied,
			`dray.fetch("http://other.example/")`:                             denied,
			`dray.call_tool("shell", {"command": "echo $LANG"})["exit_code"]`: "0",
		}},
		{`{"fs": "none"}`, map[string]string{
			`dray.call_tool("look")`:                                          denied,
			`dray.call_tool("read_file", {"path": "a.txt"})`:                  denied,
			`dray.call_tool("write_file", {"path": "a.txt", "content": "x"})`: denied,
			`dray.call_tool("exec", {"argv": ["true"]})`:                      denied,
			`dray.read_text_file("a.txt")`:                                    denied,
		}},
		{`{"fs": "read"}`, map[string]string{
			`dray.call_tool("look")["stdout"]`:                                "text",
			`dray.call_tool("read_file", {"path": "a.txt"})["content"]`:       "text",
			`dray.call_tool("write_file", {"path": "a.txt", "content": "x"})`: denied,
			`dray.call_tool("exec", {"argv": ["true"]})`:                      denied,
			`dray.read_text_file("a.txt")`:                                    "text",
		}},
		{`{"network": []}`, map[string]string{
			`dray.call_tool("write_file", {"path": "c.txt", "content": "x"})["size"]`: "1",
			`dray.call_tool("exec", {"argv": ["true"]})`:                              denied,
			`dray.fetch("http://example.org/")`:                                       denied,
		}},
	} {
		session := fmt.Sprint("s", i)
		more := map[string]any{"permissions": json.RawMessage(tt.permissions)}
		for call, want := range tt.want {
			a := d.brokerCall(t, folder, session, caughtCall(call), more)
			if got := fmt.Sprint(a.at("/output/value")); got != want {
				t.Errorf("%s: %s is %s, want %s: %s", tt.permissions, call, got, want, a.raw)
			}
		}
	}
	a := d.brokerCall(t, folder, "wide", "1", map[string]any{
		"permissions": map[string]any{"network": []string{"example.com"}},
	})
	if a.at("/reason") != "denied" || a.at("/error/code") != "denied" ||
		!strings.Contains(fmt.Sprint(a.at("/error/message")), "python.permissions.network") {
		t.Errorf("more than the configuration permits: %s", a.raw)
	}
	status := d.brokerStatus(t, folder)
	if got := fmt.Sprint(status.at("/output/sessions/1/permissions")); got !=
		"map[env:[LANG] fs:none network:[localhost example.org]]" {
		t.Errorf("operation status says %s: %s", got, status.raw)
	}
}

func (d *daemon) brokerStatus(t *testing.T, dir string) answer {
	t.Helper()
	a, err := d.call(t.Context(), "", map[string]any{
		"tool": "python", "workspace": dir, "input": map[string]any{"operation": "status"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A call that code made ends with the code: by its timeout. The record of a run has
// its requests to hosts (PY-06, PY-27).
func TestPyodide_CallToolEnds(t *testing.T) {
	t.Parallel()
	d, folder := startBroker(t)
	d.brokerCall(t, folder, "default", "1", nil) // the process is there before the timeout begins
	a, err := d.call(t.Context(), "", map[string]any{
		"tool": "python", "workspace": folder, "timeout_seconds": 3, "input": map[string]any{
			"code": "import dray\ndray.call_tool('exec', {'argv': ['sleep', '600']})",
		},
	})
	if err != nil || a.at("/reason") != "timeout" {
		t.Fatalf("%v: %s", err, a.raw)
	}
	list, err := d.ask(t.Context(), http.MethodGet, "/v1/invocations?label=dray.parent:"+a.id(), nil)
	if err != nil || list.at("/items/0/reason") != "cancelled" ||
		list.at("/items/0/metadata/kill/survivors") != json.Number("0") {
		t.Errorf("the nested call: %v, %s", err, list.raw)
	}
	a = d.brokerCall(t, folder, "f", caughtCall(`dray.fetch("http://localhost/secret")`), nil)
	if fetch := a.at("/metadata/fetches/0"); fmt.Sprint(fetch) !=
		"map[error:EACCES host:localhost method:GET]" {
		t.Errorf("recorded %v: %s", fetch, a.raw)
	}
}

// Calls of tools change no more than the run may itself: nothing in a read-only run (PY-18), and no
// file that programs on the host execute, however its name is written (SY-08).
func TestPyodide_CallToolWrites(t *testing.T) {
	t.Parallel()
	d, folder := startBroker(t)
	writeFiles(t, folder, map[string]string{".git/hooks/x": "old"})
	if err := os.Symlink(".git", filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	denied := []any{"EACCES", "denied"}
	for _, tt := range []struct {
		path     string
		readOnly bool
		want     any
	}{
		{"new.txt", true, denied},
		{"new.txt", false, "created"},
		{".envrc", false, denied},
		{"sub/.ENVRC", false, denied},
		{".git/hooks/x", false, denied},
		{"link/hooks/y", false, denied},
	} {
		code := caughtCall(fmt.Sprintf("dray.call_tool('write_file', {'path': %q, 'content': '1'})['action']",
			tt.path))
		a := d.brokerCall(t, folder, "s", code, map[string]any{"read_only": tt.readOnly})
		if got := a.at("/output/value"); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s, read_only %v: got %v, want %v: %s", tt.path, tt.readOnly, got, tt.want, a.raw)
		}
	}
	a := d.brokerCall(t, folder, "s", caughtCall("dray.call_tool('exec', {'argv': ['true']})"),
		map[string]any{"read_only": true})
	if got := a.at("/output/value"); !reflect.DeepEqual(got, any(denied)) {
		t.Errorf("exec in a read-only run: %s", a.raw)
	}
	a = d.brokerCall(t, folder, "s", "dray.call_tool('read_file', {'path': 'a.txt'})['content']",
		map[string]any{"read_only": true})
	if got := a.at("/output/value"); got != "text" {
		t.Errorf("read_file in a read-only run: %s", a.raw)
	}
}
