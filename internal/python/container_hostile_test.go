package python_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python"
)

// A process that code ends is reported as it ended, and the request has no reply (PY-06).
func TestContainerWorkerEnds(t *testing.T) {
	h := newHostHarness(t)
	for _, c := range []struct {
		name, code string
		exit       dray.Exit
	}{
		{"exit 0", "import os; os._exit(0)", dray.Exit{}},
		{"exit 7", "import os; os._exit(7)", dray.Exit{Code: 7}},
		{"kill", "import os; os.kill(os.getpid(), 9)", dray.Exit{Signal: syscall.SIGKILL}},
		{"abort", "import os; os.abort()", dray.Exit{Signal: syscall.SIGABRT}},
		{"segmentation fault", "import ctypes; ctypes.string_at(0)", dray.Exit{Signal: syscall.SIGSEGV}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := h.Start(t, nil)
			got := w.Run(t, python.Request{Code: "print('before', flush=True)\n" + c.code})
			<-w.Done()
			exit, err := w.Exit()
			if got.Err == nil || got.Stdout != "before\n" || err != nil ||
				exit.Code != c.exit.Code || exit.Signal != c.exit.Signal {
				t.Errorf("got %+v, %v; %s %v", exit, err, got.Describe(), got.Err)
			}
		})
	}
}

// A process that code forks does not become a second worker, and its output is that of the request
// (PY-08).
func TestContainerFork(t *testing.T) {
	w := newHostHarness(t).Start(t, nil)
	for _, c := range []struct{ name, code string }{
		{"to the end of the code", "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\npid > 0"},
		{"exception", "import os\npid = os.fork()\nif not pid: 1/0\nos.waitpid(pid, 0)[1] == 256"},
		{"exit", "import os\npid = os.fork()\nif not pid: raise SystemExit(3)\nos.waitpid(pid, 0)[1] == 768"},
		{"libc", "import ctypes, os\npid = ctypes.CDLL(None).fork()\nif pid: os.waitpid(pid, 0)\npid > 0"},
		{"not waited for", "import os\nos.fork() >= 0"},
		{"in a thread", "import os, threading\nr = []\ndef f():\n  pid = os.fork()\n  if not pid: os._exit(0)\n  r.append(os.waitpid(pid, 0)[1])\nt = threading.Thread(target=f); t.start(); t.join()\nr == [0]"},
		{"multiprocessing", "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p:\n  r = p.map(abs, [-1, -2])\nr == [1, 2]"},
		{"subprocess", "import subprocess\nsubprocess.run(['echo', 'x'], capture_output=True).stdout == b'x\\n'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := w.Value(t, c.code); got != "true" {
				t.Errorf("got %s", got)
			}
			if got := w.Value(t, "[1, 2]"); got != "[1,2]" {
				t.Errorf("the next request returned %s", got)
			}
		})
	}
	got := w.Code(t, "import os\npid = os.fork()\nif not pid: raise ValueError('in the child')\nx = os.waitpid(pid, 0)")
	if !strings.HasSuffix(got.Stderr, "ValueError: in the child\n") || !got.OK {
		t.Errorf("got %s", got.Describe())
	}
}

// Children have the streams of the request.
func TestContainerChildren(t *testing.T) {
	w := newHostHarness(t).Start(t, nil)
	got := w.RunWith(t, python.Request{
		Code: "import os, sys\nprint('first')\nsys.stdout.flush()\nos.system('cat; echo err >&2')",
		Env:  map[string]string{"X": "1"},
	}, []byte("from stdin\n"))
	if got.Stdout != "first\nfrom stdin\n" || got.Stderr != "err\n" || string(got.Value) != "0" {
		t.Errorf("got %s", got.Describe())
	}
	if got := w.Value(t, "import subprocess\nsubprocess.run('echo $X $PWD', shell=True, capture_output=True, env=None).returncode"); got != "0" {
		t.Errorf("got %s", got)
	}
}

// Nothing that a request leaves running says anything in a later reply (PY-15, PY-28).
func TestContainerLeftovers(t *testing.T) {
	for _, c := range []struct{ name, code, ready string }{
		{"printing thread", "import threading\ndef f():\n  while True: print('leak')\nthreading.Thread(target=f, daemon=True).start()", "leak"},
		{"writing thread", "import threading, os, sys\no = sys.stdout\ndef f():\n  while True: o.write('leak'); o.flush()\nthreading.Thread(target=f, daemon=True).start()", "leak"},
		{"thread without newline", "import threading, sys\ndef f():\n  while True: sys.stdout.write('l')\nthreading.Thread(target=f, daemon=True).start()\nprint('leak')", "leak"},
		{"stderr of a thread", "import threading, sys\ndef f():\n  while True: print('leak', file=sys.stderr)\nthreading.Thread(target=f, daemon=True).start()\nprint('leak')", "leak"},
		{"os.write", leaving("import os", "os.write(1, b'leak')"), "leak"},
		{"os.writev", leaving("import os", "os.writev(2, [b'le', b'ak'])"), ""},
		{"posix.write", leaving("import posix", "posix.write(1, b'leak')"), "leak"},
		{"thread of a thread", leaving("", "t = threading.Thread(target=print, args=('leak',)); t.start(); t.join()"), "leak"},
		{"_thread", leaving("import _thread, time", "_thread.start_new_thread(print, ('leak',)); time.sleep(0.001)"), "leak"},
		{"pool of a thread", leaving("import concurrent.futures as c", "with c.ThreadPoolExecutor(2) as p: list(p.map(print, ['leak']))"), "leak"},
		{"program of a thread", leaving("import subprocess", "subprocess.run(['echo', 'leak'])"), "leak"},
		{"stderr of a program", leaving("import subprocess", "subprocess.run('echo leak >&2', shell=True)"), ""},
		{"program with stdout", leaving("import subprocess, sys", "subprocess.run(['echo', 'leak'], stdout=sys.stdout, stderr=subprocess.STDOUT)"), "leak"},
		{"os.system", leaving("import os", "os.system('echo leak; echo leak >&2')"), "leak"},
		{"os.popen", leaving("import os", "os.popen('echo leak >&2').read()"), ""},
		{"os.posix_spawn", leaving("import os", "os.waitpid(os.posix_spawn('/bin/echo', ['echo', 'leak'], {}), 0)"), "leak"},
		{"os.fork", leaving("import os", "p = os.fork()\n    if not p:\n      os.write(1, b'leak'); os.write(2, b'leak'); os._exit(0)\n    os.waitpid(p, 0)"), "leak"},
		{"child", "import subprocess\np = subprocess.Popen('while :; do echo leak; done', shell=True)\nimport time; time.sleep(0.05)", "leak"},
		{"child with stderr", "import subprocess\np = subprocess.Popen('echo leak; while :; do echo leak >&2; done', shell=True)\nimport time; time.sleep(0.05)", "leak"},
		{"forked child", "import os\nif not os.fork():\n  while True: os.write(1, b'leak')\nimport time; time.sleep(0.05)", "leak"},
		{"atexit", "import atexit\natexit.register(print, 'leak')\nprint('leak')", "leak"},
		{"finalizer", "import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'leak')\nprint('leak')", "leak"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHostHarness(t).Start(t, nil)
			if got := w.Code(t, c.code); !strings.Contains(got.Stdout, c.ready) || !got.OK {
				t.Fatalf("the first request: %.500s", got.Describe())
			}
			for range 10 {
				got := w.Code(t, "import time; time.sleep(0.01); print('mine'); 3")
				if got.Stdout != "mine\n" || got.Stderr != "" || string(got.Value) != "3" {
					t.Fatalf("got %.500s", got.Describe())
				}
			}
			w.Kill()
			<-w.Done()
			if exit, err := w.Exit(); err != nil || len(exit.Survivors.PIDs) > 0 {
				t.Errorf("survivors: %+v, %v", exit, err)
			}
		})
	}
}

// leaving is code that leaves a thread which runs a statement again and again.
func leaving(imports, statement string) string {
	return imports + "\nimport threading\ndef f():\n  while True:\n    " + statement +
		"\nthreading.Thread(target=f, daemon=True).start()\nimport time; time.sleep(0.1)"
}

// Threads of a request have its streams, and so have the threads and processes that they start.
// Threads of an earlier request have what they write themselves (PY-28).
func TestContainerThreads(t *testing.T) {
	w := newHostHarness(t).Start(t, nil)
	w.Code(t, "import concurrent.futures, os, subprocess, threading, time\n"+
		"pool = concurrent.futures.ThreadPoolExecutor(1)\npool.submit(int).result()")
	const work = `
def work():
    print('print')
    os.write(1, b'write\n')
    os.writev(1, [b'wri', b'tev\n'])
    subprocess.run(['echo', 'run'])
    os.system('echo system')
    os.waitpid(os.posix_spawn('/bin/echo', ['echo', 'spawn'], {}), 0)
    p = os.fork()
    if not p:
        os.write(1, b'fork\n')
        os._exit(0)
    os.waitpid(p, 0)
    t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()
`
	const printed = "print\nwrite\nwritev\nrun\nsystem\nspawn\nfork\nthread\n"
	got := w.Code(t, work+"t = threading.Thread(target=work); t.start(); t.join()")
	if got.Stdout != printed || got.Stderr != "" {
		t.Errorf("a thread: %s", got.Describe())
	}
	if got := w.Code(t, work+"work()"); got.Stdout != printed {
		t.Errorf("the main thread: %s", got.Describe())
	}
	got = w.Code(t, "pool.submit(work).result()\n"+
		"pool.submit(subprocess.run, ['echo', 'own'], capture_output=True).result().stdout.decode(), "+
		"pool.submit(os.system, 'exit 3').result(), pool.submit(os.write, 1, b'abc').result(), "+
		"pool.submit(os.writev, 2, [b'a', b'bc']).result()")
	if string(got.Value) != `["own\n",768,3,3]` || got.Stdout != "" || got.Stderr != "" {
		t.Errorf("a thread of an earlier request: %s", got.Describe())
	}
	if got := w.Value(t, "import pickle\npickle.loads(pickle.dumps(os.write)) is os.write"); got != "true" {
		t.Errorf("os.write cannot be pickled: %s", got)
	}
}

// Code has no descriptor of the frames. What it writes to all that it has ends the request or the
// worker, and nothing else (PY-08).
func TestContainerDescriptors(t *testing.T) {
	h := newHostHarness(t)
	w := h.Start(t, nil)
	got := w.Value(t, "import os\nsorted({os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in os.listdir('/proc/self/fd') if int(n) > 2 and os.path.exists(f'/proc/self/fd/{n}')})")
	if got != `["/dev/null","socket"]` && got != `["/dev/null"]` {
		t.Errorf("the worker has %s", got)
	}
	if got := w.Value(t, "import subprocess\nsubprocess.run('ls /proc/self/fd', shell=True, close_fds=False, capture_output=True, text=True).stdout.split()"); got != `["0","1","2","3"]` {
		t.Errorf("a child has the descriptors %s", got)
	}
	forge := `
import os, struct, json
reply = json.dumps({"ok": True, "code": 0, "value": "forged", "usage": {"wall_ms": 0, "cpu_ms": 0, "memory_bytes": 0}}).encode()
frames = [struct.pack(">IBIII", 13 + len(reply), ord("R"), 3, n, s) + reply for n in range(9) for s in range(40)]
frames += [struct.pack(">I", len(reply)) + reply, b"\xff" * 64, b"ready"]
for n in range(3, 256):
  try: os.fstat(n)
  except OSError: continue
  for f in frames:
    try: os.write(n, f)
    except OSError: pass
`
	other := h.Start(t, nil)
	outcome := w.Run(t, python.Request{Code: forge})
	if outcome.Err == nil && outcome.OK && string(outcome.Value) == `"forged"` {
		t.Log("the request has a forged reply, which is what its code could have returned")
	}
	<-w.Done() // the next byte was a violation
	if got := other.Value(t, "1+1"); got != "2" {
		t.Errorf("another session returned %s", got)
	}
}

// Files in the working directory do not become part of the worker (PY-16).
func TestContainerShadowedModules(t *testing.T) {
	h := newHostHarness(t)
	for _, name := range []string{"json", "sitecustomize", "usercustomize", "os", "traceback", "struct", "encodings", "site", "runpy"} {
		text := "open(__file__ + '.loaded', 'w').close()\nraise SystemExit(9)\n"
		if err := os.WriteFile(filepath.Join(h.Dir, name+".py"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := h.Start(t, nil)
	if got := w.Code(t, "x = {'a': 1}\n1/0"); got.Message() != "ZeroDivisionError: division by zero" {
		t.Errorf("got %s", got.Describe())
	}
	if got := w.Run(t, python.Request{Module: "platform"}); !got.OK {
		t.Errorf("got %s, %v", got.Describe(), got.Err)
	}
	if found, _ := filepath.Glob(filepath.Join(h.Dir, "*.loaded")); len(found) > 0 {
		t.Errorf("the worker loaded %q", found)
	}
	// Code imports what it would with python3.
	if got := w.Code(t, "import usercustomize"); got.Code != 9 {
		t.Errorf("got %s", got.Describe())
	}
}

// A worker that cannot start is helper_missing with a hint, and nothing is left of it (PY-02).
func TestContainerCannotStart(t *testing.T) {
	h := newHostHarness(t)
	script := func(name, text string) string {
		path := filepath.Join(h.Dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ name, executable, message string }{
		{"missing", "/no/such/python3", "/no/such/python3 cannot be started"},
		{"relative", "no-such-python", "no-such-python cannot be started"},
		{"not executable", "/etc/passwd", "/etc/passwd cannot be started"},
		{"too old", script("old", "echo python 3.6.9 >&2; exit 87"), "is Python 3.6.9, which is older than 3.9"},
		{"fails", script("fails", "echo no shared library >&2; exit 127"), `it ended (exit code 127): "no shared library"`},
		{"no Python", script("cat", "exec cat"), "cannot run as a Python worker"},
		{"killed", script("killed", "kill -9 $$"), "it ended (killed)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := h.Runtime.Start(t.Context(), python.WorkerSpec{
				Environment: h.Environment, Generation: 1, Executable: c.executable,
			})
			wantHelperMissing(t, err, c.message)
		})
	}
}

func wantHelperMissing(t *testing.T, err error, message string) {
	t.Helper()
	e, ok := err.(*dray.Error) //nolint:errorlint // the error itself
	if !ok || e.Code != dray.CodeHelperMissing || e.Hint == "" || !strings.Contains(e.Message, message) {
		t.Errorf("got %v, want helper_missing with %q and a hint", err, message)
	}
}

// Memory that the globals of a session use up does not keep it from being freed (PY-23).
func TestContainerFullSession(t *testing.T) {
	w := newHostHarness(t).Start(t, func(s *python.WorkerSpec) { s.Memory = 256 << 20 })
	got := w.Code(t, "x = []\ntry:\n  while True: x.append(bytes(1 << 20))\nexcept MemoryError: n = len(x)\nwhile True: x.append(bytes(1 << 10))")
	if got.Message() != "MemoryError" {
		t.Errorf("got %s", got.Describe())
	}
	for range 3 {
		if got := w.Code(t, "y = bytes(64 << 20)"); got.Message() != "MemoryError" {
			t.Errorf("got %s", got.Describe())
		}
	}
	if got := w.Value(t, "del x\nlen(bytes(64 << 20))"); got != fmt.Sprint(64<<20) {
		t.Errorf("got %s", got)
	}
}

// Code that floods a stdout which is not read waits, and ends when it is killed.
func TestContainerUnreadOutput(t *testing.T) {
	h := newHostHarness(t)
	w := h.Start(t, nil)
	e, err := w.Execute(t.Context(), python.Request{Code: "while True: print('x' * 1000)", Cwd: h.Dir, State: python.Fresh}, python.Workspace{})
	if err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	if _, err := e.Output(dray.Stdout).Read(one); err != nil {
		t.Fatal(err)
	}
	w.Kill()
	for _, stream := range []dray.Stream{dray.Stdout, dray.Stderr} {
		_, _ = io.Copy(io.Discard, e.Output(stream))
	}
	<-w.Done()
	if _, err := e.Reply(); err == nil {
		t.Error("it has a reply")
	}
}

// The user's own packages and PYTHONPATH are there as with python3, although the worker is started
// isolated (PY-16).
func TestContainerUserPackages(t *testing.T) {
	h := newHostHarness(t)
	python3 := filepath.Join(h.Dir, "python3") // the host passes no variables of Python on
	text := fmt.Sprintf("#!/bin/sh\nPYTHONPATH=%s PYTHONUSERBASE=%s exec python3 \"$@\"\n",
		filepath.Join(h.Dir, "lib"), filepath.Join(h.Dir, "user"))
	if err := os.WriteFile(python3, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	use := func(spec *python.WorkerSpec) { spec.Executable = python3 }
	w := h.Start(t, use)
	version := strings.Join(strings.Split(w.Hello().Python, ".")[:2], ".")
	for dir, name := range map[string]string{
		"lib": "from_path", filepath.Join("user", "lib", "python"+version, "site-packages"): "from_user",
	} {
		dir = filepath.Join(h.Dir, dir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".py"), []byte("x = 1"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w = h.Start(t, use)
	if got := w.Value(t, "import from_path, from_user; from_path.x + from_user.x"); got != "2" {
		t.Errorf("got %s", got)
	}
}

// The processes that stopped code has started end with it, also those that left its group and its
// tree. Those of earlier requests stay, with the variables (PY-06).
func TestContainerStopKillsProcesses(t *testing.T) {
	h := newHostHarness(t)
	w := h.Start(t, nil)
	early := strings.TrimSpace(w.Code(t, "import os, signal, subprocess, time\n"+
		"print(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid)").Stdout)
	w.Code(t, "import time; time.sleep(0.02)") // the kernel counts starts in 10 ms
	e, err := w.Execute(t.Context(), python.Request{Code: `
def orphan():
    for number in range(1, 32):
        try: signal.signal(number, signal.SIG_IGN)
        except OSError: pass
    os.setsid()
    if os.fork(): os._exit(0)
    os.execvp('sleep', ['sleep', '1000'])
if not os.fork(): orphan()
os.wait()
subprocess.Popen(['sleep', '1000'], start_new_session=True)
print('ready', flush=True)
time.sleep(1000)`, State: python.Persistent, Cwd: h.Dir}, python.Workspace{})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, e.Output(dray.Stderr)) }()
	out := e.Output(dray.Stdout)
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	stopper, ok := e.(interface{ Stop() })
	if !ok {
		t.Fatalf("a %T cannot be stopped", e)
	}
	stopper.Stop()
	_, _ = io.Copy(io.Discard, out)
	<-e.Done()
	if reply, err := e.Reply(); err != nil || reply.Error.Message != "KeyboardInterrupt" {
		t.Fatalf("%+v, %v", reply, err)
	}
	left := w.Code(t, `
def sleeping(pid):
    return '(sleep) S' in open('/proc/%s/stat' % pid).read()
def parent(pid): return int(open('/proc/%d/stat' % pid).read().rpartition(')')[2].split()[1])
above = {os.getpid(), parent(os.getppid())}
for name in os.listdir('/proc'):
    try:
        if name.isdigit() and parent(int(name)) in above and sleeping(name): print(name)
    except OSError: pass`)
	if !left.OK || strings.TrimSpace(left.Stdout) != early {
		t.Errorf("left is %q, want %s; %s", left.Stdout, early, left.Describe())
	}
}

// A session in which code has replaced what every call needs says how to go on (PY-28).
func TestContainerBrokenSession(t *testing.T) {
	w := newHostHarness(t).Start(t, nil)
	w.Code(t, "import os; os.chdir = None")
	got := w.Code(t, "1")
	if want := "RuntimeError: earlier code has broken the session, reset it: TypeError"; got.Code != 1 ||
		!strings.HasPrefix(got.Message(), want) {
		t.Errorf("got %s", got.Describe())
	}
}
