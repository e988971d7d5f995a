package executor

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// taskGroup runs the functions of one call, in goroutines or in the caller's. It records the first
// panic; rethrow raises it in the call's own goroutine, so that only that one has to recover.
type taskGroup struct {
	group sync.WaitGroup
	// onPanic is called at the first panic, to stop what the call started.
	onPanic func()

	mu    sync.Mutex
	panic *PanicError
}

// Go starts a goroutine. If work panics, otherwise is called there, unless it is nil.
func (g *taskGroup) Go(work, otherwise func()) {
	g.group.Go(func() { g.RunElse(work, otherwise) })
}

// RunElse is Go in the caller's goroutine.
func (g *taskGroup) RunElse(work, otherwise func()) {
	if !g.Run(work) && otherwise != nil {
		g.Run(otherwise)
	}
}

// Run calls work in the caller's goroutine and reports whether it returned without a panic.
func (g *taskGroup) Run(work func()) (ok bool) {
	defer func() {
		if p := Recovered(recover()); p != nil {
			g.record(p)
		}
	}()
	work()
	return true
}

// record keeps the first panic: later ones are its consequences.
func (g *taskGroup) record(p *PanicError) {
	g.mu.Lock()
	first := g.panic == nil
	if first {
		g.panic = p
	}
	g.mu.Unlock()
	if first {
		g.onPanic()
	}
}

// wait blocks until all goroutines have ended.
func (g *taskGroup) wait() { g.group.Wait() }

// rethrow panics if one of the functions did.
func (g *taskGroup) rethrow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.panic != nil {
		panic(g.panic)
	}
}

// PanicError is a recovered panic of a goroutine that worked for a call, with its stack. It is
// raised again in the call's own goroutine.
type PanicError struct {
	Value any
	Stack []byte
}

// Recovered returns the PanicError for a value of recover, nil for no panic. A value that is a
// PanicError already is returned unchanged.
func Recovered(value any) *PanicError {
	if value == nil {
		return nil
	}
	if p, ok := value.(*PanicError); ok {
		return p
	}
	return &PanicError{Value: value, Stack: debug.Stack()}
}

// Error returns the panic's value and stack.
func (p *PanicError) Error() string {
	return fmt.Sprintf("%v, in a goroutine of the call:\n%s", p.Value, p.Stack)
}
