package executor

import "sync"

// crew are the goroutines that work for one call. A panic in one of them is kept, and raised again in the call's own goroutine by wait: whoever
// guards the call guards its crew, and nobody else needs to.
type crew struct {
	group sync.WaitGroup
	// alarm is called at the first panic, so that what the call started does not go on without it.
	alarm func()

	mu    sync.Mutex
	panic *Panic
}

// start begins a goroutine. After a panic in it, rest is called there in its place, if there is one.
func (c *crew) start(work, rest func()) {
	c.group.Go(func() {
		if !c.try(work) && rest != nil {
			c.try(rest)
		}
	})
}

// try does a part of the work in the caller's goroutine, and says whether that went without a panic.
func (c *crew) try(work func()) (ok bool) {
	defer func() {
		if p := Caught(recover()); p != nil {
			c.keep(p)
		}
	}()
	work()
	return true
}

// keep keeps the first panic; what follows from it tells nothing new.
func (c *crew) keep(p *Panic) {
	c.mu.Lock()
	first := c.panic == nil
	if first {
		c.panic = p
	}
	c.mu.Unlock()
	if first {
		c.alarm()
	}
}

// wait waits for all goroutines.
func (c *crew) wait() { c.group.Wait() }

// raise panics if one of them did.
func (c *crew) raise() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.panic != nil {
		panic(c.panic)
	}
}
