package features

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray/internal/python/assets/assetstest"
	"github.com/dray-dev/dray/internal/soakreport"
)

// pythonRuntime is how calls reach a runtime.
type pythonRuntime struct {
	name string
	body map[string]any // members of the call
	args []string       // of the command line
}

var pythonRuntimes = []pythonRuntime{
	{"container", map[string]any{"container": "py"}, []string{"--container", "py"}},
	{"pyodide", nil, []string{"--runtime", "pyodide"}},
}

// program is dray in a process of its own: the program that users have.
type program struct {
	*daemon
	t    *testing.T
	path string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// startProgram builds dray and starts it as a daemon, with a container py that may have 64
// processes.
func startProgram(t *testing.T, config string) *program {
	t.Helper()
	needsEngine(t)
	root := newDir(t)
	writeFiles(t, root, map[string]string{"app/x": ""})
	id, err := docker(t.Context(), "run", "--detach", "--init", "--pids-limit", "64", "--volume",
		root+"/app:/workspaces/app", debian, "sleep", "1000000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = docker(context.WithoutCancel(t.Context()), "rm", "--force", id) })
	path := filepath.Join(root, "dray")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../cmd/dray").
		CombinedOutput()
	if err != nil {
		t.Fatalf("build dray: %v: %s", err, out)
	}
	return serve(t, path, fmt.Sprintf("containers: {py: {id: %s, folder: /workspaces/app}}\n%s", id,
		config))
}

// serve starts a program as a daemon.
func serve(t *testing.T, path, config string) *program {
	t.Helper()
	root := newDir(t)
	writeFiles(t, root, map[string]string{"config.yaml": config, "app/x": ""})
	p := &program{t: t, path: path, daemon: &daemon{
		state: root + "/state", config: root + "/config.yaml", http: socketClient(root + "/state/dray.sock"),
	}}
	p.start()
	return p
}

// withPyodide configures Pyodide.
func withPyodide(t *testing.T) string {
	t.Helper()
	return "python: {pyodide: {assets: " + assetstest.Dir(t) + "}}\n"
}

func (p *program) start() {
	p.t.Helper()
	p.cmd = exec.Command(p.path, "serve", "--state", p.state, "--config", p.config)
	p.cmd.Stderr = &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		p.http.CloseIdleConnections()
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if err := p.cmd.Wait(); err != nil {
			p.t.Errorf("the daemon ended with %v: %s", err, p.log.String())
		}
	})
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		a, err := p.ask(p.t.Context(), http.MethodGet, "/healthz", nil)
		if err == nil && a.status == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the daemon does not start: %v: %s", err, p.log.String())
		}
	}
}

// run runs a command line of the program, without stdin.
func (p *program) run(args ...string) ran {
	p.t.Helper()
	args = append([]string{args[0], "--state", p.state, "--config", p.config}, args[1:]...)
	cmd := exec.CommandContext(p.t.Context(), p.path, args...)
	cmd.Dir = filepath.Dir(p.state) + "/app"
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // ran has the exit code
	return ran{cmd.ProcessState.ExitCode(), stdout.Bytes(), stderr.Bytes()}
}

// python calls the tool in a runtime. More are members of the call.
func (d *daemon) python(t *testing.T, in pythonRuntime, input map[string]any,
	more ...map[string]any,
) answer {
	t.Helper()
	input["runtime"] = in.name
	body := map[string]any{"tool": "python", "input": input}
	for _, m := range append(more, in.body) {
		maps.Copy(body, m)
	}
	a, err := d.call(t.Context(), "", body)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// memory returns a line of /proc/PID/status of the daemon, in bytes.
func (p *program) memory(line string) int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), line+":")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return kib << 10
}

// resetPeak makes the peak of the resident memory the present value.
func (p *program) resetPeak() {
	p.t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0); err != nil {
		p.t.Fatal(err)
	}
}

// greedy is code that asks for more than there is, in both runtimes or only in one.
var greedy = []struct {
	name, code string
	timeout    float64
	only       string
	reasons    string // that the call may end with
	message    string // what the error or the value contains
}{
	{"repr of 1 GB", "class A:\n  def __repr__(self): return 'x' * (1 << 30)\nA()", 60, "", "exited", ""},
	{"value of 1 GB", "'x' * (1 << 30)", 60, "", "exited", ""},
	{"lie about a length", "class A(list):\n  def __len__(self): return 1 << 40\nA([1])", 60, "", "exited", ""},
	{"endless iterator", "class A(list):\n  def __iter__(self):\n    while True: yield 1\nA([1])", 3, "", "exited timeout", ""},
	{"endless items", "class A(dict):\n  def items(self):\n    while True: yield 1, 1\nA({1: 1})", 3, "", "exited timeout", ""},
	{"endless list", "import itertools\nlist(itertools.count())", 60, "", "exited", "MemoryError"},
	{"memory bomb", "l = []\nwhile True: l.append(bytearray(1 << 20))", 60, "", "exited", "MemoryError"},
	{"flood", "while True: print('leak' * 10000)", 2, "", "timeout", "wall time limit exceeded"},
	{"flood of errors", "import sys\nwhile True: sys.stderr.write('leak' * 10000)", 2, "", "timeout", "wall time limit exceeded"},
	{"fork bomb", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", 2, "container", "timeout", "wall time limit exceeded"},
	{"threads", "import threading\ndef f():\n  while True: print('leak')\nfor _ in range(8): threading.Thread(target=f, daemon=True).start()\nprint('leak')", 60, "container", "exited", ""},
	{"fork", "import os\nos.fork()", 60, "pyodide", "exited", "OSError"},
	{"thread", "import threading\nthreading.Thread(target=print).start()", 60, "pyodide", "exited", "RuntimeError"},
}

var greedyPage = soakreport.Page{
	File: "python-exhaustion.md", Title: "Python code that asks for more than there is",
	Text: `The daemon was the program itself, in a process of its own. The container had a limit of 64
processes, each session the default memory of 512 MiB. After each run the next call of the session
printed a line and returned a value. *Untyped* counts the runs without a reason and a code of the
closed lists. *Leaked* counts the next calls with another outcome than their own. *Growth* is by how
much the peak of the daemon's resident memory during these runs, which the kernel counts, was above
its value after the first call of each runtime.`,
	Target:  "typed errors; nothing in the next reply; the daemon grows by less than 64 MiB",
	Columns: []string{"runtime", "code", "runs", "untyped", "leaked", "growth, MiB"},
	Key:     2,
}

// Code that asks for more memory, output, processes or time than there is ends with a typed error,
// nothing of it is in the next reply of the session, and the daemon does not grow (PY-05, PY-06,
// PY-22, PY-23, PY-28).
func TestPython_Exhaustion(t *testing.T) {
	p := startProgram(t, withPyodide(t))
	for _, in := range pythonRuntimes {
		p.python(t, in, map[string]any{"session": "warm", "code": "1"})
	}
	base := p.memory("VmRSS")
	for _, in := range pythonRuntimes {
		for _, c := range greedy {
			if c.only != "" && c.only != in.name {
				continue
			}
			t.Run(in.name+"/"+c.name, func(t *testing.T) {
				runs, untyped, leaked := 0, 0, 0
				p.resetPeak()
				grown := func() int64 { return max(0, p.memory("VmHWM")-base) >> 20 }
				greedyPage.Row(t, []string{in.name, c.name}, func() []soakreport.Cell {
					return []soakreport.Cell{
						soakreport.Value(runs), soakreport.Exactly(untyped, 0), soakreport.Exactly(leaked, 0),
						soakreport.AtMost(grown(), 64),
					}
				})
				for range soakreport.Count(20, 1) {
					runs++
					a := p.python(t, in, map[string]any{"session": "greedy", "code": c.code},
						map[string]any{"timeout_seconds": c.timeout})
					reason := fmt.Sprint(a.at("/reason"))
					told := fmt.Sprint(a.at("/output/error/message"), a.at("/output/value"))
					if !strings.Contains(c.reasons, reason) || !strings.Contains(told, c.message) {
						untyped++
						t.Errorf("the reason is %s: %.2000s", reason, a.raw)
					}
					next := p.python(t, in, map[string]any{"session": "greedy", "code": "print('mine')\n3"})
					if next.at("/output/stdout") != "mine\n" || next.at("/output/stderr") != "" ||
						next.at("/output/value") != json.Number("3") {
						leaked++
						t.Errorf("the next call has %.2000s", next.raw)
					}
				}
				p.python(t, in, map[string]any{"session": "greedy", "operation": "reset"})
				if n := grown(); n >= 64 {
					t.Errorf("the daemon has grown by %d MiB", n)
				}
			})
		}
	}
}

// endless is code that does not end by itself.
var endless = []struct{ name, code string }{
	{"loop", "while True: pass"},
	{"long sum", "sum(range(10**12))"},
	{"runaway pattern", "import re; re.match(r'(a+)+$', 'a' * 64 + 'b')"},
	{"sleep", "import time; time.sleep(1e6)"},
	{"swallowed interrupt", "def f():\n  while True: pass\nwhile True:\n  try: f()\n  except BaseException: pass"},
}

var endlessPage = soakreport.Page{
	File: "python-timeouts.md", Title: "How Python code that does not end is reported",
	Text: `Each time the call had a timeout of 300 ms, and the next call of its session ran after it. The
calls were made by turns over HTTP, over HTTP with a reader of the events, and with the command
line. The percentiles are of the time from the timeout to the reply. *Wrong* counts the replies
without the reason timeout, the code 124 or the text, *next* the calls after them that failed.`,
	Target:  "each reply is a timeout, within 2.5 s, p99; the next call works",
	Columns: []string{"runtime", "code", "runs", "p50", "p99", "wrong", "next"},
	Key:     2,
}

// endlessCalls is what endlessPage reports of one code in one runtime.
type endlessCalls struct {
	*daemon
	t           *testing.T
	in          pythonRuntime
	code        string
	wrong, next int
	late        soakreport.Series
}

const endlessBudget = 300 * time.Millisecond

// Code that does not end is a timeout soon after its deadline: with the reason, the code 124 and
// the text on HTTP, in the events and on the command line. The next call of the session works
// (PY-06, PY-21).
func TestPython_EndlessCode(t *testing.T) {
	root, config := newPython(t)
	d := startDaemon(t, config+withPyodide(t))
	t.Chdir(root)
	for _, in := range pythonRuntimes {
		for i, c := range endless {
			t.Run(in.name+"/"+c.name, func(t *testing.T) {
				e := &endlessCalls{daemon: d, t: t, in: in, code: c.code}
				endlessPage.Row(t, []string{in.name, c.name}, func() []soakreport.Cell {
					return []soakreport.Cell{
						soakreport.Value(e.late.Len()), soakreport.Value(e.late.Percentile(50)),
						soakreport.AtMost(e.late.Percentile(99), 2500*time.Millisecond),
						soakreport.Exactly(e.wrong, 0), soakreport.Exactly(e.next, 0),
					}
				})
				e.works()
				for n := range soakreport.Count(200, 2) {
					e.run(n + i)
				}
			})
		}
	}
}

// run makes a call over the nth interface.
func (e *endlessCalls) run(n int) {
	e.t.Helper()
	began := time.Now()
	switch n % 3 {
	case 0:
		e.check(e.python(e.t, e.in, e.input(), map[string]any{"timeout_seconds": endlessBudget.Seconds()}))
	case 1:
		e.follow()
	default:
		args := append([]string{"python"}, e.in.args...)
		args = append(args, "--session", "endless", "--timeout", endlessBudget.String(), "-c", e.code)
		out := e.dray(e.t.Context(), strings.NewReader(""), args...)
		if out.code != 124 || !strings.Contains(string(out.stderr), "wall time limit exceeded") {
			e.wrong++
			e.t.Errorf("the command exits with %d: %s", out.code, out.stderr)
		}
	}
	e.late.Add(time.Since(began) - endlessBudget)
	e.works()
}

func (e *endlessCalls) input() map[string]any {
	return map[string]any{"session": "endless", "code": e.code, "runtime": e.in.name}
}

// follow makes a call and reads its events to the end.
func (e *endlessCalls) follow() {
	e.t.Helper()
	body := map[string]any{
		"tool": "python", "input": e.input(), "timeout_seconds": endlessBudget.Seconds(),
	}
	maps.Copy(body, e.in.body)
	a, err := e.call(e.t.Context(), "?wait_ms=0", body)
	if err != nil {
		e.t.Fatal(err)
	}
	resp, err := e.send(e.t.Context(), http.MethodGet, "/v1/invocations/"+a.id()+"/events", nil,
		"application/x-ndjson")
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		value, err := decode(lines.Bytes())
		if err != nil {
			e.t.Fatal(err)
		}
		if event := (answer{raw: lines.Bytes(), value: value}); event.at("/event") == "end" {
			e.check(answer{raw: event.raw, value: event.at("/invocation")})
			return
		}
	}
	e.wrong++
	e.t.Errorf("the events have no end: %v", lines.Err())
}

// check checks an invocation.
func (e *endlessCalls) check(a answer) {
	e.t.Helper()
	told := []any{
		a.at("/reason"), a.at("/status"), a.at("/exit_code"), a.at("/output/ok"), a.at("/output/code"),
	}
	if !same(told, []any{"timeout", "failed", nil, false, json.Number("124")}) ||
		!strings.HasPrefix(fmt.Sprint(a.at("/output/error/message")), "wall time limit exceeded") {
		e.wrong++
		e.t.Errorf("the outcome is %v: %.2000s", told, a.raw)
	}
}

// works makes a call that succeeds.
func (e *endlessCalls) works() {
	e.t.Helper()
	a := e.python(e.t, e.in, map[string]any{"session": "endless", "code": "20 + 22"})
	if a.at("/output/value") != json.Number("42") {
		e.next++
		e.t.Errorf("the next call: %.2000s", a.raw)
	}
}

var racePage = soakreport.Page{
	File: "python-races.md", Title: "The end of Python code races with its deadline",
	Text: `Each call slept for 20 ms, wrote its number to a file, and had a timeout near to that. *Ended* are
calls that ended by themselves, the others were timeouts. *Mixed* counts the replies whose members
are of both outcomes. *Wrong files* counts the calls that ended without their file, and, where a
runtime commits files at the end, timeouts with it.`,
	Target:  "each call has one outcome; no timeout has committed files",
	Columns: []string{"runtime", "calls", "ended", "mixed", "wrong files"},
	Key:     1,
}

// Where the end of the code races with its deadline, the reply has one of the two outcomes in all
// its members: a call that ended has written its file, and no file of a timeout is committed. The
// session keeps its variables (PY-06, PY-18, PY-21).
func TestPython_EndRacesWithDeadline(t *testing.T) {
	root, config := newPython(t)
	if err := os.Chmod(root+"/app", 0o777); err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t, fmt.Sprintf("%shost: {roots: [%s/app]}\npython: {permissions: {fs: write}, "+
		"pyodide: {assets: %s}}\n", config, root, assetstest.Dir(t)))
	for _, in := range pythonRuntimes {
		t.Run(in.name, func(t *testing.T) {
			r := &pythonRace{daemon: d, t: t, in: in, dir: root + "/app", timeout: 0.03}
			racePage.Row(t, []string{in.name}, func() []soakreport.Cell {
				return []soakreport.Cell{
					soakreport.Value(r.calls), soakreport.Value(r.ended), soakreport.Exactly(r.mixed, 0),
					soakreport.Exactly(r.wrong, 0),
				}
			})
			r.run()
		})
	}
}

// pythonRace counts the outcomes of calls whose end races with their deadline.
type pythonRace struct {
	*daemon
	t                          *testing.T
	in                         pythonRuntime
	dir                        string
	timeout                    float64 // of the next call, in seconds
	transactional              bool    // the runtime commits files at the end
	calls, ended, mixed, wrong int
}

// ask makes a call with the directory of the test as its working directory.
func (r *pythonRace) ask(code string, timeout float64) answer {
	r.t.Helper()
	more := map[string]any{"timeout_seconds": timeout}
	if r.in.name == "pyodide" {
		more["cwd"] = r.dir
	}
	return r.python(r.t, r.in, map[string]any{"session": "race", "code": code}, more)
}

func (r *pythonRace) run() {
	r.t.Helper()
	started := r.ask("import time\nended = 0", 60)
	if started.at("/status") != "succeeded" {
		r.t.Fatalf("%s", started.raw)
	}
	status := r.python(r.t, r.in, map[string]any{"operation": "status"})
	r.transactional = status.at("/output/capabilities/"+r.in.name+"/transactional") == true
	for range soakreport.Count(1000, 40) {
		r.race()
	}
	a := r.ask("ended", 60)
	ended, err := strconv.Atoi(fmt.Sprint(a.at("/output/value")))
	if err != nil || ended < r.ended || a.at("/output/discarded_state") != false {
		r.t.Errorf("%d calls ended: %s", r.ended, a.raw)
	}
	if r.ended == 0 || r.ended == r.calls {
		r.t.Errorf("there was no race: %d of %d calls ended", r.ended, r.calls)
	}
}

// race makes a call whose timeout is nearer to its end than that of the last one.
func (r *pythonRace) race() {
	r.t.Helper()
	r.calls++
	a := r.ask(fmt.Sprintf("time.sleep(0.02); open('race.txt', 'w').write('%d'); ended += 1; 'done'",
		r.calls), r.timeout)
	outcome := []any{
		a.at("/reason"), a.at("/status"), a.at("/exit_code"), a.at("/output/ok"), a.at("/output/code"),
		a.at("/output/value"),
	}
	written, _ := os.ReadFile(r.dir + "/race.txt") // it may not be there yet
	wrote := string(written) == strconv.Itoa(r.calls)
	switch {
	case same(outcome, []any{"timeout", "failed", nil, nil, nil, nil}) && !wrote:
		r.timeout += 0.002 // it ended before the code was started
	case same(outcome, []any{"timeout", "failed", nil, false, json.Number("124"), nil}):
		r.timeout += 0.002
		if r.transactional && wrote {
			r.wrong++
			r.t.Errorf("a timeout has committed its file: %s", a.raw)
		}
	case same(outcome, []any{
		"exited", "succeeded", json.Number("0"), true, json.Number("0"), "done",
	}):
		r.ended++
		r.timeout = max(r.timeout-0.001, 0.005)
		if !wrote && (r.transactional || r.in.name == "container") {
			r.wrong++
			r.t.Errorf("call %d ended, and the file has %q: %s", r.calls, written, a.raw)
		}
	default:
		r.mixed++
		r.t.Errorf("the outcome is %v: %s", outcome, a.raw)
	}
}
