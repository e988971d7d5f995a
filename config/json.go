package config

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
)

// jsonObject writes a block as a JSON object with its keys in their order and its numbers as they are: an integer keeps all digits.
func (d *decoder) jsonObject(v value) json.RawMessage {
	if v.shape != object {
		d.addValue(v, v.kindMismatch("a JSON Schema"), "write it as YAML or JSON, for instance {type: object}")
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
			d.addValue(v, "is a number that JSON does not have", "write a decimal number, or put it in quotes")
			return false
		}
		b.WriteString(number)
	default:
		writeJSONText(b, v.text)
	}
	return true
}

// jsonNumber keeps the digits where JSON reads them as YAML does, and converts hexadecimal, octal, underscores and the like.
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
