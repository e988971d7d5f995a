package tool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dray-dev/dray"
)

// secretKeyword is the keyword x-secret, which says the same as writeOnly: a value is a secret.
var secretKeyword = &jsonschema.Vocabulary{
	URL: "https://dray.invalid/x-secret",
	Compile: func(_ *jsonschema.CompilerContext, schema map[string]any) (jsonschema.SchemaExt, error) {
		value, ok := schema["x-secret"]
		if !ok {
			return nil, nil //nolint:nilnil // what the library requires
		}
		secret, ok := value.(bool)
		if !ok {
			return nil, fmt.Errorf("x-secret is %v: write true or false", value)
		}
		return secretMark(secret), nil
	},
}

// secretMark is the value of x-secret.
type secretMark bool

// Validate implements [jsonschema.SchemaExt]: every value is valid.
func (secretMark) Validate(*jsonschema.ValidatorContext, any) {}

// secretFields returns the JSON pointers of the values in a document that the schema marks as
// secret, and those of members whose names it marks, with dray.SecretName before them. A value is
// marked if any schema that could apply marks it, for example one branch of an anyOf, whether the
// value is valid under that branch or not. A value in a marked one has no pointer of its own.
func (s *schema) secretFields(doc json.RawMessage) []string {
	if !s.hasSecrets {
		return nil
	}
	v, malformed := decode(doc)
	if malformed != nil {
		return nil
	}
	var found []string
	findSecrets(v, "", []*jsonschema.Schema{s.compiled}, &found)
	return found
}

func findSecrets(v any, pointer string, schemas []*jsonschema.Schema, found *[]string) {
	schemas = applicable(schemas)
	if slices.ContainsFunc(schemas, isSecret) {
		*found = append(*found, pointer)
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			var names, subs []*jsonschema.Schema
			for _, s := range schemas {
				names = append(names, s.PropertyNames)
				subs = append(subs, memberSchemas(s, name)...)
			}
			at := dray.JSONPointer(pointer, name)
			if slices.ContainsFunc(applicable(names), isSecret) {
				*found = append(*found, dray.SecretName+at)
			}
			findSecrets(member, at, subs, found)
		}
	case []any:
		for i, element := range v {
			var subs []*jsonschema.Schema
			for _, s := range schemas {
				subs = append(subs, elementSchemas(s, i)...)
			}
			findSecrets(element, dray.JSONPointer(pointer, strconv.Itoa(i)), subs, found)
		}
	}
}

func isSecret(s *jsonschema.Schema) bool {
	return s.WriteOnly || slices.Contains(s.Extensions, jsonschema.SchemaExt(secretMark(true)))
}

// applicable returns schemas and those that they apply to the same value.
func applicable(schemas []*jsonschema.Schema) []*jsonschema.Schema {
	var all []*jsonschema.Schema
	seen := map[*jsonschema.Schema]bool{}
	for next := slices.Clone(schemas); len(next) > 0; {
		s := next[0]
		next = next[1:]
		if s == nil || seen[s] {
			continue
		}
		seen[s] = true
		all = append(all, s)
		next = append(next, combined(s)...)
	}
	return all
}

// combined returns the schemas that a schema applies to its own value; some may be nil.
func combined(s *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat([]*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else},
		s.AllOf, s.AnyOf, s.OneOf)
	if s.DynamicRef != nil {
		all = append(all, s.DynamicRef.Ref)
	}
	for _, sub := range s.DependentSchemas {
		all = append(all, sub)
	}
	return all
}

func memberSchemas(s *jsonschema.Schema, name string) []*jsonschema.Schema {
	var all []*jsonschema.Schema
	sub, known := s.Properties[name]
	if known {
		all = append(all, sub)
	}
	for pattern, sub := range s.PatternProperties {
		if pattern.MatchString(name) {
			known = true
			all = append(all, sub)
		}
	}
	if additional, ok := s.AdditionalProperties.(*jsonschema.Schema); ok && !known {
		all = append(all, additional)
	}
	return append(all, s.UnevaluatedProperties)
}

func elementSchemas(s *jsonschema.Schema, i int) []*jsonschema.Schema {
	if i < len(s.PrefixItems) {
		return []*jsonschema.Schema{s.PrefixItems[i], s.Contains}
	}
	return []*jsonschema.Schema{s.Items2020, s.Contains, s.UnevaluatedItems}
}

// marksSecrets reports whether a schema, or one below it, marks a value as secret.
func marksSecrets(top *jsonschema.Schema) bool {
	seen := map[*jsonschema.Schema]bool{}
	next := []*jsonschema.Schema{top}
	for ; len(next) > 0; next = next[1:] {
		s := next[0]
		if s == nil || seen[s] {
			continue
		}
		if isSecret(s) {
			return true
		}
		seen[s] = true
		next = slices.Concat(next, combined(s), below(s))
	}
	return false
}

// below returns the schemas of the members and elements of a value.
func below(s *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat(s.PrefixItems, []*jsonschema.Schema{
		s.PropertyNames, s.UnevaluatedProperties, s.Items2020, s.Contains, s.UnevaluatedItems,
	})
	for _, sub := range s.Properties {
		all = append(all, sub)
	}
	for _, sub := range s.PatternProperties {
		all = append(all, sub)
	}
	if additional, ok := s.AdditionalProperties.(*jsonschema.Schema); ok {
		all = append(all, additional)
	}
	return all
}

// eachSchemaText calls visit for each object in the text of a schema, with its JSON pointer.
func eachSchemaText(v any, pointer string, visit func(pointer string, object map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(pointer, v)
		for name, member := range v {
			eachSchemaText(member, dray.JSONPointer(pointer, name), visit)
		}
	case []any:
		for i, element := range v {
			eachSchemaText(element, dray.JSONPointer(pointer, strconv.Itoa(i)), visit)
		}
	}
}

// checkSecretContent refuses a mark in a contentSchema: a value in a text has no JSON pointer.
func checkSecretContent(doc any) (err error) {
	eachSchemaText(doc, "", func(pointer string, object map[string]any) {
		eachSchemaText(object["contentSchema"], "", func(_ string, below map[string]any) {
			if below["x-secret"] == true || below["writeOnly"] == true {
				err = fmt.Errorf("%s/contentSchema marks a secret in a text: mark the text itself", pointer)
			}
		})
	})
	return err
}

// hideSecrets replaces messages about secret values and names, which may repeat them.
func hideSecrets(details []dray.Detail, fields []string) {
	for i := range details {
		for _, field := range fields {
			hideSecret(&details[i], field)
		}
	}
}

func hideSecret(d *dray.Detail, field string) {
	const message = "is invalid; its value is a secret, which is not shown"
	pointer, isName := strings.CutPrefix(field, dray.SecretName)
	rest, inside := strings.CutPrefix(d.Pointer, "/input"+pointer)
	inside = inside && (rest == "" || rest[0] == '/')
	switch {
	case !isName && inside:
		d.Message = message
	case isName && (inside || mayRepeat(d.Message, pointer)):
		d.Pointer, d.Message = "/input"+pointer[:strings.LastIndexByte(pointer, '/')], message
	}
}

// mayRepeat reports whether a message may repeat the last name of a pointer, which the validator
// quotes.
func mayRepeat(message, pointer string) bool {
	name := pointer[strings.LastIndexByte(pointer, '/')+1:]
	name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
	quoted := strconv.Quote(name)
	return strings.Contains(message, name) || quoted != `"`+name+`"` || strings.Contains(name, "'")
}
