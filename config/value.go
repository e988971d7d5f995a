package config

import (
	"bytes"
	"encoding/json"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// nodeKind is what a value looks like, whatever it means.
type nodeKind int

const (
	empty nodeKind = iota
	scalar
	list
	object
	// invalid is what the reader has reported already; nothing more is said about it.
	invalid
)

// value is a piece of configuration before anyone has asked what it means: the same for file,
// variable, flag and default, so that each setting is read by one piece of code.
type value struct {
	key    string
	origin Origin
	shape  nodeKind
	// text is a scalar as it is written, kind what YAML takes it for without quotes.
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

// String gives the kind as an error names it.
func (k kind) String() string {
	return [...]string{"text", "number", "number", "truth value"}[k]
}

// plain makes a value of a text that came without YAML around it.
func plain(key, s string, at Origin) value {
	return value{key: key, origin: at, shape: scalar, text: s}
}

// display is a scalar as an error repeats it.
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

// field finds a key of an object.
func (v value) field(name string) (value, bool) {
	for _, f := range v.fields {
		if f.name == name {
			return f.value, true
		}
	}
	return value{}, false
}

// kindMismatch says that a value has not the shape that its key wants.
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

// withoutText is the value for errors that are about the key, or about what is missing beneath it.
func (v value) withoutText() value {
	if v.shape != invalid {
		v.shape = empty
	}
	return v
}

// hidden marks a value and all beneath it as secret.
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

// join gives the key of a member of key.
func join(key, name string) string {
	if key == "" {
		return quoteName(name)
	}
	return key + "." + quoteName(name)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,80}$`)

var plainPath = regexp.MustCompile(`^[A-Za-z0-9_./-]+$`)

// quoteName gives a name that an operator chose as an error shows it: bare, or quoted where it
// would not read as one word.
func quoteName(name string) string {
	if plainWord.MatchString(name) {
		return name
	}
	return quoteValue(name)
}

// index gives the key of an element of key.
func index(key string, i int) string {
	return key + "[" + strconv.Itoa(i) + "]"
}

// jsonObject writes a block as a JSON object with its keys in their order and its numbers as they
// are: an integer keeps all digits.
func (d *decoder) jsonObject(v value) json.RawMessage {
	if v.shape != object {
		d.addValue(v, v.kindMismatch("a JSON Schema"),
			"write it as YAML or JSON, for instance {type: object}")
		return nil
	}
	var b bytes.Buffer
	if !d.writeJSON(&b, v) {
		return nil
	}
	return b.Bytes()
}

// writeJSON is false where a value has no JSON form, which it has reported.
func (d *decoder) writeJSON(b *bytes.Buffer, v value) bool {
	switch v.shape {
	case empty:
		b.WriteString("null")
		return true
	case list:
		return d.writeJSONList(b, v)
	case object:
		return d.writeJSONObject(b, v)
	default:
		return d.writeJSONScalar(b, v)
	}
}

func (d *decoder) writeJSONList(b *bytes.Buffer, v value) bool {
	ok := true
	b.WriteByte('[')
	for i, item := range v.items {
		if i > 0 {
			b.WriteByte(',')
		}
		ok = d.writeJSON(b, item) && ok
	}
	b.WriteByte(']')
	return ok
}

func (d *decoder) writeJSONObject(b *bytes.Buffer, v value) bool {
	ok := true
	b.WriteByte('{')
	for i, f := range v.fields {
		if i > 0 {
			b.WriteByte(',')
		}
		writeJSONText(b, f.name)
		b.WriteByte(':')
		ok = d.writeJSON(b, f.value) && ok
	}
	b.WriteByte('}')
	return ok
}

func (d *decoder) writeJSONScalar(b *bytes.Buffer, v value) bool {
	switch v.kind {
	case boolean:
		b.WriteString(strings.ToLower(v.text))
	case integer, float:
		number, ok := jsonNumber(v)
		if !ok {
			d.addValue(v, "is a number that JSON does not have",
				"write a decimal number, or put it in quotes")
			return false
		}
		b.WriteString(number)
	default:
		writeJSONText(b, v.text)
	}
	return true
}

// jsonNumber keeps the digits where JSON reads them as YAML does, and converts hexadecimal, octal,
// underscores and the like.
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
	_ = enc.Encode(s) // a string always has a JSON form, and a bytes.Buffer takes it
	b.Truncate(b.Len() - 1)
}
