package features

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python/assets/assetstest"
)

// startPoliced starts a daemon with policies, whose sessions of Python may write.
func startPoliced(t *testing.T) (d *daemon, folder string) {
	t.Helper()
	folder = newDir(t)
	writeFiles(t, folder, map[string]string{"p.cedar": `
@id("any") permit (principal, action == Action::"call", resource);
@id("no-push") @reason("pushes are for humans")
forbid (principal, action == Action::"call", resource) when { context.programs.contains("git") };
@id("ask-rm") @ask("it removes files")
permit (principal, action == Action::"call", resource) when { context.programs.contains("rm") };
@id("no-grep") forbid (principal, action == Action::"call", resource == Tool::"grep");
`})
	return startDaemon(t, fmt.Sprintf(`
host: {roots: [%s]}
policy: {files: [%s]}
python:
  runtime: pyodide
  permissions: {fs: write, network: [localhost]}
  pyodide: {assets: %s}
`, folder, filepath.Join(folder, "p.cedar"), assetstest.Dir(t))), folder
}

// checkCode checks how a call ended, in its answer and in its row of the audit log.
func checkCode(t *testing.T, d *daemon, a answer, want dray.Code) {
	t.Helper()
	row, err := d.ask(t.Context(), http.MethodGet, "/v1/invocations/"+a.id(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []answer{a, row} {
		if got := from.at("/error/code"); got != string(want) {
			t.Errorf("the code is %v, want %s: %s", got, want, from.raw)
		}
	}
}

// What policies deny or ask about does not run, over HTTP and from code, whatever the caller adds
// to its call; it has a row (SE-04, SE-05, PY-27).
func TestPoliciesDecideAboutCalls(t *testing.T) {
	t.Parallel()
	d, folder := startPoliced(t)
	for command, want := range map[string]dray.Code{
		"git push": dray.CodeDenied, "touch ran; rm ran": dray.CodeApprovalRequired,
	} {
		a, err := d.call(t.Context(), "", map[string]any{
			"tool": "shell", "input": map[string]any{"command": command}, "environment": "host",
			"cwd":     folder,
			"context": map[string]any{"plan_id": "p", "labels": map[string]string{"approved": "yes"}},
			"plan":    map[string]any{"override": "host"},
		})
		if err != nil {
			t.Fatal(err)
		}
		checkCode(t, d, a, want)
	}
	for command, want := range map[string]string{
		"git push": "[EACCES denied]", "rm x": "[EACCES approval_required]", "true": "0",
	} {
		code := caughtCall(fmt.Sprintf(`dray.call_tool("shell", {"command": %q})["exit_code"]`, command))
		a := d.brokerCall(t, folder, "s", code, nil)
		if got := fmt.Sprint(a.at("/output/value")); got != want {
			t.Errorf("%s: %s, want %s: %s", command, got, want, a.raw)
		}
		list, err := d.ask(t.Context(), http.MethodGet, "/v1/invocations?label=dray.parent:"+a.id(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if list.at("/items/0/tool") != "shell" {
			t.Errorf("%s has no row: %s", command, list.raw)
		}
	}
}

// A tool whose calls are denied whatever their input is not listed, over HTTP and MCP (SE-04).
func TestPoliciesDecideAboutLists(t *testing.T) {
	d, _ := startPoliced(t)
	list, err := d.ask(t.Context(), http.MethodGet, "/v1/tools", nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(list.raw); strings.Contains(text, `"name":"grep"`) ||
		!strings.Contains(text, `"name":"shell"`) {
		t.Errorf("the list is %s", text)
	}
	one, err := d.ask(t.Context(), http.MethodGet, "/v1/tools/grep", nil)
	if err != nil || one.at("/code") != string(dray.CodeUnknownTool) {
		t.Errorf("%v: %s", err, one.raw)
	}
	for _, revision := range revisions {
		tools, err := connectMCP(t, d, revision, "").ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, tool := range tools.Tools {
			names[tool.Name] = true
		}
		if names["grep"] || !names["shell"] || !names["read_output"] {
			t.Errorf("%s: %v", revision, names)
		}
	}
}
