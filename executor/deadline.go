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

// Timeouts are those of calls that name none, and whose tools name none.
type Timeouts struct {
	// Default ends such a call. One on a terminal is ended when it had neither input nor output for
	// that long.
	Default time.Duration
	// Max ends a call on a terminal also while that is in use.
	Max time.Duration
}

// Deadline returns an Executor that cancels a call with ErrTimeout when its timeout has elapsed on
// the monotonic clock. The timeout is the call's, else its tool's, else the default one. Time spent
// waiting for an approval, a session or a slot does not count.
func Deadline(next dray.Executor, timeouts Timeouts) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink,
	) (dray.Result, error) {
		c := newPausableTimer(call, timeouts)
		ctx, stop := c.start(ctx)
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

// pausableTimer cancels a context when it has run for a time, without its pauses, or when the
// terminal of its call was not in use for a shorter time.
type pausableTimer struct {
	mu        sync.Mutex
	timer     *time.Timer
	timeout   time.Duration
	idle      time.Duration // without input and output; zero is unlimited
	remaining time.Duration // of the timeout at started
	started   time.Time
	pauses    int // it runs if this is zero
	stopped   bool
}

type pausableTimerKey struct{}

func newPausableTimer(call dray.Call, timeouts Timeouts) *pausableTimer {
	c := &pausableTimer{
		timeout: cmp.Or(call.Invocation.Timeout, call.Tool.Timeout, timeouts.Default),
	}
	explicit := call.Invocation.Timeout != 0 || call.Tool.Timeout != 0
	if call.Invocation.Terminal != nil && !explicit {
		c.timeout, c.idle = timeouts.Max, timeouts.Default
	}
	return c
}

// start returns a context that is cancelled with ErrTimeout when the timer ends.
func (c *pausableTimer) start(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remaining, c.started = c.timeout, time.Now()
	c.timer = time.AfterFunc(c.next(), func() { cancel(c.cause()) })
	return context.WithValue(ctx, pausableTimerKey{}, c), func() {
		c.end()
		cancel(nil)
	}
}

// cause returns why the timer ended.
func (c *pausableTimer) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle == 0 || time.Since(c.started) >= c.remaining {
		return fmt.Errorf("%w after %v", ErrTimeout, c.timeout)
	}
	return fmt.Errorf("%w: its terminal had no input and no output for %v", ErrTimeout, c.idle)
}

// next returns after what time the timer ends if the terminal is not used.
func (c *pausableTimer) next() time.Duration {
	return min(cmp.Or(c.idle, c.remaining), c.remaining)
}

// terminalUse returns a function that tells the call's deadline of input or output.
func terminalUse(ctx context.Context) (used func()) {
	c, ok := ctx.Value(pausableTimerKey{}).(*pausableTimer)
	if !ok || c.idle == 0 {
		return func() {}
	}
	return c.used
}

func (c *pausableTimer) used() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pauses == 0 && !c.stopped && c.timer.Stop() {
		now := time.Now()
		c.remaining -= now.Sub(c.started)
		c.started = now
		c.timer.Reset(c.next())
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
		c.timer.Reset(c.next())
	}
}

func (c *pausableTimer) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.timer.Stop()
}
