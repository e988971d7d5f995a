package api

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/dray-dev/dray"
)

const mediaProblem = "application/problem+json"

// register gives every operation to huma, which routes and describes it, and writes the document
// down.
func (s *Server) register() error {
	version := s.cfg.Version
	if version == "" {
		version = "0"
	}
	api := huma.NewAPI(huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "dray", Version: version, Description: apiDescription},
		},
		Formats: map[string]huma.Format{},
	}, humago.NewAdapter(s.mux, ""))
	registry := api.OpenAPI().Components.Schemas
	registry.RegisterTypeAlias(typeOf[dray.Survivors](), typeOf[survivorsSchema]())
	for _, op := range s.operations() {
		described := op.describe(registry)
		api.OpenAPI().AddOperation(described)
		api.Adapter().Handle(described, s.adaptHandler(op.handle))
	}
	fixSchemas(registry)
	var err error
	if s.openapi, err = json.Marshal(api.OpenAPI()); err != nil {
		return fmt.Errorf("writing the OpenAPI document: %w", err)
	}
	return nil
}

const apiDescription = "JSON over a unix socket. What is wrong with a request is a 4xx and nothing is accepted; an accepted call answers 200 with its " +
	"invocation, however it ended. Errors are application/problem+json with a code from a closed list."

// adaptHandler turns a handler of ours into one of huma's.
func (s *Server) adaptHandler(h handler) func(huma.Context) {
	return func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		if err := h(w, r); err != nil {
			s.fail(w, err)
		}
	}
}

func (op operation) describe(registry huma.Registry) *huma.Operation {
	d := &huma.Operation{
		Method: op.method, Path: op.path, OperationID: op.id, Summary: op.summary, Parameters: op.params, Responses: map[string]*huma.Response{},
	}
	switch {
	case op.bytes:
		d.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{mediaBytes: {Schema: binary()}}}
	case op.body != nil:
		d.RequestBody = &huma.RequestBody{
			Required: true, Content: map[string]*huma.MediaType{mediaJSON: {Schema: registry.Schema(op.body,
				true, "")}},
		}
	}
	for _, reply := range op.replies {
		d.Responses[strconv.Itoa(reply.status)] = reply.describe(registry)
	}
	d.Responses["default"] = &huma.Response{
		Description: "An error.", Content: map[string]*huma.MediaType{mediaProblem: {Schema: registry.Schema(typeOf[problem](), true, "")}},
	}
	return d
}

func (r described) describe(registry huma.Registry) *huma.Response {
	d := &huma.Response{Description: r.what, Content: map[string]*huma.MediaType{}}
	if r.json != nil {
		d.Content[mediaJSON] = &huma.MediaType{Schema: registry.Schema(r.json, true, "")}
	}
	if r.problem {
		d.Content[mediaProblem] = &huma.MediaType{Schema: registry.Schema(typeOf[problem](), true, "")}
	}
	if r.bytes {
		d.Content[mediaBytes] = &huma.MediaType{Schema: binary()}
	}
	if r.streams {
		d.Content[mediaSSE] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
		d.Content[mediaNDJSON] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	}
	for name, what := range r.headers {
		d.Headers = map[string]*huma.Header{name: {
			Description: what,
			Schema:      &huma.Schema{Type: huma.TypeString},
		}}
	}
	return d
}

func binary() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "binary"} }

// strictSchemas are the schemas whose unknown members are refused. Answers may get more members
// with time.
var strictSchemas = map[string]bool{
	"CallRequest": true, "PathsRequest": true,
	"CallContext": true, "PlanRouting": true, "TerminalBody": true, "SignalBody": true, "SyncBody": true,
}

// fixSchemas corrects what huma takes for granted and our encoder does otherwise: lists are never
// null, and answers may grow.
func fixSchemas(registry huma.Registry) {
	schemas := registry.Map()
	for name, schema := range schemas {
		if !strictSchemas[name] {
			schema.AdditionalProperties = nil
		}
		for _, p := range schema.Properties {
			if p.Type == huma.TypeArray {
				p.Nullable = false
			}
		}
	}
	for _, field := range []string{"signal", "error"} {
		p := schemas["Record"].Properties
		p[field] = &huma.Schema{AnyOf: []*huma.Schema{p[field], {Type: "null"}}}
	}
}

// survivorsSchema describes dray.Survivors, which writes itself.
type survivorsSchema struct{}

// Schema implements huma.SchemaProvider.
func (survivorsSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "0, the pids, or null where it cannot be proved.",
		AnyOf: []*huma.Schema{
			{Type: huma.TypeInteger, Enum: []any{0}},
			{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeInteger}},
			{Type: "null"},
		},
	}
}

var _ huma.SchemaProvider = survivorsSchema{}

func pathParam(name, what string) *huma.Param {
	return &huma.Param{
		Name: name, In: "path", Required: true, Description: what,
		Schema: &huma.Schema{Type: huma.TypeString},
	}
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
	return &huma.Param{
		Name: name, In: "header", Description: what,
		Schema: &huma.Schema{Type: huma.TypeString},
	}
}

func waitParamDoc(what string) *huma.Param {
	p := queryParam("wait_ms", what, huma.TypeInteger)
	p.Schema.Minimum, p.Schema.Maximum = new(0.0), new(float64(maxWait.Milliseconds()))
	return p
}

// listParams describes the filters of the list.
func listParams() []*huma.Param {
	return filterParams(filters, map[string]string{
		"tool": "A tool's name.", "status": "queued, running, succeeded or failed.", "reason": "Why it ended.", "environment": "host or container.",
		"container": "A container's name or id.", "plan_id": "The context's plan.", "principal": "Whose; another's are not shown.",
		"since": "Begun then or later (RFC 3339).", "until": "Begun before (RFC 3339).", "q": "Text to search for.",
	})
}

// changeParams describes the filters of the list of changed files.
func changeParams() []*huma.Param {
	return filterParams(changeFilters, map[string]string{
		"plan_id": "The plan of the calls.", "invocation": "The id of one call.", "path": "The absolute path of one file, as it was recorded.",
	})
}

func filterParams(names []string, what map[string]string) []*huma.Param {
	what["limit"], what["cursor"] = "1 to 1000; default 50.", "next_cursor of the page before."
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
