package hostiletest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
)

// testEnv is an environment with hostile tools in it.
type testEnv struct {
	name  string
	env   dray.Environment
	tools *toolCopies
	path  string         // of the tools' directory in the environment
	box   *testContainer // nil on the host
	run   executor.Runner
}

var callNumber atomic.Int64

func newRunner(t *testing.T, grace time.Duration) executor.Runner {
	t.Helper()
	store, err := capture.NewStore(capture.Options{Dir: t.TempDir(), Limit: kept, SummaryBytes: view})
	if err != nil {
		t.Fatal(err)
	}
	return executor.Runner{Captures: store, Grace: grace}
}

// runningCall is one call.
type runningCall struct {
	tool   tool
	ready  chan struct{} // closed when the tool has printed "ready"
	over   chan struct{} // closed when result and err are set
	cancel context.CancelCauseFunc
	result dray.Result
	err    error
	ended  time.Time
}

// begin starts a call of a tool. The caller must call done.
func (p *testEnv) begin(ctx context.Context, args ...string) *runningCall {
	return p.beginWith(ctx, nil, args...)
}

func (p *testEnv) beginWith(ctx context.Context, stdin io.Reader, args ...string) *runningCall {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &runningCall{
		tool: <-p.tools.stock, ready: make(chan struct{}), over: make(chan struct{}),
		cancel: cancel,
	}
	id := fmt.Sprintf("call-%d", callNumber.Add(1))
	go func() { // ends with the call
		defer close(c.over)
		spec := dray.ProcessSpec{Argv: append([]string{p.path + "/" + c.tool.name}, args...), Dir: "/"}
		if p.box == nil {
			spec.Dir = ""
		}
		out, err := p.run.Run(ctx, p.env, spec, executor.Options{ID: id, Stdin: stdin},
			&readySink{said: c.ready})
		c.ended = time.Now()
		c.result, c.err = out.Result, err
	}()
	return c
}

// settled waits until the tool is ready.
func (c *runningCall) settled(t testing.TB) bool {
	t.Helper()
	select {
	case <-c.ready:
		return true
	case <-c.over:
		t.Errorf("the call ended before the tool was ready: %+v, %v; stderr %q", c.result, c.err,
			c.result.Stderr.Text)
	case <-time.After(60 * time.Second):
		t.Error("the tool is not ready after one minute")
	}
	return false
}

// wait waits for the end of a call.
func (c *runningCall) wait(t testing.TB) bool {
	t.Helper()
	select {
	case <-c.over:
		return true
	case <-time.After(90 * time.Second):
		t.Error("the call does not end")
		return false
	}
}

// end cancels a call, as a deadline, a client or a shutdown does. It returns the time until the
// call has ended.
func (c *runningCall) end(t testing.TB, cause error) time.Duration {
	t.Helper()
	begun := time.Now()
	c.cancel(cause)
	if !c.wait(t) {
		return 0
	}
	return c.ended.Sub(begun)
}

// done ends a call that still runs, and returns the tool to the stock unless its start was
// abandoned.
func (p *testEnv) done(t testing.TB, c *runningCall) {
	t.Helper()
	c.cancel(executor.ErrCancelled)
	switch {
	case !c.wait(t):
	case c.err == nil && c.result.Metadata.Kill == nil:
		p.tools.retire(t, c.tool)
	default:
		p.tools.stock <- c.tool
	}
}

// works checks that an ordinary call succeeds.
func (p *testEnv) works(t testing.TB) {
	t.Helper()
	c := p.begin(t.Context(), "show")
	defer p.done(t, c)
	if c.wait(t) && (c.err != nil || c.result.Reason != dray.ReasonExited || *c.result.ExitCode != 0 ||
		c.result.Stdout.TotalBytes == 0) {
		t.Errorf("the next call: %+v, %v", c.result, c.err)
	}
}

// readySink notes when the tool has printed "ready".
type readySink struct {
	said chan struct{}
	mu   sync.Mutex
	head []byte
	once sync.Once
}

func (s *readySink) Started()             {}
func (s *readySink) Progress(_, _ string) {}

func (s *readySink) Output(stream dray.Stream, p []byte) {
	if stream != dray.Stdout {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.head) < 6 {
		s.head = append(s.head, p[:min(len(p), 6)]...)
	}
	if bytes.HasPrefix(s.head, []byte("ready\n")) {
		s.once.Do(func() { close(s.said) })
	}
}

// checkReportMatchesProc compares the survivors that the result of an ended call reports with the
// processes in /proc, and returns the latter. Of a call whose start was abandoned it returns none:
// retire checks those later.
func checkReportMatchesProc(t testing.TB, c *runningCall, style string) (left []int) {
	t.Helper()
	left = c.tool.processes()
	kill := c.result.Metadata.Kill
	switch {
	case kill == nil: // the start was abandoned or failed: see toolCopies.retire
		return nil
	case c.err != nil && kill.Survivors.Proven && len(left) <= len(kill.Survivors.PIDs) &&
		(len(left) > 0) == (len(kill.Survivors.PIDs) > 0):
		// After the loss of an agent the report includes the processes of its other calls.
	case kill.Survivors.Proven && len(left) != len(kill.Survivors.PIDs):
		t.Errorf("%s: the result reports %+v, and /proc shows %d processes: %s", style, kill.Survivors,
			len(left), described(left))
	}
	return left
}
