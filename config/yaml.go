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

// maxDepth bounds nesting. The deepest thing that belongs into a configuration is a tool's schema.
const maxDepth = 100

// yamlReader turns YAML into values, refusing what would make a file say something else than it
// seems to: keys that stand twice, anchors, tags, merge keys, second documents.
type yamlReader struct {
	*diagnostics
	at func(line, column int) Origin
}

// read gives the value of a document, which is empty for an empty one. It is false where the
// document is no YAML.
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
		r.add(Diagnostic{
			Origin: r.at(second.Line,
				0), Key: key, Problem: "a second YAML document begins here", Suggestion: "keep one document: drop the line with ---",
		})
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

var (
	yamlLine = regexp.MustCompile(`^line (\d+): `)
	// yamlBytes tells what was wrong with the bytes, wherever they stand. Of everything else that has
	// no line the place is the first one.
	yamlBytes = regexp.MustCompile(`octet|UTF-|surrogate|control characters|Unicode`)
)

// syntax reports what the YAML parser could not read.
func (r yamlReader) syntax(err error, data []byte, key string) {
	what := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if m := yamlLine.FindStringSubmatch(what); m != nil {
		line, _ = strconv.Atoi(m[1])
		what = what[len(m[0]):]
	} else if !yamlBytes.MatchString(what) {
		line = 1
	}
	fix := "look at this line and the one before it: indentation, quotes, the colon after each key"
	if indentedWithTab(data) {
		fix = "indent with spaces: YAML does not allow tabs"
	}
	r.add(Diagnostic{
		Origin: r.at(line, 0), Key: key, Problem: "is not YAML: " + printable(what),
		Suggestion: fix,
	})
}

func indentedWithTab(data []byte) bool {
	return bytes.HasPrefix(data, []byte("\t")) || bytes.Contains(data, []byte("\n\t"))
}

func (r yamlReader) value(n *yaml.Node, key string, depth int) value {
	v := value{key: key, origin: r.at(n.Line, n.Column)}
	if problem, fix := forbidden(n, depth); problem != "" {
		r.add(Diagnostic{Origin: v.origin, Key: key, Problem: problem, Suggestion: fix})
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

// forbidden says what is wrong with a node whatever it holds.
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
			r.add(Diagnostic{Origin: at, Key: key, Problem: problem, Suggestion: fix})
			continue
		}
		member := join(key, name.Value)
		if before, ok := first[name.Value]; ok {
			r.add(Diagnostic{
				Origin: at, Key: member, Problem: "stands here for the second time, the first is at " +
					before.String(), Suggestion: "keep one of the two",
			})
			continue
		}
		first[name.Value] = at
		fields = append(fields, field{name.Value, at, r.value(n.Content[i+1], member, depth+1)})
	}
	return fields
}

// badName says what is wrong with a key.
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
