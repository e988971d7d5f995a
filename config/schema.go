package config

import (
	"bytes"
	"encoding/json"
	"strings"
)

// schema is the part of JSON Schema, draft 2020-12, that a configuration needs.
type schema struct {
	Draft             string              `json:"$schema,omitempty"`
	Title             string              `json:"title,omitempty"`
	Description       string              `json:"description,omitempty"`
	Type              any                 `json:"type,omitempty"` // one name or several
	Default           string              `json:"default,omitempty"`
	Enum              []string            `json:"enum,omitempty"`
	Pattern           string              `json:"pattern,omitempty"`
	MinLength         int                 `json:"minLength,omitempty"`
	MaxLength         int                 `json:"maxLength,omitempty"`
	Minimum           *int                `json:"minimum,omitempty"`
	Maximum           *int                `json:"maximum,omitempty"`
	Not               *schema             `json:"not,omitempty"`
	AllOf             []*schema           `json:"allOf,omitempty"`
	AnyOf             []*schema           `json:"anyOf,omitempty"`
	Items             *schema             `json:"items,omitempty"`
	MinItems          int                 `json:"minItems,omitempty"`
	Required          []string            `json:"required,omitempty"`
	DependentRequired map[string][]string `json:"dependentRequired,omitempty"`
	PropertyNames     *schema             `json:"propertyNames,omitempty"`
	Properties        map[string]*schema  `json:"properties,omitempty"`
	// AdditionalProperties is false, or the schema of the elements whose names the operator chooses.
	AdditionalProperties any `json:"additionalProperties,omitempty"`
}

// Schema returns a JSON Schema, draft 2020-12, of the configuration file, for editors: indented, with
// a final newline. It describes each supported key. Only Load checks the rules between several keys.
func Schema() []byte {
	top := section()
	top.Draft, top.Title = "https://json-schema.org/draft/2020-12/schema", "Configuration of dray"
	for _, s := range settings {
		if s.supported() {
			top.addSetting(s)
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(top) // strings, numbers and maps of them always have a JSON form
	return b.Bytes()
}

// section returns a block of known keys. It may be null, if all keys are commented out.
func section() *schema {
	return &schema{
		Type: []string{"object", "null"}, Properties: map[string]*schema{},
		AdditionalProperties: false,
	}
}

// addSetting adds a setting with its sections.
func (s *schema) addSetting(of settingDef) {
	names := strings.Split(of.key, ".")
	last := len(names) - 1
	for _, name := range names[:last] {
		if s.Properties[name] == nil {
			s.Properties[name] = section()
		}
		s = s.Properties[name]
	}
	one := of.kind.schema.withDescription(of.description)
	one.Default = of.defaultValue
	s.Properties[names[last]] = one
}

// withDescription returns a copy with a description.
func (s *schema) withDescription(text string) *schema {
	c := *s
	c.Description = text
	return &c
}

// objectOf returns an element with these keys.
func objectOf(keys objectKeys, required ...string) *schema {
	s := &schema{
		Type: "object", Properties: map[string]*schema{}, Required: required,
		AdditionalProperties: false,
	}
	for _, k := range keys.known {
		s.Properties[k.name] = k.schema.withDescription(k.description)
	}
	return s
}

// arrayOf returns a list. It may be null, if all elements are commented out.
func arrayOf(item *schema) *schema {
	return &schema{Type: []string{"array", "null"}, Items: item}
}

// mapOf returns a block of elements whose names the operator chooses. It may be null.
func mapOf(name, element *schema) *schema {
	return &schema{
		Type: []string{"object", "null"}, PropertyNames: name,
		AdditionalProperties: element,
	}
}

// enumOf returns one of several words.
func enumOf(words ...string) *schema { return &schema{Type: "string", Enum: words} }

// The schemas of values. Their patterns use the common subset of ECMAScript and RE2.

// namePattern is lexical.IsName as a pattern.
const namePattern = `^[A-Za-z0-9][A-Za-z0-9._-]*$`

// dotDotSchema matches paths with "..".
var dotDotSchema = &schema{Pattern: `(^|/)\.\.(/|$)`}

var (
	textSchema        = &schema{Type: "string", Pattern: `^[^\x00]*$`}
	lineSchema        = &schema{Type: "string", Pattern: `^[^\x00-\x1f\x7f]*$`}
	absPathSchema     = &schema{Type: "string", Pattern: `^/[^\x00]*$`, Not: dotDotSchema}
	pathSchema        = &schema{Type: "string", Pattern: `^[^\x00]+$`, Not: dotDotSchema}
	mappingRootSchema = &schema{Type: "string", Pattern: `^/[^\x00]*[^/\x00][^\x00]*$`, Not: dotDotSchema}
	programSchema     = &schema{Type: "string", Pattern: `^([^/~\\\x00]*|/[^\x00]*)$`, Not: dotDotSchema}
	addressSchema     = &schema{Type: "string", Pattern: `^([^\x00-\x1f\x7f]*://[^\x00-\x1f\x7f]*)?$`}
	variableSchema    = &schema{Type: "string", Pattern: `^[^=\x00-\x1f\x7f]+$`}
	labelSchema       = &schema{Type: "string", Pattern: `^[^=\x00-\x1f\x7f]+=[^\x00-\x1f\x7f]*$`}
	nameSchema        = &schema{Type: "string", Pattern: namePattern}
	targetSchema      = &schema{Type: "string", Pattern: `^([A-Za-z0-9][A-Za-z0-9_.-]*|/[^\x00]*)?$`, Not: dotDotSchema}
	toolNameSchema    = &schema{
		Type: "string", Pattern: namePattern, MaxLength: maxToolName,
		Not: &schema{Enum: builtIn},
	}
	denyPatternSchema = &schema{Type: "string", Pattern: `^([^/*?[\x00]+/)*[^/*?[\x00]+$`, Not: &schema{Pattern: `(^|/)\.{1,2}(/|$)`}}
	boolSchema        = &schema{Type: "boolean"}
	argvSchema        = &schema{Type: "array", Items: textSchema, MinItems: 1}
	objectSchema      = &schema{Type: "object"}
)

// A whole number is a size in bytes. Of durations, only 0 needs no unit.
var (
	sizeSchema             = &schema{Type: []string{"string", "integer"}, Pattern: `^0*[1-9][0-9]*(B|KiB|MiB|GiB|TiB)?$`, Minimum: new(1)}
	durationSchema         = &schema{Type: []string{"string", "integer"}, Pattern: `^\+?(0|` + durationPattern + `)$`, Minimum: new(0), Maximum: new(0)}
	positiveDurationSchema = &schema{Type: "string", Pattern: `^\+?` + durationPattern + `$`, AllOf: []*schema{{Pattern: `[1-9]`}}}
)

// countFrom returns a whole number within bounds.
func countFrom(least, most int) *schema {
	return &schema{Type: "integer", Minimum: new(least), Maximum: new(most)}
}

// durationPattern matches numbers with units, as [time.ParseDuration] reads them.
const durationPattern = `(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+`

// environmentSchema is a word or an object with the required container.
var environmentSchema = &schema{AnyOf: []*schema{
	enumOf("auto", "host", "required", "container", "preferred"), objectOf(specificKeys, "specific"),
}}

// containersSchema includes which keys of a container exclude or require each other.
func containersSchema() *schema {
	one := objectOf(containerKeys)
	for _, key := range []string{"workspace", "id", "label"} {
		one.AnyOf = append(one.AnyOf, &schema{Required: []string{key}})
	}
	one.Not = &schema{AnyOf: []*schema{
		{Required: []string{"id", "label"}},
		{Required: []string{"workspace", "id"}},
		{Required: []string{"workspace", "label"}},
	}}
	one.DependentRequired = map[string][]string{"config": {"workspace"}, "service": {"workspace"}}
	return mapOf(&schema{Pattern: namePattern, Not: enumOf("host")}, one)
}

func plansSchema() *schema { return mapOf(&schema{MinLength: 1}, objectOf(planKeys)) }

func variablesSchema() *schema { return mapOf(&schema{Pattern: `^[^=\x00]+$`}, textSchema) }
