package config

import (
	"bytes"
	"encoding/json"
	"strings"
)

// schema is as much of JSON Schema, draft 2020-12, as a configuration needs.
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
	// AdditionalProperties is false, or the schema of what stands under names that an operator chose.
	AdditionalProperties any `json:"additionalProperties,omitempty"`
}

// Schema gives a JSON Schema, draft 2020-12, of the configuration file, for editors: indented, with
// a newline at its end. It says what each key may hold. What holds between several keys, Load alone
// knows; keys that are not supported yet do not stand in it.
func Schema() []byte {
	top := section()
	top.Draft, top.Title = "https://json-schema.org/draft/2020-12/schema", "Configuration of dray"
	for _, s := range settings {
		if s.read != nil {
			top.addSetting(s)
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	// texts, numbers and maps of them always have a JSON form, and a bytes.Buffer takes it
	_ = enc.Encode(top)
	return b.Bytes()
}

// section is a block of known keys, which may be empty where all of them are commented out.
func section() *schema {
	return &schema{
		Type: []string{"object", "null"}, Properties: map[string]*schema{},
		AdditionalProperties: false,
	}
}

// addSetting adds a setting under its key, with the sections that lead to it.
func (s *schema) addSetting(of settingDef) {
	names := strings.Split(of.key, ".")
	last := len(names) - 1
	for _, name := range names[:last] {
		if s.Properties[name] == nil {
			s.Properties[name] = section()
		}
		s = s.Properties[name]
	}
	one := of.schema.about(of.description)
	one.Default = of.defaultValue
	s.Properties[names[last]] = one
}

// about gives a copy with a description.
func (s *schema) about(text string) *schema {
	c := *s
	c.Description = text
	return &c
}

// objectOf is an element with these keys.
func objectOf(keys objectKeys, required ...string) *schema {
	s := &schema{
		Type: "object", Properties: map[string]*schema{}, Required: required,
		AdditionalProperties: false,
	}
	for _, k := range keys.known {
		s.Properties[k.name] = k.is.about(k.about)
	}
	return s
}

// arrayOf is a list, which may be empty where all of its elements are commented out.
func arrayOf(item *schema) *schema {
	return &schema{Type: []string{"array", "null"}, Items: item}
}

// mapOf is a block of elements under names that the operator chose, which may be empty, too.
func mapOf(name, element *schema) *schema {
	return &schema{
		Type: []string{"object", "null"}, PropertyNames: name,
		AdditionalProperties: element,
	}
}

// enumOf is one of several words.
func enumOf(words ...string) *schema { return &schema{Type: "string", Enum: words} }

// What a value may look like, for editors: each of these is the schema of what the method of the
// decoder with the like name reads. Patterns keep to what ECMAScript and RE2 have in common.

// namePattern is lexical.IsName as a pattern.
const namePattern = `^[A-Za-z0-9][A-Za-z0-9._-]*$`

// dotDotSchema finds "..", which no path may have.
var dotDotSchema = &schema{Pattern: `(^|/)\.\.(/|$)`}

var (
	textSchema     = &schema{Type: "string", Pattern: `^[^\x00]*$`}
	lineSchema     = &schema{Type: "string", Pattern: `^[^\x00-\x1f\x7f]*$`}
	anAbsolutePath = &schema{Type: "string", Pattern: `^/[^\x00]*$`, Not: dotDotSchema}
	pathSchema     = &schema{Type: "string", Pattern: `^[^\x00]+$`, Not: dotDotSchema}
	aMappedPath    = &schema{Type: "string", Pattern: `^/[^\x00]*[^/\x00][^\x00]*$`, Not: dotDotSchema}
	aProgram       = &schema{Type: "string", Pattern: `^([^/~\\\x00]*|/[^\x00]*)$`, Not: dotDotSchema}
	anAddress      = &schema{Type: "string", Pattern: `^([^\x00-\x1f\x7f]*://[^\x00-\x1f\x7f]*)?$`}
	aVariable      = &schema{Type: "string", Pattern: `^[^=\x00-\x1f\x7f]+$`}
	aLabel         = &schema{Type: "string", Pattern: `^[^=\x00-\x1f\x7f]+=[^\x00-\x1f\x7f]*$`}
	aContainer     = &schema{Type: "string", Pattern: namePattern}
	targetSchema   = &schema{Type: "string", Pattern: `^([A-Za-z0-9][A-Za-z0-9_.-]*|/[^\x00]*)?$`, Not: dotDotSchema}
	aToolName      = &schema{
		Type: "string", Pattern: namePattern, MaxLength: maxToolName,
		Not: &schema{Enum: builtIn},
	}
	aDeniedName = &schema{Type: "string", Pattern: `^([^/*?[\x00]+/)*[^/*?[\x00]+$`, Not: &schema{Pattern: `(^|/)\.{1,2}(/|$)`}}
	boolSchema  = &schema{Type: "boolean"}
	anArgv      = &schema{Type: "array", Items: textSchema, MinItems: 1}
	aJSONSchema = &schema{Type: "object"}
)

// A whole number is a size in bytes; of durations, only 0 needs no unit.
var (
	aSize             = &schema{Type: []string{"string", "integer"}, Pattern: `^0*[1-9][0-9]*(B|KiB|MiB|GiB|TiB)?$`, Minimum: new(1)}
	aDuration         = &schema{Type: []string{"string", "integer"}, Pattern: `^\+?(0|` + durationPattern + `)$`, Minimum: new(0), Maximum: new(0)}
	aPositiveDuration = &schema{Type: "string", Pattern: `^\+?` + durationPattern + `$`, AllOf: []*schema{{Pattern: `[1-9]`}}}
)

// countFrom is a whole number of things.
func countFrom(least, most int) *schema {
	return &schema{Type: "integer", Minimum: new(least), Maximum: new(most)}
}

// durationPattern are numbers with units, as [time.ParseDuration] reads them.
const durationPattern = `(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+`

// anEnvironment is a word, or the container that it has to be.
var anEnvironment = &schema{AnyOf: []*schema{
	enumOf("auto", "host", "required", "container", "preferred"), objectOf(specificKeys, "specific"),
}}

// containersSchema says which keys of a container go together.
func containersSchema() *schema {
	one := objectOf(containerKeys)
	for _, key := range []string{"workspace", "id", "label"} {
		one.AnyOf = append(one.AnyOf, &schema{Required: []string{key}})
	}
	one.Not = &schema{AnyOf: []*schema{
		{Required: []string{"id", "label"}}, {Required: []string{
			"workspace",
			"id",
		}}, {Required: []string{"workspace", "label"}},
	}}
	one.DependentRequired = map[string][]string{"config": {"workspace"}, "service": {"workspace"}}
	return mapOf(&schema{Pattern: namePattern, Not: enumOf("host")}, one)
}

func plansSchema() *schema { return mapOf(&schema{MinLength: 1}, objectOf(planKeys)) }

func variablesSchema() *schema { return mapOf(&schema{Pattern: `^[^=\x00]+$`}, textSchema) }
