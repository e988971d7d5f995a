package calls

import (
	"context"

	"github.com/dray-dev/dray"
)

// Control has something done to the call's process, and waits for that. A call that has no process yet is waited for. It fails with conflict where
// the call ends without another moment in which it has one, with the context's cause, or as do does.
func (c *Call) Control(ctx context.Context, do func(dray.Process) error) error {
	result := make(chan error, 1)
	select {
	case c.control <- func(p dray.Process) { result <- do(p) }:
		return <-result
	case <-c.done:
		return ErrCallEnded()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// HasTerminal says whether the call asked for a terminal.
func (c *Call) HasTerminal() bool { return c.terminal }

// ErrCallEnded is the error of changing a call that has ended.
func ErrCallEnded() error {
	return dray.Errorf(dray.CodeConflict, "the call is over").WithHint("GET the invocation tells how it ended")
}
