package server

import (
	"io"
	"net/http"
	"time"
)

const (
	// maxBodyStall is how long a body may stand still. A slow one may take a minute, and for each minBodyRate bytes that it has brought a second more: as
	// long as it needs, unless it trickles to hold the connection.
	maxBodyStall = 30 * time.Second
	bodyTime     = time.Minute
	minBodyRate  = 1 << 10
	// drainTimeout is how long the rest of a body is thrown away that nobody wants.
	drainTimeout = 5 * time.Second
)

// deadlineBody is the body of a request, which may be slow and may not stand still, so that a client that stops in its middle holds nothing for ever.
type deadlineBody struct {
	io.ReadCloser
	control       *http.ResponseController
	deadline      time.Time // no byte is waited for after it; it grows with what comes, unless that is final
	deadlineFixed bool
	over          bool // no more comes: all of it was read, or it stood still
}

// withBodyDeadline watches over the body of a request, if it has one.
func withBodyDeadline(w http.ResponseWriter, r *http.Request) *deadlineBody {
	b := &deadlineBody{ReadCloser: r.Body, control: http.NewResponseController(w), deadline: time.Now().Add(bodyTime), over: r.Body == nil || r.Body == http.NoBody}
	if !b.over {
		r.Body = b
	}
	return b
}

func (b *deadlineBody) Read(p []byte) (int, error) {
	until := time.Now().Add(maxBodyStall)
	if b.deadline.Before(until) {
		until = b.deadline
	}
	_ = b.control.SetReadDeadline(until) // without deadlines, as in a test's recorder, there is none
	n, err := b.ReadCloser.Read(p)
	if !b.deadlineFixed {
		b.deadline = b.deadline.Add(time.Duration(n) * time.Second / minBodyRate)
	}
	b.over = err != nil
	if err == io.EOF {
		_ = b.control.SetReadDeadline(time.Time{}) // it would end the watch for a client that goes away
	}
	return n, err
}

// drain throws away what was not read of the body, for a while and at most so much: most clients do not read an answer before they have sent
// everything. A client that waits to be asked for its body is not asked.
func (b *deadlineBody) drain(r *http.Request, most int64) {
	if b.over || r.Header.Get("Expect") != "" {
		return
	}
	b.deadline, b.deadlineFixed = time.Now().Add(drainTimeout), true
	_, _ = io.CopyN(io.Discard, b, most)
}
