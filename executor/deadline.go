package executor

import (
	"context"
	"errors"
	"time"

	"github.com/dray-dev/dray"
)

// Deadline bounds a call by a timeout on the monotonic clock, on which the time does not count in which the call waits for its turn. The call's own
// value goes before the tool's, the tool's before the default.
func Deadline(next dray.Executor, otherwise time.Duration, ofTool func(name string) time.Duration) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
		timeout := call.Invocation.Timeout
		if timeout == 0 {
			timeout = ofTool(call.Invocation.Tool)
		}
		if timeout == 0 {
			timeout = otherwise
		}
		ctx, stop := withPausableTimeout(ctx, timeout)
		defer stop()
		res, err := next.Execute(ctx, call, sink)
		switch {
		case err == nil || res.Reason != "":
		case dray.CodeOf(err) == dray.CodeShuttingDown && errors.Is(err, ErrShutdown):
			res.Reason = dray.ReasonCancelled // the error says more than the cause would
		case ctx.Err() != nil:
			out := Outcome{Result: res} // it ended before anything ran, because the time was over or the caller left
			out.stopped(context.Cause(ctx))
			res, err = out.Result, nil
		}
		return res, err
	})
}
