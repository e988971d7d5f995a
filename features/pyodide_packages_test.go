package features

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/python/assets/assetstest"
)

// Commands import packages of an asset folder that dray python fetch made, without a network: the
// test's own, pure and compiled ones, and one that is loaded in advance. An error for a missing one
// lists them (PY-16, PY-20).
func TestPyodide_Packages(t *testing.T) {
	t.Parallel()
	own := assetstest.Wheel{
		Name: "reports", Version: "2.5", Requires: []string{"openpyxl>=3"},
		Files: map[string]string{"reports/sheets.py": "import io, openpyxl\n\n\ndef total(rows):\n" +
			"    book = openpyxl.Workbook()\n    for row in rows:\n        book.active.append(row)\n" +
			"    file = io.BytesIO()\n    book.save(file)\n" +
			"    sheet = openpyxl.load_workbook(file).active\n" +
			"    return sum(cell.value for row in sheet for cell in row)\n"},
	}
	folder := newDir(t)
	d := startDaemon(t, fmt.Sprintf(`
python: {runtime: pyodide, pyodide: {assets: %s, preload: [pypng]}}
`, assetstest.With(t, map[string][]byte{own.File(): own.Pack(t)})))
	for _, c := range []struct {
		code, stdout, stderr string
		exit                 int
	}{
		{"import sys; print('png' in sys.modules, 'openpyxl' in sys.modules)", "True False", "", 0},
		{"from reports import sheets; print(sheets.total([[1, 2], [3, 36]]))", "42", "", 0},
		{"import pydantic_core; print(pydantic_core.from_json('[7]'))", "[7]", "", 0},
		{"import importlib.metadata as m; print(m.version('reports'))", "2.5", "", 0},
		{"import numpy", "", "openpyxl 3.1.5", 1},
		{"import numpy", "", "dray python fetch --from DIR", 1},
		{"import micropip", "", "cannot install packages", 1},
	} {
		got := d.dray(t.Context(), nil, "python", "--workspace", folder, "-c", c.code)
		if got.code != c.exit || strings.TrimSpace(string(got.stdout)) != c.stdout ||
			!strings.Contains(string(got.stderr), c.stderr) {
			t.Errorf("%q exits with %d: %s%s", c.code, got.code, got.stdout, got.stderr)
		}
	}
}
