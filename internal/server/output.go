package server

import (
	"bytes"
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
	case f.call == nil && keptBytes(f.record, stream) > 0:
		return nil, notFound("the output of this call is kept no more").WithHint("the invocation has its head and tail")
	}
	return inMemory{bytes.NewReader(nil)}, nil
}

func keptBytes(rec dray.Record, stream dray.Stream) int64 {
	if stream == dray.Stderr {
		return rec.Stderr.KeptBytes
	}
	return rec.Stdout.KeptBytes
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
