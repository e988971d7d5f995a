package executor

import (
	"context"
	"time"

	"github.com/dray-dev/dray"
)

// Deadline bounds a call by a timeout on the monotonic clock. The call's own value goes before the tool's, the tool's before the default.
func Deadline(next dray.Executor, otherwise time.Duration, ofTool func(name string) time.Duration) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
		timeout := call.Invocation.Timeout
		if timeout == 0 {
			timeout = ofTool(call.Invocation.Tool)
		}
		if timeout == 0 {
			timeout = otherwise
		}
		ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrTimeout)
		defer cancel()
		res, err := next.Execute(ctx, call, sink)
		if err != nil && res.Reason == "" && ctx.Err() != nil {
			out := Outcome{Result: res} // it ended before anything ran, because the time was over or the caller left
			out.stopped(context.Cause(ctx))
			res, err = out.Result, nil
		}
		return res, err
	})
}
