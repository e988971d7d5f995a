package tool

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
)

// A tool of an MCP server with an invalid name or schema is left out. A schema of an older draft is
// accepted and checks the input (MC-06).
func TestAddUpstream(t *testing.T) {
	r, err := NewRegistry(Options{})
	if err != nil {
		t.Fatal(err)
	}
	call := func(context.Context, json.RawMessage) (UpstreamReply, error) { return UpstreamReply{}, nil }
	const closed = `{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false`
	for _, tt := range []struct {
		name, schema string
		ok           bool
	}{
		{"s__none", "", true},
		{"s__draft7", closed + `,"$schema":"http://json-schema.org/draft-07/schema#"}`, true},
		{"s__draft7", closed + `}`, false}, // in use
		{"s__a b", "", false},
		{"s__\x1b[31m", "", false},
		{"s__" + strings.Repeat("x", 126), "", false},
		{"s__array", `{"type":"array"}`, false},
		{"s__remote", `{"$ref":"https://example.com/x"}`, false},
		{"s__text", `"x"`, false},
		{"s__draft", `{"$schema":"https://example.com/own"}`, false},
		{"exec", "", false},
	} {
		data := dray.Tool{Name: tt.name, InputSchema: json.RawMessage(tt.schema)}
		if err := r.AddUpstream(data, call); (err == nil) != tt.ok {
			t.Errorf("%q with %s: %v", tt.name, tt.schema, err)
		}
	}
	added, err := r.Find("s__draft7")
	if err != nil {
		t.Fatal(err)
	}
	for input, ok := range map[string]bool{`{"n":1}`: true, `{"n":"1"}`: false, `{"m":1}`: false} {
		if err := added.CheckInput(json.RawMessage(input)); (err == nil) != ok {
			t.Errorf("%s: %v", input, err)
		}
	}
}

// A call that is cancelled is never reported as failed by its server, whichever of the two is
// noticed first (MC-06, CA-03).
func TestUpstream_Cancelled(t *testing.T) {
	b := newFixture(t)
	var cancel context.CancelCauseFunc
	err := b.tools.AddUpstream(dray.Tool{Name: "s__t"}, func(ctx context.Context, _ json.RawMessage,
	) (UpstreamReply, error) {
		cancel(executor.ErrCancelled)
		<-ctx.Done()
		return UpstreamReply{}, context.Cause(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		var ctx context.Context
		ctx, cancel = context.WithCancelCause(t.Context())
		res, err := b.exec.Execute(ctx, dray.Call{
			Invocation:  dray.Invocation{ID: "c", Tool: "s__t", Input: json.RawMessage("{}")},
			Environment: b.env,
		}, dray.Discard)
		cancel(nil)
		if err != nil || res.Reason != dray.ReasonCancelled {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}
