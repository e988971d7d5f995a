package python_test

import (
	"context"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/python/pythontest"
	"github.com/dray-dev/dray/internal/soakreport"
)

// endless is code that does not end by itself. Some of it ends when it is interrupted, some only
// with its process.
var endless = map[string]string{
	"a loop":              "while True: pass",
	"a long sum":          "sum(range(10**12))",
	"a runaway pattern":   "import re; re.match(r'(a+)+$', 'a' * 64 + 'b')",
	"a sleep":             "import time; time.sleep(1e6)",
	"ignored interrupts":  "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)",
	"swallowed interrupt": "def f():\n  while True: pass\nwhile True:\n  try: f()\n  except BaseException: pass",
}

var budgetPage = soakreport.Page{
	File: "python-budgets.md", Title: "Python code that does not end",
	Text: `Each time the code had a deadline of 200 ms, and the next call of its session ran after it. The
percentiles are of the time from the deadline to the end of the call. *New workers* counts the times
when the interrupt did not end the code, so that its worker was killed.`,
	Target:  "the reason is timeout, within 2.5 s of the deadline, p99; the next call works",
	Columns: []string{"runtime", "code", "runs", "p50", "p99", "new workers"},
	Key:     2,
}

// Code that exceeds its time ends with the reason timeout, soon after its deadline, and the next
// call of its session works: with the same worker, or with another one and the loss reported
// (PY-06).
func TestRun_EndlessCode(t *testing.T) {
	for _, h := range []pythontest.Harness{newHostHarness(t), newPyodideHarness(t)} {
		runner := newRunner(t)
		t.Run(h.Runtime.Name(), func(t *testing.T) {
			for name, code := range endless {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					testEndless(t, h, runner, name, code)
				})
			}
		})
	}
}

func testEndless(t *testing.T, h pythontest.Harness, runner *executor.Runner, name, code string) {
	c := &realChurn{harness: h}
	c.open(t, 1, 1)
	late := soakreport.Series{}
	budgetPage.Row(t, []string{h.Runtime.Name(), name}, func() []soakreport.Cell {
		return []soakreport.Cell{
			soakreport.Value(late.Len()), soakreport.Value(late.Percentile(50)),
			soakreport.AtMost(late.Percentile(99), 2500*time.Millisecond),
			soakreport.Value(c.losses.Load()),
		}
	})
	for range soakreport.Count(200, 2) {
		late.Add(c.timeOut(t, runner, code))
		c.call(t, "s")
	}
}

func newRunner(t *testing.T) *executor.Runner {
	t.Helper()
	store, err := capture.NewStore(capture.Options{Dir: t.TempDir(), Limit: 1 << 20, SummaryBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return &executor.Runner{Captures: store, Grace: 5 * time.Second}
}

// timeOut runs code with a deadline, as the tool does, and returns how long after it the call
// ended.
func (c *realChurn) timeOut(t *testing.T, runner *executor.Runner, code string) time.Duration {
	t.Helper()
	const budget = 200 * time.Millisecond
	env := &churnEnvironment{start: func(ctx context.Context) (*python.Run, error) {
		return c.sessions.Start(ctx, c.key("s"), c.harness.Environment, c.spec(code))
	}}
	c.call(t, "s") // the worker has started
	inner := dray.ExecutorFunc(func(ctx context.Context, _ dray.Call, sink dray.Sink,
	) (dray.Result, error) {
		defer func() { env.run.Release() }()
		out, err := runner.Run(ctx, env, dray.ProcessSpec{}, executor.Options{ID: "x"}, sink)
		defer out.Release()
		return out.Result, err
	})
	began := time.Now()
	res, err := executor.Deadline(inner, executor.Timeouts{Default: budget}).
		Execute(t.Context(), dray.Call{Tool: &dray.Tool{}}, silentSink{})
	if err != nil || res.Reason != dray.ReasonTimeout {
		t.Errorf("the call ended with %s, %v, %v", res.Reason, res.Error, err)
	}
	return time.Since(began) - budget
}

// churnEnvironment makes a session a process.
type churnEnvironment struct {
	dray.Environment
	start func(context.Context) (*python.Run, error)
	run   *python.Run
}

// Start implements dray.Environment.
func (e *churnEnvironment) Start(ctx context.Context, _ dray.ProcessSpec) (dray.Process, error) {
	run, err := e.start(ctx)
	if err != nil {
		return nil, err
	}
	e.run = run
	return run, nil
}

type silentSink struct{ dray.Sink }

func (silentSink) Started()                   {}
func (silentSink) Output(dray.Stream, []byte) {}
