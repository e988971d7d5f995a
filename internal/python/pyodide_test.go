package python_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process/processtest"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/python/assets"
	"github.com/dray-dev/dray/internal/python/assets/assetstest"
	"github.com/dray-dev/dray/internal/python/pythontest"
	"github.com/dray-dev/dray/internal/soakreport"
)

// newPyodideHarness returns the runtime pyodide with the host's files.
func newPyodideHarness(t testing.TB) pythontest.Harness {
	t.Helper()
	h, _ := newPyodideHarnessIn(t)
	return h
}

// newPyodideHarnessIn returns the directory of the runtime too.
func newPyodideHarnessIn(t testing.TB) (h pythontest.Harness, dir string) {
	t.Helper()
	h = newHostHarness(t)
	cfg := newPyodideConfig(t)
	h.Runtime = python.NewPyodide(cfg)
	return h, cfg.Dir
}

func newPyodideConfig(t testing.TB) python.PyodideConfig {
	t.Helper()
	return python.PyodideConfig{
		Start:  processtest.NewPool(t).Start,
		Assets: assets.New(assets.Options{Dir: assetstest.Dir(t)}).Open,
		Bwrap:  findBwrap(t),
		Dir:    t.TempDir(), Log: zaptest.NewLogger(t),
	}
}

// Paths may have any characters: no path becomes a part of a flag or of a URL (PY-09).
func TestPyodidePaths(t *testing.T) {
	h := newHostHarness(t)
	cfg := newPyodideConfig(t)
	odd := t.TempDir() + "/a,b #%? ü,,%2C'\"\\"
	dir := filepath.Join(odd, "assets")
	if err := os.CopyFS(dir, os.DirFS(assetstest.Dir(t))); err != nil {
		t.Fatal(err)
	}
	cfg.Dir = filepath.Join(odd, "state")
	cfg.Assets = assets.New(assets.Options{Dir: dir}).Open
	h.Runtime = python.NewPyodide(cfg)
	w := h.Start(t, nil)
	if got := w.Value(t, "1+1"); got != "2" {
		t.Errorf("1+1 is %s", got)
	}
}

// The runtime pyodide passes the contract suite (PY-01).
func TestContract_Pyodide(t *testing.T) {
	h := newPyodideHarness(t)
	h.Permissions = &python.Permissions{FS: python.FSWrite}
	pythontest.Run(t, h)
}

// TestPyodide runs code in one runtime, so that one memory snapshot serves all (PY-02, PY-09).
func TestPyodide(t *testing.T) {
	if soakreport.Enabled() {
		withAndWithoutBwrap(t, testPyodide)
		return
	}
	inBwrap(t, testPyodide) // as sessions run
}

func testPyodide(t *testing.T, cfg python.PyodideConfig) {
	h := newHostHarness(t)
	h.Runtime = python.NewPyodide(cfg)
	t.Run("code", func(t *testing.T) { testPyodideCode(t, h.Start(t, nil)) })
	t.Run("streams", func(t *testing.T) { testPyodideStreams(t, h.Start(t, nil)) })
	t.Run("installs", func(t *testing.T) { testPyodideInstalls(t, h) })
	t.Run("interrupts", func(t *testing.T) { testPyodideInterrupts(t, h) })
	t.Run("limits", func(t *testing.T) { testPyodideLimits(t, h) })
	t.Run("random", func(t *testing.T) { testPyodideRandom(t, h) })
	t.Run("variables", func(t *testing.T) { testPyodideVariables(t, h) })
	t.Run("refusals", func(t *testing.T) { testPyodideRefusals(t, h) })
	if cfg.Bwrap != "" {
		t.Run("bubblewrap", func(t *testing.T) { testPyodideBwrap(t, h) })
	}
	t.Run("nothing is left", func(t *testing.T) { testPyodideRemains(t, h) })
}

// testPyodideCode runs code whose value is known (PY-05, PY-22, PY-28).
func testPyodideCode(t *testing.T, w pythontest.Worker) {
	for _, c := range []struct{ code, value string }{
		{"1+1", "2"},
		{"x = 40\nx + 2", "42"},
		{"x", "40"},
		{"import asyncio\nawait asyncio.sleep(0.01)\n'awaited'", `"awaited"`},
		{"asyncio.run(asyncio.sleep(0.01, 'run'))", `"run"`},
		{"async def f():\n  return 1\nsum(await asyncio.gather(f(), f()))", "2"},
		{"2**60", `{"$type":"int","value":"1152921504606846976"}`},
		{"float('nan')", `{"$type":"float","value":"NaN"}`},
		{"b'\\x00\\xff'", `{"$type":"bytes","value":"AP8="}`},
		{"'\\ud800' == chr(0xd800)", "true"},
		{"import sys\nsys.argv", `["-c"]`},
		{"import os\nos.environ.get('HOME'), os.environ.get('DENO_DIR')", `["/home/user",null]`},
		{"os.system('true') != 0", "true"},
		{"try:\n  input()\nexcept EOFError:\n  r = 'EOF'\nr", `"EOF"`},
		{"import time\nbegan = time.monotonic()\ntime.sleep(0.02)\ntime.monotonic() - began >= 0.02", "true"},
		{"sys.executable, sys.platform", `["","emscripten"]`},
	} {
		if got := w.Value(t, c.code); got != c.value {
			t.Errorf("%q is %s, want %s", c.code, got, c.value)
		}
	}
	got := w.Code(t, "def f():\n  return 1/0\nf()")
	if got.OK || got.Code != 1 || got.Message() != "ZeroDivisionError: division by zero" ||
		strings.Contains(got.Error.Traceback, "<dray") {
		t.Errorf("an exception: %s", got.Describe())
	}
	if got := w.Code(t, "raise SystemExit(7)"); got.Code != 7 || got.Error != nil {
		t.Errorf("SystemExit: %s", got.Describe())
	}
}

// testPyodideStreams passes stdin and output (PY-08): a stream of 3 MiB needs several frames.
func testPyodideStreams(t *testing.T, w pythontest.Worker) {
	const size = 3 << 20
	got := w.RunWith(t, python.Request{
		Code: "import sys\nfirst = input()\nrest = sys.stdin.read()\nprint(rest)\n" +
			"print(first, file=sys.stderr)\nlen(rest)",
	}, []byte("first\n"+strings.Repeat("x", size)))
	if string(got.Value) != "3145728" || len(got.Stdout) != size+1 || got.Stderr != "first\n" {
		t.Errorf("value %s, %d bytes of stdout, stderr %q, %v", got.Value, len(got.Stdout), got.Stderr,
			got.Err)
	}
	got = w.RunWith(t, python.Request{Code: "import os\nos.write(1, b'raw\\xff')"}, []byte("unread"))
	if got.Stdout != "raw\xff" {
		t.Errorf("os.write: %s", got.Describe())
	}
	if got := w.Code(t, "import sys\nsys.stdin.read()"); string(got.Value) != `""` {
		t.Errorf("stdin of an earlier request was read: %s", got.Describe())
	}
	if got := w.Code(t, "'y' * ((4 << 20) - 100)"); len(got.Value) != 4<<20-98 {
		t.Errorf("a value of 4 MiB has %d bytes", len(got.Value))
	}
	if got := w.Code(t, "'y' * (5 << 20)"); got.Error == nil ||
		got.Error.Code != python.CodePayloadTooLarge {
		t.Errorf("a value of 5 MiB: %.300s", got.Describe())
	}
}

// installs are the ways to ask for a package (PY-12).
var installs = []string{
	"import pip",
	"import micropip",
	"import ensurepip",
	"import pip as p",
	"import json, pip",
	"from pip import main",
	"from pip._internal import main",
	"from pip._internal.cli.main import main",
	"import ensurepip._bundled",
	"await micropip.install('x')\nimport micropip",
	"import pyodide_js\nawait pyodide_js.loadPackage('numpy')",
	"from pyodide_js import loadPackage",
	"from pyodide_js import loadPackagesFromImports as f",
	"import pyodide_js\npyodide_js.loadPackagesFromImports('import numpy')",
	"loadPackage('numpy')",
	"__import__('pip')",
	"__import__('micro' + 'pip')",
	"import importlib\nimportlib.import_module('pip')",
	"import importlib\nimportlib.import_module('pi' + 'p')",
	"import runpy\nrunpy.run_module('pip')",
	"import runpy\nrunpy.run_module('ensure' + 'pip')",
	"import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', 'x'])",
	"import subprocess\nsubprocess.check_call(['pip', 'install', 'x'])",
	"import os\nos.system('pip install x')",
	"import os\nos.system('python -m pip install x')",
	"!pip install x",
	"%pip install x",
	"if False:\n  import pip",
	"exec('import pip')",
	"eval(\"__import__('pip')\")",
	"import importlib.util\nimportlib.util.find_spec('pip')",
	"def later():\n  from micropip import install",
	"import sys\ngetattr(sys, 'loadPackage')",
}

// Every one is refused, and the process makes no system call of the network meanwhile (PY-12).
func testPyodideInstalls(t *testing.T, h pythontest.Harness) {
	w := h.Start(t, nil)
	first, all := workerProcesses(t, &realChurn{harness: h})
	if len(first) != 1 {
		t.Fatalf("the workers are %v", first)
	}
	calls := traceNetwork(t, all...) // bubblewrap and Deno
	defer func() {
		if got := calls(); got != "" {
			t.Errorf("the process has used the network:\n%s", got)
		}
	}()
	for _, code := range installs {
		got := w.Code(t, "print('ran')\n"+code)
		if got.OK || got.Error.Code != python.CodeInstallUnsupported {
			t.Errorf("%q: %s", code, got.Describe())
		}
		beforehand := !strings.Contains(code, "+ 'p") && !strings.Contains(code, "exec(") &&
			!strings.Contains(code, "eval(")
		if beforehand && got.Stdout != "" {
			t.Errorf("%q was refused after the code had begun to run", code)
		}
	}
	for _, code := range []string{
		"'pip install numpy'", "# import pip\n1", "pip = 3\npip", "print('loadPackage')",
		"x = '''\n!pip install x\n'''", "d = {'pip': 1}\nd['pip']",
		"try:\n  import json as pip\nexcept ImportError: pass\nlen('micropip')",
	} {
		if got := w.Code(t, code); !got.OK {
			t.Errorf("%q: %s", code, got.Describe())
		}
	}
}

// testPyodideInterrupts interrupts code that computes, sleeps and reads. The session keeps its
// globals (PY-06).
func testPyodideInterrupts(t *testing.T, h pythontest.Harness) {
	w := h.Start(t, nil)
	w.Value(t, "kept = 5")
	for _, code := range []string{
		"while True: pass", "import time\ntime.sleep(1000)", "input()",
		"import asyncio\nawait asyncio.sleep(1000)",
	} {
		r := w.Begin(t, python.Request{Code: "print('begun', flush=True)\n" + code})
		r.Until(t, "begun")
		r.Interrupt()
		if got := r.End(t); got.Err != nil || got.Message() != "KeyboardInterrupt" {
			t.Errorf("%q: %v, %s", code, got.Err, got.Describe())
		}
		if got := w.Value(t, "kept"); got != "5" {
			t.Errorf("%q: kept is %s after an interrupt", code, got)
		}
	}
	r := w.Begin(t, python.Request{Code: "print('begun', flush=True)\n" +
		"while True:\n  try:\n    while True: pass\n  except KeyboardInterrupt: print('caught', flush=True)"})
	r.Until(t, "begun")
	r.Interrupt()
	r.Until(t, "caught")
	w.Kill()
	if got := r.End(t); got.Err == nil {
		t.Errorf("a killed worker replied: %s", got.Describe())
	}
	<-w.Done()
	if exit, err := w.Exit(); err != nil || exit.Signal != syscall.SIGKILL {
		t.Errorf("it ended with %+v, %v", exit, err)
	}
}

// testPyodideLimits runs what exceeds a limit: the reply is typed (PY-06, PY-23).
func testPyodideLimits(t *testing.T, h pythontest.Harness) {
	w := h.Start(t, func(s *python.WorkerSpec) { s.Memory = 320 << 20 })
	for _, c := range []struct{ code, message string }{
		{"bytearray(1 << 30)", "MemoryError"},
		{"'a' * (1 << 30)", "MemoryError"},
		{"l = []\nwhile True: l.append('a' * 1000000 + str(len(l)))", "MemoryError"},
		{"l = None\ndef f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"},
		{"eval('[' * 100000)", "SyntaxError: too many nested parentheses"},
	} {
		if got := w.Code(t, c.code); got.Message() != c.message {
			t.Errorf("%q: %s", c.code, got.Describe())
		}
	}
	if got := w.Value(t, "x = []\nfor i in range(100000): x = [x]\nx"); !strings.Contains(got,
		"[TruncatedDepth]") {
		t.Errorf("nested lists: %.300s", got)
	}
	for _, code := range []string{
		"x = []\nfor i in range(300000): x = [x]\nrepr(x)", "import json\njson.dumps(x)",
		"import pickle\npickle.dumps(x)", "json.loads('[' * 300000 + ']' * 300000)",
	} {
		if got := w.Code(t, code); !strings.HasPrefix(got.Message(), "RecursionError: ") {
			t.Errorf("%q: %.300s", code, got.Describe())
		}
	}
	if got := w.Value(t, "kept = 5\nkept"); got != "5" {
		t.Errorf("after recursion: %s", got)
	}
	testPyodideStack(t, w)
	w.Kill()
	<-w.Done()
	w = h.Start(t, nil)
	w.Value(t, "kept = 3")
	timed := w.Run(t, python.Request{Code: "while True: pass", CPU: 200 * time.Millisecond})
	if timed.Err != nil || timed.OK || timed.Code != 124 || !timed.CPULimit ||
		timed.Message() != "CPU time limit exceeded" {
		t.Errorf("the processor time: %v, %s", timed.Err, timed.Describe())
	}
	if got := w.Value(t, "kept"); got != "3" {
		t.Errorf("kept is %s after the processor time was used up", got)
	}
	if got := w.Run(t, python.Request{Code: "import os\nos._exit(3)"}); got.Err == nil {
		t.Errorf("a worker that ended replied: %s", got.Describe())
	}
	<-w.Done()
}

// testPyodideStack uses up V8's stack, by a function whose recursion Python does not count: the
// session ends, and says why.
func testPyodideStack(t *testing.T, w pythontest.Worker) {
	t.Helper()
	got := w.Run(t, python.Request{Code: "x = ()\nfor i in range(3000000): x = (x,)\nhash(x)"})
	if got.Err != nil || got.Error == nil || got.Error.Code != string(dray.CodeLimitExceeded) {
		t.Errorf("the hash of nested tuples: %v, %.300s", got.Err, got.Describe())
	}
}

// testPyodideRandom compares two workers of one snapshot (PY-09).
func testPyodideRandom(t *testing.T, h pythontest.Harness) {
	const code = "import random, uuid, secrets, os, tempfile\nr = [random.random(), str(uuid.uuid4()), " +
		"secrets.token_hex(), os.urandom(8).hex(), next(tempfile._get_candidate_names()), " +
		"random.Random().random()]\n" +
		"try:\n  import numpy\nexcept ImportError: pass\n" + // the asset folder need not have it
		"else: r += [float(numpy.random.rand()), float(numpy.random.default_rng().random())]\nr"
	first, second := h.Start(t, nil), h.Start(t, nil)
	a := strings.Split(first.Value(t, code), ",")
	b := strings.Split(second.Value(t, code), ",")
	for i := range a {
		if a[i] == b[i] {
			t.Errorf("two workers have the same random value %s", a[i])
		}
	}
}

// testPyodideVariables reads variables of the daemon: those of the permissions, and over them those
// of the call (PY-19).
func testPyodideVariables(t *testing.T, h pythontest.Harness) {
	for name, value := range map[string]string{
		"DRAY_TEST_GIVEN": "given", "DRAY_TEST_OVER": "daemon", "DRAY_TEST_NOT": "not",
	} {
		t.Setenv(name, value)
	}
	const code = "import os\nsorted(v for k, v in os.environ.items() if k.startswith('DRAY_TEST'))"
	own := map[string]string{"DRAY_TEST_OVER": "call"}
	for want, env := range map[string][]string{
		`["call"]`:         nil,
		`["call","given"]`: {"DRAY_TEST_GIVEN", "DRAY_TEST_OVER", "DRAY_TEST_NONE"},
	} {
		w := h.Start(t, func(s *python.WorkerSpec) { s.Permissions = &python.Permissions{Env: env} })
		got := w.RunWith(t, python.Request{Code: code, Env: own}, nil)
		if string(got.Value) != want {
			t.Errorf("with %q the variables are %s, want %s", env, got.Describe(), want)
		}
	}
}

// testPyodideRefusals asks for what the runtime does not have.
func testPyodideRefusals(t *testing.T, h pythontest.Harness) {
	for name, c := range map[string]struct {
		change func(*python.WorkerSpec)
		code   dray.Code
	}{
		"another interpreter": {
			func(s *python.WorkerSpec) { s.Executable = "/usr/bin/python3" }, dray.CodeUnsupported,
		},
		"little memory": {
			func(s *python.WorkerSpec) { s.Memory = 64 << 20 }, dray.CodeLimitExceeded,
		},
	} {
		spec := python.WorkerSpec{Environment: h.Environment, Generation: 1}
		c.change(&spec)
		if _, err := h.Runtime.Start(t.Context(), spec); dray.CodeOf(err) != c.code ||
			dray.AsError(err).Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// testPyodideRemains starts and ends a worker: neither a process nor a directory is left.
func testPyodideRemains(t *testing.T, h pythontest.Harness) {
	w := h.Start(t, nil)
	started := processesBelow(t, os.Getpid())
	if len(started) < 2 { // a supervisor and Deno
		t.Errorf("processes while a worker runs: %v", started)
	}
	w.Kill()
	<-w.Done()
	exit, err := w.Exit()
	if err != nil || !exit.Survivors.Proven || len(exit.Survivors.PIDs) > 0 {
		t.Errorf("survivors: %+v, %v", exit.Survivors, err)
	}
	for pid, name := range processesBelow(t, os.Getpid()) {
		if name == "deno" || name == "bwrap" {
			t.Errorf("process %d of %s is left", pid, name)
		}
	}
}

// TestPyodideSnapshotFolder changes what workers start from: it is made anew (PY-24).
func TestPyodideSnapshotFolder(t *testing.T) {
	h := newHostHarness(t)
	cfg := newPyodideConfig(t)
	h.Runtime = python.NewPyodide(cfg)
	start := func() {
		t.Helper()
		w := h.Start(t, nil)
		if got := w.Value(t, "1+1"); got != "2" {
			t.Errorf("1+1 is %s", got)
		}
		w.Kill()
		<-w.Done()
		if left, _ := os.ReadDir(filepath.Join(cfg.Dir, "workers")); len(left) > 0 {
			t.Errorf("a worker left %v", left)
		}
	}
	start()
	found, err := filepath.Glob(filepath.Join(cfg.Dir, "*", "snapshot.bin"))
	if err != nil || len(found) != 1 {
		t.Fatalf("snapshots: %v, %v", found, err)
	}
	before, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	broken := append([]byte(nil), before...)
	broken[len(broken)/2]++
	folder := filepath.Dir(found[0])
	runner := filepath.Join(folder, "pyodide.js")
	change := func(name string, change func() error) {
		t.Helper()
		was, err := os.Stat(folder)
		if err := errors.Join(err, change()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		start()
		if now, err := os.Stat(folder); err != nil || os.SameFile(was, now) {
			t.Errorf("%s: the folder was used again, %v", name, err)
		}
	}
	change("another snapshot", func() error { return os.WriteFile(found[0], broken, 0o600) })
	change("another runner", func() error { return os.WriteFile(runner, broken, 0o600) })
}
