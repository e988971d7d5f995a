package mcp

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray"
)

// updateTools registers the tools that may run now with the SDK's server, and removes the others.
// The SDK then notifies clients with a session.
func (s *Server) updateTools(ctx context.Context) {
	active := s.cfg.Current().Tools.Active(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := maps.Clone(s.tools)
	for _, t := range active {
		if s.tools[t.Name] == t {
			delete(gone, t.Name)
			continue
		}
		if isOwn(t.Name) {
			s.warnHidden(t.Name)
			continue
		}
		delete(gone, t.Name)
		s.tools[t.Name] = t
		s.server.AddTool(describe(t), func(ctx context.Context, req *sdk.CallToolRequest,
		) (*sdk.CallToolResult, error) {
			return s.callTool(ctx, req, t)
		})
	}
	for name := range gone {
		delete(s.tools, name)
		s.server.RemoveTools(name)
	}
}

// awaitTools returns a handler that waits for the tools of upstream servers before it lists tools,
// or calls one that is unknown.
func (s *Server) awaitTools(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		r, ok := req.(*sdk.CallToolRequest)
		if method == "tools/list" || ok && !s.isListed(r.Params.Name) {
			s.cfg.AwaitTools(ctx)
			s.updateTools(ctx)
		}
		return next(ctx, method, req)
	}
}

// hideDenied omits the tools from a list whose calls policy denies the principal (SE-04).
func (s *Server) hideDenied(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		result, err := next(ctx, method, req)
		list, ok := result.(*sdk.ListToolsResult)
		denies := s.cfg.Current().Denies
		if err != nil || !ok || denies == nil {
			return result, err
		}
		s.mu.Lock()
		tools := maps.Clone(s.tools) // policies are evaluated without the lock
		s.mu.Unlock()
		shown := *list
		shown.Tools = slices.DeleteFunc(slices.Clone(list.Tools), func(t *sdk.Tool) bool {
			configured, ok := tools[t.Name]
			return ok && denies(principalOf(req), configured)
		})
		return &shown, nil
	}
}

// warnHidden logs once that a tool cannot be called over MCP. The caller holds mu.
func (s *Server) warnHidden(name string) {
	builtin := slices.ContainsFunc(ownTools, func(t ownTool) bool {
		return t.name == name && t.builtin
	})
	if !builtin && !s.hidden[name] {
		s.hidden[name] = true
		s.cfg.Log.Warn("tool hidden over MCP", "tool", name,
			"hint", "rename it: MCP has a tool of this name")
	}
}

// describe returns a tool as clients see it.
func describe(t *dray.Tool) *sdk.Tool {
	destructive := !t.Capabilities.ReadOnly
	open := t.Capabilities.Network || t.StartsProcess && !t.Capabilities.ReadOnly
	return &sdk.Tool{
		Name: t.Name, Title: title(t.Name), Description: t.Description,
		InputSchema: withOptions(t),
		Annotations: &sdk.ToolAnnotations{
			Title: title(t.Name), ReadOnlyHint: t.Capabilities.ReadOnly, DestructiveHint: &destructive,
			IdempotentHint: t.Idempotent || t.Capabilities.ReadOnly, OpenWorldHint: &open,
		},
	}
}

// title returns the name of a tool in words.
func title(name string) string {
	words := strings.NewReplacer("_", " ", "-", " ").Replace(name)
	return strings.ToUpper(words[:1]) + words[1:]
}

// option is an argument of a tool call that is not part of the tool's own input.
type option struct {
	name, schema string
	// stdin reports whether only tools that accept a stdin have it.
	stdin bool
}

var options = []option{
	{name: "cwd", schema: `{"type":"string","description":"Working directory: relative to the ` +
		`workspace, or absolute."}`},
	{name: "workspace", schema: `{"type":"string","description":"Absolute host directory of the ` +
		`project. Omit it for the client's own."}`},
	{name: "container", schema: `{"type":"string","description":"Name or id of the container to run ` +
		`in. Omit it unless several are configured."}`},
	{name: "paths", schema: `{"type":"string","enum":["host","container"],"description":"Whose ` +
		`paths you write and read: host maps them in arguments, commands and output; container ` +
		`maps none."}`},
	{name: "env", schema: `{"type":"object","additionalProperties":{"type":"string"},` +
		`"description":"Environment variables for this call."}`},
	{name: "timeout_seconds", schema: `{"type":"number","description":"The call is killed after ` +
		`this time."}`},
	{name: "wait_ms", schema: `{"type":"integer","minimum":0,"description":"Return after this time ` +
		`with the id of the call if it still runs; read_output waits for the rest."}`},
	{name: "view", schema: `{"type":"integer","minimum":1,"maximum":1048576,"description":"Maximum ` +
		`bytes of each output stream in the result; read_output has the rest."}`},
	{name: "idempotency_key", schema: `{"type":"string","description":"Calls with the same key are ` +
		`one call: set it to repeat a call safely."}`},
	{name: "stdin", stdin: true, schema: `{"type":"string","description":"Text for the standard ` +
		`input."}`},
	{name: "stdin_open", stdin: true, schema: `{"type":"boolean","description":"Keep the standard ` +
		`input open for write_stdin. Use it with wait_ms."}`},
}

// withOptions returns the input schema of a tool with the options of calls. A property of the
// tool's own hides the option of that name.
func withOptions(t *dray.Tool) json.RawMessage {
	schema := map[string]json.RawMessage{}
	properties := map[string]json.RawMessage{}
	// A tool whose schema is not an object was refused when it was registered.
	_ = json.Unmarshal(t.InputSchema, &schema)
	_ = json.Unmarshal(schema["properties"], &properties)
	for _, o := range optionsOf(t) {
		properties[o.name] = json.RawMessage(o.schema)
	}
	schema["type"] = json.RawMessage(`"object"`)
	schema["properties"], _ = json.Marshal(properties)
	delete(schema, "$schema")
	text, _ := json.Marshal(schema) // its members are JSON
	return text
}

// optionsOf returns the options of calls that a tool has.
func optionsOf(t *dray.Tool) []option {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	_ = json.Unmarshal(t.InputSchema, &schema)
	return slices.DeleteFunc(slices.Clone(options), func(o option) bool {
		_, own := schema.Properties[o.name]
		return own || o.stdin && !t.AcceptsStdin
	})
}
