package features

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/python/assets/assetstest"
)

// analysis is a script that reads sales.csv and writes out.csv.
const analysis = `import csv

with open("sales.csv", newline="") as f:
    total = sum(int(row["amount"]) for row in csv.DictReader(f))
with open("out.csv", "w", newline="") as f:
    csv.writer(f).writerows([["total"], [total]])
print("total", total)
`

// startFiles starts a daemon whose sessions of Python may write files in a directory.
func startFiles(t *testing.T) (d *daemon, folder string) {
	folder = newDir(t)
	writeFiles(t, folder, map[string]string{
		"analyze.py": analysis, "sales.csv": "item,amount\npears,2\napples,40\n",
	})
	return startDaemon(t, fmt.Sprintf(`
host: {roots: [%s]}
python: {permissions: {fs: write}, pyodide: {assets: %s}}
`, folder, assetstest.Dir(t))), folder
}

// A script reads a file of the directory and writes another one, which the output lists; the next
// command has its variables. A file that has changed meanwhile is a conflict, and nothing of the
// run is written (AU-11, PY-10, PY-13, PY-18, PY-28).
func TestPyodide_Files(t *testing.T) {
	t.Parallel()
	d, folder := startFiles(t)
	out := filepath.Join(folder, "out.csv")
	run := func(args ...string) ran {
		return d.dray(t.Context(), nil,
			append([]string{"python", "--workspace", folder, "--runtime", "pyodide"}, args...)...)
	}
	if got := run("analyze.py"); got.code != 0 || string(got.stdout) != "total 42\n" {
		t.Fatalf("the script exits with %d: %s%s", got.code, got.stdout, got.stderr)
	}
	if b, err := os.ReadFile(out); string(b) != "total\r\n42\r\n" {
		t.Fatalf("out.csv has %q, %v", b, err)
	}
	if got := run("-c", "print(total + 1)"); string(got.stdout) != "43\n" {
		t.Errorf("the next command exits with %d: %s%s", got.code, got.stdout, got.stderr)
	}

	a := d.brokerCall(t, folder, "default", "import os\ntotal += 1\nos.remove('sales.csv')\n"+
		"open('out.csv', 'w').write(str(total))\nopen('new.csv', 'w').write('new')",
		map[string]any{"runtime": "pyodide"})
	if got := fmt.Sprint(a.at("/output/files")); got !=
		"map[created:[new.csv] deleted:[sales.csv] modified:[out.csv]]" {
		t.Errorf("the output lists %s: %s", got, a.raw)
	}
	changes := d.dray(t.Context(), nil, "audit", "show", a.id())
	planned := d.dray(t.Context(), nil, "audit", "events", "--kind", "sync", "--call", a.id())
	if !strings.Contains(string(planned.stdout), "3 files to change") {
		t.Errorf("the changes were not recorded before: %s%s", planned.stdout, planned.stderr)
	}
	for _, name := range []string{"new.csv", "sales.csv", "out.csv"} {
		if !strings.Contains(string(changes.stdout), filepath.Join(folder, name)) {
			t.Errorf("the audit log has no %s: %s%s", name, changes.stdout, changes.stderr)
		}
	}

	// the code changes the file on the host as another program would
	const meanwhile = "import dray\n" +
		"dray.call_tool('write_file', {'path': 'out.csv', 'content': 'of the host'})\n" +
		"open('out.csv', 'w').write('lost')\nopen('canary', 'w').write('dead')"
	got := run("-c", meanwhile)
	if got.code == 0 || !strings.Contains(string(got.stderr), "out.csv") {
		t.Errorf("the conflict exits with %d: %s%s", got.code, got.stdout, got.stderr)
	}
	writeFiles(t, folder, map[string]string{"out.csv": "before"})
	a = d.brokerCall(t, folder, "default", meanwhile, map[string]any{"runtime": "pyodide"})
	if a.at("/error/code") != "conflict" || a.at("/reason") == "cancelled" ||
		a.at("/output/error/code") != "conflict" || a.at("/error/hint") == nil {
		t.Errorf("the conflict ends with %s", a.raw)
	}
	b, err := os.ReadFile(out)
	if _, canary := os.Lstat(filepath.Join(folder, "canary")); string(b) != "of the host" || canary == nil {
		t.Errorf("out.csv has %q, %v; canary: %v", b, err, canary)
	}
	if got := run("-c", "print(total, open('out.csv').read())"); string(got.stdout) != "43 of the host\n" {
		t.Errorf("after the conflict: %d, %s%s", got.code, got.stdout, got.stderr)
	}
}

// Without a permission nothing of a directory is read or written, and the error says how to change
// that. Outside of host.roots dray route explain and the call agree. Hooks are not written through
// a symlink (EX-06, PY-10, PY-19, RT-03, SY-08).
func TestPyodide_FilesRefused(t *testing.T) {
	t.Parallel()
	d, folder := startFiles(t)
	outside := newDir(t)
	writeFiles(t, outside, map[string]string{"sales.csv": "secret"})
	call := func(dir, fs string, input map[string]any) answer {
		input["runtime"], input["session"] = "pyodide", "with-"+fs
		input["permissions"] = map[string]any{"fs": fs}
		a, err := d.call(t.Context(), "", map[string]any{
			"tool": "python", "workspace": dir, "input": input,
		})
		if err != nil {
			t.Fatal(err)
		}
		route, err := d.ask(t.Context(), http.MethodPost, "/v1/route", map[string]any{
			"tool": "python", "workspace": dir, "input": input,
		})
		if err != nil {
			t.Fatal(err)
		}
		if denied := dir == outside && fs != "none"; (route.at("/error/code") == "denied") != denied {
			t.Errorf("fs %s in %s is explained with %s", fs, dir, route.raw)
		}
		return a
	}
	refused := func(a answer, hint string, words ...string) {
		t.Helper()
		if a.at("/error/code") != "denied" || !strings.Contains(fmt.Sprint(a.at("/error/hint")), hint) {
			t.Errorf("got %s, want denied with a hint of %s", a.raw, hint)
		}
		for _, word := range words {
			if !strings.Contains(fmt.Sprint(a.at("/error/message"), a.at("/output/error/code")), word) {
				t.Errorf("the error does not say %s: %s", word, a.raw)
			}
		}
	}
	const key = "python.permissions.fs"
	a := call(folder, "read", map[string]any{"file": "analyze.py"})
	refused(a, key, "EACCES", "out.csv")
	a = call(folder, "read", map[string]any{"code": "open('sales.csv').read()[:4]"})
	if a.at("/output/value") != "item" {
		t.Errorf("fs read: %s", a.raw)
	}
	refused(call(folder, "none", map[string]any{"file": "analyze.py"}), key, "analyze.py")
	a = call(folder, "none", map[string]any{"code": `import dray, errno, os
try:
  dray.read_text_file("sales.csv")
except dray.DrayError as e:
  r = [errno.errorcode[e.errno], "` + key + `" in e.hint, os.listdir(".")]
open("new", "w").close()
r`})
	if got := fmt.Sprint(a.at("/output/value")); got != "[EACCES true []]" {
		t.Errorf("fs none: %s", a.raw)
	}
	for _, fs := range []string{"read", "write"} {
		refused(call(outside, fs, map[string]any{"code": "1"}), "host.roots", outside)
	}
	if a := call(outside, "none", map[string]any{"code": "1"}); a.at("/output/value") == nil {
		t.Errorf("fs none outside of host.roots: %s", a.raw)
	}
	// a symlink that a container could have made
	writeFiles(t, folder, map[string]string{"repo/.git/hooks/sample": ""})
	if err := os.Symlink("repo/.git/hooks", filepath.Join(folder, "g")); err != nil {
		t.Fatal(err)
	}
	hook := map[string]any{"code": "open('pre-commit', 'w').write('#!')"}
	refused(call(filepath.Join(folder, "g"), "write", hook), "another name", ".git/hooks")
	for _, name := range []string{"out.csv", "new", "repo/.git/hooks/pre-commit"} {
		if _, err := os.Lstat(filepath.Join(folder, name)); err == nil {
			t.Errorf("%s was written", name)
		}
	}
}
