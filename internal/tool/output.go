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

// structured turns a tool's stdout into its output, always an object: nothing is {}, an object stays as it is, another value
// becomes {"result": value}, and what does not parse becomes raw_output beside parse_error; then cause says why. Numbers keep their
// digits.
func structured(stdout io.Reader, view dray.Capture) (output json.RawMessage, cause *syntaxError, err error) {
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
func parseStream(stdout io.Reader, view dray.Capture) (json.RawMessage, *syntaxError, error) {
	if view.Truncated {
		return nil, &syntaxError{offset: view.KeptBytes, message: "the end of the output is not kept, so it is not parsed"}, nil
	}
	b, err := io.ReadAll(io.LimitReader(stdout, maxOutput+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read stdout again: %w", err)
	}
	if len(b) > maxOutput {
		return nil, &syntaxError{offset: maxOutput, message: fmt.Sprintf("JSON of more than %d bytes is not parsed", maxOutput)}, nil
	}
	output, cause := parse(b)
	return output, cause, nil
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// parse gives the object that stdout stands for, or why it stands for none.
func parse(stdout []byte) (json.RawMessage, *syntaxError) {
	text := bytes.TrimPrefix(stdout, byteOrderMark)
	if len(bytes.TrimSpace(text)) == 0 {
		return json.RawMessage("{}"), nil
	}
	tooDeep := false
	err := scan(text, func(dec *jsontext.Decoder, _ jsontext.Token) error {
		if tooDeep = dec.StackDepth() > maxDepth+1; tooDeep {
			return fmt.Errorf("it is nested deeper than %d", maxDepth)
		}
		return nil
	})
	if err != nil {
		err.offset += int64(len(stdout) - len(text))
		err.tooDeep = tooDeep
		return nil, err
	}
	value := jsontext.Value(bytes.Clone(text))
	_ = value.Compact() // cannot fail: it was scanned
	if value.Kind() == jsontext.KindBeginObject {
		return json.RawMessage(value), nil
	}
	return fmt.Appendf(nil, `{"result":%s}`, value), nil
}
