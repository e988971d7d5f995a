package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// syntaxError is why bytes are not one JSON document: where, in bytes from the beginning, and within which value.
type syntaxError struct {
	offset  int64
	pointer string
	message string
	tooDeep bool
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s at offset %d", e.message, e.offset) }

// scanTokens reads exactly one JSON document and calls visit after each token. It holds the document to what all of dray accepts: unique
// keys, valid UTF-8, nothing behind the value. NaN, Infinity, comments and trailing commas are not JSON.
func scanTokens(doc []byte, visit func(*jsontext.Decoder, jsontext.Token) error) *syntaxError {
	dec := jsontext.NewDecoder(bytes.NewBuffer(doc))
	for {
		tok, err := dec.ReadToken()
		if err != nil {
			return syntaxOf(err, dec)
		}
		if err := visit(dec, tok); err != nil {
			return &syntaxError{offset: dec.InputOffset(), pointer: string(dec.StackPointer()), message: err.Error()}
		}
		if dec.StackDepth() == 0 {
			return end(dec)
		}
	}
}

func end(dec *jsontext.Decoder) *syntaxError {
	offset := dec.InputOffset()
	switch _, err := dec.ReadToken(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return syntaxOf(err, dec)
	default:
		return &syntaxError{offset: offset, message: "there is more behind the first value"}
	}
}

func syntaxOf(err error, dec *jsontext.Decoder) *syntaxError {
	var s *jsontext.SyntacticError
	switch {
	case errors.As(err, &s) && s.Err != nil:
		return &syntaxError{offset: s.ByteOffset, pointer: string(s.JSONPointer), message: s.Err.Error()}
	case errors.Is(err, io.EOF):
		return &syntaxError{offset: dec.InputOffset(), message: io.ErrUnexpectedEOF.Error()}
	default:
		return &syntaxError{offset: dec.InputOffset(), message: err.Error()}
	}
}

// decode reads a document for validation, numbers as json.Number. Those that cost more to compare than a call may cost are refused: the
// validator compares exactly, and 1e999999 has a million digits.
func decode(doc json.RawMessage) (any, error) {
	var b valueBuilder
	if err := scanTokens(doc, b.add); err != nil {
		return nil, err
	}
	return b.top, nil
}

// valueBuilder makes Go's values of tokens.
type valueBuilder struct {
	top any
	// open are the containers around the next token. The key of an object's next value stands beside it.
	open []frame
}

type frame struct {
	object map[string]any // nil for an array
	array  []any
	key    string
	hasKey bool
}

func (b *valueBuilder) add(_ *jsontext.Decoder, tok jsontext.Token) error {
	switch tok.Kind() {
	case jsontext.KindBeginObject:
		b.open = append(b.open, frame{object: map[string]any{}})
	case jsontext.KindBeginArray:
		b.open = append(b.open, frame{array: []any{}})
	case jsontext.KindEndObject, jsontext.KindEndArray:
		last := b.open[len(b.open)-1]
		b.open = b.open[:len(b.open)-1]
		if last.object == nil {
			b.put(last.array)
		} else {
			b.put(last.object)
		}
	case jsontext.KindString:
		b.text(tok.String())
	case jsontext.KindNumber:
		n := tok.String()
		b.put(json.Number(n))
		return checkNumber(n)
	case jsontext.KindNull:
		b.put(nil)
	default:
		b.put(tok.Bool())
	}
	return nil
}

// text takes a string, which is a key where the object around it waits for one.
func (b *valueBuilder) text(s string) {
	if n := len(b.open); n > 0 && b.open[n-1].object != nil && !b.open[n-1].hasKey {
		b.open[n-1].key, b.open[n-1].hasKey = s, true
		return
	}
	b.put(s)
}

func (b *valueBuilder) put(v any) {
	n := len(b.open)
	if n == 0 {
		b.top = v
		return
	}
	in := &b.open[n-1]
	if in.object == nil {
		in.array = append(in.array, v)
		return
	}
	in.object[in.key] = v
	in.hasKey = false
}

// maxNumber bounds the digits of a number and its exponent.
const maxNumber = 1000

func checkNumber(n string) error {
	if len(n) > maxNumber {
		return fmt.Errorf("a number has %d characters, and %d are the most", len(n), maxNumber)
	}
	i := strings.IndexAny(n, "eE")
	if i < 0 {
		return nil
	}
	if exp, err := strconv.Atoi(n[i+1:]); err != nil || exp > maxNumber || exp < -maxNumber {
		return fmt.Errorf("the exponent of %s is beyond %d", n, maxNumber)
	}
	return nil
}

// withPointer points at what decode found.
func withPointer(err error, prefix string) dray.Detail {
	d := dray.Detail{Pointer: prefix, Message: cut(err.Error(), maxMessage)}
	if s, ok := errors.AsType[*syntaxError](err); ok {
		d.Pointer += s.pointer
	}
	return d
}
