package executor

import (
	"fmt"
	"runtime/debug"
)

// Panic is a panic of a goroutine that worked for a call. It is raised again in the call's own, so that whoever guards the call guards those
// goroutines too, and says where it came from.
type Panic struct {
	Value any
	Stack []byte
}

// Caught keeps what recover gave; nil for no panic. One that was caught before stays as it is.
func Caught(value any) *Panic {
	if value == nil {
		return nil
	}
	if p, ok := value.(*Panic); ok {
		return p
	}
	return &Panic{Value: value, Stack: debug.Stack()}
}

// Error tells the panic with its stack.
func (p *Panic) Error() string {
	return fmt.Sprintf("%v, in a goroutine of the call:\n%s", p.Value, p.Stack)
}
