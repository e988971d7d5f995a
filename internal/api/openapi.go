package api

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/workspace"
)

const mediaProblem = "application/problem+json"

// register registers every operation with huma, which routes it, and encodes the OpenAPI document.
func (s *Server) register() error {
	version := s.cfg.Version
	if version == "" {
		version = "0"
	}
	schemas := huma.NewMapRegistry("#/components/schemas/", schemaName)
	schemas.RegisterTypeAlias(typeOf[dray.Survivors](), typeOf[survivorsSchema]())
	schemas.RegisterTypeAlias(typeOf[dray.Requirement](), typeOf[requirementSchema]())
	api := huma.NewAPI(huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI:    "3.1.0",
			Info:       &huma.Info{Title: "dray", Version: version, Description: apiDescription},
			Components: &huma.Components{Schemas: schemas},
		},
		Formats: map[string]huma.Format{},
	}, humago.NewAdapter(s.mux, ""))
	for _, op := range s.operations() {
		described := op.describe(schemas)
		api.OpenAPI().AddOperation(described)
		api.Adapter().Handle(described, s.adaptHandler(op.handle))
	}
	fixSchemas(schemas)
	var err error
	if s.openapi, err = json.Marshal(api.OpenAPI()); err != nil {
		return fmt.Errorf("encode the OpenAPI document: %w", err)
	}
	return nil
}

const apiDescription = "JSON over a unix socket. An invalid request gets a 4xx status and has no " +
	"effect; an accepted call gets 200 with its invocation, however it ended. Errors are " +
	"application/problem+json with a code from a closed list."

// adaptHandler returns a handler of huma that calls h.
func (s *Server) adaptHandler(h handler) func(huma.Context) {
	return func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		if err := h(w, r); err != nil {
			s.fail(w, err)
		}
	}
}

// schemaName returns the name of a type in the document: that of the Go type, unless it is
// meaningless without its package.
func schemaName(t reflect.Type, hint string) string {
	switch t {
	case typeOf[call.Request]():
		return "CallRequest"
	case typeOf[toolReply]():
		return "Tool"
	case typeOf[listReply[toolReply]]():
		return "ToolList"
	case typeOf[workspace.Info]():
		return "Workspace"
	case typeOf[listReply[workspace.Info]]():
		return "WorkspaceList"
	default:
		return huma.DefaultSchemaNamer(t, hint)
	}
}

func (op operation) describe(schemas huma.Registry) *huma.Operation {
	d := &huma.Operation{
		Method: op.method, Path: op.path, OperationID: op.id, Summary: op.summary,
		Parameters: op.params, Responses: map[string]*huma.Response{},
	}
	switch {
	case op.bytes:
		d.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{
			mediaBytes: {Schema: binary()},
		}}
	case op.body != nil:
		d.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			mediaJSON: {Schema: schemas.Schema(op.body, true, "")},
		}}
	}
	for _, r := range op.replies {
		d.Responses[strconv.Itoa(r.status)] = r.describe(schemas)
	}
	d.Responses["default"] = response{what: "An error.", problem: true}.describe(schemas)
	return d
}

func (r response) describe(schemas huma.Registry) *huma.Response {
	d := &huma.Response{Description: r.what, Content: map[string]*huma.MediaType{}}
	if r.json != nil {
		d.Content[mediaJSON] = &huma.MediaType{Schema: schemas.Schema(r.json, true, "")}
	}
	if r.problem {
		d.Content[mediaProblem] = &huma.MediaType{Schema: schemas.Schema(typeOf[problem](), true, "")}
	}
	if r.bytes {
		d.Content[mediaBytes] = &huma.MediaType{Schema: binary()}
	}
	if r.streams {
		d.Content[mediaSSE] = &huma.MediaType{Schema: text()}
		d.Content[mediaNDJSON] = &huma.MediaType{Schema: text()}
	}
	for name, what := range r.headers {
		d.Headers = map[string]*huma.Header{name: {Description: what, Schema: text()}}
	}
	return d
}

func text() *huma.Schema   { return &huma.Schema{Type: huma.TypeString} }
func binary() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "binary"} }

// strictSchemas are the schemas of requests, whose unknown members are refused. Responses may get
// more members in later versions.
var strictSchemas = []string{
	"CallRequest", "CallContext", "PlanRouting", "TerminalSize", "SignalRequest", "SyncRequest",
	"PathsRequest",
}

// fixSchemas corrects the schemas where strictjson differs from what huma assumes: an empty list is
// never null, and the members of responses are open.
func fixSchemas(schemas huma.Registry) {
	all := schemas.Map()
	for name, schema := range all {
		if !slices.Contains(strictSchemas, name) {
			schema.AdditionalProperties = nil
		}
		for _, p := range schema.Properties {
			if p.Type == huma.TypeArray {
				p.Nullable = false
			}
		}
	}
	for _, name := range []string{"signal", "error"} {
		p := all["Record"].Properties
		p[name] = &huma.Schema{AnyOf: []*huma.Schema{p[name], {Type: "null"}}}
	}
}

// survivorsSchema describes the JSON of dray.Survivors.
type survivorsSchema struct{}

// Schema implements huma.SchemaProvider.
func (survivorsSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "0, the pids, or null if unknown.",
		AnyOf: []*huma.Schema{
			{Type: huma.TypeInteger, Enum: []any{0}},
			{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeInteger}},
			{Type: "null"},
		},
	}
}

// requirementSchema describes the JSON of dray.Requirement.
type requirementSchema struct{}

// Schema implements huma.SchemaProvider.
func (requirementSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "The environment that the tool needs.",
		AnyOf: []*huma.Schema{
			{Type: huma.TypeString, Enum: []any{"auto", "host", "required", "preferred"}},
			{
				Type: huma.TypeObject, Required: []string{"specific"},
				Properties: map[string]*huma.Schema{"specific": text()},
			},
		},
	}
}

var (
	_ huma.SchemaProvider = survivorsSchema{}
	_ huma.SchemaProvider = requirementSchema{}
)

func pathParam(name, what string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Description: what, Schema: text()}
}

func streamParam() *huma.Param {
	p := pathParam("stream", "stdout or stderr.")
	p.Schema.Enum = []any{"stdout", "stderr"}
	return p
}

func queryParam(name, what, kind string) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: what, Schema: &huma.Schema{Type: kind}}
}

func headerParam(name, what string) *huma.Param {
	return &huma.Param{Name: name, In: "header", Description: what, Schema: text()}
}

func waitParamDoc(what string) *huma.Param {
	p := queryParam("wait_ms", what, huma.TypeInteger)
	p.Schema.Minimum, p.Schema.Maximum = new(0.0), new(float64(maxWait.Milliseconds()))
	return p
}

// listParams documents the filters of the list of calls.
func listParams() []*huma.Param {
	return filterParams(filters, map[string]string{
		"tool": "A tool's name.", "status": "queued, running, succeeded or failed.",
		"reason": "Why the call ended.", "environment": "host or container.",
		"container": "A container's name or id.", "plan_id": "The plan of the call's context.",
		"principal": "The caller; calls of others are not listed.",
		"since":     "Started at this time or later (RFC 3339).",
		"until":     "Started before this time (RFC 3339).", "q": "Text to search for.",
	})
}

// changeParams documents the filters of the list of changed files.
func changeParams() []*huma.Param {
	return filterParams(changeFilters, map[string]string{
		"plan_id": "The plan of the calls.", "invocation": "The id of one call.",
		"path": "The absolute path of one file, as it was recorded.",
	})
}

func filterParams(names []string, what map[string]string) []*huma.Param {
	what["limit"], what["cursor"] = "1 to 1000; default 50.", "The next_cursor of the previous page."
	params := make([]*huma.Param, 0, len(names))
	for _, name := range names {
		kind := huma.TypeString
		if name == "limit" {
			kind = huma.TypeInteger
		}
		params = append(params, queryParam(name, what[name], kind))
	}
	return params
}
