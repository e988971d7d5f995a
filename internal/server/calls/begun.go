package calls

import (
	"context"

	"github.com/dray-dev/dray"
)

type acceptedKey struct{}

// MarkAccepted is the Executor that belongs directly inside the trail's: reaching it means that the begin of the call is committed. Without it a call
// counts as accepted when it first says something, and a client that waits with wait_ms waits until then.
func MarkAccepted(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
		if tell, ok := ctx.Value(acceptedKey{}).(func()); ok {
			tell()
		}
		return next.Execute(ctx, call, sink)
	})
}
