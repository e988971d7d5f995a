package tool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// writeOnly and x-secret mark a value wherever the schema says so (AU-07).
func TestSecretFields(t *testing.T) {
	const secret = `{"x-secret": true}`
	for _, test := range []struct {
		schema, input string
		want          []string
	}{
		{`{"properties": {"a": {"writeOnly": true}, "b": {}}}`, `{"a": 1, "b": 2}`, []string{"/a"}},
		{`{"properties": {"a/b": ` + secret + `}}`, `{"a/b": {"c": [1]}}`, []string{"/a~1b"}},
		{`{"properties": {"a": {"x-secret": false}}}`, `{"a": 1}`, nil},
		{`{"properties": {"a": {"items": ` + secret + `}}}`, `{"a": [1, 2]}`, []string{"/a/0", "/a/1"}},
		{`{"properties": {"a": {"prefixItems": [{}, ` + secret + `]}}}`, `{"a": [1, 2, 3]}`, []string{"/a/1"}},
		{`{"additionalProperties": ` + secret + `, "properties": {"a": {}}}`, `{"a": 1, "b": 2}`, []string{"/b"}},
		{`{"patternProperties": {"_key$": ` + secret + `}}`, `{"a": 1, "b_key": 2}`, []string{"/b_key"}},
		{
			`{"properties": {"a": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"properties": {"p": ` + secret + `}}}}`,
			`{"a": {"p": "x", "q": 1}}`,
			[]string{"/a/p"},
		},
		{
			`{"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"properties":
				{"p": ` + secret + `, "next": {"$ref": "#/$defs/n"}}}}}`,
			`{"a": {"next": {"next": {"p": "x"}}}}`,
			[]string{"/a/next/next/p"},
		},
		{`{"allOf": [{"properties": {"a": ` + secret + `}}]}`, `{"a": 1}`, []string{"/a"}},
		{`{"anyOf": [{"properties": {"a": ` + secret + `}, "required": ["z"]}, {}]}`, `{"a": 1}`, []string{"/a"}},
		{`{"if": {"required": ["z"]}, "then": {"properties": {"a": ` + secret + `}}}`, `{"a": 1}`, []string{"/a"}},
		{
			`{"dependentSchemas": {"b": {"properties": {"a": ` + secret + `}}}}`, `{"a": 1}`,
			[]string{"/a"},
		},
		{`{"unevaluatedProperties": ` + secret + `}`, `{"a": 1}`, []string{"/a"}},
		{`{"properties": {"x-secret": {"type": "string"}}}`, `{"x-secret": "a"}`, nil},
		{`{"writeOnly": true}`, `{"a": 1}`, []string{""}},
		{`{"then": {}, "else": {"properties": {"a": ` + secret + `}}, "if": {}}`, `{"a": 1}`, []string{"/a"}},
		{`{"not": {"properties": {"a": ` + secret + `}, "required": ["b"]}}`, `{"a": 1}`, []string{"/a"}},
		{`{"oneOf": [{}, {"properties": {"a": ` + secret + `}}]}`, `{"a": 1}`, []string{"/a"}},
		{
			`{"properties": {"a": {"contains": ` + secret + `, "prefixItems": [{}]}}}`, `{"a": [1, 2]}`,
			[]string{"/a/0", "/a/1"},
		},
		{`{"properties": {"a": {"unevaluatedItems": ` + secret + `}}}`, `{"a": [1]}`, []string{"/a/0"}},
		{`{"propertyNames": ` + secret + `}`, `{"a": {"b": 1}}`, []string{"name:/a"}},
		{
			`{"properties": {"m": {"$ref": "#/$defs/m"}}, "$defs": {"n": ` + secret + `,
				"m": {"propertyNames": {"anyOf": [{"$ref": "#/$defs/n"}]},
					"additionalProperties": {"writeOnly": true}}}}`,
			`{"m": {"a/b": 1}}`,
			[]string{"/m/a~1b", "name:/m/a~1b"},
		},
		{
			`{"properties": {"a": {"properties": {"b": {"$id": "x", "properties": {"c": ` + secret + `}}}}}}`,
			`{"a": {"b": {"c": 1}}}`,
			[]string{"/a/b/c"},
		},
	} {
		text := json.RawMessage(test.schema)
		s, err := compileSchema(&text)
		if err != nil {
			t.Errorf("%s: %v", test.schema, err)
			continue
		}
		if got := s.secretFields(json.RawMessage(test.input)); !slices.Equal(slices.Sorted(
			slices.Values(got)), test.want) {
			t.Errorf("%s of %s: %q, want %q", test.input, test.schema, got, test.want)
		}
	}
	for schema, want := range map[string]string{
		`{"properties": {"a": {"x-secret": "yes"}}}`: "x-secret",
		`{"properties": {"a": {"contentMediaType": "application/json", "contentSchema":
			{"properties": {"p": {"writeOnly": true}}}}}}`: "/properties/a/contentSchema",
		`{"$defs": {"d": {"$id": "d", "$schema": "http://json-schema.org/draft-07/schema#",
			"items": [{"x-secret": true}]}}}`: "draft-07",
		// it could stand for another schema than the one here, which marks nothing
		`{"properties": {"a": {"$dynamicRef": "#d"}}, "$defs": {"d": {"$dynamicAnchor": "d"}}}`: "dynamicRef",
	} {
		text := json.RawMessage(schema)
		if _, err := compileSchema(&text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// The message about a name that is a secret does not repeat it (AU-07).
func TestCheckInput_HidesSecretNames(t *testing.T) {
	custom := command("custom", "")
	custom.InputSchema = json.RawMessage(`{"properties": {"pins": {
		"propertyNames": {"pattern": "^[0-9]+$", "x-secret": true}, "additionalProperties": {"type": "string"}}}}`)
	found, err := registry(t, custom).Find("custom")
	if err != nil {
		t.Fatal(err)
	}
	err = found.CheckInput(json.RawMessage(`{"pins": {"hunter2": 1}}`))
	detailed := dray.AsError(err)
	if err == nil || len(detailed.Details) == 0 || strings.Contains(fmt.Sprint(*detailed), "hunter2") {
		t.Errorf("error %+v", detailed)
	}
}

// The message about an invalid secret does not repeat it (AU-07).
func TestCheckInput_HidesSecrets(t *testing.T) {
	custom := command("custom", "")
	custom.InputSchema = json.RawMessage(`{"properties": {"pin": {"pattern": "^[0-9]+$", "writeOnly": true}}}`)
	found, err := registry(t, custom).Find("custom")
	if err != nil {
		t.Fatal(err)
	}
	err = found.CheckInput(json.RawMessage(`{"pin": "hunter2"}`))
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "/input/pin") {
		t.Errorf("error %v", err)
	}
}
