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
	"github.com/santhosh-tekuri/jsonschema/v6"

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

// scan reads exactly one JSON document and calls visit after each token. It holds the document to what all of dray accepts: unique
// keys, valid UTF-8, nothing behind the value. NaN, Infinity, comments and trailing commas are not JSON.
func scan(doc []byte, visit func(*jsontext.Decoder, jsontext.Token) error) *syntaxError {
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

// decode reads a document for validation. Numbers that cost more to compare than a call may cost are refused: the validator compares
// exactly, and 1e999999 has a million digits.
func decode(doc json.RawMessage) (any, error) {
	err := scan(doc, func(_ *jsontext.Decoder, tok jsontext.Token) error {
		if tok.Kind() == jsontext.KindNumber {
			return checkNumber(tok.String())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(doc))
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

// located points at what decode found.
func located(err error, prefix string) dray.Detail {
	d := dray.Detail{Pointer: prefix, Message: cut(err.Error(), maxMessage)}
	if s, ok := errors.AsType[*syntaxError](err); ok {
		d.Pointer += s.pointer
	}
	return d
}
