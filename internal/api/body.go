package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/strictjson"
)

const (
	mediaJSON   = "application/json"
	mediaSSE    = "text/event-stream"
	mediaNDJSON = "application/x-ndjson"
	mediaBytes  = "application/octet-stream"
)

const (
	// firstBuffer bounds what is set aside for a body before any of it is there.
	firstBuffer = 1 << 20
	maxWait     = 24 * time.Hour
	// maxBufferedBodies is how many bodies of the largest size are read at the same time; of smaller
	// ones there may be more.
	maxBufferedBodies = 8
)

// decode reads a JSON body into v.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, v any) error {
	if err := wantJSON(r); err != nil {
		return err
	}
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	return strictjson.Decode(body, v)
}

// decodeOptional reads a JSON body where the request has one.
func (s *Server) decodeOptional(w http.ResponseWriter, r *http.Request, v any) error {
	if r.ContentLength == 0 {
		return nil
	}
	return s.decode(w, r, v)
}

// wantJSON demands the content type, so that no form of a web page can make a request that does
// something (SE-02).
func wantJSON(r *http.Request) error {
	given := r.Header.Get("Content-Type")
	kind, params, err := mime.ParseMediaType(given)
	if err == nil && kind == mediaJSON &&
		(params["charset"] == "" || strings.EqualFold(params["charset"], "utf-8")) {
		return nil
	}
	return dray.Errorf(dray.CodeUnsupportedMediaType,
		"the body's content type is %q, and only %s is read", given, mediaJSON).
		WithHint("send the header Content-Type: %s", mediaJSON)
}

// readBody reads the whole body, which is at most server.max_body long.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := s.cfg.MaxBody
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	var buf bytes.Buffer
	buf.Grow(int(min(max(r.ContentLength, 0), firstBuffer)) + bytes.MinRead)
	part := bodyQuota{
		Reader: http.MaxBytesReader(unwrap(w), r.Body, limit), all: &s.bufferedBytes,
		most: maxBufferedBodies * limit,
	}
	defer part.release()
	_, err := buf.ReadFrom(&part)
	switch {
	case err == nil:
		return buf.Bytes(), nil
	case errors.Is(err, errBodyQuota):
		if b, ok := r.Body.(*deadlineBody); ok {
			b.over = true // the answer does not wait for the rest
		}
		w.Header().Set("Connection", "close")
		return nil, dray.Errorf(dray.CodeBusy, "the requests that are being read hold %d bytes together",
			part.most).WithHint("try again when Retry-After is over")
	case isTooLarge(err):
		return nil, tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, bodyStalledError()
	default:
		return nil, invalid("", "reading the body: %v", err).
			WithHint("send as many bytes as Content-Length says")
	}
}

// bodyQuota is the body of one request among all that are being read: many that come slowly must
// not take all memory.
type bodyQuota struct {
	io.Reader
	all         *atomic.Int64
	taken, most int64
}

var errBodyQuota = errors.New("too much is being read")

func (s *bodyQuota) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.taken += int64(n)
	if s.all.Add(int64(n)) > s.most {
		err = errBodyQuota
	}
	return n, err
}

func (s *bodyQuota) release() { s.all.Add(-s.taken) }

func bodyStalledError() *dray.Error {
	return invalid("", "the body stood still for %v, or trickled for more than %v", maxBodyStall,
		bodyTime).
		WithHint("it may be slow and may not stop: send it again, when all of it is there")
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}

func tooLarge(limit int64) error {
	return dray.Errorf(dray.CodeTooLarge, "the body is larger than %d bytes", limit).
		WithHint("send less, or raise server.max_body")
}

// query gives the parameters of a request. An unknown one is refused, and so is one that is given
// twice; an empty one counts as absent.
func query(r *http.Request, known ...string) (url.Values, error) {
	if r.URL.RawQuery == "" {
		return nil, nil
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid("", "reading the query: %v", err).WithHint("percent-encode names and values")
	}
	for name, values := range q {
		switch {
		case !slices.Contains(known, name):
			return nil, invalid("", "the query has an unknown parameter %q", truncate(name)).
				WithHint("%s", knownHint(known))
		case len(values) > 1:
			return nil, invalid("", "the query has %s more than once", name).WithHint("give it once")
		}
	}
	return q, nil
}

func knownHint(known []string) string {
	if len(known) == 0 {
		return "this request takes none"
	}
	return "known are " + strings.Join(known, ", ")
}

// waitParam is the parameter wait_ms: how long an answer may wait for the end of a call.
type waitParam struct {
	given bool
	d     time.Duration
}

// parseWait reads it; the request has no other parameter.
func parseWait(r *http.Request) (waitParam, error) {
	q, err := query(r, "wait_ms")
	text := q.Get("wait_ms")
	if err != nil || text == "" {
		return waitParam{}, err
	}
	ms, err := strconv.ParseUint(text, 10, 63)
	if err != nil || time.Duration(ms) > maxWait/time.Millisecond {
		return waitParam{}, invalid("", "wait_ms is %q", truncate(text)).
			WithHint("give whole milliseconds from 0 to %d", maxWait.Milliseconds())
	}
	return waitParam{given: true, d: time.Duration(ms) * time.Millisecond}, nil
}

// context gives a context that is over when the waiting is: without wait_ms that is when the
// client's is.
func (w waitParam) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if !w.given {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, w.d)
}

// truncate bounds what an error repeats of a request.
func truncate(text string) string {
	const most = 100
	text = strings.ToValidUTF8(text, "\uFFFD")
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

const (
	// maxBodyStall is how long a body may stand still. A slow one may take a minute, and for each
	// minBodyRate bytes that it has brought a second more: as long as it needs, unless it trickles to
	// hold the connection.
	maxBodyStall = 30 * time.Second
	bodyTime     = time.Minute
	minBodyRate  = 1 << 10
	// drainTimeout is how long the rest of a body is thrown away that nobody wants.
	drainTimeout = 5 * time.Second
)

// deadlineBody is the body of a request, which may be slow and may not stand still, so that a
// client that stops in its middle holds nothing for ever.
type deadlineBody struct {
	io.ReadCloser
	control *http.ResponseController
	// no byte is waited for after it; it grows with what comes, unless that is final
	deadline      time.Time
	deadlineFixed bool
	over          bool // no more comes: all of it was read, or it stood still
}

// withBodyDeadline watches over the body of a request, if it has one.
func withBodyDeadline(w http.ResponseWriter, r *http.Request) *deadlineBody {
	b := &deadlineBody{
		ReadCloser: r.Body, control: http.NewResponseController(w),
		deadline: time.Now().Add(bodyTime), over: r.Body == nil || r.Body == http.NoBody,
	}
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

// drain throws away what was not read of the body, for a while and at most so much: most clients do
// not read an answer before they have sent everything. A client that waits to be asked for its body
// is not asked.
func (b *deadlineBody) drain(r *http.Request, most int64) {
	if b.over || r.Header.Get("Expect") != "" {
		return
	}
	b.deadline, b.deadlineFixed = time.Now().Add(drainTimeout), true
	_, _ = io.CopyN(io.Discard, b, most)
}
