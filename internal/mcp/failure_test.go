package mcp

import (
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call"
)

// Hints name what a model can do itself, not an endpoint of the HTTP interface (MC-03).
func TestFailureHints(t *testing.T) {
	t.Parallel()
	invalid := dray.Errorf(dray.CodeInvalidInput, "the input is wrong: /input: missing property 'argv'").
		WithHint("see its input_schema: GET /v1/tools/exec, or dray tools exec")
	invalid.Details = []dray.Detail{
		{Pointer: "/input", Message: "missing property 'argv'"}, {Pointer: "/input/arg", Message: "is not allowed here"},
	}
	for want, err := range map[string]error{
		"invalid_input: the input is wrong: /input: missing property 'argv'\n- /input/arg: is not allowed here\n" +
			"hint: see the input schema of the tool": invalid,
		"hint: read_output has its result and its output": call.ErrCallEnded(),
		"hint: use the whole id": dray.Errorf(dray.CodeNotFound, "no such invocation").
			WithHint("GET /v1/invocations lists them"),
		"hint: start it again with stdin_open: true": dray.Errorf(dray.CodeConflict, "no stdin").
			WithHint("start it again with stdin_open: true"),
	} {
		content, ok := failure(err).Content[0].(*sdk.TextContent)
		if !ok {
			t.Fatalf("%v is no text", err)
		}
		text := content.Text
		if !strings.Contains(text, want) || strings.Contains(text, "GET /v1/") {
			t.Errorf("%v: %q, want %q", err, text, want)
		}
	}
}
