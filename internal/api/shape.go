package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/textview"
	"github.com/dray-dev/dray/internal/validate"
)

// briefOmits are the members that brief leaves out of a call that succeeded.
var briefOmits = []string{"route", "metadata", "input"}

// shape is what a caller wants of an invocation: the parameters view and brief.
type shape struct {
	view  int // the maximum size of each text in bytes; 0 is the text of the record
	brief bool
}

func parseShape(r *http.Request) (s shape, err error) {
	q := r.URL.Query()
	if text := q.Get("view"); text != "" {
		if s.view, err = strconv.Atoi(text); err != nil || s.view < 1 || s.view > textview.MaxBytes {
			return shape{}, invalid("", "invalid view %q", validate.Quote(text)).
				WithHint("use whole bytes from 1 to %d; GET .../output/stdout has all that is kept",
					textview.MaxBytes)
		}
	}
	switch text := q.Get("brief"); text {
	case "", "0":
	case "1":
		s.brief = true
	default:
		return shape{}, invalid("", "invalid brief %q", validate.Quote(text)).WithHint("use 1 or 0")
	}
	return s, nil
}

// of returns an encoded invocation in this shape.
func (s shape) of(record []byte) ([]byte, error) {
	if s == (shape{}) {
		return record, nil
	}
	var rec dray.Record
	if err := json.Unmarshal(record, &rec); err != nil {
		return nil, dray.Errorf(dray.CodeInternal, "decode an invocation: %w", err).
			WithHint("see the daemon's log")
	}
	if s.view > 0 {
		for _, stream := range []*dray.StreamSummary{&rec.Stdout, &rec.Stderr} {
			stream.Text, _ = textview.View(stream.Text, s.view, rec.ID)
		}
	}
	text, err := encode(rec)
	if err != nil || !s.brief || rec.Status != dray.StatusSucceeded {
		return text, err
	}
	return withoutMembers(text, briefOmits...)
}

// withoutMembers returns a JSON object without some of its members, in the same order.
func withoutMembers(object []byte, names ...string) ([]byte, error) {
	in := jsontext.NewDecoder(bytes.NewReader(object))
	var b bytes.Buffer
	out := jsontext.NewEncoder(&b)
	if err := copyToken(in, out); err != nil { // the brace
		return nil, err
	}
	for in.PeekKind() == '"' {
		name, err := in.ReadValue()
		if err != nil {
			return nil, err
		}
		name = name.Clone() // the next read reuses it
		value, err := in.ReadValue()
		if err != nil {
			return nil, err
		}
		if slices.Contains(names, string(bytes.Trim(name, `"`))) {
			continue
		}
		if err := errors.Join(out.WriteValue(name), out.WriteValue(value)); err != nil {
			return nil, err
		}
	}
	err := copyToken(in, out)
	return bytes.TrimSpace(b.Bytes()), err
}

func copyToken(in *jsontext.Decoder, out *jsontext.Encoder) error {
	token, err := in.ReadToken()
	if err == nil {
		err = out.WriteToken(token)
	}
	return err
}
