package pythontest

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python"
)

// inputs returns inputs from names and JSON.
func inputs(pairs ...string) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return m
}

// write writes a file beneath the directory of the harness and returns its path.
func (h Harness) write(t *testing.T, name, content string) string {
	t.Helper()
	files, err := h.Environment.Files(t.Context(), h.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = files.Close() }()
	_ = files.Remove(name)
	w, err := files.Create(name, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(w, content)
	if closeErr := w.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	return path.Join(h.Dir, name)
}

// The command surface of python (PY-13).
func testCommands(t *testing.T, h Harness) {
	w := h.Start(t, nil)
	t.Run("module", func(t *testing.T) { testModule(t, w) })
	in(value("import sys; sys.argv", `["-","a"]`), func(r *python.Request) {
		r.Name, r.Argv = "<stdin>", []string{"a"}
	}).test(t, w)
	script := h.write(t, "script.py", "import sys\nprint(__name__, __file__, sys.argv)\nmade = sys.path[0]\nmade")
	failing := h.write(t, "failing.py", "def f():\n    raise KeyError('deep')\n\n\nf()\n")
	guarded := h.write(t, "guarded.py", "if __name__ == '__main__':\n    print('main')\n")
	latin := h.write(t, "latin.py", "# -*- coding: latin-1 -*-\n'\xfc'\n")
	h.write(t, "helper_of_script.py", "answer = 42\n")
	importing := h.write(t, "importing.py", "import helper_of_script\nhelper_of_script.answer")
	quoted := fmt.Sprintf("%q", h.Dir)
	for _, c := range []struct {
		name string
		step step
	}{
		{"file", step{
			request: python.Request{File: script, Argv: []string{"x", "--y"}}, value: quoted,
			stdout: fmt.Sprintf("__main__ %s ['%s', 'x', '--y']\n", script, script),
		}},
		{"globals of a file stay", value("made", quoted)},
		{"no __file__ after a file", failingStep("__file__", "NameError")},
		{"fresh file", fresh(step{request: python.Request{File: importing}, value: "42"})},
		{"file in another cwd", step{request: python.Request{File: importing, Cwd: "/"}, value: "42"}},
		{"guarded main", step{request: python.Request{File: guarded}, stdout: "main\n"}},
		{"encoding of a file", step{request: python.Request{File: latin}, value: `"ü"`}},
		{"traceback of a file", step{
			request: python.Request{File: failing}, code: 1, message: "KeyError: 'deep'",
			traceback: fmt.Sprintf("File %q, line 2, in f\n    raise KeyError('deep')", failing),
		}},
		{"missing file", step{
			request: python.Request{File: path.Join(h.Dir, "absent.py")}, code: 2,
			message: "can't open file '" + path.Join(h.Dir, "absent.py") + "': [Errno ", errorCode: "not_found",
		}},
		{"import from cwd", value("import helper_of_script as h; h.answer", "42")},
		{"no module of the missing file", value("'made' in globals()", "true")},
	} {
		t.Run(c.name, func(t *testing.T) { c.step.test(t, w) })
	}
}

func failingStep(code, message string) step { return failing(code, message) }

// A runtime with the capability runs modules. The tool refuses them for the others (PY-13).
func testModule(t *testing.T, w Worker) {
	if !w.Runtime.Capabilities().Modules {
		return
	}
	w.write(t, "own_module.py", "import sys\nif __name__ == '__main__':\n    print(sys.argv[1:], sys.argv[0].endswith('own_module.py'))\n    sys.exit(4)\n")
	step{
		request: python.Request{Module: "own_module", Argv: []string{"a"}}, code: 4,
		stdout: "['a'] True\n",
	}.test(t, w)
	got := w.Run(t, python.Request{Module: "no_such_module"})
	if got.Code != 1 || !strings.Contains(got.Message(), "No module named no_such_module") {
		t.Errorf("got %s", got.Describe())
	}
	step{request: python.Request{Module: "json.tool"}, stdin: `{"a":1}`, stdout: "{\n    \"a\": 1\n}\n"}.test(t, w)
}

// Code reads and writes the files of its directory.
func testFiles(t *testing.T, h Harness) {
	w := h.Start(t, nil)
	h.write(t, "in.csv", "a,b\n1,2\n")
	if h.Runtime.Capabilities().Transactional {
		_, err := w.Execute(t.Context(), h.fill(python.Request{Code: "1", Cwd: "/no/such/directory"}),
			h.Workspace())
		if dray.CodeOf(err) != dray.CodeBadCwd {
			t.Errorf("a directory that does not exist: %v", err)
		}
	} else {
		wants(in(failing("1", ""), func(r *python.Request) { r.Cwd = "/no/such/directory" }),
			func(s *step) { s.errorCode = "bad_cwd" }).test(t, w)
	}
	value("import csv; [row for row in csv.DictReader(open('in.csv'))]", `[{"a":"1","b":"2"}]`).test(t, w)
	code("open('out.txt', 'w').write('made')").test(t, w)
	value("open('out.txt').read()", `"made"`).test(t, w)
	// A module that came after the directory was listed is found.
	failing("import came_later", "ModuleNotFoundError").test(t, w)
	h.write(t, "came_later.py", "x = 1")
	value("import came_later; came_later.x", "1").test(t, w)
}

// stdin arrives unchanged while the code runs, and code need not read it (EX-03).
func testStdin(t *testing.T, h Harness) {
	w := h.Start(t, nil)
	t.Run("large", func(t *testing.T) {
		big := strings.Repeat("0123456789abcdef", 3<<16)
		got := w.RunWith(t, python.Request{Code: "import sys, hashlib\nd = sys.stdin.buffer.read()\n[len(d), d[-3:].decode()]"}, []byte(big))
		if want := fmt.Sprintf(`[%d,"def"]`, len(big)); Compact(got.Value) != want {
			t.Errorf("got %s, want %s", got.Describe(), want)
		}
	})
	t.Run("large and unread", func(t *testing.T) {
		got := w.RunWith(t, python.Request{Code: "5"}, make([]byte, 3<<20))
		if Compact(got.Value) != "5" {
			t.Errorf("got %s", got.Describe())
		}
		value("6", "6").test(t, w)
	})
	if !h.Runtime.Capabilities().InterruptKeepsState {
		return // its stdin is complete when the code starts
	}
	t.Run("dialogue", func(t *testing.T) {
		r := w.Begin(t, python.Request{Code: "print('ready')\nx = input()\nprint('got', x)\ninput()"})
		r.Until(t, "ready\n")
		_, _ = io.WriteString(r.Stdin(), "one\n")
		r.Until(t, "got one\n")
		_, _ = io.WriteString(r.Stdin(), "two\n")
		if got := r.End(t); Compact(got.Value) != `"two"` {
			t.Errorf("got %s", got.Describe())
		}
	})
}

// Interrupt raises KeyboardInterrupt. The session keeps its state if the runtime says so (PY-06).
func testInterrupts(t *testing.T, h Harness) {
	for _, c := range []struct{ name, code string }{
		{"loop", "while True: pass"},
		{"sleep", "import time; time.sleep(1000)"},
		{"runaway pattern", "import re; re.match('(a+)+b', 'a' * 60)"},
		{"await", "import asyncio; await asyncio.sleep(1000)"},
		{"repr", "class A:\n  def __repr__(self):\n    while True: pass\nA()"},
		{"length", "class A:\n  def __str__(self):\n    while True: pass\n  __repr__ = __str__\n{A(): 1}"},
		{"text of an error", "class E(Exception):\n  def __str__(self):\n    while True: pass\nraise E"},
		{"finally", "try:\n  while True: pass\nfinally:\n  done = 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := h.Start(t, nil)
			code("kept = 'state'").test(t, w)
			r := w.Begin(t, python.Request{Code: "print('go', flush=True)\n" + c.code})
			r.Until(t, "go\n")
			stop := interruptUntilEnd(r)
			got := r.End(t)
			stop()
			if !h.Runtime.Capabilities().InterruptKeepsState {
				return
			}
			// Python's traceback module shows an interrupted __str__ so.
			interrupted := strings.Contains(got.Message(), "KeyboardInterrupt") ||
				strings.Contains(got.Message(), "str() failed") ||
				strings.Contains(got.Message(), "unprintable")
			if got.Err != nil || got.Code != 1 || !interrupted {
				t.Errorf("got %s, %v", got.Describe(), got.Err)
			}
			value("kept", `"state"`).test(t, w)
		})
	}
	t.Run("no request", func(t *testing.T) { testLateInterrupt(t, h) })
}

// interruptUntilEnd interrupts a request again and again: code may be between two lines that the
// first one does not reach.
func interruptUntilEnd(r *Running) (stop func()) {
	ended := make(chan struct{})
	var loop sync.WaitGroup
	loop.Go(func() {
		for {
			r.Interrupt()
			select {
			case <-r.Done():
				return
			case <-ended:
				return
			case <-time.After(300 * time.Millisecond):
			}
		}
	})
	return func() {
		close(ended)
		loop.Wait()
	}
}

// An interrupt that comes when the request has ended does not reach the next one.
func testLateInterrupt(t *testing.T, h Harness) {
	w := h.Start(t, nil)
	for i := range 50 {
		r := w.Begin(t, python.Request{Code: "1"})
		r.Interrupt()
		if got := r.End(t); got.Err != nil {
			t.Fatal(got.Err)
		}
		r.Interrupt()
		if got := w.Value(t, "2"); got != "2" {
			t.Fatalf("after %d requests: %s", i, got)
		}
	}
}

// Everything that the code writes arrives before the reply (CA-01).
func testOutput(t *testing.T, h Harness) {
	w := h.Start(t, nil)
	for _, c := range []struct {
		name, code string
		stdout     int
	}{
		{"one write", "import sys; n = sys.stdout.write('x' * (5 << 20))", 5 << 20},
		{"many lines", "for i in range(20000): print('0123456789')", 20000 * 11},
		{"without the last newline", "print('x' * 100000, end='')", 100000},
		{"bytes", "import sys; n = sys.stdout.buffer.write(b'x' * (3 << 20))", 3 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := w.Code(t, c.code)
			if len(got.Stdout) != c.stdout || got.Stderr != "" || !got.OK {
				t.Errorf("got %d bytes of stdout, want %d; stderr %.200q", len(got.Stdout), c.stdout, got.Stderr)
			}
		})
	}
	t.Run("both", func(t *testing.T) {
		got := w.Code(t, "import sys\nfor i in range(3000):\n  print('o' * 99); print('e' * 99, file=sys.stderr)")
		if len(got.Stdout) != 300000 || len(got.Stderr) != 300000 {
			t.Errorf("got %d and %d bytes", len(got.Stdout), len(got.Stderr))
		}
	})
	t.Run("large value", func(t *testing.T) {
		if got := w.Value(t, "'v' * (3 << 20)"); len(got) != 3<<20+2 {
			t.Errorf("got %d bytes", len(got))
		}
	})
}

// The budgets of memory and processor time (PY-06, PY-23).
func testLimits(t *testing.T, h Harness) {
	caps := h.Runtime.Capabilities()
	if caps.MemoryLimit {
		t.Run("memory", func(t *testing.T) {
			w := h.Start(t, func(s *python.WorkerSpec) { s.Memory = 512 << 20 })
			failing("x = b'x' * (1 << 30)", "MemoryError").test(t, w)
			failing("x = []\nwhile True: x.append(bytes(8 << 20))", "MemoryError").test(t, w)
			failing("class A:\n  def __repr__(self): return 'x' * (1 << 30)\nraise ValueError(A())", "").test(t, w)
			value("len(x) > 8", "true").test(t, w)
			value("x = 5; x", "5").test(t, w)
		})
	}
	if caps.CPULimit {
		t.Run("cpu", func(t *testing.T) { testCPULimit(t, h) })
	}
	t.Run("usage", func(t *testing.T) {
		got := h.Start(t, nil).Code(t, "sum(range(200000))")
		if u := got.Usage; u.WallMS <= 0 || u.CPUMS < 0 || u.MemoryBytes < 0 {
			t.Errorf("got %+v", u)
		}
	})
}

func testCPULimit(t *testing.T, h Harness) {
	const budget = 300 * time.Millisecond
	for _, c := range []struct {
		name, code string
		expires    bool
	}{
		{"loop", "print('begun', flush=True)\nwhile True: pass", true},
		{"swallowed interrupts", "print('begun', flush=True)\nwhile True:\n  try:\n    for i in range(10**9): x = i\n  except BaseException: pass", true},
		{"sum that checks no interrupt", "print('begun', flush=True)\nsum(range(10**12))", true},
		{"short", "print('begun')", false},
		{"sleep", "print('begun')\nimport time; time.sleep(0.6)", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := h.Start(t, nil)
			got := w.Run(t, python.Request{Code: c.code, CPU: budget})
			if got.Err != nil || got.Stdout != "begun\n" || got.OK == c.expires ||
				got.CPULimit != c.expires {
				t.Errorf("got %s, %v", got.Describe(), got.Err)
			}
			if c.expires && (got.Code != 124 || got.Message() != "CPU time limit exceeded") {
				t.Errorf("got %s", got.Describe())
			}
			value("1+1", "2").test(t, h.Start(t, nil))
		})
	}
	w := h.Start(t, nil)
	for _, end := range []string{"'CPU time limit exceeded'", "124"} { // code can say both
		got := w.Run(t, python.Request{Code: "raise SystemExit(" + end + ")", CPU: budget})
		if got.Err != nil || got.CPULimit {
			t.Errorf("SystemExit of %s: %s, %v", end, got.Describe(), got.Err)
		}
	}
}

// Kill ends a worker with its request. A worker that ends by itself ends its request without a
// reply (PY-06).
func testEnds(t *testing.T, h Harness) {
	t.Run("killed", func(t *testing.T) {
		w := h.Start(t, nil)
		r := w.Begin(t, python.Request{Code: "print('go', flush=True)\nwhile True: pass"})
		r.Until(t, "go\n")
		w.Kill()
		if got := r.End(t); got.Err == nil {
			t.Errorf("got %s", got.Describe())
		}
		<-w.Done()
		if _, err := w.Execute(t.Context(), w.fill(python.Request{Code: "1"}), w.Workspace()); err == nil {
			t.Error("a worker that has ended runs a request")
		}
	})
	t.Run("exits", func(t *testing.T) {
		w := h.Start(t, nil)
		if got := w.Run(t, python.Request{Code: "import os; os._exit(5)"}); got.Err == nil {
			t.Errorf("got %s", got.Describe())
		}
		<-w.Done()
		if exit, err := w.Exit(); err != nil || exit.Code != 5 || exit.Signal != 0 {
			t.Errorf("the worker ended with %+v, %v, want the exit code 5", exit, err)
		}
	})
	t.Run("second request", func(t *testing.T) {
		w := h.Start(t, nil)
		r := w.Begin(t, python.Request{Code: "input()"})
		if _, err := w.Execute(t.Context(), w.fill(python.Request{Code: "1"}), w.Workspace()); err == nil {
			t.Error("a busy worker runs a request")
		}
		_ = r.Stdin().Close()
		r.End(t)
	})
}

// 100,000 nested lists have the depth of a value, and the session goes on (PY-05).
func testNested(t *testing.T, h Harness) {
	w := h.Start(t, nil)
	for _, code := range []string{
		"x = []\nfor i in range(100000): x = [x]\nx", "{1: x}", "len(str(x))", "x = None", "2",
	} {
		got := w.Run(t, python.Request{Code: code})
		switch {
		case got.Err != nil:
			t.Fatalf("%q: no reply: %v", code, got.Err)
		case code == "len(str(x))":
			// some versions of Python do not count these levels
			if !got.OK && !strings.HasPrefix(got.Message(), "RecursionError") {
				t.Errorf("%q: got %.500s", code, got.Describe())
			}
		case !got.OK:
			t.Errorf("%q: got %.500s", code, got.Describe())
		}
	}
}
