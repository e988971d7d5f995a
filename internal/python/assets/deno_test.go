package assets_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/dray-dev/dray/internal/python/assets/assetstest"
)

// runner loads Pyodide as dray does, with the lock of what is there, and runs each text.
const runner = `
const [dir, lock, ...texts] = Deno.args;
const { loadPyodide } = await import("file://" + dir + "/pyodide.mjs");
const py = await loadPyodide({
	indexURL: dir + "/", packageBaseUrl: dir + "/", lockFileContents: lock, stdout: () => {},
});
for (const text of texts) {
	await py.loadPackagesFromImports(text);
	console.log(py.runPython(text));
}
`

// The assets of the set-up run in Deno without any right but to read them: Python, wheels of the
// lock that dray made, and a plain error for a module that is not there (PY-09, PY-20).
func TestRealAssets(t *testing.T) {
	found := assetstest.Open(t)
	got := runDeno(t, found.Deno, found.Dir, string(found.Lock),
		"import sys; '%d.%d.%d' % sys.version_info[:3]",
		"import io, openpyxl\nb = openpyxl.Workbook(); b.active['A1'] = 41\n"+
			"f = io.BytesIO(); b.save(f); openpyxl.load_workbook(f).active['A1'].value + 1",
		"import io, png\nf = io.BytesIO()\n"+
			"png.Writer(2, 2, greyscale=True).write(f, [[0, 255], [255, 0]]); f.getvalue()[:4].hex()",
		"try:\n  import numpy\nexcept ModuleNotFoundError as e:\n  r = str(e)\nr",
	)
	want := []string{found.PythonVersion, "42", "89504e47", "No module named 'numpy'"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	names := map[string]string{}
	for _, p := range found.Packages {
		names[p.Name] = p.Version
	}
	if got, _ := json.Marshal(names, json.Deterministic(true)); string(got) !=
		`{"et-xmlfile":"2.0.0","openpyxl":"3.1.5","pydantic-core":"2.50.4",`+
			`"pypng":"0.20220715.0","typing-extensions":"4.16.0"}` {
		t.Errorf("packages: %s", got)
	}
}

func runDeno(t *testing.T, deno, dir string, args ...string) []string {
	t.Helper()
	work := t.TempDir()
	script := filepath.Join(work, "runner.mjs")
	if err := os.WriteFile(script, []byte(runner), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), deno, append([]string{
		"run", "--no-prompt", "--deny-net", "--deny-run", "--deny-write", "--deny-env", "--deny-ffi",
		"--deny-sys", "--deny-import", "--no-remote", "--no-npm", "--cached-only", "--no-config",
		"--no-lock", "--allow-read=" + dir, script, dir,
	}, args...)...)
	cmd.Env = []string{"DENO_DIR=" + filepath.Join(work, "deno"), "DENO_NO_UPDATE_CHECK=1", "NO_COLOR=1"}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("run Deno: %v; stderr: %s", err, stderr.String())
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
