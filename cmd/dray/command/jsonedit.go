package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// jsonEditError says where a text is not an object of JSON with comments.
type jsonEditError struct {
	line, column int
	problem      string
}

func (e *jsonEditError) Error() string {
	return fmt.Sprintf("%d:%d: %s", e.line, e.column, e.problem)
}

func newJSONEditError(text []byte, offset int64, problem string) *jsonEditError {
	before := text[:min(int(offset), len(text))]
	lineStart := bytes.LastIndexByte(before, '\n') + 1
	return &jsonEditError{bytes.Count(before, []byte{'\n'}) + 1, len(before) - lineStart + 1, problem}
}

// plainJSON returns a text of the same length without comments and trailing commas, which many
// programs allow in their configuration. Offsets into it are those of the text.
func plainJSON(text []byte) []byte {
	plain := bytes.Clone(text)
	comma := -1 // the last comma that nothing has followed yet
	for i := 0; i < len(plain); i++ {
		switch c := plain[i]; {
		case c == '"':
			comma = -1
			i = endOfString(plain, i)
		case bytes.HasPrefix(plain[i:], []byte("//")):
			i = blank(plain, i, bytes.IndexAny(plain[i:], "\r\n"))
		case bytes.HasPrefix(plain[i:], []byte("/*")):
			if end := bytes.Index(plain[i+2:], []byte("*/")); end >= 0 {
				i = blank(plain, i, end+4)
			}
		case c == ',':
			comma = i
		case c == '}' || c == ']':
			if comma >= 0 {
				plain[comma] = ' '
			}
			comma = -1
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			comma = -1
		}
	}
	return plain
}

// endOfString returns the offset of the quote that ends the string which begins at i, or the last
// offset.
func endOfString(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(text) - 1
}

// blank writes spaces over n bytes from i on, but for line feeds, or over all if n is negative. It
// returns the offset of the last one.
func blank(text []byte, i, n int) int {
	if n < 0 {
		n = len(text) - i
	}
	for j := i; j < i+n; j++ {
		if text[j] != '\n' {
			text[j] = ' '
		}
	}
	return i + n - 1
}

// jsonObject is where an object stands in a text.
type jsonObject struct {
	open, end int // of its first brace, and after its last one
	first     int // of the name of its first member; -1 if it has none
	last      int // after its last member, without a comma
	// The value of the member that was looked for, if it has that.
	found             bool
	valueAt, valueEnd int
}

// findInObject reads the object that begins at an offset, and looks for a member.
func findInObject(plain []byte, at int, name string) (o jsonObject, err error) {
	o = jsonObject{first: -1}
	dec := jsontext.NewDecoder(bytes.NewReader(plain[at:]), jsontext.AllowDuplicateNames(true))
	fail := func(err error) (jsonObject, error) {
		problem := "is not JSON"
		if errors.Is(err, io.ErrUnexpectedEOF) {
			problem = "is not JSON: the file ends too early"
		}
		return o, newJSONEditError(plain, int64(at)+dec.InputOffset(), problem)
	}
	token, err := dec.ReadToken()
	if err != nil {
		return fail(err)
	}
	if token.Kind() != '{' {
		blanks := len(plain[at:]) - len(bytes.TrimLeft(plain[at:], " \t\r\n"))
		return o, newJSONEditError(plain, int64(at+blanks), "is not an object")
	}
	o.open = at + int(dec.InputOffset()) - 1
	for dec.PeekKind() == '"' {
		key, err := dec.ReadToken()
		if err != nil {
			return fail(err)
		}
		found := key.String() == name
		if o.first < 0 {
			o.first = o.open + 1 + bytes.IndexByte(plain[o.open+1:], '"')
		}
		value, err := dec.ReadValue()
		if err != nil {
			return fail(err)
		}
		o.last = at + int(dec.InputOffset())
		if found {
			o.found, o.valueAt, o.valueEnd = true, o.last-len(value), o.last
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return fail(err)
	}
	o.end = at + int(dec.InputOffset())
	return o, nil
}

// findJSON returns the innermost object on the way to a member that exists, and how many names of
// path lead to it.
func findJSON(text []byte, path []string) (o jsonObject, depth int, err error) {
	plain := plainJSON(text)
	if o, err = findInObject(plain, 0, path[0]); err != nil {
		return o, 0, err
	}
	if rest := bytes.TrimLeft(plain[o.end:], " \t\r\n"); len(rest) > 0 {
		return o, 0, newJSONEditError(text, int64(len(plain)-len(rest)), "follows the object")
	}
	for o.found && depth+1 < len(path) {
		depth++
		if o, err = findInObject(plain, o.valueAt, path[depth]); err != nil {
			return o, 0, err
		}
	}
	return o, depth, nil
}

// jsonMember returns the value of a member of a text of JSON with comments.
func jsonMember(text []byte, path ...string) (value jsontext.Value, found bool, err error) {
	o, _, err := findJSON(text, path)
	if err != nil || !o.found {
		return nil, false, err
	}
	return plainJSON(text)[o.valueAt:o.valueEnd], true, nil
}

// setJSONMember returns the text with a member set to a value, and everything else as it is. It
// fails with a *jsonEditError for a text that is no object, or has something else than an object on
// the way to the member.
func setJSONMember(text []byte, value jsontext.Value, path ...string) ([]byte, error) {
	o, depth, err := findJSON(text, path)
	if err != nil {
		return nil, err
	}
	if o.found {
		return replaceRange(text, o.valueAt, o.valueEnd, string(indentJSON(text, o, value))), nil
	}
	for i := len(path) - 1; i > depth; i-- {
		name, err := json.Marshal(path[i])
		if err != nil {
			return nil, err
		}
		value = fmt.Appendf(nil, "{%s:%s}", name, value)
	}
	name, err := json.Marshal(path[depth])
	if err != nil {
		return nil, err
	}
	member := string(name) + ": " + string(indentJSON(text, o, value))
	indent, ownLines := memberIndent(text, o)
	switch {
	case o.first >= 0 && ownLines:
		return replaceRange(text, o.last, o.last, ",\n"+indent+member), nil
	case o.first >= 0:
		return replaceRange(text, o.last, o.last, ", "+member), nil
	}
	member = "\n" + indent + member
	if !bytes.ContainsRune(text[o.open:o.end], '\n') {
		member += "\n" + lineIndent(text, o.open)
	}
	return replaceRange(text, o.open+1, o.open+1, member), nil
}

func replaceRange(text []byte, from, to int, with string) []byte {
	return []byte(string(text[:from]) + with + string(text[to:]))
}

// indentJSON returns a value as it stands in a member of an object: in lines, if the object has
// lines.
func indentJSON(text []byte, o jsonObject, value jsontext.Value) jsontext.Value {
	indent, ownLines := memberIndent(text, o)
	value = value.Clone()
	if ownLines {
		_ = value.Indent(jsontext.WithIndentPrefix(indent), jsontext.WithIndent(indentUnit(text)))
	}
	return value
}

// memberIndent returns the blanks in front of the members of an object, and whether each has a line
// of its own.
func memberIndent(text []byte, o jsonObject) (indent string, ownLines bool) {
	if o.first < 0 {
		return lineIndent(text, o.open) + indentUnit(text), true
	}
	indent = lineIndent(text, o.first)
	lineStart := bytes.LastIndexByte(text[:o.first], '\n') + 1
	return indent, lineStart+len(indent) == o.first && lineStart > 0
}

// lineIndent returns the blanks at the beginning of the line of an offset.
func lineIndent(text []byte, offset int) string {
	line := text[bytes.LastIndexByte(text[:offset], '\n')+1:]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// indentUnit returns by what a text indents its lines.
func indentUnit(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if unit := line[:len(line)-len(strings.TrimLeft(line, " \t"))]; unit != "" &&
			strings.HasPrefix(line[len(unit):], `"`) {
			return unit
		}
	}
	return "  "
}

// sameJSON reports whether two values are equal, whatever the space in them.
func sameJSON(a, b jsontext.Value) bool {
	a, b = a.Clone(), b.Clone()
	return a.Canonicalize() == nil && b.Canonicalize() == nil && bytes.Equal(a, b)
}
