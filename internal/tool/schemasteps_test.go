package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// doubling returns a schema that applies its last part 2^levels times to a value.
func doubling(levels int) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/0","$defs":{`)
	for i := range levels {
		fmt.Fprintf(&b, `"%d":{"allOf":[{"$ref":"#/$defs/%[2]d"},{"$ref":"#/$defs/%[2]d"}]},`, i, i+1)
	}
	fmt.Fprintf(&b, `"%d":{"type":"object"}}}`, levels)
	return b.String()
}

// A schema of an MCP server cannot keep the validator busy for long, which nothing interrupts
// (RT-04, MC-06).
func TestStepsOfValidationAreBounded(t *testing.T) {
	const tree = `{"properties":{"l":{"$ref":"#"},"r":{"$ref":"#"}},"additionalProperties":{"$ref":"#"},
		"items":{"$ref":"#"}}`
	const twice = `{"anyOf":[{"properties":{"a":{"$ref":"#"},"b":false}},{"properties":{"a":{"$ref":"#"}}}]}`
	const pattern = `{"properties":{"a":{"type":"string","pattern":"a.{0,900}b$"}}}`
	nested := func(n int) string { return strings.Repeat(`{"a":`, n) + `{}` + strings.Repeat(`}`, n) }
	many := `{"l":{"r":[` + strings.Repeat(`{"l":{},"r":1},`, 20000) + `{}]}}`
	text := func(n int) string { return `{"a":"` + strings.Repeat("a", n) + `b"}` }
	for _, c := range []struct {
		name, schema, doc string
		tooLong           bool
	}{
		{"few of a value", doubling(10), `{}`, false},
		{"many of a value", doubling(40), `{}`, true},
		{"a large tree", tree, many, false},
		{"a deep value", tree, nested(60), false},
		{"two branches of a flat value", twice, nested(8), false},
		{"two branches of a deep value", twice, nested(60), true},
		{"a pattern of a short text", pattern, text(1000), false},
		{"a pattern of a long text", pattern, text(8 << 20), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			schema := json.RawMessage(c.schema)
			s, err := compileSchema(&schema)
			if err != nil {
				t.Fatal(err)
			}
			found := make(chan bool, 1)
			go func() {
				details := s.violations(json.RawMessage(c.doc), "/input")
				if len(details) > 0 && details[0].Pointer != "/input" {
					t.Errorf("violations %v", details)
				}
				found <- len(details) > 0
			}()
			select {
			case tooLong := <-found:
				if tooLong != c.tooLong {
					t.Errorf("refused: %v, want %v", tooLong, c.tooLong)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the check does not end")
			}
		})
	}
}

// The schemas of the built-in tools need no count of steps, which takes time in each call.
func TestBuiltinSchemasAreNotCostly(t *testing.T) {
	for name, tool := range registry(t).tools {
		schema := tool.InputSchema
		s, err := compileSchema(&schema)
		if err != nil {
			t.Fatal(err)
		}
		if s.costly {
			t.Errorf("the input schema of %s is costly", name)
		}
	}
}
