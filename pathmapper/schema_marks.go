package pathmapper

import (
	"regexp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Marks are the paths of a document according to a JSON Schema. They are safe for concurrent use.
// Nil marks nothing.
type Marks struct {
	// top are the schemas that apply to the whole document.
	top []*schema
}

// Any reports whether the schema marks anything.
func (m *Marks) Any() bool { return m != nil && len(m.top) > 0 }

// kinds is a set of formats of a marked string; alternatives of a schema may give it several.
type kinds uint8

const (
	singlePath kinds = 1 << iota
	pathList
	fileURI
)

// schema has the marks of a JSON Schema. A string is a path if any schema that could apply marks
// it, for example one branch of an anyOf, whether the value is valid under that branch or not. A
// value that is not an absolute path under a root stays unchanged in any case.
type schema struct {
	kinds    kinds
	props    map[string]*schema
	patterns []patternSchema
	// smallProps are the relevant props if they are so few that a linear search is faster.
	smallProps []property
	// additional applies to keys without props and patterns, items to elements after prefix.
	additional *schema
	prefix     []*schema
	items      *schema
	// combined apply to the same value: allOf, anyOf, oneOf, if, then, else, $ref.
	combined []*schema
	// hasMarks reports whether this schema, or one that it reaches, has a mark. Others are ignored.
	hasMarks bool
}

type property struct {
	name string
	*schema
}

type patternSchema struct {
	re *regexp.Regexp
	*schema
}

// pushSchema adds a schema, and those combined with it, to those of the current value, which begin
// at base.
func pushSchema(stack []*schema, base int, s *schema) []*schema {
	if s == nil || !s.hasMarks || slices.Contains(stack[base:], s) {
		return stack
	}
	stack = append(stack, s)
	for _, other := range s.combined {
		stack = pushSchema(stack, base, other)
	}
	return stack
}

// member pushes the schemas of an object's member with a quoted key; plain reports whether the key
// needs no decoding.
func member(stack, object []*schema, quoted []byte, plain bool) []*schema {
	key := quoted[1 : len(quoted)-1]
	if !plain {
		key, _ = jsontext.AppendUnquote(nil, quoted)
	}
	base := len(stack)
	for _, s := range object {
		stack = s.member(stack, base, key)
	}
	return stack
}

func (s *schema) member(stack []*schema, base int, key []byte) []*schema {
	sub, known := s.property(key)
	stack = pushSchema(stack, base, sub)
	for _, p := range s.patterns {
		if p.re.Match(key) {
			known = true
			stack = pushSchema(stack, base, p.schema)
		}
	}
	if !known {
		stack = pushSchema(stack, base, s.additional)
	}
	return stack
}

func (s *schema) property(key []byte) (sub *schema, known bool) {
	if s.smallProps == nil {
		sub, known = s.props[string(key)]
		return sub, known
	}
	for _, p := range s.smallProps {
		if p.name == string(key) {
			return p.schema, true
		}
	}
	return nil, false
}

// pickSmallProps sets smallProps. Keys without marks matter only if additional keys have marks.
func (s *schema) pickSmallProps() {
	const most = 8
	few := make([]property, 0, most)
	for name, sub := range s.props {
		if sub.hasMarks || s.additional != nil && s.additional.hasMarks {
			few = append(few, property{name, sub})
		}
	}
	if len(few) <= most {
		s.smallProps = few
	}
}

// element pushes the schemas of an array's element.
func element(stack, array []*schema, index int) []*schema {
	base := len(stack)
	for _, s := range array {
		sub := s.items
		if index < len(s.prefix) {
			sub = s.prefix[index]
		}
		stack = pushSchema(stack, base, sub)
	}
	return stack
}
