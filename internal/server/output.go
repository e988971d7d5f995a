package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"time"

	"github.com/dray-dev/dray"
)

// output answers with the kept bytes of a stream, or ranges of them. While the call runs these are the bytes so far.
func (s *Server) output(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
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
	kept, err := s.kept(r, f, stream)
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
		return 0, notFound("a call has no output %s", clip(r.PathValue("stream"))).WithHint("it has stdout and stderr")
	}
}

// kept opens the kept bytes of a stream, those so far while the call runs.
func (s *Server) kept(r *http.Request, f found, stream dray.Stream) (io.ReadSeekCloser, error) {
	kept, err := s.cfg.Captures.Open(r.PathValue("id"), stream)
	switch {
	case err == nil:
		return kept, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, dray.Errorf(dray.CodeInternal, "opening the kept output: %w", err).WithHint("look at captures/ in the state folder")
	}
	return f.shown(stream)
}

// shown gives a stream that has no file: nothing was printed, or the record shows all of it. Between the end of the tool and that of the call
// there is no record yet, and what would stand in it is in memory.
func (f found) shown(stream dray.Stream) (io.ReadSeekCloser, error) {
	if f.call == nil {
		return wholeText(stream, f.record.Reason, f.record.Stdout, f.record.Stderr)
	}
	record, ended := f.call.Record()
	if !ended {
		printed, _ := f.call.Events().Printed(stream)
		return inMemory{bytes.NewReader(printed)}, nil
	}
	var rec struct {
		Reason dray.Reason  `json:"reason"`
		Stdout dray.Capture `json:"stdout"`
		Stderr dray.Capture `json:"stderr"`
	}
	if err := json.Unmarshal(record, &rec); err != nil {
		return nil, dray.Errorf(dray.CodeInternal, "reading the record of the call: %w", err).WithHint("the daemon's log has more")
	}
	return wholeText(stream, rec.Reason, rec.Stdout, rec.Stderr)
}

// wholeText gives the text of a record as the stream that it shows. It is that if the digest says so; else the bytes were in a file, which is gone.
func wholeText(stream dray.Stream, reason dray.Reason, stdout, stderr dray.Capture) (io.ReadSeekCloser, error) {
	c := stdout
	if stream == dray.Stderr {
		c = stderr
	}
	sum := sha256.Sum256([]byte(c.Text))
	switch {
	case reason == dray.ReasonInterrupted:
		return nil, notFound("the %v of this call is kept no more, or never was: the daemon died while the call ran", stream).
			WithHint("what it printed before that is not known; see what it did before you repeat it")
	case c.KeptBytes > 0 && hex.EncodeToString(sum[:]) != c.SHA256:
		return nil, notFound("the %v of this call is kept no more: retention has removed it", stream).
			WithHint("limits.captures_keep and limits.captures_disk say how long output is kept; the invocation has its head, its tail, its length and its sha256")
	}
	return inMemory{bytes.NewReader([]byte(c.Text)[:c.KeptBytes])}, nil
}

// inMemory is a stream that lies in memory.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// rangeWriter gives a range that cannot be satisfied the form that all errors have. http.ServeContent writes its own text otherwise.
type rangeWriter struct {
	http.ResponseWriter
	server  *Server
	refused bool
}

func (w *rangeWriter) WriteHeader(status int) {
	if status != http.StatusRequestedRangeNotSatisfiable {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.refused = true
	err := invalid("", "the range lies outside of what is kept (%s)", w.Header().Get("Content-Range")).WithHint("ask for a range within it")
	w.server.fail(w.ResponseWriter, &httpError{err: err, status: status})
}

func (w *rangeWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
