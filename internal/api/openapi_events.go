package api

import (
	"maps"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dray-dev/dray/internal/call/eventlog"
)

// namePattern is lexical.IsName as a pattern.
const namePattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"

func refTo(schema string) *huma.Schema {
	return &huma.Schema{Ref: "#/components/schemas/" + schema}
}

// enum returns the values of a parameter or a member for its schema.
func enum[T ~string](values []T) []any {
	var all []any
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

// signalSchema is a name or a number.
func signalSchema() *huma.Schema {
	return &huma.Schema{
		Description: "A name such as SIGINT or INT, or a number from 1 to 64.",
		AnyOf: []*huma.Schema{
			{Type: huma.TypeString},
			{Type: huma.TypeInteger, Minimum: new(1.0), Maximum: new(64.0)},
		},
	}
}

// addEventSchemas adds the events of a stream: Event is a line of NDJSON. ServerSentEvent is the
// same event, whose data has the members beside seq and event.
func addEventSchemas(all map[string]*huma.Schema) {
	number, words := huma.TypeInteger, func(names ...any) *huma.Schema {
		return &huma.Schema{Type: huma.TypeString, Enum: names}
	}
	output := map[string]*huma.Schema{
		"offset": {Type: number, Description: "Offset in the stream of its first byte."},
		"text":   {Type: huma.TypeString, Description: "The bytes, if they are UTF-8."},
		"base64": {Type: huma.TypeString, Description: "The bytes, if there is no text."},
	}
	event := &huma.Schema{Description: "An event of a call or of another action."}
	add := func(names []any, required []string, members map[string]*huma.Schema) {
		properties := map[string]*huma.Schema{
			"seq":   {Type: number, Minimum: new(1.0), Description: "The number of the event."},
			"event": words(names...),
			"at": {
				Type: huma.TypeString, Format: "date-time",
				Description: "When it happened; of output, when its first byte arrived.",
			},
		}
		maps.Copy(properties, members)
		event.OneOf = append(event.OneOf, &huma.Schema{
			Type: huma.TypeObject, Properties: properties,
			Required: append([]string{"seq", "event", "at"}, required...),
		})
	}
	add([]any{eventlog.State}, []string{"status", "phase"}, map[string]*huma.Schema{
		"id":     {Type: huma.TypeString, Description: "In the first event: the id of the invocation."},
		"status": words("queued", "running"),
		"phase":  words("accepted", "started", "waiting", "turn"),
	})
	add([]any{eventlog.Progress}, []string{"phase", "message"}, map[string]*huma.Schema{
		"phase": text(), "message": text(),
	})
	add([]any{eventlog.Stdout, eventlog.Stderr}, []string{"offset"}, output)
	add([]any{eventlog.End}, nil, map[string]*huma.Schema{
		"invocation": refTo("Record"), "workspace": refTo("Workspace"), "pruned": refTo("PruneReport"),
		"error": refTo("Error"),
	})
	all["Event"] = event
	all["ServerSentEvent"] = &huma.Schema{
		Type: huma.TypeObject, Required: []string{"id", "event", "data"},
		Properties: map[string]*huma.Schema{
			"id": {Type: huma.TypeString, Pattern: "^[0-9]+$", Description: "seq of Event."},
			"event": words(eventlog.State, eventlog.Progress, eventlog.Stdout, eventlog.Stderr,
				eventlog.End),
			"data": {
				Type:        huma.TypeString,
				Description: "JSON: the members of Event but seq and event.",
				Extensions:  map[string]any{"contentMediaType": mediaJSON},
			},
		},
	}
}
