package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
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

// kept opens the kept bytes. A stream that nothing was written to is empty; one that is kept no more is not found. While a call runs, what it has
// printed is given from memory as long as that has all of it: the file lags behind.
func (s *Server) kept(r *http.Request, f found, stream dray.Stream) (io.ReadSeekCloser, error) {
	if f.call != nil {
		if _, ended := f.call.Record(); !ended {
			if printed, ok := f.call.Events().Printed(stream); ok {
				return inMemory{bytes.NewReader(printed)}, nil
			}
		}
	}
	kept, err := s.cfg.Captures.Open(r.PathValue("id"), stream)
	switch {
	case err == nil:
		return kept, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, dray.Errorf(dray.CodeInternal, "opening the kept output: %w", err).WithHint("look at captures/ in the state folder")
	}
	return f.shown(stream)
}

// shown gives a stream that has no file: it printed nothing, or its text in the record is all of it, byte for byte.
func (f found) shown(stream dray.Stream) (io.ReadSeekCloser, error) {
	if f.call != nil {
		printed, _ := f.call.Events().Printed(stream) // what memory no longer has whole would have a file
		return inMemory{bytes.NewReader(printed)}, nil
	}
	c := f.record.Stdout
	if stream == dray.Stderr {
		c = f.record.Stderr
	}
	sum := sha256.Sum256([]byte(c.Text))
	if c.KeptBytes > 0 && hex.EncodeToString(sum[:]) != c.SHA256 {
		return nil, notFound("the output of this call is kept no more").WithHint("the invocation has its head and tail")
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
