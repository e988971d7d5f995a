package python_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/python/pythontest"
	"github.com/dray-dev/dray/internal/soakreport"
)

var churnPage = soakreport.Page{
	File: "python-sessions.md", Title: "Many Python sessions, few workers",
	Text: `Callers make calls one after the other in random sessions of both runtimes. Each call counts the
calls of its worker in a global, so that its reply shows whether the session has the worker of its
last reply. *Callers* serve both runtimes. *Losses* are replies that reported discarded state.
*Most* is the largest number of workers that /proc showed at one moment, *left* the number after the
end, of processes and of files in the directories of the workers.`,
	Target: "at most as many workers as may be resident; every reply is right, or the call is busy; " +
		"every loss is reported once; no process and no file is left",
	Columns: []string{"runtime", "sessions", "resident", "callers", "calls", "busy", "losses", "most", "left"},
	Key:     1,
}

// realChurn is a run of many callers against sessions of real workers of one runtime.
type realChurn struct {
	harness     pythontest.Harness
	sessions    *python.Sessions
	names       int // of sessions
	resident    int
	namespace   string // of pids; empty is the host's
	most, left  int
	calls, busy atomic.Int64
	losses      atomic.Int64
}

// Many callers use many sessions of real interpreters, of which few may be resident: of containers
// and of Pyodide. The kernel never shows more workers than that, no worker that runs or starts is
// evicted, each reply is right or busy, each return of a session says that its state was discarded,
// and nothing is left afterwards (PY-07, PY-25).
func TestSessions_ChurnOfRealWorkers(t *testing.T) {
	pick := func(soak, brief int) int {
		if soakreport.Enabled() {
			return soak
		}
		return brief
	}
	files := openFiles(t)
	t.Cleanup(func() { // after the environments were closed
		if n := openFiles(t); n > files {
			t.Errorf("%d descriptors are open, %d were", n, files)
		}
	})
	inEngine := newEngineHarness(t, debian, docker.TransportAuto, "--pids-limit", "256")
	inPyodide, dir := newPyodideHarnessIn(t)
	churns := []*realChurn{
		{harness: inEngine, names: pick(1000, 8), resident: pick(16, 3)},
		{harness: inPyodide, names: pick(200, 5), resident: pick(8, 2)},
	}
	callers := pick(64, 12)
	for _, c := range churns {
		churnPage.Row(t, []string{c.harness.Runtime.Name()}, func() []soakreport.Cell {
			return []soakreport.Cell{
				soakreport.Value(c.names), soakreport.Value(c.resident), soakreport.Value(callers),
				soakreport.Value(c.calls.Load()), soakreport.Value(c.busy.Load()),
				soakreport.Value(c.losses.Load()), soakreport.AtMost(c.most, c.resident),
				soakreport.Exactly(c.left, 0),
			}
		})
	}
	churns[0].namespace = namespaceOf(t, inEngine)
	openSessions(t, callers, churns...)
	made := filesInContainer(t, inEngine) // of the agent
	churn(t, callers, churns)
	churns[0].left = len(workers(t, churns[0])) + filesInContainer(t, inEngine) - made
	churns[1].left = len(workers(t, churns[1])) + len(entries(t, filepath.Join(dir, "workers")))
	for _, c := range churns {
		if c.most > c.resident || c.most == 0 || c.left != 0 {
			t.Errorf("%s: at most %d workers of %d ran, %d are left", c.harness.Runtime.Name(), c.most,
				c.resident, c.left)
		}
		if c.calls.Load() == 0 || c.losses.Load() == 0 {
			t.Errorf("%s: %d calls, %d with a loss", c.harness.Runtime.Name(), c.calls.Load(),
				c.losses.Load())
		}
	}
}

// churn makes calls in random sessions, then closes all sessions.
func churn(t *testing.T, callers int, churns []*realChurn) {
	stops := make([]func() int, 0, len(churns))
	names := 0
	for _, c := range churns {
		stops = append(stops, watchWorkers(t, c))
		names += c.names
	}
	var running sync.WaitGroup
	seed := soakreport.Rand(t)
	var left atomic.Int64
	left.Store(int64(soakreport.Count(10_000, 60)))
	for range callers {
		rnd := rand.New(rand.NewPCG(seed.Uint64(), seed.Uint64()))
		running.Go(func() {
			for left.Add(-1) >= 0 {
				c, n := churns[0], rnd.IntN(names)
				if n >= c.names {
					c = churns[1]
				}
				c.call(t, fmt.Sprint("s", n))
			}
		})
	}
	running.Wait()
	for i, stop := range stops {
		churns[i].most = stop()
	}
	churns[0].sessions.Close()
}

// open makes sessions of one runtime.
func (c *realChurn) open(t *testing.T, resident, queue int) {
	t.Helper()
	c.resident = resident
	openSessions(t, queue, c)
}

// openSessions makes the sessions that several runtimes share.
func openSessions(t *testing.T, queue int, churns ...*realChurn) {
	t.Helper()
	opts := python.Options{
		Resident: map[string]int{}, Queue: queue, QueueWait: 2 * time.Minute, Log: zap.NewNop(),
	}
	for _, c := range churns {
		opts.Runtimes = append(opts.Runtimes, c.harness.Runtime)
		opts.Resident[c.harness.Runtime.Name()] = c.resident
	}
	s, err := python.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, c := range churns {
		c.sessions = s
	}
}

func (c *realChurn) key(name string) python.Key {
	return python.Key{Principal: "alice", Runtime: c.harness.Runtime.Name(), Name: name}
}

func (c *realChurn) spec(code string) python.CallSpec {
	return python.CallSpec{Request: python.Request{
		Code: code, Argv: []string{}, State: python.Persistent, Cwd: c.harness.Dir,
	}}
}

// call counts the calls of a worker in its globals, and compares that with what is said of it. It
// reports whether that was right, or the call busy.
func (c *realChurn) call(t *testing.T, name string) bool {
	run, err := c.sessions.Start(context.Background(), c.key(name), c.harness.Environment,
		c.spec("n = globals().get('n', 0) + 1\nprint(n)\nn"))
	if dray.CodeOf(err) == dray.CodeBusy {
		c.busy.Add(1)
		return true
	}
	if err != nil {
		t.Errorf("start: %v", err)
		return false
	}
	defer run.Release()
	var stderr sync.WaitGroup
	stderr.Go(func() { _, _ = io.Copy(io.Discard, run.Output(dray.Stderr)) })
	_ = run.Stdin().Close()
	printed, _ := io.ReadAll(run.Output(dray.Stdout))
	exit, err := run.Wait()
	stderr.Wait()
	reply, ok := run.Reply()
	n, _ := strconv.Atoi(string(reply.Value))
	info := run.Session()
	lost := n == 1 && info.Generation > 1
	right := err == nil && exit.Code == 0 && ok && n > 0 && string(printed) == fmt.Sprintln(n) &&
		info.DiscardedState == lost && info.Restarted == lost
	if !right {
		t.Errorf("call %d of %+v: printed %q, exit %+v, %v", n, info, printed, exit, err)
	}
	c.calls.Add(1)
	if lost {
		c.losses.Add(1)
	}
	return right
}

// watchWorkers counts workers until the returned function is called, which returns the most that
// were seen at a time.
func watchWorkers(t *testing.T, c *realChurn) (stop func() int) {
	t.Helper()
	most, end := 0, make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			most = max(most, countWorkers(t, c))
			select {
			case <-end:
				return
			case <-time.After(20 * time.Millisecond): // the cap holds at any moment, so any will do
			}
		}
	})
	return func() int {
		close(end)
		watching.Wait()
		return most
	}
}

// countWorkers counts the workers that run at one moment: those that /proc lists before and after
// it. One list may have a worker that ended and one that started in its place.
func countWorkers(t *testing.T, c *realChurn) (n int) {
	before := workers(t, c)
	for _, pid := range workers(t, c) {
		if slices.Contains(before, pid) {
			n++
		}
	}
	return n
}

// workers returns the pids of the first processes of the workers of a runtime that this process has
// started.
func workers(t *testing.T, c *realChurn) []int {
	t.Helper()
	first, _ := workerProcesses(t, c)
	return first
}

// workerProcesses returns all processes of the workers too.
func workerProcesses(t *testing.T, c *realChurn) (first, all []int) {
	t.Helper()
	processes := listProcesses(t, c.harness.Runtime.Name())
	for pid, p := range processes {
		link, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)) // it may have ended
		switch ours := c.namespace == "" && descends(pid, processes) || link == c.namespace; {
		case !p.worker, !ours:
		case !processes[p.parent].worker:
			first, all = append(first, pid), append(all, pid)
		default:
			all = append(all, pid)
		}
	}
	return first, all
}

// listProcesses returns what /proc has.
func listProcesses(t *testing.T, runtime string) map[int]process {
	t.Helper()
	processes := map[int]process{}
	for _, e := range entries(t, "/proc") {
		pid, err := strconv.Atoi(e)
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // it may have ended
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		parent, _ := strconv.Atoi(fields[1])
		processes[pid] = process{parent, isWorker(runtime, string(args))}
	}
	return processes
}

// process is a process that runs.
type process struct {
	parent int
	worker bool
}

// isWorker reports whether a command line is that of a worker.
func isWorker(runtime, args string) bool {
	if runtime == python.RuntimePyodide {
		return strings.Contains(args, "pyodide.js") && strings.Contains(args, `"mode":"run"`)
	}
	return strings.Contains(args, "_dray_")
}

// descends reports whether a process has this one among its ancestors.
func descends(pid int, processes map[int]process) bool {
	for n := 0; pid > 1 && n < 100; n++ {
		if pid == os.Getpid() {
			return true
		}
		pid = processes[pid].parent
	}
	return false
}

func openFiles(t *testing.T) int {
	t.Helper()
	return len(entries(t, "/proc/self/fd"))
}

// entries returns the names in a directory.
func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}
