package pathmapper

import (
	"regexp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Marks say where in a document the paths are, by a JSON Schema. They may be used from several
// goroutines; nil marks nothing.
type Marks struct {
	// top are the schemas that apply to the whole document.
	top []*schema
}

// Any says whether the schema marks anything at all.
func (m *Marks) Any() bool { return m != nil && len(m.top) > 0 }

// kinds are the ways in which a string may be a path; alternatives of a schema can give it several.
type kinds uint8

const (
	singlePath kinds = 1 << iota
	pathList
	fileURI
)

// schema is what a JSON Schema says about paths. A string is a path if any schema that could apply
// to it says so, be it in one branch of an anyOf or if: whether the value is valid under that
// branch is the validator's business, and a value that is no absolute path under a root stays as it
// is anyway.
type schema struct {
	kinds    kinds
	props    map[string]*schema
	patterns []patternSchema
	// smallProps are those of props that are looked for, where those are so few that going through
	// them beats looking them up.
	smallProps []property
	// additional applies to keys that props and patterns of this schema leave out, items to elements
	// after prefix.
	additional *schema
	prefix     []*schema
	items      *schema
	// combined apply to the same value: allOf, anyOf, oneOf, if, then, else, $ref.
	combined []*schema
	// hasMarks says that there is a mark in this schema or in one that is reached from it. Others are
	// never looked at.
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

// pushSchema adds a schema, and those that apply with it, to the ones of the current value, which
// begin at base.
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

// member pushes the schemas of an object's member whose key stands quoted in the document; plain
// says that it needs no decoding.
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

// pickSmallProps fills few. Which keys lead nowhere matters only where others are additional.
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
		if index < len(s.prefix) {
			stack = pushSchema(stack, base, s.prefix[index])
		} else {
			stack = pushSchema(stack, base, s.items)
		}
	}
	return stack
}

func kindsOf(set []*schema) kinds {
	var k kinds
	for _, s := range set {
		k |= s.kinds
	}
	return k
}
