package python_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/python/pythontest"
	"github.com/dray-dev/dray/internal/soakreport"
)

var churnPage = soakreport.Page{
	File: "python-sessions.md", Title: "Many Python sessions, few workers",
	Text: `Callers make calls one after the other in random sessions. Each call counts the calls of its
worker in a global, so that its reply shows whether the session has the worker of its last reply.
*Losses* are replies that reported discarded state. *Most* is the largest number of workers that
/proc showed at one moment.`,
	Target: "at most as many workers as may be resident; every reply is right, or the call is busy; " +
		"every loss is reported once; no process is left",
	Columns: []string{"runtime", "sessions", "resident", "callers", "calls", "busy", "losses", "most", "left"},
	Key:     1,
}

// realChurn is a run of many callers against sessions of real workers.
type realChurn struct {
	harness     pythontest.Harness
	sessions    *python.Sessions
	names       int
	calls, busy atomic.Int64
	losses      atomic.Int64
}

// Many callers use many sessions of real interpreters, of which few may be resident. The kernel
// never shows more workers than that, each reply is right or busy, each return of a session says
// that its state was discarded, and nothing is left afterwards (PY-07, PY-25).
func TestSessions_ChurnOfRealWorkers(t *testing.T) {
	full := soakreport.Enabled()
	pick := func(soak, brief int) int {
		if full {
			return soak
		}
		return brief
	}
	resident, callers, most, remain := pick(16, 3), pick(64, 12), 0, 0
	files := openFiles(t)
	t.Cleanup(func() { // after the environment was closed
		if n := openFiles(t); n > files {
			t.Errorf("%d descriptors are open, %d were", n, files)
		}
	})
	c := &realChurn{harness: newHostHarness(t), names: pick(1000, 8)}
	churnPage.Row(t, []string{"container, on the host"}, func() []soakreport.Cell {
		return []soakreport.Cell{
			soakreport.Value(c.names), soakreport.Value(resident), soakreport.Value(callers),
			soakreport.Value(c.calls.Load()), soakreport.Value(c.busy.Load()),
			soakreport.Value(c.losses.Load()), soakreport.AtMost(most, resident),
			soakreport.Exactly(remain, 0),
		}
	})
	c.open(t, resident, callers)
	watched := watchWorkers(t)
	var running sync.WaitGroup
	seed := soakreport.Rand(t)
	left := atomic.Int64{}
	left.Store(int64(soakreport.Count(10_000, 60)))
	for range callers {
		rnd := rand.New(rand.NewPCG(seed.Uint64(), seed.Uint64()))
		running.Go(func() {
			for left.Add(-1) >= 0 {
				c.call(t, fmt.Sprint("s", rnd.IntN(c.names)))
			}
		})
	}
	running.Wait()
	most = watched()
	c.sessions.Close()
	if remain = len(workers(t)); remain != 0 || most > resident || most == 0 {
		t.Errorf("at most %d workers of %d ran, %d are left", most, resident, remain)
	}
	if c.calls.Load() == 0 || c.losses.Load() == 0 {
		t.Errorf("%d calls, %d with a loss", c.calls.Load(), c.losses.Load())
	}
}

func (c *realChurn) open(t *testing.T, resident, queue int) {
	t.Helper()
	var err error
	c.sessions, err = python.New(python.Options{
		Runtimes: []python.Runtime{c.harness.Runtime},
		Resident: map[string]int{python.RuntimeContainer: resident},
		Queue:    queue, QueueWait: 10 * time.Second, Log: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.sessions.Close)
}

func (c *realChurn) key(name string) python.Key {
	return python.Key{Principal: "alice", Runtime: python.RuntimeContainer, Name: name}
}

func (c *realChurn) spec(code string) python.CallSpec {
	return python.CallSpec{Request: python.Request{
		Code: code, Argv: []string{}, State: python.Persistent, Cwd: c.harness.Dir,
	}}
}

// call counts the calls of a worker in its globals, and compares that with what is said of it.
func (c *realChurn) call(t *testing.T, name string) {
	run, err := c.sessions.Start(context.Background(), c.key(name), c.harness.Environment,
		c.spec("n = globals().get('n', 0) + 1\nprint(n)\nn"))
	if dray.CodeOf(err) == dray.CodeBusy {
		c.busy.Add(1)
		return
	}
	if err != nil {
		t.Errorf("start: %v", err)
		return
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
	if err != nil || exit.Code != 0 || !ok || n == 0 || string(printed) != fmt.Sprintln(n) ||
		info.DiscardedState != lost || info.Restarted != lost {
		t.Errorf("call %d of %+v: printed %q, exit %+v, %v", n, info, printed, exit, err)
	}
	c.calls.Add(1)
	if lost {
		c.losses.Add(1)
	}
}

// watchWorkers counts workers until the returned function is called, which returns the most that
// were seen at a time.
func watchWorkers(t *testing.T) (stop func() int) {
	t.Helper()
	most, end := 0, make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			most = max(most, countWorkers(t))
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
func countWorkers(t *testing.T) (n int) {
	before := workers(t)
	for _, pid := range workers(t) {
		if slices.Contains(before, pid) {
			n++
		}
	}
	return n
}

// workers returns the pids of the first processes of workers that this process has started.
func workers(t *testing.T) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Error(err)
	}
	parents := map[int]int{}
	isWorker := map[int]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // it may have ended
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		parents[pid], _ = strconv.Atoi(fields[1])
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		isWorker[pid] = bytes.Contains(args, []byte("_dray_"))
	}
	for pid, is := range isWorker {
		if is && !isWorker[parents[pid]] && descends(pid, parents) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// descends reports whether a process has this one among its ancestors.
func descends(pid int, parents map[int]int) bool {
	for n := 0; pid > 1 && n < 100; n++ {
		if pid == os.Getpid() {
			return true
		}
		pid = parents[pid]
	}
	return false
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
