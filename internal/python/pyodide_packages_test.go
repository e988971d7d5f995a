package python_test

import (
	"archive/zip"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/python/assets"
	"github.com/dray-dev/dray/internal/python/assets/assetstest"
	"github.com/dray-dev/dray/internal/python/pythontest"
)

// newPackagesConfig returns a runtime whose asset folder has other wheels too: more, and one for
// each name with the module of that name.
func newPackagesConfig(t *testing.T, more map[string][]byte, names ...string) python.PyodideConfig {
	t.Helper()
	packed := map[string][]byte{}
	for _, name := range names {
		w := assetstest.Wheel{Name: name, Version: "1.0", Files: map[string]string{
			name + "/sub/__init__.py": "", name + "/sub/deep.py": "import " + name + "\nanswer = 42\n",
			name + "/data.txt": "text",
		}}
		packed[w.File()] = w.Pack(t)
	}
	maps.Copy(packed, more)
	cfg := newPyodideConfig(t)
	cfg.Assets = assets.New(assets.Options{Dir: assetstest.With(t, packed)}).Open
	return cfg
}

// imports are ways to import a module for the first time. Each NAME is another package.
var imports = []string{
	"import NAME",
	"import NAME.sub.deep\nassert NAME.sub.deep.answer == 42",
	"from NAME.sub import deep",
	"from NAME.sub.deep import answer",
	"from NAME import *",
	"import importlib\nimportlib.import_module('NAME')",
	"import importlib\nimportlib.import_module('.deep', 'NAME.sub')",
	"__import__('NAME')",
	"def f():\n  import NAME.sub\nf()",
	"async def f():\n  import NAME\nawait f()",
	"exec('import NAME')",
	"eval(\"__import__('NAME')\")",
	"import os, sys, runpy\nos.makedirs('/tmp/a', exist_ok=True)\nopen('/tmp/a/main_NAME.py', 'w').write(" +
		"'import NAME.sub.deep')\nrunpy.run_path('/tmp/a/main_NAME.py')",
	"import os, sys\nos.makedirs('/tmp/a', exist_ok=True)\nopen('/tmp/a/user_NAME.py', 'w').write(" +
		"'def use():\\n  import NAME')\nsys.path.insert(0, '/tmp/a')\nimport user_NAME\nuser_NAME.use()",
	"import importlib.util\nassert importlib.util.find_spec('NAME').origin.endswith('NAME/__init__.py')",
	"import importlib.metadata\nassert importlib.metadata.version('NAME') == '1.0'",
	"import importlib.metadata\nassert importlib.metadata.metadata('NAME')['Name'] == 'NAME'",
	"import importlib.resources\nassert importlib.resources.read_text('NAME', 'data.txt') == 'text'",
	"import pkgutil\npkgutil.resolve_name('NAME.sub.deep:answer')",
	"try:\n  import no_such_module\nexcept ImportError:\n  import NAME",
	"import os\nos.makedirs('/tmp/b/NAME', exist_ok=True)\nsys.path.insert(0, '/tmp/b')\nimport NAME\n" +
		"assert NAME.__version__ == '1.0'", // an empty directory is no module
	"import threading, contextlib\nwith contextlib.suppress(KeyError):\n  import NAME",
}

// TestPyodidePackages imports packages of an asset folder in a session (PY-20).
func TestPyodidePackages(t *testing.T) {
	var names []string
	for i := range imports {
		names = append(names, fmt.Sprintf("form%02d", i))
	}
	more := map[string][]byte{}
	for _, w := range []assetstest.Wheel{
		{Name: "upper", Version: "1.0", Requires: []string{"middle>=1"}},
		{Name: "middle", Version: "1.0", Requires: []string{"lower", "upper"}}, // a cycle
		{Name: "lower", Version: "1.0"},
		{Name: "broken", Version: "1.0", Files: map[string]string{"broken/__init__.py": "1/0"}},
		{Name: "spread", Version: "1.0", Files: map[string]string{
			"spread-1.0.data/purelib/spread_pure.py": "x = 1", "spread-1.0.data/data/share/spread.txt": "d",
			"spread-1.0.data/scripts/run": "#!/bin/sh", "space/one.py": "x = 1",
		}},
		{Name: "second", Version: "1.0", Files: map[string]string{"space/two.py": "x = 2"}},
	} {
		more[w.File()] = w.Pack(t)
	}
	cfg := newPackagesConfig(t, more, names...)
	h := newHostHarness(t)
	h.Runtime = python.NewPyodide(cfg)
	w := h.Start(t, nil)
	for i, form := range imports {
		code := "import sys\nassert 'NAME' not in sys.modules\n" + form
		if got := w.Code(t, strings.ReplaceAll(code, "NAME", names[i])); !got.OK {
			t.Errorf("%q: %s", form, got.Describe())
		}
	}
	t.Run("packages", func(t *testing.T) { testPackages(t, w) })
	t.Run("missing", func(t *testing.T) { testMissing(t, w) })
	t.Run("science", func(t *testing.T) { testScience(t, h.Start(t, nil)) })
	t.Run("interrupted", func(t *testing.T) { testInterruptedLoad(t, h.Start(t, nil)) })
	t.Run("memory", func(t *testing.T) {
		w := h.Start(t, nil)
		before := w.Code(t, "1").Usage.MemoryBytes
		after := w.Code(t, "import pydantic_core").Usage.MemoryBytes
		if after < before+4<<20 { // its compiled module has 4.7 MB
			t.Errorf("the usage is %d bytes, and %d with a package of 5 MB", before, after)
		}
	})
	t.Run("preload", func(t *testing.T) { testPreload(t, h, cfg) })
}

func testPackages(t *testing.T, w pythontest.Worker) {
	for _, c := range []struct{ code, value string }{
		{
			"import upper, sys, os\nsite = os.path.dirname(os.path.dirname(upper.__file__))\n" +
				"sorted(n for n in os.listdir(site) if n in ('upper', 'middle', 'lower'))",
			`["lower","middle","upper"]`,
		},
		{"import space.one, space.two\nspace.one.x + space.two.x", "3"},
		{"import spread_pure\nspread_pure.x, open(sys.prefix + '/share/spread.txt').read()", `[1,"d"]`},
		// a module of the code's own is found first
		{
			"open('/tmp/a/png.py', 'w').write('mine = 1')\nsys.path.insert(0, '/tmp/a')\nimport png\npng.mine",
			"1",
		},
		{"import os\nos.listdir('/usr/dray')", "[]"},
	} {
		if got := w.Value(t, c.code); got != c.value {
			t.Errorf("%q is %s, want %s", c.code, got, c.value)
		}
	}
	for range 2 {
		if got := w.Code(t, "import broken"); got.Message() != "ZeroDivisionError: division by zero" {
			t.Errorf("a module that raises: %s", got.Describe())
		}
	}
}

// testMissing imports what is not there: the error says what is, and what to do (PY-20). Installing
// stays refused, also of a package that the folder has (PY-12).
func testMissing(t *testing.T, w pythontest.Worker) {
	for _, code := range []string{
		"import no_such", "import no_such.sub", "from no_such import x", "__import__('no_such')",
		"def f():\n  try:\n    import no_such\n  except ImportError as e:\n" +
			"    raise ImportError('Missing optional dependency') from e\nf()",
	} {
		got := w.Code(t, code)
		if !strings.Contains(got.Message(), "openpyxl 3.1.5") ||
			!strings.Contains(got.Message(), "dray python fetch --from DIR") || len(got.Message()) > 2000 {
			t.Errorf("%q: %s", code, got.Describe())
		}
	}
	for _, code := range []string{
		"import openpyxl.no_such", "from openpyxl import no_such", "raise ImportError('x')",
	} {
		if got := w.Code(t, code); got.OK || strings.Contains(got.Message(), "fetch") {
			t.Errorf("%q: %s", code, got.Describe())
		}
	}
	for _, code := range []string{
		"import pyodide_js\nawait pyodide_js.loadPackage('openpyxl')", "import micropip",
		"import pip", "loadPackage('png')",
	} {
		got := w.Code(t, code)
		if got.OK || got.Error.Code != python.CodeInstallUnsupported {
			t.Errorf("%q: %s", code, got.Describe())
		}
	}
}

// testScience uses a pure package, one that writes an image, and one with a compiled module
// (PY-16).
func testScience(t *testing.T, w pythontest.Worker) {
	for _, c := range []struct{ code, value string }{
		{"import io, openpyxl\nb = openpyxl.Workbook()\nb.active['A1'] = 41\nf = io.BytesIO()\nb.save(f)\n" +
			"openpyxl.load_workbook(f).active['A1'].value + 1", "42"},
		{"import png\nf = io.BytesIO()\npng.Writer(2, 2, greyscale=True).write(f, [[0, 255], [255, 0]])\n" +
			"f.getvalue()[:4].hex()", `"89504e47"`},
		{"import pydantic_core\npydantic_core.from_json(b'[1, {\"a\": 2}]')", `[1,{"a":2}]`},
		{"from pydantic_core import SchemaValidator, core_schema\n" +
			"SchemaValidator(core_schema.int_schema()).validate_python('7')", "7"},
		{"try:\n  SchemaValidator(core_schema.int_schema()).validate_python('x')\n" +
			"except pydantic_core.ValidationError as e:\n  r = e.error_count()\nr", "1"},
		{"import os\nos.environ['MPLBACKEND']", `"agg"`},
	} {
		if got := w.Value(t, c.code); got != c.value {
			t.Errorf("%q is %s, want %s", c.code, got, c.value)
		}
	}
}

// testInterruptedLoad interrupts the load of a package. Before it is complete nothing of it is
// left, and afterwards it is complete. The next import works.
func testInterruptedLoad(t *testing.T, w pythontest.Worker) {
	r := w.Begin(t, python.Request{Code: "import zipfile\nreal = zipfile.ZipFile.open\n" +
		"def slow(*args):\n  global count\n  count += 1\n  if count == 50:\n" +
		"    print('begun', flush=True)\n    while True: pass\n  return real(*args)\n" +
		"count = 0\nzipfile.ZipFile.open = slow\nimport openpyxl"})
	r.Until(t, "begun")
	r.Interrupt()
	if got := r.End(t); got.Err != nil || got.Message() != "KeyboardInterrupt" {
		t.Errorf("%v, %s", got.Err, got.Describe())
	}
	if got := w.Value(t, "import os, sys\nsite = sys.path[-1]\n"+
		"[os.listdir('/usr/dray'), [n for n in os.listdir(site) if 'openpyxl' in n]]"); got != "[[],[]]" {
		t.Errorf("an interrupted load left %s", got)
	}
	got := w.Code(t, "zipfile.ZipFile.open = real\nimport signal\nmove = os.replace\n"+
		"def moved(*args):\n  move(*args)\n  signal.raise_signal(signal.SIGINT)\n"+
		"os.replace = moved\nimport openpyxl")
	if got.Message() != "KeyboardInterrupt" {
		t.Errorf("an interrupt at the end of a load: %s", got.Describe())
	}
	if got := w.Value(t, "os.replace = move\nimport openpyxl\nimport png\nopenpyxl.__version__"); got !=
		`"3.1.5"` {
		t.Errorf("after interrupts: %s", got)
	}
}

// testPreload starts workers with packages that are loaded before they are ready.
func testPreload(t *testing.T, h pythontest.Harness, cfg python.PyodideConfig) {
	cfg.Preload = []string{"openpyxl", "Pydantic_Core"}
	h.Runtime = python.NewPyodide(cfg)
	w := h.Start(t, nil)
	if got := w.Value(t, "import sys\n'openpyxl' in sys.modules and 'pydantic_core' in sys.modules"); got !=
		"true" {
		t.Errorf("preloaded packages are not imported: %s", got)
	}
	cfg.Preload = []string{"openpyxl", "numpy", "scipy"}
	_, err := python.NewPyodide(cfg).Start(t.Context(), python.WorkerSpec{Environment: h.Environment})
	if dray.CodeOf(err) != dray.CodeHelperMissing || !strings.Contains(err.Error(), ": numpy, scipy; ") ||
		!strings.Contains(err.Error(), "et-xmlfile") || !strings.Contains(dray.AsError(err).Hint, "fetch") {
		t.Errorf("unknown packages: %v, %q", err, dray.AsError(err).Hint)
	}
	cfg.Preload = []string{"broken"}
	_, err = python.NewPyodide(cfg).Start(t.Context(), python.WorkerSpec{Environment: h.Environment})
	if dray.CodeOf(err) != dray.CodeHelperMissing || !strings.Contains(err.Error(), "ZeroDivisionError") ||
		!strings.Contains(dray.AsError(err).Hint, "python.pyodide.preload") {
		t.Errorf("a package that cannot be imported: %v, %q", err, dray.AsError(err).Hint)
	}
}

// hostileWheel is a wheel that must not be loaded.
type hostileWheel struct {
	name string
	more func(z *zip.Writer) error // is wrong, and comes last
	want string
}

var hostileWheels = []hostileWheel{
	{"parent", member("../../../tmp/slip.py"), "has a file with the name"},
	{"inner", member("inner/../../slip.py"), "has a file with the name"},
	{"absolute", member("/tmp/slip.py"), "has a file with the name"},
	{"backslash", member(`..\slip.py`), "has a file with the name"},
	{"dot", member("dot/./slip.py"), "has a file with the name"},
	{"empty", member("empty//slip.py"), "has a file with the name"},
	{"nul", member("nul/slip.py\x00.txt"), "has a file with the name"},
	{"indata", member("indata-1.0.data/data/../../slip"), "has a file with the name"},
	{"twice", member("twice/a.py", "twice/a.py"), "has two files"},
	{"both", member("both/a", "both/a/b"), "a file and a directory"},
	{"onfile", member("png.py/slip.py"), "is in its place"},
	{"checksum", raw(zip.FileHeader{Name: "checksum/b.py", CRC32: 1}), "CRC"},
	{"short", raw(zip.FileHeader{Name: "short/b.py", UncompressedSize64: 1 << 20}), "shorter"},
	{"long", raw(zip.FileHeader{Name: "long/b.py", UncompressedSize64: 1}), "CRC"},
	{"huge", raw(zip.FileHeader{Name: "huge/b", UncompressedSize64: 1 << 41}), "python.memory"},
	{"encrypted", raw(zip.FileHeader{Name: "encrypted/b.py", Flags: 1}), "encrypted"},
	{"method", raw(zip.FileHeader{Name: "method/b.py", Method: 14}), "unknown compression"},
}

// member adds small files with these names.
func member(names ...string) func(*zip.Writer) error {
	return func(z *zip.Writer) error {
		for _, name := range names {
			f, err := z.Create(name)
			if err != nil {
				return err
			}
			if _, err := f.Write([]byte("slip = 1\n")); err != nil {
				return err
			}
		}
		return nil
	}
}

// raw adds a member whose header need not fit its content.
func raw(h zip.FileHeader) func(*zip.Writer) error {
	const content = "text"
	return func(z *zip.Writer) error {
		h.CompressedSize64 = uint64(len(content))
		if h.UncompressedSize64 == 0 {
			h.UncompressedSize64 = h.CompressedSize64
		}
		if h.CRC32 == 0 {
			h.CRC32 = crc32.ChecksumIEEE([]byte(content))
		}
		f, err := z.CreateRaw(&h)
		if err == nil {
			_, err = f.Write([]byte(content))
		}
		return err
	}
}

// TestPyodideHostileWheels imports packages whose wheels are malformed. Each import fails with an
// ImportError, and leaves nothing, inside Pyodide or outside (PY-20, PY-23).
func TestPyodideHostileWheels(t *testing.T) {
	packed := map[string][]byte{}
	for _, w := range hostileWheels {
		made := assetstest.Wheel{Name: w.name, Version: "1.0", More: w.more}
		packed[made.File()] = made.Pack(t)
	}
	h := newHostHarness(t)
	h.Runtime = python.NewPyodide(newPackagesConfig(t, packed))
	w := h.Start(t, nil)
	w.Value(t, "import openpyxl, os, png, sys\n"+
		"def names():\n  return sorted(os.path.join(d, n) for d, _, ns in os.walk('/') for n in ns "+
		"if not d.startswith(('/proc', '/dev')))\nbefore = names()")
	for _, hostile := range hostileWheels {
		for range 2 {
			got := w.Code(t, "import "+hostile.name)
			if !strings.HasPrefix(got.Message(), "ImportError: cannot load the package "+hostile.name) ||
				!strings.Contains(got.Message(), hostile.want) {
				t.Errorf("%s: %s", hostile.name, got.Describe())
			}
			if got := w.Value(t, "[n for n in names() if n not in before]"); got != "[]" {
				t.Errorf("%s left %s", hostile.name, got)
			}
		}
	}
	if got := w.Value(t, "import pydantic_core\npng.slip if hasattr(png, 'slip') else 1"); got != "1" {
		t.Errorf("afterwards: %s", got)
	}
	for _, code := range []string{ // the function that reads wheels reads nothing else
		"read(-1, '/tmp/x')", "read(10**6, '/tmp/x')", "read('../../deno', '/tmp/x')", "read(None, '/tmp/x')",
		"read(0.5, '/no/such/directory')", "read.constructor('return 1')()",
	} {
		got := w.Code(t, "read = [f for f in sys.meta_path if hasattr(f, 'read')][0].read\n"+code)
		if got.OK {
			t.Errorf("%q: %s", code, got.Describe())
		}
	}
}

// A wheel that is removed while a session lives is an ImportError that names it (PY-20).
func TestPyodidePackageIsGone(t *testing.T) {
	dir := assetstest.With(t, nil)
	cfg := newPyodideConfig(t)
	cfg.Assets = assets.New(assets.Options{Dir: dir}).Open
	h := newHostHarness(t)
	h.Runtime = python.NewPyodide(cfg)
	w := h.Start(t, nil)
	if err := os.RemoveAll(filepath.Join(dir, "pyodide")); err != nil {
		t.Fatal(err)
	}
	if got := w.Code(t, "import png"); !strings.HasPrefix(got.Message(),
		"ImportError: cannot load the package pypng 0.20220715.0: ") {
		t.Errorf("%s", got.Describe())
	}
}
