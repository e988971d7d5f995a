package config

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
)

// nodeKind is the syntactic kind of a value.
type nodeKind int

const (
	empty nodeKind = iota
	scalar
	list
	object
	// invalid is a value with a reported problem; no other is reported.
	invalid
)

// value is an uninterpreted value. It is the same for file, variable and default, so that one
// function decodes a setting.
type value struct {
	key    string
	origin Origin
	shape  nodeKind
	// text is the text of a scalar, kind its type in YAML.
	text   string
	kind   kind
	items  []value
	fields []field
	secret bool
}

// field is one key of an object, in the order of the file.
type field struct {
	name   string
	origin Origin
	value  value
}

// kind is the type of a scalar.
type kind int

const (
	text kind = iota
	integer
	float
	boolean
)

// String returns the kind for errors.
func (k kind) String() string {
	return [...]string{"text", "number", "number", "boolean"}[k]
}

// plain returns a value of a text that is not YAML.
func plain(key, s string, at Origin) value {
	return value{key: key, origin: at, shape: scalar, text: s}
}

// display returns a scalar for errors.
func (v value) display() string {
	switch {
	case v.secret || v.shape != scalar:
		return ""
	case v.kind != text:
		return v.text
	default:
		return quoteValue(maskPassword(v.text))
	}
}

// field returns a member of an object.
func (v value) field(name string) (value, bool) {
	for _, f := range v.fields {
		if f.name == name {
			return f.value, true
		}
	}
	return value{}, false
}

// kindMismatch returns the problem of a value of the wrong kind.
func (v value) kindMismatch(what string) string {
	switch v.shape {
	case list:
		return "is a list, not " + what
	case object:
		return "is a block of keys, not " + what
	case empty:
		return "is empty, not " + what
	default:
		return "is not " + what
	}
}

// withoutText returns the value for a problem of its key or of a missing member.
func (v value) withoutText() value {
	if v.shape != invalid {
		v.shape = empty
	}
	return v
}

// hidden returns the value with all of it marked as secret.
func (v value) hidden() value {
	v.secret = true
	items := make([]value, len(v.items))
	for i := range v.items {
		items[i] = v.items[i].hidden()
	}
	fields := make([]field, len(v.fields))
	for i, f := range v.fields {
		f.value = f.value.hidden()
		fields[i] = f
	}
	v.items, v.fields = items, fields
	return v
}

// rekeyed returns the value with the beginning of its key, and of the keys in it, replaced.
func (v value) rekeyed(from, to string) value {
	v.key = to + strings.TrimPrefix(v.key, from)
	items, fields := make([]value, len(v.items)), make([]field, len(v.fields))
	for i := range v.items {
		items[i] = v.items[i].rekeyed(from, to)
	}
	for i, f := range v.fields {
		f.value = f.value.rekeyed(from, to)
		fields[i] = f
	}
	v.items, v.fields = items, fields
	return v
}

// join returns the key of a member of key.
func join(key, name string) string {
	if key == "" {
		return quoteName(name)
	}
	return key + "." + quoteName(name)
}

// isPlain reports whether s consists of ASCII letters, digits and the given other characters, and
// is not empty.
func isPlain(s, others string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !letter && !strings.ContainsRune(others, c)
	})
}

// quoteName returns a name for errors, quoted unless it is one plain word.
func quoteName(name string) string {
	if isPlain(name, "_.-") && len(name) <= maxQuoted {
		return name
	}
	return quoteValue(name)
}

// index returns the key of an element of key.
func index(key string, i int) string {
	return key + "[" + strconv.Itoa(i) + "]"
}

// jsonObject returns a block as a JSON object that keeps the order of keys and the digits of
// numbers.
func (r valueReader) jsonObject(v value) json.RawMessage {
	r.recordOrigin(v)
	if v.shape != object {
		r.addValue(v, v.kindMismatch("a JSON Schema"),
			"write it as YAML or JSON, for instance {type: object}")
		return nil
	}
	w := jsonWriter{diagnostics: r.diagnostics}
	if !w.write(v) {
		return nil
	}
	return w.out.Bytes()
}

// jsonWriter writes values as compact JSON. Its methods return false, and report the value, if it
// has no JSON form.
type jsonWriter struct {
	*diagnostics
	out bytes.Buffer
}

func (w *jsonWriter) write(v value) bool {
	switch v.shape {
	case empty:
		w.out.WriteString("null")
		return true
	case list:
		return w.elements('[', ']', len(v.items), func(i int) bool { return w.write(v.items[i]) })
	case object:
		return w.elements('{', '}', len(v.fields), func(i int) bool {
			writeJSONText(&w.out, v.fields[i].name)
			w.out.WriteByte(':')
			return w.write(v.fields[i].value)
		})
	default:
		return w.scalar(v)
	}
}

func (w *jsonWriter) elements(first, last byte, n int, element func(i int) bool) bool {
	ok := true
	w.out.WriteByte(first)
	for i := range n {
		if i > 0 {
			w.out.WriteByte(',')
		}
		ok = element(i) && ok
	}
	w.out.WriteByte(last)
	return ok
}

func (w *jsonWriter) scalar(v value) bool {
	switch v.kind {
	case boolean:
		w.out.WriteString(strings.ToLower(v.text))
	case integer, float:
		number, ok := jsonNumber(v)
		if !ok {
			w.addValue(v, "is a number without a JSON form", "write a decimal number, or put it in quotes")
			return false
		}
		w.out.WriteString(number)
	default:
		writeJSONText(&w.out, v.text)
	}
	return true
}

// jsonNumber returns a YAML number in JSON: unchanged where JSON reads it equally, else converted.
func jsonNumber(v value) (string, bool) {
	if json.Valid([]byte(v.text)) {
		return v.text, true
	}
	s := strings.ReplaceAll(v.text, "_", "")
	if v.kind == integer {
		n, ok := new(big.Int).SetString(strings.TrimPrefix(s, "+"), 0)
		if !ok {
			return "", false
		}
		return n.String(), true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return "", false
	}
	out, err := json.Marshal(f)
	return string(out), err == nil
}

func writeJSONText(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always has a JSON form
	b.Truncate(b.Len() - 1)
}
