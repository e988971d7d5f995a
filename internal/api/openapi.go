package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/textview"
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
	api := huma.NewAPI(huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI:    "3.1.0",
			Info:       &huma.Info{Title: "dray", Version: version, Description: apiDescription},
			Components: &huma.Components{Schemas: schemas},
		},
		Formats: map[string]huma.Format{},
	}, humago.NewAdapter(s.mux, ""))
	for _, op := range s.operations(schemas) {
		api.OpenAPI().AddOperation(&op.Operation)
		api.Adapter().Handle(&op.Operation, s.adaptHandler(op))
	}
	if s.cfg.MCP != nil {
		s.mux.HandleFunc("/mcp", s.serveMCP)
	}
	fixSchemas(schemas)
	addEventSchemas(schemas.Map())
	var err error
	if s.openapi, err = json.Marshal(api.OpenAPI()); err != nil {
		return fmt.Errorf("encode the OpenAPI document: %w", err)
	}
	return nil
}

const apiDescription = "JSON over a unix socket. An invalid request gets a 4xx status and has no " +
	"effect; an accepted call gets 200 with its invocation, however it ended. Errors are " +
	"application/problem+json with a code from a closed list."

// adaptHandler returns a handler of huma that calls the handler of op. Paths below /v1/ refuse
// unknown query parameters.
func (s *Server) adaptHandler(op *operation) func(huma.Context) {
	strict := strings.HasPrefix(op.Path, "/v1/")
	return func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		var err error
		if strict {
			err = checkQuery(r, op.Parameters)
		}
		if err == nil {
			err = op.handle(w, r)
		}
		if err != nil {
			s.fail(w, err)
		}
	}
}

// schemaNames are the names of types whose Go name is meaningless without its package.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[struct{}]():                  "Empty",
	reflect.TypeFor[call.Request]():              "CallRequest",
	reflect.TypeFor[toolReply]():                 "Tool",
	reflect.TypeFor[toolsReply]():                "ToolList",
	reflect.TypeFor[workspace.Info]():            "Workspace",
	reflect.TypeFor[trust.Review]():              "TrustReview",
	reflect.TypeFor[trust.Input]():               "TrustInput",
	reflect.TypeFor[audit.Event]():               "AuditEvent",
	reflect.TypeFor[audit.EventPage]():           "AuditEventPage",
	reflect.TypeFor[listReply[workspace.Info]](): "WorkspaceList",

	reflect.TypeFor[workspace.ContainerState]():            "Container",
	reflect.TypeFor[workspace.Registration]():              "ContainerRegistration",
	reflect.TypeFor[workspace.Mapping]():                   "ContainerMapping",
	reflect.TypeFor[listReply[workspace.ContainerState]](): "ContainerList",
}

func schemaName(t reflect.Type, hint string) string {
	return cmp.Or(schemaNames[t], huma.DefaultSchemaNamer(t, hint))
}

// operation is an endpoint with its documentation. Its methods add to the documentation.
type operation struct {
	huma.Operation
	handle  handler
	schemas huma.Registry
}

// newOperation returns an operation without parameters. route is a method and a path.
func newOperation(schemas huma.Registry, route, id string, h handler, summary string) *operation {
	method, path, _ := strings.Cut(route, " ")
	o := &operation{handle: h, schemas: schemas, Operation: huma.Operation{
		Method: method, Path: path, OperationID: id, Summary: summary,
		Responses: map[string]*huma.Response{},
	}}
	o.Responses["default"] = o.problem("An error.")
	return o
}

func (o *operation) param(in, name, what, kind string) *operation {
	o.Parameters = append(o.Parameters, &huma.Param{
		Name: name, In: in, Required: in == "path", Description: what, Schema: &huma.Schema{Type: kind},
	})
	return o
}

// lastSchema returns the schema of the parameter that was added last.
func (o *operation) lastSchema() *huma.Schema { return o.Parameters[len(o.Parameters)-1].Schema }

func (o *operation) path(name, what string, values ...any) *operation {
	o.param("path", name, what, huma.TypeString).lastSchema().Enum = values
	return o
}

// cursorParam is the only parameter that may be empty: the cursor of the first page.
const cursorParam = "cursor"

// query adds a parameter of the query. With values it is one of them.
func (o *operation) query(name, what string, values ...any) *operation {
	schema := o.param("query", name, what, huma.TypeString).lastSchema()
	if schema.Enum = values; len(values) == 0 && name != cursorParam {
		schema.MinLength = new(1)
	}
	return o
}

func (o *operation) time(name, what string) *operation {
	o.param("query", name, what, huma.TypeString).lastSchema().Format = "date-time"
	return o
}

// required makes the parameter that was added last required.
func (o *operation) required() *operation {
	o.Parameters[len(o.Parameters)-1].Required = true
	return o
}

// exports adds that the response 200 is a stream of calls, as JSON Lines or as CSV.
func (o *operation) exports() *operation {
	o.Responses["200"].Content = map[string]*huma.MediaType{
		mediaNDJSON: {Schema: refTo("Record")}, mediaCSV: {Schema: text()},
	}
	return o
}

// pattern adds a regular expression to the parameter that was added last.
func (o *operation) pattern(expr string) *operation {
	o.lastSchema().Pattern = expr
	return o
}

func (o *operation) number(name, what string, least, most int) *operation {
	schema := o.param("query", name, what, huma.TypeInteger).lastSchema()
	schema.Minimum, schema.Maximum = new(float64(least)), new(float64(most))
	return o
}

func (o *operation) wait(what string) *operation {
	return o.number("wait_ms", what, 0, int(maxWait.Milliseconds()))
}

// shaped adds the parameters of a [shape].
func (o *operation) shaped() *operation {
	return o.number("view", "The texts of stdout and stderr as a model needs them: without control "+
		"sequences of terminals and overwritten lines, each of at most about this number of bytes. "+
		"The other members are those of the raw output.", 1, textview.MaxBytes).
		number("brief", "1 omits route, metadata and input of a call that succeeded.", 0, 1)
}

// accepts adds a request body of the type of v. A body of bytes is optional.
func (o *operation) accepts(v any) *operation {
	content := o.content(v)
	o.RequestBody = &huma.RequestBody{Required: content[mediaBytes] == nil, Content: content}
	return o
}

// returns adds a response with a body of the type of v; nil is none.
func (o *operation) returns(status int, what string, v any) *operation {
	o.Responses[strconv.Itoa(status)] = &huma.Response{Description: what, Content: o.content(v)}
	return o
}

// returnsPage adds the parameters and the response of a list with pages.
func (o *operation) returnsPage(v any) *operation {
	return o.number("limit", "1 to 1000; default 50.", 1, audit.MaxLimit).
		query(cursorParam, "The next_cursor of the previous page; empty for the first one.").
		returns(200, "A page.", v)
}

// streams adds that the response 200 may be a stream of events, each of which has the schema.
func (o *operation) streams() *operation {
	content := o.Responses["200"].Content
	content[mediaSSE] = &huma.MediaType{Schema: refTo("ServerSentEvent")}
	content[mediaNDJSON] = &huma.MediaType{Schema: refTo("Event")}
	return o
}

// also adds a media type to a response.
func (o *operation) also(status int, media string) *operation {
	o.Responses[strconv.Itoa(status)].Content[media] = o.content([]byte{})[mediaBytes]
	return o
}

func (o *operation) header(status int, name, what string) *operation {
	o.Responses[strconv.Itoa(status)].Headers = map[string]*huma.Header{
		name: {Description: what, Schema: text()},
	}
	return o
}

func (o *operation) fails(status int, what string) *operation {
	o.Responses[strconv.Itoa(status)] = o.problem(what)
	return o
}

func (o *operation) problem(what string) *huma.Response {
	return &huma.Response{Description: what, Content: map[string]*huma.MediaType{
		mediaProblem: {Schema: o.schemas.Schema(reflect.TypeFor[problem](), true, "")},
	}}
}

func (o *operation) content(v any) map[string]*huma.MediaType {
	switch v.(type) {
	case nil:
		return map[string]*huma.MediaType{}
	case []byte:
		binary := &huma.Schema{Type: huma.TypeString, Format: "binary"}
		return map[string]*huma.MediaType{mediaBytes: {Schema: binary}}
	default:
		schema := o.schemas.Schema(reflect.TypeOf(v), true, "")
		return map[string]*huma.MediaType{mediaJSON: {Schema: schema}}
	}
}

func text() *huma.Schema { return &huma.Schema{Type: huma.TypeString} }

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
	all["AuditEvent"].Properties["body"] = &huma.Schema{
		Description: all["AuditEvent"].Properties["body"].Description,
		AnyOf: []*huma.Schema{
			{Type: huma.TypeObject, AdditionalProperties: true}, {Type: "null"},
		},
	}
	all["Record"].Required = slices.DeleteFunc(all["Record"].Required, func(name string) bool {
		return slices.Contains(briefOmits, name)
	})
	for _, name := range []string{"signal", "error"} {
		p := all["Record"].Properties
		p[name] = &huma.Schema{AnyOf: []*huma.Schema{p[name], {Type: "null"}}}
	}
	// types with a JSON encoding of their own
	all["KillReport"].Properties["survivors"] = &huma.Schema{
		Description: "0, the pids, or null if unknown.",
		AnyOf: []*huma.Schema{
			{Type: huma.TypeInteger, Enum: []any{0}},
			{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeInteger}},
			{Type: "null"},
		},
	}
	all["Tool"].Properties["environment"] = &huma.Schema{
		Description: "The environment that the tool needs.",
		AnyOf: []*huma.Schema{
			{Type: huma.TypeString, Enum: []any{"auto", "host", "required", "preferred"}},
			{
				Type: huma.TypeObject, Required: []string{"specific"},
				Properties: map[string]*huma.Schema{"specific": text()},
			},
		},
	}
	all["SignalRequest"].Properties["signal"] = signalSchema()
	all["CallRequest"].Properties["input"] = &huma.Schema{
		Type: huma.TypeObject, AdditionalProperties: true,
		Description: "An object that the tool's input schema accepts. Default: {}.",
	}
	delete(all, "Survivors")
	delete(all, "Requirement")
}
