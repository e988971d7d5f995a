package tool

import (
	"context"
	"encoding/json"

	"github.com/dray-dev/dray/internal/python"
)

// codeKey marks the context of a call that code makes.
type codeKey struct{}

// madeByCode reports whether code of a Python session makes a call. The tools for files write
// nothing there that dray does not write for code (SY-08).
func madeByCode(ctx context.Context) bool { return ctx.Value(codeKey{}) != nil }

// toolCaller returns what runs a call of a tool for the code; nil if it cannot call tools.
func (e *sessionEnvironment) toolCaller() python.ToolCaller {
	callTool := e.options.CallTool
	if callTool == nil {
		return nil
	}
	return func(ctx context.Context, name string, input json.RawMessage, may python.Permissions,
	) (json.RawMessage, error) {
		if e.call.in.ReadOnly && may.FS == python.FSWrite {
			may.FS = python.FSRead
		}
		return callTool(context.WithValue(ctx, codeKey{}, true), e.call.Call, name, input, may)
	}
}
