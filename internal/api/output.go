package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call"
)

// output answers with the kept bytes of a stream, or ranges of them. While the call runs these are
// the bytes so far.
func (s *Server) output(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "rewritten")
	if err != nil {
		return err
	}
	which, err := parseTextVersion(q.Get("rewritten"))
	if err != nil {
		return err
	}
	stream, err := streamOf(r)
	if err != nil {
		return err
	}
	f, err := s.find(r)
	if err != nil {
		return err
	}
	kept, err := s.openOutput(r.PathValue("id"), f, stream, which)
	if err != nil {
		return err
	}
	defer func() { _ = kept.Close() }() // it is only read
	h := w.Header()
	h.Set("Content-Type", mediaBytes)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(&rangeWriter{ResponseWriter: w, server: s}, r, "", time.Time{}, kept)
	return nil
}

func streamOf(r *http.Request) (dray.Stream, error) {
	switch r.PathValue("stream") {
	case "stdout":
		return dray.Stdout, nil
	case "stderr":
		return dray.Stderr, nil
	default:
		return 0, notFound("a call has no output %s", truncate(r.PathValue("stream"))).
			WithHint("it has stdout and stderr")
	}
}

// textVersion says which text of a stream is meant.
type textVersion int

const (
	textRaw textVersion = iota
	textRewritten
	textAuto // the rewritten one where there is one
)

func parseTextVersion(parameter string) (textVersion, error) {
	switch parameter {
	case "", "false":
		return textRaw, nil
	case "true":
		return textRewritten, nil
	case "auto":
		return textAuto, nil
	}
	return 0, invalid("", "rewritten is %q", truncate(parameter)).
		WithHint("write true, false, or auto for the rewritten text where there is one")
}

// openOutput opens the kept bytes of a stream, those so far while the call runs.
func (s *Server) openOutput(id string, f lookupResult, stream dray.Stream,
	which textVersion,
) (io.ReadSeekCloser, error) {
	if c := captureOf(f.record, stream); which == textAuto && c.Rewritten != nil &&
		c.Rewritten.Paths > 0 {
		which = textRewritten // what was printed may be kept for longer, and was never shown
	}
	open := map[textVersion]func(string, dray.Stream) (io.ReadSeekCloser, error){
		textRaw: s.cfg.Captures.Open, textRewritten: s.cfg.Captures.OpenRewritten, textAuto: s.cfg.Captures.OpenAuto,
	}
	kept, err := open[which](id, stream)
	switch {
	case err == nil:
		return kept, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, dray.Errorf(dray.CodeInternal, "opening the kept output: %w", err).
			WithHint("look at captures/ in the state folder")
	case f.call == nil:
		return summaryAsStream(f.record, stream, which)
	}
	record, ended := f.call.Record()
	if !ended {
		return s.liveOutput(f.call, stream, which)
	}
	var part struct {
		Reason dray.Reason        `json:"reason"`
		Stdout dray.StreamSummary `json:"stdout"`
		Stderr dray.StreamSummary `json:"stderr"`
	}
	if err := json.Unmarshal(record, &part); err != nil {
		return nil, dray.Errorf(dray.CodeInternal, "reading the record of the call: %w", err).
			WithHint("the daemon's log has more")
	}
	return summaryAsStream(dray.Record{Reason: part.Reason, Stdout: part.Stdout, Stderr: part.Stderr},
		stream, which)
}

// liveOutput gives a stream of a running call that is in no capture: it has not begun, or the tool
// has ended and the call has not. What will stand in the record is in memory then, unless the other
// stream was a flood.
func (s *Server) liveOutput(call *call.Call, stream dray.Stream,
	which textVersion,
) (io.ReadSeekCloser, error) {
	if which == textRewritten {
		if raw, err := s.cfg.Captures.Open(call.ID(), stream); err == nil {
			_ = raw.Close() // it is not even read
			return nil, notRewritten(stream)
		}
	}
	text, whole := call.Events().BufferedOutput(stream)
	if !whole {
		return nil, dray.Errorf(dray.CodeConflict,
			"the %v of this call cannot be read now: its tool has ended and the call has not, and only its record will have it", stream).
			WithHint("ask again when the call has ended")
	}
	return inMemory{bytes.NewReader(text)}, nil
}

func notRewritten(stream dray.Stream) error {
	return notFound("the paths in the %v of this call are not rewritten", stream).
		WithHint("leave rewritten out for what the tool printed; rewrite_text in a call that runs in a container has its text rewritten")
}

// summaryAsStream gives the text of a record as the stream that it shows. It is that if the digest
// says so; else the bytes were in a file, which is gone.
func summaryAsStream(rec dray.Record, stream dray.Stream, which textVersion) (io.ReadSeekCloser,
	error,
) {
	c := captureOf(rec, stream)
	kept, digest := c.KeptBytes, c.SHA256
	if c.Rewritten != nil && which != textRaw {
		kept, digest = c.Rewritten.KeptBytes, c.Rewritten.SHA256
	}
	sum := sha256.Sum256([]byte(c.Text))
	switch {
	case rec.Reason == dray.ReasonInterrupted:
		return nil, notFound("the %v of this call is kept no more, or never was: the daemon died while the call ran", stream).
			WithHint("what it printed before that is not known; see what it did before you repeat it")
	case c.Rewritten == nil && which == textRewritten:
		return nil, notRewritten(stream)
	case kept > 0 && hex.EncodeToString(sum[:]) != digest:
		return nil, notFound("the %v of this call is kept no more: retention has removed it", stream).
			WithHint("limits.captures_keep and limits.captures_disk say how long output is kept; the invocation has its head, its tail, its length and its sha256")
	}
	return inMemory{bytes.NewReader([]byte(c.Text)[:kept])}, nil
}

func captureOf(rec dray.Record, stream dray.Stream) dray.StreamSummary {
	if stream == dray.Stderr {
		return rec.Stderr
	}
	return rec.Stdout
}

// inMemory is a stream that lies in memory.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// rangeWriter gives a range that cannot be satisfied the form that all errors have.
// http.ServeContent writes its own text otherwise, and takes the last no bytes (bytes=-0) for a
// range.
type rangeWriter struct {
	http.ResponseWriter
	server  *Server
	refused bool
}

func (w *rangeWriter) WriteHeader(status int) {
	h := w.Header()
	if _, size, ok := strings.Cut(h.Get("Content-Range"), "/"); ok &&
		status == http.StatusPartialContent && h.Get("Content-Length") == "0" {
		h.Set("Content-Range", "bytes */"+size)
		status = http.StatusRequestedRangeNotSatisfiable
	}
	if status != http.StatusRequestedRangeNotSatisfiable {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.refused = true
	err := invalid("", "the header Range is malformed").
		WithHint("write bytes=FIRST-LAST, bytes=FIRST- or bytes=-COUNT")
	if kept := h.Get("Content-Range"); kept != "" {
		err = invalid("", "the range lies outside of what is kept (%s)", kept).
			WithHint("ask for a range within it")
	}
	w.server.fail(w.ResponseWriter, &httpError{err: err, status: status})
}

func (w *rangeWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
