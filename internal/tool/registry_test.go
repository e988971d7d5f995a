package tool

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/router"
)

// RT-06: names are compared exactly and are there once; what is wrong with a declaration stops the
// start.
func TestNewRegistryRefuses(t *testing.T) {
	ok := Command{Name: "lint", Argv: []string{"lint"}}
	with := func(change func(*Command)) []Command {
		c := ok
		change(&c)
		return []Command{c}
	}
	tests := []struct {
		says     string
		commands []Command
	}{
		{`name "lint" is taken by another configured tool`, []Command{ok, ok}},
		{`name "exec" is taken by a built-in tool`, with(func(c *Command) { c.Name = "exec" })},
		{"the name is not one", with(func(c *Command) { c.Name = " lint" })},
		{"the name is not one", with(func(c *Command) { c.Name = strings.Repeat("x", 129) })},
		{"argv names no program", with(func(c *Command) { c.Argv = nil })},
		{"argv names no program", with(func(c *Command) { c.Argv = []string{"", "x"} })},
		{"NUL", with(func(c *Command) { c.Argv = []string{"a", "b\x00"} })},
		{"negative", with(func(c *Command) { c.Timeout = -time.Second })}, // EX-08
		{"write text or json", with(func(c *Command) { c.Output = "yaml" })},
		{"write schema, heuristic or none", with(func(c *Command) { c.Mapping = "all" })},
		{"no output_schema can hold", with(func(c *Command) { c.Output, c.OutputSchema = FormatText, json.RawMessage(`{}`) })},
		{"input_schema: it is not an object", with(func(c *Command) { c.InputSchema = json.RawMessage(`true`) })},
		{"input_schema: read it", with(func(c *Command) { c.InputSchema = json.RawMessage(`{"type":"object","type":"object"}`) })},
		{`its type is array`, with(func(c *Command) { c.InputSchema = json.RawMessage(`{"type":"array"}`) })},
		{"only https://json-schema.org/draft/2020-12/schema", with(func(c *Command) {
			c.InputSchema = json.RawMessage(`{"$schema":"http://json-schema.org/draft-07/schema#"}`)
		})},
		{"input_schema: compile it", with(func(c *Command) { c.InputSchema = json.RawMessage(`{"properties":{"a":{"type":"strin"}}}`) })},
		{"nothing is fetched", with(func(c *Command) { c.InputSchema = json.RawMessage(`{"$ref":"https://example.com/x"}`) })},
		{"nothing is fetched", with(func(c *Command) { c.InputSchema = json.RawMessage(`{"$ref":"file:///etc/hostname"}`) })},
		{"output_schema: compile it", with(func(c *Command) { c.OutputSchema = json.RawMessage(`{"$ref":"#/$defs/none"}`) })},
	}
	for _, tt := range tests {
		_, err := NewRegistry(tt.commands)
		if err == nil || !strings.Contains(err.Error(), tt.says) ||
			!strings.HasPrefix(err.Error(), "tools[") {
			t.Errorf("want an error of tools[...] with %q, got %v", tt.says, err)
		}
	}
}

func TestGet(t *testing.T) {
	r := registry(t, Command{
		Name: "Lint", Argv: []string{"lint"},
		Environment: router.Requirement{Kind: router.NeedHost}, Timeout: time.Minute,
	})
	if need, err := r.Requirement("Lint"); err != nil || need.Kind != router.NeedHost {
		t.Errorf("Lint needs %v, %v", need, err)
	}
	if lint, err := r.Get("Lint"); err != nil || lint.Timeout != time.Minute || lint.AcceptsStdin() {
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
		_, err := r.Requirement(tt.name)
		if e := dray.AsError(err); e == nil || e.Code != tt.code || !strings.Contains(e.Hint, tt.hint) {
			t.Errorf("%q gave %+v, want %s with a hint of %q", tt.name, e, tt.code, tt.hint)
		}
	}
}

// The descriptions are what models go by: every property of every schema has one.
func TestDescriptions(t *testing.T) {
	r := registry(t, Command{Name: "lint", Argv: []string{"lint"}, Timeout: 90 * time.Second})
	var names []string
	for _, d := range r.List() {
		names = append(names, d.Name)
		if d.Name == "lint" {
			want := Description{Name: "lint", InputSchema: json.RawMessage(`{"type":"object"}`), Timeout: 90 * time.Second}
			if !reflect.DeepEqual(d, want) {
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
	if got := strings.Join(names,
		" "); got != "edit_file exec glob grep lint list_dir read_file shell stat sync write_file" {
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
