package wire

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a panic of this side in its work for the connection: a defect of ours, which a peer's frames may have laid open. The connection has
// failed with it, and nothing else.
type PanicError struct {
	Value any
	Stack []byte
}

// Error tells the value alone; the stack is for a log.
func (p *PanicError) Error() string { return fmt.Sprintf("a defect of this side: %v", p.Value) }

// recoverPanic makes a panic of the work an error.
func recoverPanic(work func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return work()
}

// goRecovered does a part of the connection's work that ends with it, or ends it.
func (m *Mux) goRecovered(work func()) {
	err := recoverPanic(func() error {
		work()
		return nil
	})
	if err != nil {
		m.fail(err)
	}
}
