package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// JSON returns a JSON value whose strings, names of members and numbers are redacted. What is not
// JSON is returned as it is: it is neither recorded nor returned.
func (r *Redactor) JSON(doc json.RawMessage) json.RawMessage {
	if r == nil || len(r.finders) == 0 {
		return doc
	}
	return r.walk(doc, walkOptions{})
}

// Event returns the JSON of an event: only its strings are redacted.
func (r *Redactor) Event(doc []byte) []byte {
	if r == nil || len(r.finders) == 0 {
		return doc
	}
	return r.walk(doc, walkOptions{onlyStrings: true})
}

// input is JSON for the input of the call: the secret fields are replaced as a whole.
func (r *Redactor) input(doc json.RawMessage) json.RawMessage {
	if len(r.fields) == 0 {
		return r.JSON(doc)
	}
	return r.walk(doc, walkOptions{fields: r.fields})
}

type walkOptions struct {
	// fields are the pointers of values, and of names (dray.SecretName), that are replaced as a whole.
	fields map[string]bool
	// onlyStrings leaves names and numbers as they are.
	onlyStrings bool
}

// walk copies a JSON value and replaces what is secret in it. Everything else keeps its bytes.
func (r *Redactor) walk(doc []byte, opts walkOptions) []byte {
	var out []byte
	done := 0
	err := eachToken(doc, opts.fields, func(t token) {
		replacement, ok := r.replacement(t, opts)
		if !ok {
			return
		}
		out = append(out, doc[done:t.start]...)
		out, _ = jsontext.AppendQuote(out, replacement) // it replaces invalid UTF-8
		done = t.end
	})
	if err != nil || done == 0 {
		return doc
	}
	return append(out, doc[done:]...)
}

// replacement returns the string that replaces a value or a name; ok is false if none does.
func (r *Redactor) replacement(t token, opts walkOptions) (_ string, ok bool) {
	switch {
	case t.field:
		return string(r.key.mark([]byte(t.text()))), true
	case opts.onlyStrings && (t.name || t.kind != '"'), t.kind != '"' && t.kind != '0':
		return "", false
	}
	before := t.text()
	after := r.Text(before)
	return after, after != before
}

// valuesAt returns the scalars of the values at JSON pointers, at most maxValues.
func valuesAt(doc []byte, fields map[string]bool) []string {
	if len(fields) == 0 {
		return nil
	}
	var values []string
	_ = eachToken(doc, fields, func(t token) {
		if !t.field {
			return
		}
		_ = eachToken(t.raw, nil, func(t token) {
			if len(values) < maxValues && !t.name && (t.kind == '"' || t.kind == '0') {
				values = append(values, t.text())
			}
		})
	})
	return values
}

// token is a scalar, the name of a member, or the whole value of a field.
type token struct {
	raw         []byte
	start, end  int
	kind        jsontext.Kind
	name, field bool
}

// text returns the content of a string, and other values as they are.
func (t token) text() string {
	if t.kind != '"' {
		return string(t.raw)
	}
	b, _ := jsontext.AppendUnquote(nil, t.raw) // invalid UTF-8 is replaced
	return string(b)
}

// pointer returns how the token that was just read is named in fields.
func (t token) pointer(dec *jsontext.Decoder) string {
	if t.name {
		return dray.SecretName + string(dec.StackPointer())
	}
	return string(dec.StackPointer())
}

// eachToken calls visit for each scalar and name in a JSON value. The value at each of the pointers
// in fields is one token.
func eachToken(doc []byte, fields map[string]bool, visit func(token)) error {
	dec := jsontext.NewDecoder(bytes.NewReader(doc),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		t, err := readToken(dec)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		opens, closes := t.kind == '{' || t.kind == '[', t.kind == '}' || t.kind == ']'
		t.name = !opens && !closes && isName(dec)
		t.field = len(fields) > 0 && !closes && fields[t.pointer(dec)]
		if opens && t.field {
			if err := skipToEnd(dec); err != nil {
				return err
			}
			t.end = int(dec.InputOffset())
		}
		if t.field || !opens && !closes {
			t.raw = doc[t.start:t.end]
			visit(t)
		}
	}
}

// readToken reads a scalar, a name, or a bracket.
func readToken(dec *jsontext.Decoder) (t token, err error) {
	n := 1
	switch t.kind = dec.PeekKind(); t.kind {
	case '{', '[', '}', ']':
		_, err = dec.ReadToken()
	default:
		var raw jsontext.Value
		raw, err = dec.ReadValue()
		n = len(raw)
	}
	t.end = int(dec.InputOffset())
	t.start = t.end - n
	return t, err
}

// isName reports whether the last token is the name of a member.
func isName(dec *jsontext.Decoder) bool {
	parent, n := dec.StackIndex(dec.StackDepth())
	return parent == '{' && n%2 == 1
}

// skipToEnd reads the rest of the object or array that was just begun.
func skipToEnd(dec *jsontext.Decoder) error {
	for depth := dec.StackDepth(); dec.StackDepth() >= depth; {
		if _, err := dec.ReadToken(); err != nil {
			return err
		}
	}
	return nil
}
