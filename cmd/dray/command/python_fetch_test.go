package command

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python/assets"
	"github.com/dray-dev/dray/internal/python/assets/assetstest"
)

// dataHome gives the commands of a test a data directory of their own.
func dataHome(t *testing.T) string {
	t.Helper()
	data := t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	return data
}

// pyodideFinding returns what doctor says of the files of Pyodide.
func pyodideFinding(t *testing.T) finding {
	t.Helper()
	var out bytes.Buffer
	Execute(t.Context(), []string{"doctor", "--json"}, nil, &out, &out)
	var report struct{ Findings []finding }
	if err := json.Unmarshal(out.Bytes(), &report, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	i := slices.IndexFunc(report.Findings, func(f finding) bool { return f.Check == "pyodide" })
	if i < 0 {
		t.Fatalf("doctor says nothing of pyodide: %s", out.String())
	}
	return report.Findings[i]
}

// Without a network the files come from a folder; the command says what is where and what is left
// to do, needs no daemon, and is quick when all is there. Doctor names what is wrong, and the
// command that helps, which repairs it (PY-09, PY-24, OP-02).
func TestPythonFetch(t *testing.T) {
	source := assetstest.Dir(t)
	state, data := healthy(t), dataHome(t)
	if f := pyodideFinding(t); f.Status != checkOK || !strings.Contains(f.Message, "dray python fetch") {
		t.Errorf("before: %+v", f)
	}
	text, stderr := mustRun(t, "python", "fetch", "--from", source)
	for _, want := range []string{
		data + "/dray/python/deno-", "complete, nothing downloaded", "Python    3.", "openpyxl 3.1.5",
		"--runtime pyodide",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	if stderr != "" {
		t.Errorf("stderr: %q", stderr)
	}
	if there, err := os.ReadDir(state); err != nil || len(there) > 0 {
		t.Errorf("the state directory has %v, %v", there, err)
	}
	report := fetchAgain(t)
	if !strings.HasPrefix(report.Deno.Path, data) || !report.Reused || report.Downloaded != 0 ||
		len(report.Wheels) == 0 {
		t.Errorf("the second fetch: %+v", report)
	}
	f := pyodideFinding(t)
	if f.Status != checkOK || !strings.Contains(f.Message, report.Pyodide.Path) {
		t.Errorf("after: %+v", f)
	}
	t.Setenv("DRAY_PYTHON_PYODIDE_PRELOAD", "openpyxl,numpy")
	f = pyodideFinding(t)
	if f.Status != checkWarning || !strings.Contains(f.Message, "not in the asset folder: numpy; ") ||
		!strings.Contains(f.Fix, "dray python fetch --from") {
		t.Errorf("with a package to preload that is not there: %+v", f)
	}
	t.Setenv("DRAY_PYTHON_PYODIDE_PRELOAD", "openpyxl")
	if f = pyodideFinding(t); f.Status != checkOK {
		t.Errorf("with a package to preload: %+v", f)
	}
	damaged := filepath.Join(report.Pyodide.Path, "pyodide.mjs")
	if err := os.Remove(damaged); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged, []byte("export {}"), 0o600); err != nil {
		t.Fatal(err)
	}
	f = pyodideFinding(t)
	if f.Status != checkWarning || !strings.Contains(f.Message, damaged+" is not the pinned file") ||
		!strings.Contains(f.Fix, "dray python fetch") {
		t.Errorf("with another pyodide.mjs: %+v", f)
	}
	mustRun(t, "python", "fetch", "--from", source)
	if f := pyodideFinding(t); f.Status != checkOK {
		t.Errorf("after the repair: %+v", f)
	}
}

func fetchAgain(t *testing.T) (report fetchReport) {
	t.Helper()
	out, _ := mustRun(t, "python", "fetch", "--json")
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return report
}

func mustRun(t *testing.T, args ...string) (out, stderr string) {
	t.Helper()
	var stdout, errors bytes.Buffer
	if code := Execute(t.Context(), args, nil, &stdout, &errors); code != exitOK {
		t.Fatalf("%q exits with %d: %s%s", args, code, stdout.String(), errors.String())
	}
	return stdout.String(), errors.String()
}

// Bad directories are refused with the next step (PY-24).
func TestPythonFetchRefuses(t *testing.T) {
	healthy(t)
	dataHome(t)
	empty := t.TempDir()
	for name, tc := range map[string]struct {
		args  []string
		code  int
		words []string
	}{
		"no name":      {[]string{"--from", ""}, exitUsage, []string{"--from is empty"}},
		"an argument":  {[]string{"pyodide"}, exitUsage, nil},
		"no directory": {[]string{"--from", empty + "/none"}, exitNotFound, []string{"none", "hint: "}},
		"nothing in it": {
			[]string{"--from", empty},
			exitNotFound,
			[]string{string(dray.CodeNotFound), "pyodide-", ".tgz (sha256 ", "npm pack @deno/"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := Execute(t.Context(), append([]string{"python", "fetch"}, tc.args...), nil, &stdout, &stderr)
			if code != tc.code || stdout.Len() > 0 {
				t.Errorf("exit code %d, want %d; stdout %q", code, tc.code, stdout.String())
			}
			for _, word := range tc.words {
				if !strings.Contains(stderr.String(), word) {
					t.Errorf("%q lacks %q", stderr.String(), word)
				}
			}
		})
	}
}

// The size comes first; what is no terminal gets a line for each quarter, and the reason of a wait
// (PY-09).
func TestFetchProgress(t *testing.T) {
	var stderr bytes.Buffer
	p := &fetchProgress{progress: newProgress(&stderr, 0)}
	p.plan(assets.Plan{Dir: "/data", Packages: []string{"deno@1", "pyodide@2"}, Bytes: 8 << 20})
	for done := range int64(8) {
		p.report(assets.Progress{Done: (done + 1) << 20, Total: 8 << 20})
	}
	p.report(assets.Progress{Done: 8 << 20, Total: 8 << 20, Waiting: "503 Service Unavailable"})
	p.clear()
	want := "dray: fetching 8.0 MiB (deno@1, pyodide@2) into /data\n" +
		"dray: fetch: 2.0 MiB of 8.0 MiB\ndray: fetch: 4.0 MiB of 8.0 MiB\n" +
		"dray: fetch: 6.0 MiB of 8.0 MiB\ndray: fetch: 8.0 MiB of 8.0 MiB\n" +
		"dray: fetch: waiting: 503 Service Unavailable\n"
	if got := stderr.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
