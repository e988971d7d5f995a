package tool

import (
	"cmp"
	"context"
	"fmt"

	"github.com/dray-dev/dray"
)

// defaultOutput is the maximum number of bytes that read_output returns by default. The schema
// states it.
const defaultOutput = 16 << 10

type outputInput struct {
	ID     string  `json:"id"`
	Stream string  `json:"stream"`
	Offset jsonInt `json:"offset"`
	Limit  jsonInt `json:"limit"` // zero is defaultOutput
}

// outputTool returns the tool that reads the retained output of a call. It requires the host, so
// that no container is started for it.
func (r *Registry) outputTool() *definition {
	return &definition{
		Tool:  dray.Tool{Name: "read_output", Environment: dray.Requirement{Kind: dray.RequireHost}},
		paths: pathRules{mode: dray.MapNone},
		run: func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
			var in outputInput
			if err := read(call.MappedInput, &in); err != nil {
				return dray.Result{}, fmt.Errorf("decode the input of read_output: %w", err)
			}
			stream := dray.Stdout
			if in.Stream == dray.Stderr.String() {
				stream = dray.Stderr
			}
			sink.Started()
			part, err := r.ReadOutput(ctx, call.Invocation.Principal, in.ID, stream, int64(in.Offset),
				int64(cmp.Or(in.Limit, defaultOutput)))
			if err != nil {
				return dray.Result{}, err
			}
			return successResult(dray.Result{}, part)
		},
	}
}
