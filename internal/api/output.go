package api

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/validate"
)

// outputs serves the captured output of calls.
type outputs struct {
	finder
	captures Captures
	fail     func(http.ResponseWriter, error)
}

// read responds with the captured bytes of a stream, or ranges of them. While the call runs these
// are the bytes so far.
func (h *outputs) read(w http.ResponseWriter, r *http.Request) error {
	version, err := parseTextVersion(r)
	if err != nil {
		return err
	}
	name := r.PathValue("stream")
	stream, ok := streams[name]
	if !ok {
		return notFound("no such stream: %s", validate.Quote(name)).WithHint("use stdout or stderr")
	}
	found, err := h.find(r)
	if err != nil {
		return err
	}
	output, err := h.open(r.PathValue("id"), found, stream, version)
	if err != nil {
		return err
	}
	defer output.Close()
	header := w.Header()
	header.Set("Content-Type", mediaBytes)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(&rangeWriter{ResponseWriter: w, fail: h.fail}, r, "", time.Time{}, output)
	return nil
}

var streams = map[string]dray.Stream{"stdout": dray.Stdout, "stderr": dray.Stderr}

// textVersion is a version of the text of a stream: a value of the parameter rewritten.
type textVersion string

const (
	textRaw       textVersion = "false"
	textRewritten textVersion = "true"
	textAuto      textVersion = "auto" // rewritten if there is one, else raw
)

func parseTextVersion(r *http.Request) (textVersion, error) {
	switch version := textVersion(r.URL.Query().Get("rewritten")); version {
	case "":
		return textRaw, nil
	case textRaw, textRewritten, textAuto:
		return version, nil
	default:
		return "", invalid("", "invalid value %q of rewritten", validate.Quote(string(version))).
			WithHint("use true, false, or auto for the rewritten text if there is one")
	}
}

// open opens the captured bytes of a stream.
func (h *outputs) open(id string, found foundCall, stream dray.Stream,
	version textVersion,
) (io.ReadSeekCloser, error) {
	rec := found.record
	if found.call != nil {
		rec = found.call.Record()
	}
	// the raw stream may be retained for longer than the rewritten one, which auto promises
	if rewritten := summaryOf(rec, stream).Rewritten; version == textAuto && rewritten != nil &&
		rewritten.Paths > 0 {
		version = textRewritten
	}
	output, err := h.openCapture(id, stream, version)
	switch {
	case err == nil:
		return output, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, dray.Errorf(dray.CodeInternal, "open the captured output: %w", err).
			WithHint("check captures/ in the state directory")
	case found.call != nil && rec.EndedAt == nil:
		return h.liveOutput(found.call, stream, version)
	}
	return summaryAsStream(rec, stream, version)
}

func (h *outputs) openCapture(id string, stream dray.Stream,
	version textVersion) (io.ReadSeekCloser,
	error,
) {
	switch version {
	case textRewritten:
		return h.captures.OpenRewritten(id, stream)
	case textAuto:
		return h.captures.OpenAuto(id, stream)
	default:
		return h.captures.Open(id, stream)
	}
}

// liveOutput returns the output so far of a running call that has no capture of the stream: the
// tool has not written to it yet, or it has exited and the call has not ended. It reads the events
// in memory, which lack the beginning of a long output.
func (h *outputs) liveOutput(c *call.Call, stream dray.Stream,
	version textVersion,
) (io.ReadSeekCloser, error) {
	if version == textRewritten {
		if raw, err := h.captures.Open(c.ID(), stream); err == nil {
			_ = raw.Close()
			return nil, notRewritten(stream)
		}
	}
	text, complete := c.Events().BufferedOutput(stream)
	if !complete {
		return nil, dray.Errorf(dray.CodeConflict, "%v is not available until the call has ended",
			stream).
			WithHint("wait for the end of the call, then repeat the request")
	}
	return inMemory{bytes.NewReader(text)}, nil
}

func notRewritten(stream dray.Stream) error {
	return notFound("%v of this call has no rewritten text", stream).
		WithHint("omit rewritten for the raw text; rewrite_text rewrites the output of a call in a " +
			"container")
}

// summaryAsStream returns the text of a stream's summary if that is the whole stream.
func summaryAsStream(rec dray.Record, stream dray.Stream, version textVersion) (io.ReadSeekCloser,
	error,
) {
	s := summaryOf(rec, stream)
	text, whole := s.Whole(version != textRaw)
	switch {
	case rec.Reason == dray.ReasonInterrupted:
		return nil, notFound("%v of this call was lost: the daemon was killed while the call ran",
			stream).
			WithHint("check what the call did before you repeat it")
	case s.Rewritten == nil && version == textRewritten:
		return nil, notRewritten(stream)
	case !whole:
		return nil, notFound("%v of this call was removed by retention", stream).
			WithHint("see limits.captures_keep and limits.captures_disk; " +
				"the invocation still has the head, the tail and the SHA-256")
	}
	return inMemory{bytes.NewReader(text)}, nil
}

func summaryOf(rec dray.Record, stream dray.Stream) dray.StreamSummary {
	if stream == dray.Stderr {
		return rec.Stderr
	}
	return rec.Stdout
}

// inMemory is a stream in memory.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// rangeWriter replaces the response of http.ServeContent to an unsatisfiable range by a problem.
// bytes=-0, the last 0 bytes, counts as unsatisfiable too.
type rangeWriter struct {
	http.ResponseWriter
	fail    func(http.ResponseWriter, error)
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
	err := invalid("", "invalid Range header").
		WithHint("use bytes=FIRST-LAST, bytes=FIRST- or bytes=-COUNT")
	if available := h.Get("Content-Range"); available != "" {
		err = invalid("", "the range is outside of the captured output (%s)", available).
			WithHint("request a range within it")
	}
	w.fail(w.ResponseWriter, &httpError{err: err, status: status})
}

func (w *rangeWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
