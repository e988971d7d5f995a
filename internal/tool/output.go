package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

const (
	// maxOutput is the maximum size in bytes of a stdout that is parsed as JSON.
	maxOutput = 16 << 20
	// maxDepth is the maximum nesting below the top-level value, as for paths in it.
	maxDepth = 64
)

// rawOutput is the output of a tool whose stdout does not parse.
type rawOutput struct {
	// RawOutput is the summary of the stream without surrounding white space.
	RawOutput  string     `json:"raw_output"`
	ParseError parseError `json:"parse_error"`
}

// parseError is why. Offset is in bytes from the beginning of stdout.
type parseError struct {
	Message string `json:"message"`
	Offset  int64  `json:"offset"`
}

// parseOutput returns the output of a tool, which is always an object. An empty stdout is {}, an
// object is itself, another value becomes {"result": value}. A stdout that does not parse becomes
// raw_output and parse_error, and cause is its syntax error. Numbers keep their digits.
func parseOutput(stdout io.Reader, view dray.StreamSummary) (json.RawMessage, *syntaxError, error) {
	output, cause, err := parseStream(stdout, view)
	if cause == nil || err != nil {
		return output, nil, err
	}
	output, err = jsonv2.Marshal(rawOutput{
		strings.TrimSpace(view.Text),
		parseError{lexical.Truncate(cause.message, maxMessage), cause.offset},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("encode raw output: %w", err)
	}
	return output, cause, nil
}

// parseStream parses a stream that was captured completely and is not too long.
func parseStream(stdout io.Reader, view dray.StreamSummary) (json.RawMessage, *syntaxError, error) {
	if view.Truncated {
		message := "the output was not captured to its end, so it is not parsed"
		return nil, &syntaxError{offset: view.KeptBytes, message: message}, nil
	}
	var b bytes.Buffer
	b.Grow(int(min(view.KeptBytes, maxOutput)) + bytes.MinRead) // one allocation
	if _, err := b.ReadFrom(io.LimitReader(stdout, maxOutput+1)); err != nil {
		return nil, nil, fmt.Errorf("read captured stdout: %w", err)
	}
	if b.Len() > maxOutput {
		message := fmt.Sprintf("output of more than %d bytes is not parsed", maxOutput)
		return nil, &syntaxError{offset: maxOutput, message: message}, nil
	}
	output, cause := parseObject(b.Bytes())
	return output, cause, nil
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// parseObject returns the object that stdout represents, or its syntax error. The object may share
// memory with stdout, which is modified.
func parseObject(stdout []byte) (json.RawMessage, *syntaxError) {
	text := bytes.TrimPrefix(stdout, byteOrderMark)
	if len(bytes.TrimSpace(text)) == 0 {
		return json.RawMessage("{}"), nil
	}
	value := jsontext.Value(bytes.Trim(text, " \t\r\n"))
	if !value.IsValid() {
		return nil, syntaxErrorOf(stdout)
	}
	deep, blank := measure(value)
	if deep > 0 {
		return nil, &syntaxError{
			offset:  int64(bytes.IndexByte(stdout, value[0]) + deep),
			message: fmt.Sprintf("nested deeper than %d", maxDepth), tooDeep: true,
		}
	}
	if blank {
		_ = value.Compact() // cannot fail: it is valid
	}
	if value.Kind() == jsontext.KindBeginObject {
		return json.RawMessage(value), nil
	}
	return fmt.Appendf(nil, `{"result":%s}`, value), nil
}

// measure returns the offset behind the bracket with which a valid document exceeds maxDepth, or
// zero, and whether there is white space between its tokens.
func measure(value jsontext.Value) (deep int, blank bool) {
	for i, open := 0, 0; i < len(value); i++ {
		switch c := value[i]; c {
		case '"':
			i += stringLen(value[i:]) - 1
		case '{', '[':
			if open++; open > maxDepth+1 {
				return i + 1, blank
			}
		case '}', ']':
			open--
		case ' ', '\t', '\n', '\r':
			blank = true
		}
	}
	return 0, blank
}

// stringLen returns the length of the JSON string at the beginning of text, with its quotes.
func stringLen(text []byte) int {
	for i := 1; ; {
		i += bytes.IndexByte(text[i:], '"')
		backslashes := 0
		for text[i-1-backslashes] == '\\' {
			backslashes++
		}
		if i++; backslashes%2 == 0 {
			return i
		}
	}
}

// syntaxErrorOf returns the syntax error of a stdout that does not parse.
func syntaxErrorOf(stdout []byte) *syntaxError {
	text := bytes.TrimPrefix(stdout, byteOrderMark)
	dec := jsontext.NewDecoder(bytes.NewBuffer(text))
	var cause *syntaxError
	if _, err := dec.ReadValue(); err != nil {
		cause = syntaxOf(err, dec)
	} else {
		cause = end(dec)
	}
	cause.offset += int64(len(stdout) - len(text))
	return cause
}

// syntaxError is why bytes are not one JSON document: the offset in bytes, and the pointer to the
// value.
type syntaxError struct {
	offset  int64
	pointer string
	message string
	tooDeep bool
	// repeatedKey is set by newObject, which does not know where the key stands.
	repeatedKey bool
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s at offset %d", e.message, e.offset) }

func end(dec *jsontext.Decoder) *syntaxError {
	offset := dec.InputOffset()
	switch _, err := dec.ReadToken(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return syntaxOf(err, dec)
	default:
		return &syntaxError{offset: offset, message: "unexpected data after the first value"}
	}
}

func syntaxOf(err error, dec *jsontext.Decoder) *syntaxError {
	var s *jsontext.SyntacticError
	switch {
	case errors.As(err, &s) && s.Err != nil:
		return &syntaxError{
			offset: s.ByteOffset, pointer: string(s.JSONPointer), message: s.Err.Error(),
		}
	case errors.Is(err, io.EOF):
		return &syntaxError{offset: dec.InputOffset(), message: io.ErrUnexpectedEOF.Error()}
	default:
		return &syntaxError{offset: dec.InputOffset(), message: err.Error()}
	}
}

// decode decodes a document for validation, with numbers as json.Number. It requires unique keys,
// valid UTF-8 and nothing after the value. It refuses numbers that are too expensive to compare:
// the validator compares exactly, and 1e999999 has a million digits.
func decode(doc json.RawMessage) (any, *syntaxError) {
	// decodeObject finds repeated keys: the decoder would copy each key into a map of its own
	dec := jsontext.NewDecoder(bytes.NewBuffer(doc), jsontext.AllowDuplicateNames(true))
	v, err := decodeValue(dec)
	switch {
	case err == nil:
		err = end(dec)
	case err.repeatedKey:
		strict := jsontext.NewDecoder(bytes.NewBuffer(doc))
		err = syntaxOf(strict.SkipValue(), strict)
	}
	return v, err
}

func decodeValue(dec *jsontext.Decoder) (any, *syntaxError) {
	tok, err := dec.ReadToken()
	if err != nil {
		return nil, syntaxOf(err, dec)
	}
	switch tok.Kind() {
	case jsontext.KindBeginObject:
		return decodeObject(dec)
	case jsontext.KindBeginArray:
		return decodeArray(dec)
	case jsontext.KindString:
		return tok.String(), nil
	case jsontext.KindNumber:
		n := tok.String()
		if err := checkNumber(n); err != nil {
			return nil, &syntaxError{
				offset: dec.InputOffset(), pointer: string(dec.StackPointer()), message: err.Error(),
			}
		}
		return json.Number(n), nil
	case jsontext.KindNull:
		return nil, nil
	default:
		return tok.Bool(), nil
	}
}

type member struct {
	key   string
	value any
}

func decodeObject(dec *jsontext.Decoder) (any, *syntaxError) {
	var members []member
	for {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, syntaxOf(err, dec)
		}
		if name.Kind() == jsontext.KindEndObject {
			return newObject(members)
		}
		key := name.String() // name is valid until the next token
		v, invalid := decodeValue(dec)
		if invalid != nil {
			return nil, invalid
		}
		members = append(members, member{key, v})
	}
}

// newObject returns a map of its final size: one that grows takes four times as long.
func newObject(members []member) (any, *syntaxError) {
	object := make(map[string]any, len(members))
	for i, m := range members {
		if object[m.key] = m.value; len(object) == i {
			return nil, &syntaxError{repeatedKey: true}
		}
	}
	return object, nil
}

func decodeArray(dec *jsontext.Decoder) (any, *syntaxError) {
	array := []any{}
	for dec.PeekKind() != jsontext.KindEndArray {
		v, invalid := decodeValue(dec)
		if invalid != nil {
			return nil, invalid
		}
		array = append(array, v)
	}
	_, _ = dec.ReadToken() // the bracket
	return array, nil
}

// maxNumber bounds the digits of a number, and its exponent.
const maxNumber = 1000

func checkNumber(n string) error {
	if len(n) > maxNumber {
		return fmt.Errorf("a number has %d characters, and the maximum is %d", len(n), maxNumber)
	}
	i := strings.IndexAny(n, "eE")
	if i < 0 {
		return nil
	}
	if exp, err := strconv.Atoi(n[i+1:]); err != nil || exp > maxNumber || exp < -maxNumber {
		return fmt.Errorf("the exponent of %s exceeds %d", n, maxNumber)
	}
	return nil
}
