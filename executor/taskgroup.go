package executor

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// taskGroup are the goroutines that work for one call. A panic in one of them is kept, and raised
// again in the call's own goroutine by wait: whoever guards the call guards its crew, and nobody
// else needs to.
type taskGroup struct {
	group sync.WaitGroup
	// onPanic is called at the first panic, so that what the call started does not go on without it.
	onPanic func()

	mu    sync.Mutex
	panic *PanicError
}

// Go begins a goroutine. After a panic in it, rest is called there in its place, if there is one.
func (c *taskGroup) Go(work, rest func()) {
	c.group.Go(func() {
		if !c.Run(work) && rest != nil {
			c.Run(rest)
		}
	})
}

// Run does a part of the work in the caller's goroutine, and says whether that went without a
// panic.
func (c *taskGroup) Run(work func()) (ok bool) {
	defer func() {
		if p := Recovered(recover()); p != nil {
			c.record(p)
		}
	}()
	work()
	return true
}

// record keeps the first panic; what follows from it tells nothing new.
func (c *taskGroup) record(p *PanicError) {
	c.mu.Lock()
	first := c.panic == nil
	if first {
		c.panic = p
	}
	c.mu.Unlock()
	if first {
		c.onPanic()
	}
}

// wait waits for all goroutines.
func (c *taskGroup) wait() { c.group.Wait() }

// rethrow panics if one of them did.
func (c *taskGroup) rethrow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.panic != nil {
		panic(c.panic)
	}
}

// PanicError is a panic of a goroutine that worked for a call. It is raised again in the call's
// own, so that whoever guards the call guards those goroutines too, and says where it came from.
type PanicError struct {
	Value any
	Stack []byte
}

// Recovered keeps what recover gave; nil for no panic. One that was caught before stays as it is.
func Recovered(value any) *PanicError {
	if value == nil {
		return nil
	}
	if p, ok := value.(*PanicError); ok {
		return p
	}
	return &PanicError{Value: value, Stack: debug.Stack()}
}

// Error tells the panic with its stack.
func (p *PanicError) Error() string {
	return fmt.Sprintf("%v, in a goroutine of the call:\n%s", p.Value, p.Stack)
}
