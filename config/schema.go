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

// Schema returns a JSON Schema, draft 2020-12, of the configuration file, for editors: indented,
// with a final newline. It describes each supported key. Only Load checks the rules between several
// keys.
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
func objectOf(keys settingDefs, required ...string) *schema {
	s := section()
	s.Type, s.Required = "object", required
	for _, key := range keys {
		if key.supported() {
			s.addSetting(key)
		}
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

// pattern returns a text that matches a regular expression.
func pattern(expr string) *schema { return &schema{Type: "string", Pattern: expr} }

// pathPattern returns a text that matches and contains no "..".
func pathPattern(expr string) *schema {
	return &schema{Type: "string", Pattern: expr, Not: &schema{Pattern: `(^|/)\.\.(/|$)`}}
}

const (
	// namePattern is lexical.IsName as a pattern.
	namePattern    = `^[A-Za-z0-9][A-Za-z0-9._-]*$`
	targetPattern  = `^([A-Za-z0-9][A-Za-z0-9_.-]*|/[^\x00]*)?$`
	addressPattern = `^([^\x00-\x1f\x7f]*://[^\x00-\x1f\x7f]*)?$`
	// durationPattern matches numbers with units, as [time.ParseDuration] reads them.
	durationPattern = `(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+`
)

var (
	toolNameSchema = &schema{
		Type: "string", Pattern: namePattern, MaxLength: maxToolName, Not: &schema{Enum: builtIn},
	}
	denySchema = &schema{
		Type: "string", Pattern: `^([^/*?[\x00]+/)*[^/*?[\x00]+$`,
		Not: &schema{Pattern: `(^|/)\.{1,2}(/|$)`},
	}
	argvSchema      = &schema{Type: "array", Items: textKind.schema, MinItems: 1}
	exitCodesSchema = &schema{
		Type: "array", MinItems: 1,
		Items: &schema{Type: "integer", Minimum: new(0), Maximum: new(maxExitCode)},
	}
	userSchema = &schema{
		Type: []string{"string", "integer"}, Minimum: new(0), Pattern: `^[^\x00-\x1f\x7f :/]+$`,
	}
	tcpSchema = &schema{
		Type: []string{"string", "integer"}, Minimum: new(0), Maximum: new(65535),
		Pattern: `^(([^\s/:]*|\[[0-9A-Fa-f:.]+\]):)?[0-9]{1,5}$`,
	}
	// sizeSchema allows a whole number of bytes.
	sizeSchema = &schema{
		Type: []string{"string", "integer"}, Minimum: new(1),
		Pattern: `^0*[1-9][0-9]*(B|KiB|MiB|GiB|TiB)?$`,
	}
	// durationSchema allows one number without a unit: 0.
	durationSchema = &schema{
		Type: []string{"string", "integer"}, Minimum: new(0), Maximum: new(0),
		Pattern: `^\+?(0|` + durationPattern + `)$`,
	}
	positiveSchema = &schema{
		Type: "string", Pattern: `^\+?` + durationPattern + `$`, AllOf: []*schema{{Pattern: `[1-9]`}},
	}
)

// pythonRuntimeSchema is the name of a runtime, or null.
var pythonRuntimeSchema = &schema{AnyOf: []*schema{
	enumOf([]string{string(PythonContainer), string(PythonPyodide)}...), {Type: "null"},
}}

// capabilitiesSchema is a list of words and of an object with the written files.
var capabilitiesSchema = arrayOf(&schema{AnyOf: []*schema{
	enumOf(capabilityWords...), objectOf(writesKeys, "writes"),
}})

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

func mcpServersSchema() *schema {
	return mapOf(&schema{Pattern: namePattern, MaxLength: maxMCPServerName},
		objectOf(mcpServerKeys, "argv", "workspace"))
}

func plansSchema() *schema { return mapOf(&schema{MinLength: 1}, objectOf(planKeys)) }

func variablesSchema() *schema { return mapOf(&schema{Pattern: `^[^=\x00]+$`}, textKind.schema) }
