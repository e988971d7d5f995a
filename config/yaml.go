package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxDepth is the maximum nesting. The deepest values are schemas of tools.
const maxDepth = 100

// yamlReader reads YAML into values. It refuses duplicate keys, anchors, tags, merge keys and
// second documents.
type yamlReader struct {
	*diagnostics
	at func(line, column int) Origin
}

// read returns the value of a document, which may be empty. It returns false if the document is not
// YAML.
func (r yamlReader) read(data []byte, key string) (value, bool) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return value{key: key, origin: r.at(0, 0)}, true
	}
	if err == nil {
		err = dec.Decode(&second)
	}
	if err == nil {
		r.addKey(r.at(second.Line, 0), key, "a second YAML document begins here",
			"keep one document: remove the line with ---")
		return value{}, false
	}
	if !errors.Is(err, io.EOF) {
		r.syntax(err, data, key)
		return value{}, false
	}
	if len(doc.Content) == 0 {
		return value{key: key, origin: r.at(0, 0)}, true
	}
	return r.value(doc.Content[0], key, 0), true
}

// syntax reports a syntax error of the YAML parser. An error without a line is about the encoding,
// at an unknown position, or else about the first line.
func (r yamlReader) syntax(err error, data []byte, key string) {
	what := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	yamlLine := regexp.MustCompile(`^line (\d+): `)
	encoding := regexp.MustCompile(`octet|UTF-|surrogate|control characters|Unicode`)
	if m := yamlLine.FindStringSubmatch(what); m != nil {
		line, _ = strconv.Atoi(m[1])
		what = what[len(m[0]):]
	} else if !encoding.MatchString(what) {
		line = 1
	}
	fix := "check this line and the one before it: indentation, quotes, the colon after each key"
	if indentedWithTab(data) {
		fix = "indent with spaces: YAML does not allow tabs"
	}
	r.addKey(r.at(line, 0), key, "is not YAML: "+printable(what), fix)
}

func indentedWithTab(data []byte) bool {
	return bytes.HasPrefix(data, []byte("\t")) || bytes.Contains(data, []byte("\n\t"))
}

func (r yamlReader) value(n *yaml.Node, key string, depth int) value {
	v := value{key: key, origin: r.at(n.Line, n.Column)}
	if problem, fix := forbidden(n, depth); problem != "" {
		r.addKey(v.origin, key, problem, fix)
		v.shape = invalid
		return v
	}
	switch n.Kind {
	case yaml.MappingNode:
		v.shape = object
		v.fields = r.fields(n, key, depth)
	case yaml.SequenceNode:
		v.shape = list
		for i, item := range n.Content {
			v.items = append(v.items, r.value(item, index(key, i), depth+1))
		}
	default:
		r.scalar(n, &v)
	}
	return v
}

// forbidden returns the problem of a node, whatever it contains.
func forbidden(n *yaml.Node, depth int) (problem, fix string) {
	switch {
	case depth > maxDepth:
		return fmt.Sprintf("is nested deeper than %d levels", maxDepth), "make it flatter"
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return "anchors and aliases (& and *) are not supported",
			"write the value out where it is used; quote a text that begins with & or *"
	case n.Style&yaml.TaggedStyle != 0:
		return "tags (!) are not supported", "write the plain value; quote a text that begins with !"
	default:
		return "", ""
	}
}

func (r yamlReader) scalar(n *yaml.Node, v *value) {
	v.shape, v.text = scalar, n.Value
	switch n.ShortTag() {
	case "!!null":
		*v = value{key: v.key, origin: v.origin}
	case "!!int":
		v.kind = integer
	case "!!float":
		v.kind = float
	case "!!bool":
		v.kind = boolean
	}
}

func (r yamlReader) fields(n *yaml.Node, key string, depth int) []field {
	fields := make([]field, 0, len(n.Content)/2)
	first := make(map[string]Origin, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		at := r.at(name.Line, name.Column)
		if problem, fix := badName(name); problem != "" {
			r.addKey(at, key, problem, fix)
			continue
		}
		member := join(key, name.Value)
		if before, ok := first[name.Value]; ok {
			r.addKey(at, member, "is a duplicate key, the first is at "+before.String(),
				"keep one of the two")
			continue
		}
		first[name.Value] = at
		fields = append(fields, field{name.Value, at, r.value(n.Content[i+1], member, depth+1)})
	}
	return fields
}

// badName returns the problem of a key.
func badName(n *yaml.Node) (problem, fix string) {
	if problem, fix := forbidden(n, 0); problem != "" {
		return problem, fix
	}
	if n.Kind != yaml.ScalarNode {
		return "a key is a list or a block here", "a key is one word followed by a colon"
	}
	switch n.ShortTag() {
	case "!!merge":
		return "merge keys (<<) are not supported", "write the keys out"
	case "!!null":
		return "a key is missing before the colon", "write the key"
	default:
		return "", ""
	}
}
