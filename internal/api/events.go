package api

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2/negotiation"

	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/call/eventlog"
)

// flushThreshold is how much is written before it is sent although more is there.
const flushThreshold = 64 << 10

// responseFormat chooses the form of an answer by what the client accepts. One that accepts none of
// them gets the first.
func responseFormat(r *http.Request, first string) string {
	accept := r.Header.Get("Accept")
	if accept == "" {
		return first
	}
	forms := []string{mediaSSE, mediaNDJSON}
	if first == mediaJSON {
		forms = []string{mediaJSON, mediaSSE, mediaNDJSON}
	}
	if form := negotiation.SelectQValue(accept, forms); form != "" {
		return form
	}
	return first
}

// streamCall answers the start of a call with its events. It begins when the call is accepted, so
// that a refusal is an error as ever.
func (s *Server) streamCall(w http.ResponseWriter, r *http.Request, c *call.Call,
	form string,
) error {
	reader := c.BlockingReader()
	if reader == nil {
		reader = c.Events().Reader(0)
	}
	defer func() { _ = reader.Close() }() // it was only read
	if err := waitAccepted(r.Context(), c); err != nil {
		return err
	}
	w.Header().Set("Location", location(c.ID()))
	stream(w, r, reader, form)
	return nil
}

// events answers with the events of a call from a sequence number on. Of a call that is no longer
// in memory there is the end.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r, "after")
	if err != nil {
		return err
	}
	after, err := parseAfter(r, q.Get("after"))
	if err != nil {
		return err
	}
	f, err := s.find(r)
	if err != nil {
		return err
	}
	form := responseFormat(r, mediaSSE)
	if f.call != nil {
		reader := f.call.Events().Reader(after)
		defer func() { _ = reader.Close() }() // it was only read
		stream(w, r, reader, form)
		return nil
	}
	body, err := f.json()
	if err != nil {
		return err
	}
	beginStream(w, form)
	_, _ = w.Write(appendEvent(nil, eventlog.Event{
		Seq: after + 1, Name: eventlog.End,
		Body: eventlog.EndBody(body),
	}, form))
	return nil
}

// parseAfter says which event was the last that the client has. The header goes before the
// parameter: a browser that connects again repeats the address as it was.
func parseAfter(r *http.Request, parameter string) (int64, error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = parameter
	}
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 62)
	if err != nil {
		return 0, invalid("", "the last event is %q", truncate(text)).
			WithHint("give the id of the last event that you have, a whole number")
	}
	return int64(n), nil
}

// stream writes events until the end, as they come. Where a client does not read, only its own
// stream stands still.
func stream(w http.ResponseWriter, r *http.Request, reader *eventlog.Reader, form string) {
	out := &streamWriter{w: w, form: form}
	for {
		ev, ok, err := reader.Poll()
		if !ok && err == nil { // what there was is sent before the waiting begins
			if out.flush() != nil {
				return
			}
			ev, err = reader.Next(r.Context())
		}
		if err != nil {
			out.end(err)
			return
		}
		if out.add(ev) != nil {
			return
		}
	}
}

// streamWriter gathers events and sends them together. Its errors say that the client is gone,
// which nobody needs to be told.
type streamWriter struct {
	w           http.ResponseWriter
	form        string
	headersSent bool
	buf         []byte
}

func (o *streamWriter) add(ev eventlog.Event) error {
	o.buf = appendEvent(o.buf, ev, o.form)
	if len(o.buf) < flushThreshold {
		return nil
	}
	return o.flush()
}

// flush sends what was gathered, and the headers if that has not happened yet.
func (o *streamWriter) flush() error {
	if !o.headersSent {
		o.headersSent = true
		beginStream(o.w, o.form)
	}
	_, err := o.w.Write(o.buf)
	o.buf = o.buf[:0]
	if err != nil {
		return err
	}
	return http.NewResponseController(o.w).Flush()
}

// end ends a stream whose reader says that it is over.
func (o *streamWriter) end(err error) {
	switch {
	case !errors.Is(err, io.EOF): // the client went away, or the server does
	case len(o.buf) == 0 && !o.headersSent && o.form == mediaSSE:
		// nothing is left; a browser would connect again after anything else
		o.w.WriteHeader(http.StatusNoContent)
	default:
		_ = o.flush()
	}
}

func beginStream(w http.ResponseWriter, form string) {
	h := w.Header()
	h.Set("Content-Type", form)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
}

func appendEvent(dst []byte, ev eventlog.Event, form string) []byte {
	if form == mediaSSE {
		return ev.AppendSSE(dst)
	}
	return ev.AppendNDJSON(dst)
}
