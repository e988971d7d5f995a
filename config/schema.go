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

// Schema gives a JSON Schema, draft 2020-12, of the configuration file, for editors: indented, with a newline at its end. It says what each key
// may hold. What holds between several keys, Load alone knows; keys that are not supported yet do not stand in it.
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
	_ = enc.Encode(top) // texts, numbers and maps of them always have a JSON form, and a bytes.Buffer takes it
	return b.Bytes()
}

// section is a block of known keys, which may be empty where all of them are commented out.
func section() *schema {
	return &schema{Type: []string{"object", "null"}, Properties: map[string]*schema{}, AdditionalProperties: false}
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
	s := &schema{Type: "object", Properties: map[string]*schema{}, Required: required, AdditionalProperties: false}
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
	return &schema{Type: []string{"object", "null"}, PropertyNames: name, AdditionalProperties: element}
}

// enumOf is one of several words.
func enumOf(words ...string) *schema { return &schema{Type: "string", Enum: words} }
