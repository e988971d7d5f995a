package server

import (
	"io"
	"net/http"
	"time"
)

const (
	// bodyPause is how long a body may stand still. A slow one may take a minute, and for each bodyPace bytes that it has brought a second more: as
	// long as it needs, unless it trickles to hold the connection.
	bodyPause = 30 * time.Second
	bodyTime  = time.Minute
	bodyPace  = 1 << 10
	// drainTimeout is how long the rest of a body is thrown away that nobody wants.
	drainTimeout = 5 * time.Second
)

// steady is the body of a request, which may be slow and may not stand still, so that a client that stops in its middle holds nothing for ever.
type steady struct {
	io.ReadCloser
	control *http.ResponseController
	last    time.Time // no byte is waited for after it; it grows with what comes, unless that is final
	final   bool
	over    bool // no more comes: all of it was read, or it stood still
}

// steadied watches over the body of a request, if it has one.
func steadied(w http.ResponseWriter, r *http.Request) *steady {
	b := &steady{ReadCloser: r.Body, control: http.NewResponseController(w), last: time.Now().Add(bodyTime), over: r.Body == nil || r.Body == http.NoBody}
	if !b.over {
		r.Body = b
	}
	return b
}

func (b *steady) Read(p []byte) (int, error) {
	until := time.Now().Add(bodyPause)
	if b.last.Before(until) {
		until = b.last
	}
	_ = b.control.SetReadDeadline(until) // without deadlines, as in a test's recorder, there is none
	n, err := b.ReadCloser.Read(p)
	if !b.final {
		b.last = b.last.Add(time.Duration(n) * time.Second / bodyPace)
	}
	b.over = err != nil
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{}) // it would end the watch for a client that goes away
	}
	return n, err
}

// leave throws away what was not read of the body, for a while and at most so much: most clients do not read an answer before they have sent
// everything. A client that waits to be asked for its body is not asked.
func (b *steady) leave(r *http.Request, most int64) {
	if b.over || r.Header.Get("Expect") != "" {
		return
	}
	b.last, b.final = time.Now().Add(drainTimeout), true
	_, _ = io.CopyN(io.Discard, b, most)
}
