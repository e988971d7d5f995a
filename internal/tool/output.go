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
func parseOutput(stdout io.Reader, view dray.StreamSummary) (output json.RawMessage,
	cause *syntaxError, err error,
) {
	output, cause, err = parseStream(stdout, view)
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
		return nil, &syntaxError{
			offset:  view.KeptBytes,
			message: "the output was not captured to its end, so it is not parsed",
		}, nil
	}
	var b bytes.Buffer
	b.Grow(int(min(view.KeptBytes, maxOutput)) + bytes.MinRead) // one allocation
	if _, err := b.ReadFrom(io.LimitReader(stdout, maxOutput+1)); err != nil {
		return nil, nil, fmt.Errorf("read captured stdout: %w", err)
	}
	if b.Len() > maxOutput {
		return nil, &syntaxError{
			offset:  maxOutput,
			message: fmt.Sprintf("output of more than %d bytes is not parsed", maxOutput),
		}, nil
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
	value, fits := compactObject(bytes.Trim(text, " \t\r\n"))
	if !fits {
		return nil, syntaxErrorOf(stdout)
	}
	if value.Kind() == jsontext.KindBeginObject {
		return json.RawMessage(value), nil
	}
	return fmt.Appendf(nil, `{"result":%s}`, value), nil
}

// compactObject compacts text if it is valid JSON within the limits. It reads each byte as few
// times as possible, since outputs may be long.
func compactObject(text []byte) (jsontext.Value, bool) {
	value := jsontext.Value(text)
	if !value.IsValid() {
		return nil, false
	}
	depth, blank := measure(value)
	if depth > maxDepth+1 {
		return nil, false
	}
	if blank {
		_ = value.Compact() // cannot fail: it is valid
	}
	return value, true
}

// measure returns the nesting depth of a valid document, and whether there is white space between
// its tokens.
func measure(value jsontext.Value) (depth int, blank bool) {
	for i, open := 0, 0; i < len(value); i++ {
		switch c := value[i]; c {
		case '"':
			i += stringLen(value[i:]) - 1
		case '{', '[':
			open++
			depth = max(depth, open)
		case '}', ']':
			open--
		case ' ', '\t', '\n', '\r':
			blank = true
		}
	}
	return depth, blank
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
	tooDeep := false
	err := scanTokens(text, func(dec *jsontext.Decoder, _ jsontext.Token) error {
		if tooDeep = dec.StackDepth() > maxDepth+1; tooDeep {
			return fmt.Errorf("nested deeper than %d", maxDepth)
		}
		return nil
	})
	err.offset += int64(len(stdout) - len(text))
	err.tooDeep = tooDeep
	return err
}

// syntaxError is why bytes are not one JSON document: the offset in bytes, and the pointer to the
// value.
type syntaxError struct {
	offset  int64
	pointer string
	message string
	tooDeep bool
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s at offset %d", e.message, e.offset) }

// scanTokens reads exactly one JSON document and calls visit after each token. It requires unique
// keys, valid UTF-8 and nothing after the value. NaN, Infinity, comments and trailing commas are
// not JSON.
func scanTokens(doc []byte, visit func(*jsontext.Decoder, jsontext.Token) error) *syntaxError {
	dec := jsontext.NewDecoder(bytes.NewBuffer(doc))
	for {
		tok, err := dec.ReadToken()
		if err != nil {
			return syntaxOf(err, dec)
		}
		if err := visit(dec, tok); err != nil {
			return &syntaxError{
				offset: dec.InputOffset(), pointer: string(dec.StackPointer()),
				message: err.Error(),
			}
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

// decode decodes a document for validation, with numbers as json.Number. It refuses numbers that
// are too expensive to compare: the validator compares exactly, and 1e999999 has a million digits.
func decode(doc json.RawMessage) (any, error) {
	var b valueBuilder
	if err := scanTokens(doc, b.add); err != nil {
		return nil, err
	}
	return b.top, nil
}

// valueBuilder builds Go values from tokens.
type valueBuilder struct {
	top any
	// open are the containers around the next token.
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

// text adds a string, which is a key if the enclosing object has no pending key.
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

// withPointer returns the detail of an error of decode.
func withPointer(err error, prefix string) dray.Detail {
	d := dray.Detail{Pointer: prefix, Message: lexical.Truncate(err.Error(), maxMessage)}
	if s, ok := errors.AsType[*syntaxError](err); ok {
		d.Pointer += s.pointer
	}
	return d
}
