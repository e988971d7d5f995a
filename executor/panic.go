package executor

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a panic of a goroutine that worked for a call. It is raised again in the call's own, so that whoever guards the call guards those
// goroutines too, and says where it came from.
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
