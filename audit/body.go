package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// maxInline is how much of an input or output stands in the body of an event; what is longer lies in a file.
const maxInline = 8 << 10

// beginBody is the body of a begun event: the invocation as it was accepted. Two fields of it are shadowed: of the environment only
// the names are kept, and a long input is in a file.
type beginBody struct {
	dray.Invocation
	Env       []string        `json:"env,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	InputFile *blobRef        `json:"input_file,omitempty"`
	StartedAt time.Time       `json:"started_at"`
}

// endBody is the body of an ended or interrupted event. Duration is in nanoseconds; an interrupted call has none.
type endBody struct {
	Status     dray.Status        `json:"status"`
	Reason     dray.Reason        `json:"reason"`
	ExitCode   *int               `json:"exit_code"`
	Signal     *dray.Signal       `json:"signal"`
	Stdout     dray.StreamSummary `json:"stdout"`
	Stderr     dray.StreamSummary `json:"stderr"`
	Error      *dray.Error        `json:"error"`
	Route      dray.Route         `json:"route"`
	Metadata   dray.Metadata      `json:"metadata"`
	EndedAt    time.Time          `json:"ended_at"`
	Duration   *time.Duration     `json:"duration_ns"`
	Output     json.RawMessage    `json:"output,omitempty"`
	OutputFile *blobRef           `json:"output_file,omitempty"`
	// ListsFile holds the lists of the metadata where they are longer than they are here.
	ListsFile *blobRef `json:"lists_file,omitempty"`
}

// encodeBegin gives the body of a begun event and, where the input is too long for it, the file that holds it. An input that is not
// JSON is left out and told as unfit; the body is good all the same.
func encodeBegin(inv dray.Invocation, at time.Time, files *blobStore) (body []byte, file *blobRef, unfit, err error) {
	b := beginBody{Invocation: inv, Env: slices.Sorted(maps.Keys(inv.Env)), StartedAt: at}
	inline, file, err := inlineOrBlob(inv.Input, files)
	if errors.Is(err, errNotJSON) {
		unfit, err = err, nil
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("keep the input: %w", err)
	}
	b.InputFile = file
	body, err = encode(b, "input", inline)
	return body, file, unfit, err
}

// encodeEnd gives the body of an ended event and, where the output is too long for it, the file that holds it.
func encodeEnd(res dray.Result, files *blobStore) ([]byte, *blobRef, error) {
	inline, file, err := inlineOrBlob(res.Output, files)
	if err != nil {
		return nil, nil, fmt.Errorf("keep the output: %w", err)
	}
	metadata, lists, err := storeLists(res.Metadata, files)
	if err != nil {
		return nil, nil, fmt.Errorf("keep the lists of files: %w", err)
	}
	body, err := encode(endBody{
		Status: res.Status, Reason: res.Reason, ExitCode: res.ExitCode, Signal: res.Signal, Stdout: res.Stdout, Stderr: res.Stderr,
		Error: res.Error, Route: res.Route, Metadata: metadata, EndedAt: res.EndedAt, Duration: &res.Duration, OutputFile: file, ListsFile: lists,
	}, "output", inline)
	return body, file, err
}

var errNotJSON = errors.New("it is not valid JSON")

// inlineOrBlob decides where a JSON value lies: in the body, or in a file that is durable when place returns.
func inlineOrBlob(raw json.RawMessage, files *blobStore) (inline json.RawMessage, file *blobRef, err error) {
	switch {
	case len(raw) == 0:
		return nil, nil, nil
	case !isJSON(raw):
		return nil, nil, errNotJSON
	case len(raw) <= maxInline:
		return raw, nil, nil
	}
	ref, err := files.put(raw)
	if err != nil {
		return nil, nil, err
	}
	return nil, &ref, nil
}

// isJSON says what json.Valid does, and is faster: outputs may be long.
func isJSON(raw json.RawMessage) bool {
	return jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// encode marshals v, an object, and adds the member name with the very bytes of raw: the encoder would strip its spaces, and a
// record shall read back equal.
func encode(v any, name string, raw json.RawMessage) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the event: %w", err)
	}
	if raw == nil {
		return body, nil
	}
	body = fmt.Appendf(body[:len(body)-1], ",%q:", name)
	return append(append(body, raw...), '}'), nil
}
