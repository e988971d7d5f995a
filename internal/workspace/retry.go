package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/dray-dev/dray"
)

// Retries repeat calls that failed because of the container or the engine (RE-02). A call is
// repeated only if its tool is idempotent or read-only, the call was not cancelled, no process of
// the failed attempt is left, and its caller has received no output of it.
type Retries struct {
	// Attempts is the maximum number of attempts of a call, at least 1.
	Attempts int
	// Budget bounds the time from the first failure until the process of a later attempt has started;
	// a tool that starts no process has to end in it.
	Budget time.Duration
}

// errRetryBudget is the cause with which an attempt is cancelled whose process has not started.
var errRetryBudget = errors.New("the time for retries has elapsed")

// firstRetryDelay is the pause before the second attempt. It doubles with each further one.
const firstRetryDelay = 100 * time.Millisecond

// isInfrastructure reports whether a code says that the container or the engine failed, not the
// tool or the request.
func isInfrastructure(code dray.Code) bool {
	return slices.Contains([]dray.Code{
		dray.CodeContainerUnavailable, dray.CodeEngineUnavailable, dray.CodeAgentLost,
	}, code)
}

// Executor repeats calls of next. The result lists the failed attempts before the last one.
func (r Retries) Executor(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink,
	) (dray.Result, error) {
		t := call.Tool
		if !t.Idempotent && !t.Capabilities.ReadOnly || !rewind(call.Stdin) {
			return next.Execute(ctx, call, sink)
		}
		c := &repeatedCall{Retries: r, next: next, call: call, sink: attemptSink{Sink: sink}}
		return c.execute(ctx)
	})
}

// repeatedCall is a call that may be repeated.
type repeatedCall struct {
	Retries
	next dray.Executor
	call dray.Call
	sink attemptSink

	failed []dray.FailedAttempt
	err    error // of the last failed attempt
}

func (c *repeatedCall) execute(ctx context.Context) (dray.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopBudget := func() bool { return false }
	defer func() { stopBudget() }()
	for {
		res, err := c.attempt(ctx)
		if !c.mayRepeat(ctx, res, err) {
			return res, err
		}
		if len(c.failed) == 0 {
			stopBudget = time.AfterFunc(c.Budget, func() { c.sink.cancelUnlessStarted(cancel) }).Stop
		}
		c.report(err)
		if !c.pause(ctx) {
			return res, err
		}
	}
}

// attempt executes the call once. An attempt that was cut off by the budget ends with the failure
// before it.
func (c *repeatedCall) attempt(ctx context.Context) (dray.Result, error) {
	res, err := c.next.Execute(ctx, c.call, &c.sink)
	cut := errors.Is(context.Cause(ctx), errRetryBudget)
	if cut && (err != nil || res.Reason != dray.ReasonExited) {
		res, err = dray.Result{Metadata: res.Metadata}, c.err
	}
	res.Metadata.Retries = c.failed
	return res, err
}

func (c *repeatedCall) mayRepeat(ctx context.Context, res dray.Result, err error) bool {
	return len(c.failed)+1 < c.Attempts && ctx.Err() == nil && c.sink.mayRepeat(res, err) &&
		rewind(c.call.Stdin)
}

// report adds a failed attempt and tells the caller that another one follows.
func (c *repeatedCall) report(err error) {
	e := dray.AsError(err)
	c.err = err
	c.failed = append(c.failed, dray.FailedAttempt{Code: e.Code, Message: e.Message})
	c.sink.Progress("retry", fmt.Sprintf("attempt %d of %d: %s", len(c.failed)+1, c.Attempts,
		e.Message))
}

// pause blocks before the next attempt. It returns false if the context ends before.
func (c *repeatedCall) pause(ctx context.Context) bool {
	c.sink.reset()
	select {
	case <-time.After(firstRetryDelay << (len(c.failed) - 1)):
		return true
	case <-ctx.Done():
		return false
	}
}

// rewind sets stdin to its beginning and reports whether that is possible.
func rewind(stdin io.Reader) bool {
	if stdin == nil {
		return true
	}
	s, ok := stdin.(io.Seeker)
	if ok {
		_, err := s.Seek(0, io.SeekStart)
		ok = err == nil
	}
	return ok
}

// attemptSink observes how far an attempt comes. It passes only the first start on to the caller.
type attemptSink struct {
	dray.Sink
	passedOn bool // the start

	mu      sync.Mutex
	started bool
	output  bool
}

func (s *attemptSink) Started() {
	s.mu.Lock()
	s.started = true
	first := !s.passedOn
	s.passedOn = true
	s.mu.Unlock()
	if first {
		s.Sink.Started()
	}
}

// Queued passes on that the call waits for a slot, to a caller that shows it.
func (s *attemptSink) Queued(waiting bool) {
	if q, ok := s.Sink.(interface{ Queued(waiting bool) }); ok {
		q.Queued(waiting)
	}
}

func (s *attemptSink) Output(stream dray.Stream, p []byte) {
	s.mu.Lock()
	s.output = true
	s.mu.Unlock()
	s.Sink.Output(stream, p)
}

// cancelUnlessStarted cancels the attempt unless its process has started.
func (s *attemptSink) cancelUnlessStarted(cancel context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		cancel(errRetryBudget)
	}
}

// mayRepeat reports whether an attempt failed without a trace: its process did not start, or is
// proven to have ended without output.
func (s *attemptSink) mayRepeat(res dray.Result, err error) bool {
	code := dray.CodeOf(err)
	if err == nil || !isInfrastructure(code) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kill := res.Metadata.Kill
	over := kill != nil && kill.Survivors.Proven && len(kill.Survivors.PIDs) == 0
	// without a report a process may have begun if the agent was lost
	never := kill == nil && !s.started && code != dray.CodeAgentLost
	return (over || never) && !s.output
}

// reset prepares for another attempt.
func (s *attemptSink) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = false
}
