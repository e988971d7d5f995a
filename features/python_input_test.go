package features

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/python/assets/assetstest"
)

// Input that is not valid is refused over HTTP and on the command line, by the program itself, and
// the error names it (PY-03, PY-17).
func TestPython_BadInput(t *testing.T) {
	p := startProgram(t, withPyodide(t))
	for _, c := range []struct{ input, pointer string }{
		{`{"code":"1","colour":"red"}`, "/input/colour"},
		{`{"code":"1","runtime":"jupyter"}`, "/input/runtime"},
		{`{"code":"1","operation":"explode"}`, "/input/operation"},
		{`{"code":""}`, "/input/code"},
		{`{"file":""}`, "/input/file"},
		{`{"code":"1","session":""}`, "/input/session"},
		{`{"code":"1","runtime":""}`, "/input/runtime"},
		{`{"operation":""}`, "/input/operation"},
		{`{"code":"1","globals":[""]}`, "/input/globals/0"},
		{`{"code":"1","state":""}`, "/input/state"},
		{`{"code":"1","file":"x.py"}`, "/input/code"},
		{`{}`, "/input"},
		{`{"code":"1","cwd":"/"}`, "/input/cwd"},
		{`{"code":"1","env":{"A":"b"}}`, "/input/env"},
		{`{"code":"1","stdin":"x"}`, "/input/stdin"},
		{`{"code":"1","timeout":5}`, "/input/timeout"},
		{`{"code":"1","permissions":{"files":"none"}}`, "/input/permissions/files"},
		{`{"code":"1","permissions":{"fs":"all"}}`, "/input/permissions/fs"},
		{`{"operation":"prepare","python":{"executable":"bin/python"}}`, "/input/python/executable"},
		{`{"operation":"prepare","python":{"venv":"env"}}`, "/input/python/venv"},
		{`{"operation":"prepare","requirements":{"packages":[""]}}`, "/input/requirements/packages/0"},
	} {
		a, err := p.call(t.Context(), "", map[string]any{
			"tool": "python", "container": "py", "input": json.RawMessage(c.input),
		})
		if err != nil {
			t.Fatal(err)
		}
		if a.status != http.StatusBadRequest || a.at("/code") != "invalid_input" ||
			a.at("/errors/0/pointer") != c.pointer {
			t.Errorf("%s: want %s: %s", c.input, c.pointer, a.raw)
		}
		out := p.run("call", "python", "--container", "py", "--input", c.input)
		if said := string(out.stderr); out.code != 125 || !strings.Contains(said, "invalid_input") ||
			!strings.Contains(said, c.pointer) {
			t.Errorf("%s: the command exits with %d: %s", c.input, out.code, said)
		}
	}
}

// The flags of dray python are checked as the input is (PY-03, PY-13).
func TestPython_BadFlags(t *testing.T) {
	p := startProgram(t, withPyodide(t))
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--runtime", "jupyter", "-c", "1"}, 125, "/input/runtime"},
		{[]string{"--runtime", "", "-c", "1"}, 125, "--runtime"},
		{[]string{"--session", "", "-c", "1"}, 125, "--session"},
		{[]string{"-c", ""}, 0, ""}, // as python3
		{[]string{"none.py"}, 2, "none.py"},
		{[]string{"-m", "no_such_module"}, 1, "no_such_module"},
		{[]string{"explode", "--container", "py"}, 2, "explode"}, // a FILE
		{[]string{"-c", "input()"}, 1, "EOFError"},
	} {
		out := p.run(append([]string{"python", "--container", "py"}, c.args...)...)
		if out.code != c.code || !strings.Contains(string(out.stderr), c.says) {
			t.Errorf("%q exits with %d, want %d: %s", c.args, out.code, c.code, out.stderr)
		}
	}
	for _, in := range pythonRuntimes {
		a := p.python(t, in, map[string]any{"code": "input()"})
		if !strings.HasPrefix(fmt.Sprint(a.at("/output/error/message")), "EOFError") {
			t.Errorf("%s: input without stdin: %s", in.name, a.raw)
		}
		a = p.python(t, in, map[string]any{"code": "x = 1", "globals": []string{"x", "y", "z"}})
		if !same(a.at("/output/missing"), []any{"y", "z"}) || a.at("/output/globals/x") != json.Number("1") {
			t.Errorf("%s: unknown globals: %s", in.name, a.raw)
		}
		out := p.run(append([]string{"python", "-c", "input()"}, in.args...)...)
		if out.code != 1 || !strings.Contains(string(out.stderr), "EOFError") {
			t.Errorf("%s: input without stdin exits with %d: %s", in.name, out.code, out.stderr)
		}
	}
}

// What a runtime needs and does not find is helper_missing, with the command that helps, over HTTP
// and on the command line (PY-01, PY-09, PY-14).
func TestPython_MissingPrograms(t *testing.T) {
	bare := "containers: {bare: {id: " + plainContainer(t) + "}}\n"
	p := startProgram(t, "")
	folder := newDir(t)
	if err := os.Symlink(filepath.Join(assetstest.Dir(t), "pyodide"), folder+"/pyodide"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, config string // of a daemon of its own, if it has one
		body         map[string]any
		args         []string
		says         string
	}{
		{
			"python3", bare,
			map[string]any{"container": "bare", "input": map[string]any{"code": "1"}},
			[]string{"--container", "bare", "-c", "1"},
			"apt-get install python3",
		},
		{
			"uv", "", map[string]any{"container": "py", "input": map[string]any{
				"operation": "prepare", "requirements": map[string]any{"packages": []string{"six"}},
			}}, []string{"prepare", "--container", "py", "six"}, "uv",
		},
		{
			"assets", "python: {pyodide: {assets: " + newDir(t) + "}}\n",
			map[string]any{"input": map[string]any{"code": "1", "runtime": "pyodide"}},
			[]string{"--runtime", "pyodide", "-c", "1"},
			"dray python fetch",
		},
		{
			"deno", "python: {pyodide: {assets: " + folder + "}}\n",
			map[string]any{"input": map[string]any{"code": "1", "runtime": "pyodide"}},
			[]string{"--runtime", "pyodide", "-c", "1"},
			"dray python fetch",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p
			if c.config != "" {
				p = serve(t, p.path, c.config)
			}
			c.body["tool"] = "python"
			a, err := p.call(t.Context(), "", c.body)
			if err != nil {
				t.Fatal(err)
			}
			if a.at("/error/code") != "helper_missing" ||
				!strings.Contains(fmt.Sprint(a.at("/error/hint")), c.says) {
				t.Errorf("want %q: %s", c.says, a.raw)
			}
			out := p.run(append([]string{"python"}, c.args...)...)
			if out.code == 0 || !strings.Contains(string(out.stderr), c.says) {
				t.Errorf("the command exits with %d: %s", out.code, out.stderr)
			}
		})
	}
}
