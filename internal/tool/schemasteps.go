package tool

import (
	"regexp/syntax"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxSchemaSteps bounds the steps of one validation. The validator cannot be interrupted, and a
// short schema of an MCP server can apply itself to a value 2^30 times, or match its patterns for
// hours. A million steps take about a second.
const maxSchemaSteps = 2_000_000

// patternShare is how many bytes of a text, times the instructions of a pattern, are one step.
const patternShare = 50

// isCostly reports whether the steps of a validation can exceed the size of its schema and document
// by far: a schema below is used more than once, or has a large pattern.
func isCostly(top *jsonschema.Schema) bool {
	seen := map[*jsonschema.Schema]bool{}
	next := []*jsonschema.Schema{top}
	for ; len(next) > 0; next = next[1:] {
		s := next[0]
		switch {
		case s == nil:
			continue
		case seen[s] || patternSize(s) > patternShare:
			return true
		}
		seen[s] = true
		next = append(next, combined(s)...)
		next = append(next, below(s)...)
	}
	return false
}

// patternSize returns the number of instructions of the patterns of a schema.
func patternSize(s *jsonschema.Schema) int {
	size := 0
	if s.Pattern != nil {
		size = instructions(s.Pattern)
	}
	for pattern := range s.PatternProperties {
		size += instructions(pattern)
	}
	return size
}

func instructions(pattern jsonschema.Regexp) int {
	parsed, err := syntax.Parse(pattern.String(), syntax.Perl)
	if err != nil {
		return 0 // it has compiled
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0
	}
	return len(prog.Inst)
}

// stepCounter counts the steps of a validation before it: how often a schema is applied to a value,
// and how long its patterns take. It visits each value once, so it is fast where the validator is
// not.
type stepCounter struct {
	steps    float64 // can be more than any integer
	patterns map[*jsonschema.Schema]int
}

// exceeds reports whether a validation of v takes more than maxSchemaSteps.
func (s *schema) exceeds(v any) bool {
	if !s.costly {
		return false
	}
	c := stepCounter{patterns: map[*jsonschema.Schema]int{}}
	c.count(v, map[*jsonschema.Schema]float64{s.compiled: 1})
	return c.steps > maxSchemaSteps
}

// count adds the steps of schemas, each applied to v as often as given.
func (c *stepCounter) count(v any, times map[*jsonschema.Schema]float64) {
	for _, s := range spread(times) {
		c.steps += times[s]
		switch v := v.(type) {
		case string:
			c.match(s, len(v), times[s])
		case map[string]any:
			for name := range v {
				c.match(s, len(name), times[s])
			}
		}
	}
	if c.steps > maxSchemaSteps {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			names, subs := map[*jsonschema.Schema]float64{}, map[*jsonschema.Schema]float64{}
			for s, n := range times {
				add(names, n, s.PropertyNames)
				add(subs, n, memberSchemas(s, name)...)
			}
			c.count(name, names)
			c.count(member, subs)
		}
	case []any:
		for i, element := range v {
			subs := map[*jsonschema.Schema]float64{}
			for s, n := range times {
				add(subs, n, elementSchemas(s, i)...)
			}
			c.count(element, subs)
		}
	}
}

// match adds the steps of the patterns of a schema for a text.
func (c *stepCounter) match(s *jsonschema.Schema, length int, times float64) {
	if s.Pattern == nil && len(s.PatternProperties) == 0 {
		return
	}
	size, known := c.patterns[s]
	if !known {
		size = patternSize(s)
		c.patterns[s] = size
	}
	c.steps += times * float64(length) * float64(size) / patternShare
}

func add(to map[*jsonschema.Schema]float64, times float64, schemas ...*jsonschema.Schema) {
	for _, s := range schemas {
		if s != nil {
			to[s] += times
		}
	}
}

// spread adds the schemas that those given apply to the same value, and how often. It returns all
// in an order in which each comes before those that it applies. A schema that applies itself to the
// same value is an error of the validator.
func spread(times map[*jsonschema.Schema]float64) []*jsonschema.Schema {
	var order []*jsonschema.Schema
	seen := map[*jsonschema.Schema]bool{}
	var visit func(s *jsonschema.Schema)
	visit = func(s *jsonschema.Schema) {
		if s == nil || seen[s] {
			return
		}
		seen[s] = true
		for _, sub := range combined(s) {
			visit(sub)
		}
		order = append(order, s)
	}
	for s := range times {
		visit(s)
	}
	slices.Reverse(order)
	for _, s := range order {
		add(times, times[s], combined(s)...)
	}
	return order
}
