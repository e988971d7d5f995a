package tool

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// Every name is unique, and a declaration with an invalid schema fails (RT-06).
func TestAddCommandRefuses(t *testing.T) {
	with := func(change func(*commandTool)) commandTool {
		return command("lint", "", change)
	}
	tests := []struct {
		says    string
		command commandTool
	}{
		{`tool "check": name is already in use`, with(func(c *commandTool) { c.Name = "check" })},
		{`tool "exec": name is already in use`, with(func(c *commandTool) { c.Name = "exec" })},
		{"output_schema has no effect, because output is text", with(func(c *commandTool) { c.OutputSchema = json.RawMessage(`{}`) })},
		{"input_schema the schema is not an object", with(func(c *commandTool) { c.InputSchema = json.RawMessage(`true`) })},
		{"input_schema parse the schema", with(func(c *commandTool) { c.InputSchema = json.RawMessage(`{"type":"object","type":"object"}`) })},
		{`its type is array`, with(func(c *commandTool) { c.InputSchema = json.RawMessage(`{"type":"array"}`) })},
		{"use https://json-schema.org/draft/2020-12/schema", with(func(c *commandTool) {
			c.InputSchema = json.RawMessage(`{"$schema":"http://json-schema.org/draft-07/schema#"}`)
		})},
		{"input_schema compile the schema", with(func(c *commandTool) { c.InputSchema = json.RawMessage(`{"properties":{"a":{"type":"strin"}}}`) })},
		{"is not fetched", with(func(c *commandTool) { c.InputSchema = json.RawMessage(`{"$ref":"https://example.com/x"}`) })},
		{"is not fetched", with(func(c *commandTool) { c.InputSchema = json.RawMessage(`{"$ref":"file:///etc/hostname"}`) })},
		{"output_schema compile the schema", with(promising(`{"$ref":"#/$defs/none"}`))},
	}
	for _, tt := range tests {
		r := registry(t, command("check", ""))
		err := r.AddCommand(tt.command.Tool, tt.command.Command)
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("got %v, want an error with %q", err, tt.says)
		}
	}
}

func TestGet(t *testing.T) {
	r := registry(t, command("Lint", "", func(c *commandTool) {
		c.Environment.Kind, c.Timeout = dray.RequireHost, time.Minute
	}))
	lint, err := r.Get(t.Context(), "Lint")
	if err != nil || lint.Environment.Kind != dray.RequireHost || lint.Timeout != time.Minute ||
		lint.AcceptsStdin || !lint.StartsProcess {
		t.Errorf("got %+v, %v", lint, err)
	}
	for _, tt := range []struct {
		name string
		code dray.Code
		hint string
	}{
		{"lint", dray.CodeUnknownTool, "did you mean Lint?"},
		{"read_fiel", dray.CodeUnknownTool, "did you mean read_file?"},
		{"Exec", dray.CodeUnknownTool, "did you mean exec?"},
		{"zzzzzzzzz", dray.CodeUnknownTool, "dray tools lists"},
		{"exec ", dray.CodeInvalidRequest, "letters"}, // RT-06: trimmed never
		{"", dray.CodeInvalidRequest, "letters"},
		{"a/b", dray.CodeInvalidRequest, "letters"},
	} {
		_, err := r.Get(t.Context(), tt.name)
		if e := dray.AsError(err); e == nil || e.Code != tt.code || !strings.Contains(e.Hint, tt.hint) {
			t.Errorf("%q gave %+v, want %s with a hint of %q", tt.name, e, tt.code, tt.hint)
		}
	}
}

// Every property of every schema has a description for models.
func TestDescriptions(t *testing.T) {
	r := registry(t, command("lint", ""))
	var names []string
	for _, d := range r.List() {
		names = append(names, d.Name)
		if d.Name == "lint" {
			if string(d.InputSchema) != `{"type":"object"}` || d.OutputSchema != nil {
				t.Errorf("lint is described as %+v", d)
			}
			continue
		}
		if d.Description == "" {
			t.Errorf("%s is not described", d.Name)
		}
		described(t, d.Name+" input", d.InputSchema)
		if len(d.OutputSchema) > 0 {
			described(t, d.Name+" output", d.OutputSchema)
		}
	}
	const want = "edit_file exec glob grep lint list_dir python read_file read_output shell stat sync " +
		"write_file"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the tools are %s", got)
	}
}

func described(t *testing.T, at string, schema json.RawMessage) {
	t.Helper()
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Extra      any                        `json:"additionalProperties"`
		Items      json.RawMessage            `json:"items"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Properties) > 0 && s.Extra != false {
		t.Errorf("%s takes unknown properties", at)
	}
	for name, p := range s.Properties {
		var prop struct {
			Description string `json:"description"`
		}
		if err := json.Unmarshal(p, &prop); err != nil || prop.Description == "" {
			t.Errorf("%s: property %s is not described", at, name)
		}
		described(t, at+"."+name, p)
	}
	if len(s.Items) > 0 {
		described(t, at+"[]", s.Items)
	}
}
