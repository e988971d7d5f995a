package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

const (
	// maxOutput is the largest stdout that is read as JSON, in bytes.
	maxOutput = 16 << 20
	// maxDepth is how many containers may lie below the top one, the same as for paths in them.
	maxDepth = 64
)

// rawOutput is what becomes of a stdout that does not parse.
type rawOutput struct {
	// RawOutput is the stream's view without the white space around it, so it is bounded as the view is.
	RawOutput  string     `json:"raw_output"`
	ParseError parseError `json:"parse_error"`
}

// parseError says why. Offset counts bytes from the beginning of stdout.
type parseError struct {
	Message string `json:"message"`
	Offset  int64  `json:"offset"`
}

// parseOutput turns a tool's stdout into its output, always an object: nothing is {}, an object stays as it is, another value
// becomes {"result": value}, and what does not parse becomes raw_output beside parse_error; then cause says why. Numbers keep their
// digits.
func parseOutput(stdout io.Reader, view dray.StreamSummary) (output json.RawMessage, cause *syntaxError, err error) {
	output, cause, err = parseStream(stdout, view)
	if cause == nil || err != nil {
		return output, nil, err
	}
	raw := rawOutput{strings.TrimSpace(view.Text), parseError{cut(cause.message, maxMessage), cause.offset}}
	output, err = jsonv2.Marshal(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("write raw output: %w", err)
	}
	return output, cause, nil
}

// parseStream parses what can be parsed: a stream that is kept to its end and is not too long.
func parseStream(stdout io.Reader, view dray.StreamSummary) (json.RawMessage, *syntaxError, error) {
	if view.Truncated {
		return nil, &syntaxError{offset: view.KeptBytes, message: "the end of the output is not kept, so it is not parsed"}, nil
	}
	var b bytes.Buffer
	b.Grow(int(min(view.KeptBytes, maxOutput)) + bytes.MinRead) // the kept bytes in one piece
	if _, err := b.ReadFrom(io.LimitReader(stdout, maxOutput+1)); err != nil {
		return nil, nil, fmt.Errorf("read stdout again: %w", err)
	}
	if b.Len() > maxOutput {
		return nil, &syntaxError{offset: maxOutput, message: fmt.Sprintf("JSON of more than %d bytes is not parsed", maxOutput)}, nil
	}
	output, cause := parseObject(b.Bytes())
	return output, cause, nil
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// parseObject gives the object that stdout stands for, or why it stands for none. The object may be a part of stdout, which is written to.
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

// compactObject compacts a text that is JSON within the limits. It looks at each byte as seldom as it can: outputs may be long.
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

// measure gives how many containers of a valid document stand inside one another, and whether there is white space between its tokens.
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

// stringLen gives the length of the string that a text begins with, quotes included.
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

// syntaxErrorOf says what is wrong with a stdout, and where.
func syntaxErrorOf(stdout []byte) *syntaxError {
	text := bytes.TrimPrefix(stdout, byteOrderMark)
	tooDeep := false
	err := scanTokens(text, func(dec *jsontext.Decoder, _ jsontext.Token) error {
		if tooDeep = dec.StackDepth() > maxDepth+1; tooDeep {
			return fmt.Errorf("it is nested deeper than %d", maxDepth)
		}
		return nil
	})
	err.offset += int64(len(stdout) - len(text))
	err.tooDeep = tooDeep
	return err
}
