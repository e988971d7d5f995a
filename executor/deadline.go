package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dray-dev/dray"
)

// Deadline returns an Executor that cancels a call with ErrTimeout when its timeout has elapsed on
// the monotonic clock. The timeout is the call's, else its tool's, else defaultTimeout. Time spent
// waiting for a slot does not count.
func Deadline(next dray.Executor, defaultTimeout time.Duration) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink,
	) (dray.Result, error) {
		timeout := cmp.Or(call.Invocation.Timeout, call.Tool.Timeout, defaultTimeout)
		ctx, stop := withPausableTimeout(ctx, timeout)
		defer stop()
		res, err := next.Execute(ctx, call, sink)
		switch {
		case err == nil || res.Reason != "":
		case dray.CodeOf(err) == dray.CodeShuttingDown && errors.Is(err, ErrShutdown):
			res.Reason = dray.ReasonCancelled // the error is more specific than the cause
		case ctx.Err() != nil:
			// the call ended before a process started: it timed out or was cancelled
			out := Outcome{Result: res}
			out.stopped(context.Cause(ctx))
			res, err = out.Result, nil
		}
		return res, err
	})
}

// pausableTimer cancels a context when it has run for a time, without its pauses.
type pausableTimer struct {
	mu        sync.Mutex
	timer     *time.Timer
	remaining time.Duration // at started
	started   time.Time
	pauses    int // it runs if this is zero
	stopped   bool
}

type pausableTimerKey struct{}

// withPausableTimeout returns a context that is cancelled with ErrTimeout when its timer has run
// for the timeout.
func withPausableTimeout(ctx context.Context, timeout time.Duration,
) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &pausableTimer{remaining: timeout, started: time.Now()}
	c.timer = time.AfterFunc(timeout,
		func() { cancel(fmt.Errorf("%w after %v", ErrTimeout, timeout)) })
	return context.WithValue(ctx, pausableTimerKey{}, c), func() {
		c.end()
		cancel(nil)
	}
}

// PauseDeadline stops the timer of the call's deadline until resume is called. It does nothing if
// the context has none.
func PauseDeadline(ctx context.Context) (resume func()) {
	c, ok := ctx.Value(pausableTimerKey{}).(*pausableTimer)
	if !ok {
		return func() {}
	}
	c.pause()
	return sync.OnceFunc(c.resume)
}

func (c *pausableTimer) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauses++
	if c.pauses == 1 && c.timer.Stop() {
		c.remaining -= time.Since(c.started)
	}
}

func (c *pausableTimer) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauses--
	if c.pauses == 0 && !c.stopped {
		c.started = time.Now()
		c.timer.Reset(c.remaining)
	}
}

func (c *pausableTimer) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.timer.Stop()
}
