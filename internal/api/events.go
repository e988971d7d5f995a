package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2/negotiation"

	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/call/eventlog"
	"github.com/dray-dev/dray/internal/validate"
)

// flushThreshold is the number of bytes that a stream buffers while more events are ready.
const flushThreshold = 64 << 10

// responseFormat returns the media type of a response by the Accept header, or defaultFormat if the
// client accepts none of ours.
func responseFormat(r *http.Request, defaultFormat string) string {
	accept := r.Header.Get("Accept")
	if accept == "" {
		return defaultFormat
	}
	formats := []string{mediaJSON, mediaSSE, mediaNDJSON}
	if defaultFormat != mediaJSON {
		formats = formats[1:]
	}
	return cmp.Or(negotiation.SelectQValue(accept, formats), defaultFormat)
}

// streamCall responds with the events of a call that was just started. It writes nothing before the
// call is accepted, so a rejection is an error response.
func streamCall(w http.ResponseWriter, r *http.Request, c *call.Call, format string) error {
	reader := c.BlockingReader()
	if reader == nil {
		reader = c.Events().Reader(0)
	}
	defer reader.Close()
	if err := waitAccepted(r.Context(), c); err != nil {
		return err
	}
	w.Header().Set("Location", location(c.ID()))
	stream(w, r, reader, format)
	return nil
}

// events responds with the events of a call after a sequence number. A call that only the audit log
// has gets its end event.
func (h *invocations) events(w http.ResponseWriter, r *http.Request) error {
	after, err := parseAfter(r)
	if err != nil {
		return err
	}
	wait, err := parseWait(r)
	if err != nil {
		return err
	}
	found, err := h.find(r)
	if err != nil {
		return err
	}
	format := responseFormat(r, mediaSSE)
	if found.call != nil {
		reader := found.call.Events().Reader(after)
		defer reader.Close()
		if wait.given {
			poll(w, r, reader, format, wait.d)
		} else {
			stream(w, r, reader, format)
		}
		return nil
	}
	record, err := found.encoded()
	if err != nil {
		return err
	}
	beginStream(w, format)
	end := eventlog.Event{
		Seq: after + 1, Name: eventlog.End, At: found.endedAt(), Body: eventlog.EndBody(record),
	}
	_, _ = w.Write(appendEvent(nil, end, format))
	return nil
}

// maxExact is the largest number, of an event or a byte, that JSON has exactly everywhere
// (RFC 7493).
const maxExact = 1<<53 - 1

// parseAfter returns the sequence number of the last event that the client has. The header takes
// precedence because a browser reconnects with the original URL.
func parseAfter(r *http.Request) (after int64, err error) {
	for _, text := range append(r.URL.Query()["after"], r.Header.Values("Last-Event-ID")...) {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n > maxExact {
			return 0, invalid("", "invalid event id %q", validate.Quote(text)).
				WithHint("send the id of the last event that you received, a whole number")
		}
		after = int64(n)
	}
	return after, nil
}

// stream writes events until the end event, the disconnect of the client or the shutdown of the
// server. A slow client delays only its own stream.
func stream(w http.ResponseWriter, r *http.Request, reader *eventlog.Reader, format string) {
	out := &streamWriter{w: w, format: format}
	for {
		ev, ok, err := reader.Poll()
		if !ok && err == nil { // nothing is ready: send what is buffered before blocking
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

// poll writes the events that are ready. If there are none it waits for the first one (SS-02).
func poll(w http.ResponseWriter, r *http.Request, reader *eventlog.Reader, format string,
	wait time.Duration,
) {
	out := &streamWriter{w: w, format: format}
	ev, ok, err := reader.Poll()
	if !ok && err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		ev, err = reader.Next(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			_ = out.flush() // no events, and the call goes on
			return
		}
		ok = err == nil
	}
	for ; ok && err == nil; ev, ok, err = reader.Poll() {
		if out.add(ev) != nil {
			return
		}
	}
	if err != nil {
		out.end(err)
		return
	}
	_ = out.flush()
}

// streamWriter buffers events and sends them together. Its errors mean that the client has
// disconnected.
type streamWriter struct {
	w           http.ResponseWriter
	format      string
	headersSent bool
	// clientGone is set when a write failed: the client has disconnected.
	clientGone bool
	buf        []byte
}

func (o *streamWriter) add(ev eventlog.Event) error {
	o.buf = appendEvent(o.buf, ev, o.format)
	return o.flushFull()
}

// Write buffers p.
func (o *streamWriter) Write(p []byte) (int, error) {
	o.buf = append(o.buf, p...)
	return len(p), o.flushFull()
}

func (o *streamWriter) flushFull() error {
	if len(o.buf) < flushThreshold {
		return nil
	}
	return o.flush()
}

// flush sends the headers, if they were not sent, and the buffered events.
func (o *streamWriter) flush() error {
	if !o.headersSent {
		o.headersSent = true
		beginStream(o.w, o.format)
	}
	_, err := o.w.Write(o.buf)
	o.buf = o.buf[:0]
	if err == nil {
		err = http.NewResponseController(o.w).Flush()
	}
	o.clientGone = err != nil
	return err
}

// end ends a stream with the error of its reader.
func (o *streamWriter) end(err error) {
	switch {
	case !errors.Is(err, io.EOF): // disconnect or shutdown
	case len(o.buf) == 0 && !o.headersSent && o.format == mediaSSE:
		// a browser reconnects after any other response
		o.w.WriteHeader(http.StatusNoContent)
	default:
		_ = o.flush()
	}
}

func beginStream(w http.ResponseWriter, format string) {
	h := w.Header()
	h.Set("Content-Type", format)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
}

func appendEvent(dst []byte, ev eventlog.Event, format string) []byte {
	if format == mediaSSE {
		return ev.AppendSSE(dst)
	}
	return ev.AppendNDJSON(dst)
}
