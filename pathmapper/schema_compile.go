package pathmapper

import (
	"encoding/json"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dray-dev/dray"
)

// CompileMarks returns the marks of a JSON Schema (2020-12): "format": "path", "path-list"
// (colon-joined) or "file-uri", and "x-path": true, which equals the format path. It follows
// properties, patternProperties, additionalProperties, prefixItems, items, allOf, anyOf, oneOf, if,
// then, else and $ref within the document, also in cycles. Marks elsewhere (not, contains,
// propertyNames) do not apply to a value that could be mapped. An empty schema marks nothing.
//
// It fails with invalid_input, and a pointer into the schema, for an invalid schema, a reference to
// another document or to nothing, an x-path that is not a boolean, and a pattern that Go's regexp
// does not support: a lost mark would be an unmapped path.
func CompileMarks(raw json.RawMessage) (*Marks, error) {
	if len(raw) == 0 {
		return &Marks{}, nil
	}
	c := compiler{done: map[string]*schema{}, parents: map[*schema][]*schema{}}
	if err := json.Unmarshal(raw, &c.doc); err != nil {
		return nil, dray.Errorf(dray.CodeInvalidInput, "read the schema: %w", err).
			WithHint("a schema is a JSON object")
	}
	top := c.compile("", c.doc)
	if c.err != nil {
		return nil, c.err
	}
	c.propagateMarks()
	return &Marks{top: pushSchema(nil, 0, top)}, nil
}

// compiler compiles each subschema once. It retains the first error.
type compiler struct {
	doc any
	// done has the schemas by the JSON pointers of their subschemas, which allows cyclic references.
	done map[string]*schema
	// parents has the schemas that refer to each schema.
	parents map[*schema][]*schema
	err     error
}

func (c *compiler) fail(at, what, fix string) {
	if c.err != nil {
		return
	}
	err := dray.Errorf(dray.CodeInvalidInput, "schema at %s: %s", quote(at), what).WithHint("%s", fix)
	err.Details = []dray.Detail{{Pointer: at, Message: what}}
	c.err = err
}

func (c *compiler) compile(at string, doc any) *schema {
	if s, ok := c.done[at]; ok || c.err != nil {
		return s
	}
	s := &schema{}
	c.done[at] = s
	switch doc := doc.(type) {
	case bool:
	case map[string]any:
		s.kinds = c.kindsAt(at, doc)
		c.refs(s, at, doc)
		c.members(s, at, doc)
		s.prefix = c.array(s, at, doc, "prefixItems")
		s.items = c.compileAt(s, at, doc, "items")
		for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
			s.combined = append(s.combined, c.array(s, at, doc, keyword)...)
		}
		for _, keyword := range []string{"if", "then", "else"} {
			s.combined = append(s.combined, c.compileAt(s, at, doc, keyword))
		}
	default:
		c.fail(at, "it is not a schema", "a schema is an object or a boolean")
	}
	return s
}

// compileAt compiles the schema of a keyword and records its parent. It returns nil if there is
// none.
func (c *compiler) compileAt(user *schema, at string, doc map[string]any, key string) *schema {
	value, ok := doc[key]
	if !ok {
		return nil
	}
	return c.use(user, c.compile(dray.JSONPointer(at, key), value))
}

func (c *compiler) use(user, used *schema) *schema {
	if used != nil {
		c.parents[used] = append(c.parents[used], user)
	}
	return used
}

func (c *compiler) kindsAt(at string, doc map[string]any) kinds {
	var k kinds
	switch doc["format"] {
	case "path":
		k = singlePath
	case "path-list":
		k = pathList
	case "file-uri":
		k = fileURI
	}
	mark, ok := doc["x-path"]
	marked, isBool := mark.(bool)
	if ok && !isBool {
		c.fail(at+"/x-path", "x-path is not a boolean", "write true, or use a format for lists and URIs")
	}
	if marked {
		k |= singlePath
	}
	return k
}

func (c *compiler) refs(s *schema, at string, doc map[string]any) {
	for _, keyword := range []string{"$ref", "$dynamicRef"} {
		ref, ok := doc[keyword]
		if !ok {
			continue
		}
		target, value, ok := c.resolve(ref)
		if !ok {
			c.fail(at+"/"+keyword, "the reference has no target in this schema",
				"references are JSON pointers such as #/$defs/name")
			return
		}
		s.combined = append(s.combined, c.use(s, c.compile(target, value)))
	}
}

// resolve follows a reference of the form "#" or "#/a/b" and returns the canonical pointer of its
// target.
func (c *compiler) resolve(ref any) (target string, value any, ok bool) {
	text, _ := ref.(string)
	fragment, ok := strings.CutPrefix(text, "#")
	fragment, err := url.PathUnescape(fragment)
	if !ok || err != nil || fragment != "" && fragment[0] != '/' {
		return "", nil, false
	}
	value = c.doc
	for _, step := range strings.Split(fragment, "/")[1:] {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		if value, ok = child(value, step); !ok {
			return "", nil, false
		}
		target = dray.JSONPointer(target, step)
	}
	return target, value, true
}

func child(value any, step string) (any, bool) {
	switch value := value.(type) {
	case map[string]any:
		v, ok := value[step]
		return v, ok
	case []any:
		i, err := strconv.Atoi(step)
		if err == nil && 0 <= i && i < len(value) {
			return value[i], true
		}
	}
	return nil, false
}

func (c *compiler) members(s *schema, at string, doc map[string]any) {
	s.props = map[string]*schema{}
	c.each(at, doc, "properties", func(at, key string, value any) {
		s.props[key] = c.use(s, c.compile(at, value))
	})
	c.each(at, doc, "patternProperties", func(at, key string, value any) {
		re, err := regexp.Compile(key)
		if err != nil {
			c.fail(at, "the pattern is not supported: "+err.Error(),
				"write it in RE2 syntax, without lookaround")
			return
		}
		s.patterns = append(s.patterns, patternSchema{re, c.use(s, c.compile(at, value))})
	})
	s.additional = c.compileAt(s, at, doc, "additionalProperties")
}

// each visits the subschemas of a keyword whose value is an object, in the order of their keys.
func (c *compiler) each(at string, doc map[string]any, keyword string,
	visit func(at, key string, value any),
) {
	value, ok := doc[keyword]
	if !ok {
		return
	}
	at += "/" + keyword
	subs, ok := value.(map[string]any)
	if !ok {
		c.fail(at, keyword+" is not an object", "write a schema for each key")
	}
	for _, key := range slices.Sorted(maps.Keys(subs)) {
		visit(dray.JSONPointer(at, key), key, subs[key])
	}
}

// array compiles the subschemas of a keyword whose value is an array.
func (c *compiler) array(user *schema, at string, doc map[string]any, keyword string) []*schema {
	value, ok := doc[keyword]
	if !ok {
		return nil
	}
	at += "/" + keyword
	subs, ok := value.([]any)
	if !ok {
		c.fail(at, keyword+" is not an array", "write a list of schemas")
	}
	schemas := make([]*schema, len(subs))
	for i, sub := range subs {
		schemas[i] = c.use(user, c.compile(at+"/"+strconv.Itoa(i), sub))
	}
	return schemas
}

// propagateMarks sets hasMarks of all schemas that reach a mark.
func (c *compiler) propagateMarks() {
	var queue []*schema
	for _, s := range c.done {
		if s.hasMarks = s.kinds != 0; s.hasMarks {
			queue = append(queue, s)
		}
	}
	for i := 0; i < len(queue); i++ {
		for _, user := range c.parents[queue[i]] {
			if !user.hasMarks {
				user.hasMarks = true
				queue = append(queue, user)
			}
		}
	}
	for _, s := range c.done {
		s.pickSmallProps()
	}
}
