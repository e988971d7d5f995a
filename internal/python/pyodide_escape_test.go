package python_test

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/python/pythontest"
	"github.com/dray-dev/dray/internal/soakreport"
)

// escape is an attempt to reach something outside of the session (PY-09). In js, which is the body
// of an async function, and in code, which is Python, the words in capital letters are replaced by
// what is there to reach.
type escape struct {
	name     string
	js, code string
	// off is what the attempt gets without lock-down: an error of Deno's permissions, if it reaches
	// for the outside. inside is the same in bubblewrap, if it fails there before Deno asks for the
	// permission.
	off, inside string
}

const denied = "NotCapable"

var escapes = []escape{
	// Deno itself
	{name: "read a file", js: `return Deno.readTextFileSync("CANARY")`, off: denied},
	{name: "read a file later", js: `return await Deno.readTextFile("CANARY")`, off: denied},
	{name: "open a file", js: `return Deno.openSync("CANARY").readSync(new Uint8Array(9))`, off: denied},
	{name: "list a directory", js: `return [...Deno.readDirSync("DIR")].length`, off: denied},
	{name: "stat", js: `return Deno.statSync("CANARY").size`, off: denied},
	{name: "resolve a path", js: `return Deno.realPathSync("CANARY")`, off: denied},
	{name: "write a file", js: `Deno.writeTextFileSync("DROP", "x")`, off: denied},
	{name: "remove a file", js: `Deno.removeSync("CANARY")`, off: denied},
	{name: "rename a file", js: `Deno.renameSync("CANARY", "DROP")`, off: denied},
	{name: "link a file", js: `Deno.linkSync("CANARY", "DROP")`, off: denied},
	{name: "make a symlink", js: `Deno.symlinkSync("CANARY", "DROP")`, off: denied},
	{name: "make a directory", js: `Deno.mkdirSync("DROP")`, off: denied},
	{name: "make a temporary file", js: `return Deno.makeTempFileSync({dir: "DIR"})`, off: denied},
	{name: "change a mode", js: `Deno.chmodSync("CANARY", 0o777)`, off: denied},
	{name: "watch files", js: `return Deno.watchFs("DIR")`, off: denied},
	{name: "read a variable", js: `return Deno.env.get("HOME")`, off: denied},
	{name: "read all variables", js: `return JSON.stringify(Deno.env.toObject())`, off: denied},
	{name: "host name", js: `return Deno.hostname()`, off: denied},
	{name: "network interfaces", js: `return Deno.networkInterfaces().length`, off: denied},
	{name: "run a program", js: `return new Deno.Command("/bin/touch", {args: ["DROP"]}).outputSync()`, off: denied},
	{name: "spawn a program", js: `return new Deno.Command("/bin/touch", {args: ["DROP"]}).spawn().pid`, off: denied},
	{name: "signal a process", js: `Deno.kill(PID, "SIGTERM")`, off: denied},
	{name: "native library", js: `return Deno.dlopen("/lib/x86_64-linux-gnu/libc.so.6", {getpid: {parameters: [], result: "i32"}}).symbols.getpid()`, off: denied},
	{name: "connect", js: `return (await Deno.connect({hostname: "127.0.0.1", port: PORT})).rid`, off: denied},
	{name: "connect to a socket", js: `return (await Deno.connect({transport: "unix", path: "SOCKET"})).rid`, off: denied},
	{name: "listen", js: `return Deno.listen({port: 0}).addr.port`, off: denied},
	{name: "resolve a name", js: `return await Deno.resolveDns("localhost", "A")`, off: denied, inside: "No such file"}, // as /etc/resolv.conf
	{name: "ask for a permission", js: `return (await Deno.permissions.request({name: "read"})).state`, off: "GAINED denied"},
	// the web's
	{name: "fetch", js: `return (await fetch("http://127.0.0.1:PORT/")).status`, off: denied},
	{name: "fetch a file", js: `return await (await fetch("file://CANARY")).text()`, off: denied},
	{name: "web socket", js: `return new WebSocket("ws://127.0.0.1:PORT/").readyState`, off: denied},
	{name: "local storage", js: `localStorage.setItem("a", "b"); return localStorage.getItem("a")`, off: "NotADirectory", inside: "Read-only file system"},
	{name: "cache storage", js: `const c = await caches.open("x"); return typeof c`, off: "Failed to create cache storage"},
	// modules
	{name: "module from the network", js: `return await import("http://127.0.0.1:PORT/x.js")`, off: "Requires import access"},
	{name: "module from a file", js: `return await import("file://CANARY.js")`, off: "Requires read access"},
	{name: "module from text", js: `return (await import("data:text/javascript,export default Deno.readTextFileSync('CANARY')")).default`, off: denied},
	{name: "npm package", js: `return await import("npm:left-pad")`, off: "npm|not found|specifier"},
	{name: "node:fs", js: `return (await import("node:fs")).readFileSync("CANARY", "utf8")`, off: denied},
	{name: "node:fs write", js: `(await import("node:fs")).writeFileSync("DROP", "x")`, off: denied},
	{name: "node:child_process", js: `return (await import("node:child_process")).execFileSync("/bin/touch", ["DROP"])`, off: denied},
	{name: "node:net", js: `const net = await import("node:net"); return await new Promise((ok, no) => { const s = net.connect(PORT, "127.0.0.1"); s.on("connect", () => ok("connected")); s.on("error", no) })`, off: denied},
	{name: "node:os", js: `return (await import("node:os")).hostname()`, off: denied},
	{name: "node:process", js: `return (await import("node:process")).default.env.HOME`, off: "NotCapable|GAINED undefined"},
	{name: "node:process kill", js: `return (await import("node:process")).default.kill(PID, "SIGTERM")`, off: denied},
	{name: "node:dns", js: `return await (await import("node:dns/promises")).lookup("localhost")`, off: "EPERM"},
	// workers bring Deno back
	{name: "worker", js: worker(`{type: "module"}`), off: denied},
	{name: "worker with permissions", js: worker(`{type: "module", deno: {permissions: {read: true}}}`), off: "without a reply"}, // an unstable option ends Deno
	{name: "node:worker_threads", js: `const {Worker} = await import("node:worker_threads"); return await new Promise((ok, no) => { const w = new Worker("require('worker_threads').parentPort.postMessage(require('fs').readFileSync('CANARY', 'utf8'))", {eval: true}); w.on("message", ok); w.on("error", no) })`, off: "Requires read access"},
	// Python's own
	{name: "open", code: `open("CANARY").read()`, off: "FileNotFoundError"},
	{name: "proc", code: `open("/proc/self/environ").read()`, off: "FileNotFoundError"},
	{name: "host folder by FS", code: `import pyodide_js
pyodide_js.mountNodeFS("/mnt", "DIR")`, off: "only works in Node"},
	{name: "socket", code: `import socket
socket.create_connection(("127.0.0.1", PORT), 1)`, off: "Error"},
	{name: "urllib", code: `import urllib.request
urllib.request.urlopen("http://127.0.0.1:PORT/", timeout=1).read()`, off: "Error"},
	{name: "subprocess", code: `import subprocess
subprocess.run(["/bin/touch", "DROP"])`, off: "Error"},
	{name: "os.system", code: `import os
assert os.system("touch DROP") == 0`, off: "AssertionError"},
	{name: "os.fork", code: `import os
os.fork()`, off: "Error"},
	{name: "os.kill", code: `import os
os.kill(PID, 15)`, off: "Error"},
	{name: "ctypes", code: `import ctypes
ctypes.CDLL(None).emscripten_run_script(b"Deno.writeTextFileSync('DROP', 'x')")`, off: "without a reply"},
}

// worker returns an attempt to read a file in a worker.
func worker(options string) string {
	return `return await new Promise((ok, no) => { const w = new Worker("data:text/javascript," + ` +
		`encodeURIComponent("try { postMessage(Deno.readTextFileSync('CANARY')) } catch (e) { postMessage(e.name) }"), ` +
		options + `); w.onmessage = (e) => e.data === "NotCapable" ? no(Error(e.data)) : ok(e.data); w.onerror = (e) => no(Error(e.message)) })`
}

// routes lead from Python to JavaScript.
var routes = []string{
	"from pyodide.code import run_js\nrun_js(SCRIPT)",
	"import js\njs.eval(SCRIPT)",
	"import js\njs.setTimeout.constructor(SCRIPT)()",
	"import js\njs.Function.new(SCRIPT)()",
	"import pyodide_js\npyodide_js._api.config.jsglobals.eval(SCRIPT)",
	"import pyodide.ffi\npyodide.ffi.to_js([]).constructor.constructor(SCRIPT)()",
	"import pyodide_js\npyodide_js._module.HEAP8.constructor.constructor(SCRIPT)()",
	"import sys\n[f for f in sys.meta_path if hasattr(f, 'limit')][0].read.constructor(SCRIPT)()",
}

// outside is what there is to reach.
type outside struct {
	dir, secret string
	replace     *strings.Replacer
	contacts    atomic.Int64
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{dir: t.TempDir(), secret: "canary-of-" + t.Name()}
	for _, name := range []string{"canary", "canary.js"} {
		if err := os.WriteFile(filepath.Join(o.dir, name), []byte(o.secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, port, err := net.SplitHostPort(o.listen(t, "tcp", "127.0.0.1:0").String())
	if err != nil {
		t.Fatal(err)
	}
	socket := o.listen(t, "unix", filepath.Join(o.dir, "socket"))
	o.replace = strings.NewReplacer("CANARY", filepath.Join(o.dir, "canary"), "DIR", o.dir,
		"DROP", filepath.Join(o.dir, "drop"), "SOCKET", socket.String(),
		"PORT", port, "PID", fmt.Sprint(os.Getpid()))
	return o
}

func (o *outside) listen(t *testing.T, network, address string) net.Addr {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o.contacts.Add(1)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return l.Addr()
}

// check fails the test if something outside has changed, or if what code has got contains a secret.
func (o *outside) check(t *testing.T, name string, got ...string) {
	t.Helper()
	entries, err := os.ReadDir(o.dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("%s: the directory has %v, %v", name, entries, err)
	}
	for _, file := range []string{"canary", "canary.js"} {
		info, err := os.Stat(filepath.Join(o.dir, file))
		text, _ := os.ReadFile(filepath.Join(o.dir, file))
		if err != nil || string(text) != o.secret || info.Mode() != 0o600 {
			t.Errorf("%s: %s has changed: %v", name, file, err)
		}
	}
	if n := o.contacts.Load(); n != 0 {
		t.Errorf("%s: %d connections", name, n)
	}
	for _, text := range got {
		if strings.Contains(text, o.secret) {
			t.Errorf("%s: got the secret: %.300s", name, text)
		}
	}
}

// script returns JavaScript that keeps in a global what an attempt gets.
func script(body string) string {
	return `globalThis.outcome = "no end"; (async () => { try { globalThis.outcome = "GAINED " + ` +
		`await (async () => {` + body + `})() } catch (e) { globalThis.outcome = e.name + ": " + e.message } })(); 0`
}

// TestPyodideEscapesUnlocked shows what Deno's permissions deny without lock-down (PY-09). A
// ReferenceError would prove nothing.
func TestPyodideEscapesUnlocked(t *testing.T) {
	if soakreport.Enabled() {
		withAndWithoutBwrap(t, testEscapesUnlocked)
		return
	}
	withoutBwrap(t, testEscapesUnlocked) // so that nothing but Deno denies
}

func testEscapesUnlocked(t *testing.T, cfg python.PyodideConfig) {
	o := newOutside(t)
	h := newHostHarness(t)
	h.Runtime = python.NewPyodide(cfg.Unlock())
	w := h.Start(t, nil)
	for i, route := range routes { // else they prove nothing when they fail
		w.Code(t, strings.ReplaceAll(route, "SCRIPT", fmt.Sprintf("'globalThis.control = %d'", i)))
		if got := w.Value(t, "from pyodide.code import run_js\nrun_js('globalThis.control')"); got !=
			fmt.Sprint(i) {
			t.Errorf("%q does not lead to JavaScript: %s", route, got)
		}
	}
	for _, e := range escapes {
		code := "import json\n" + o.replace.Replace(e.code)
		if e.js != "" {
			code = fmt.Sprintf("from pyodide.code import run_js\nrun_js(%q)\n1",
				script(o.replace.Replace(e.js)))
		}
		got, outcome := attempt(t, &w, code)
		if e.js != "" && got.OK {
			got, outcome = awaitOutcome(t, &w)
		}
		want := e.off
		if cfg.Bwrap != "" {
			want = cmp.Or(e.inside, e.off)
		}
		if !regexp.MustCompile(want).MatchString(outcome) {
			t.Errorf("%s: %s, want %s", e.name, outcome, want)
		}
		o.check(t, e.name, outcome, got.Describe())
	}
	endEscape(t, w)
}

// TestPyodideEscapes runs the same attempts with lock-down, by every route to JavaScript (PY-09).
func TestPyodideEscapes(t *testing.T) {
	if soakreport.Enabled() {
		withAndWithoutBwrap(t, testEscapes)
		return
	}
	inBwrap(t, testEscapes) // as sessions run
}

func testEscapes(t *testing.T, cfg python.PyodideConfig) {
	o := newOutside(t)
	h := newHostHarness(t)
	h.Runtime = python.NewPyodide(cfg)
	w := h.Start(t, nil)
	for _, e := range escapes {
		if e.js == "" {
			got, _ := attempt(t, &w, o.replace.Replace(e.code))
			if got.OK {
				t.Errorf("%s: %s", e.name, got.Describe())
			}
			o.check(t, e.name, got.Describe())
			continue
		}
		text := script(o.replace.Replace(e.js))
		for _, route := range routes {
			got, _ := attempt(t, &w, strings.ReplaceAll(route, "SCRIPT", fmt.Sprintf("%q", text)))
			o.check(t, e.name+" by "+route, got.Describe())
			if got.OK {
				t.Errorf("%s by %q: %s", e.name, route, got.Describe())
			}
		}
	}
	if got := w.Value(t, "1+1"); got != "2" {
		t.Errorf("afterwards 1+1 is %s", got)
	}
	endEscape(t, w)
}

// attempt runs code and returns how it failed. It starts another worker if the code has ended this
// one.
func attempt(t *testing.T, w *pythontest.Worker, code string) (pythontest.Outcome, string) {
	t.Helper()
	got := w.Run(t, python.Request{Code: code})
	if got.Err == nil {
		return got, got.Message()
	}
	endEscape(t, *w)
	*w = w.Start(t, nil)
	return got, got.Err.Error()
}

// awaitOutcome waits until the JavaScript of an attempt has ended. The event loop runs a moment
// after each request.
func awaitOutcome(t *testing.T, w *pythontest.Worker) (got pythontest.Outcome, outcome string) {
	t.Helper()
	for range 100 {
		got, outcome = attempt(t, w, `run_js("globalThis.outcome")`)
		if got.OK {
			outcome = string(got.Value)
		}
		if outcome != `"no end"` {
			break
		}
	}
	return got, outcome
}

// endEscape ends a worker: it has no other process.
func endEscape(t *testing.T, w pythontest.Worker) {
	t.Helper()
	w.Kill()
	<-w.Done()
	if exit, err := w.Exit(); err != nil || exit.Leftover != 0 {
		t.Errorf("it ended with %+v, %v", exit, err)
	}
}
