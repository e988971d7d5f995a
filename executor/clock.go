package executor

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// clock ends a context when so much time has passed in which it was not made to stand.
type clock struct {
	mu      sync.Mutex
	timer   *time.Timer
	left    time.Duration // when it last began to run
	running time.Time     // since when it runs
	pauses  int           // it runs if there is none
	over    bool
}

type clockKey struct{}

// withClock gives a context that is cancelled with ErrTimeout when its clock has run for so long.
func withClock(ctx context.Context, timeout time.Duration) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &clock{left: timeout, running: time.Now()}
	c.timer = time.AfterFunc(timeout, func() { cancel(fmt.Errorf("%w after %v", ErrTimeout, timeout)) })
	return context.WithValue(ctx, clockKey{}, c), func() {
		c.end()
		cancel(nil)
	}
}

// PauseDeadline makes the clock of the call's deadline stand until resume is called. Where the context has none, nothing happens.
func PauseDeadline(ctx context.Context) (resume func()) {
	c, ok := ctx.Value(clockKey{}).(*clock)
	if !ok {
		return func() {}
	}
	c.pause()
	return sync.OnceFunc(c.resume)
}

func (c *clock) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauses++
	if c.pauses == 1 && c.timer.Stop() {
		c.left -= time.Since(c.running)
	}
}

func (c *clock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauses--
	if c.pauses == 0 && !c.over {
		c.running = time.Now()
		c.timer.Reset(c.left)
	}
}

func (c *clock) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.timer.Stop()
}
