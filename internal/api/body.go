package api

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/strictjson"
	"github.com/dray-dev/dray/internal/validate"
)

const (
	mediaJSON   = "application/json"
	mediaSSE    = "text/event-stream"
	mediaNDJSON = "application/x-ndjson"
	mediaBytes  = "application/octet-stream"
)

const (
	// firstBuffer bounds the buffer that is allocated before any of a body has arrived.
	firstBuffer = 1 << 20
	// maxBufferedBodies bounds the bytes of all bodies in progress, in bodies of the maximum size.
	maxBufferedBodies = 8
)

// bodyReader reads request bodies. It is safe for concurrent use.
type bodyReader struct {
	max      int64        // bytes of one body
	buffered atomic.Int64 // bytes of the bodies in progress
}

// decode decodes a JSON body into v.
func (b *bodyReader) decode(w http.ResponseWriter, r *http.Request, v any) error {
	if err := checkContentType(r); err != nil {
		return err
	}
	body, err := b.read(w, r)
	if err != nil {
		return err
	}
	return strictjson.Decode(body, v)
}

// decodeOptional decodes a JSON body if the request has one.
func (b *bodyReader) decodeOptional(w http.ResponseWriter, r *http.Request, v any) error {
	if r.ContentLength == 0 {
		return nil
	}
	return b.decode(w, r, v)
}

// checkContentType requires the JSON content type, which no form of a web page can send (SE-02).
func checkContentType(r *http.Request) error {
	given := r.Header.Get("Content-Type")
	kind, params, err := mime.ParseMediaType(given)
	if err == nil && kind == mediaJSON &&
		(params["charset"] == "" || strings.EqualFold(params["charset"], "utf-8")) {
		return nil
	}
	return dray.Errorf(dray.CodeUnsupportedMediaType, "unsupported Content-Type %q", given).
		WithHint("send the header Content-Type: %s", mediaJSON)
}

// read reads a whole body.
func (b *bodyReader) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > b.max {
		return nil, b.error(r, &http.MaxBytesError{Limit: b.max})
	}
	var buf bytes.Buffer
	buf.Grow(int(min(max(r.ContentLength, 0), firstBuffer)) + bytes.MinRead)
	quota := bodyQuota{
		Reader: http.MaxBytesReader(unwrap(w), r.Body, b.max), total: &b.buffered,
		limit: maxBufferedBodies * b.max,
	}
	defer quota.release()
	if _, err := buf.ReadFrom(&quota); err != nil {
		if errors.Is(err, errBodyQuota) {
			w.Header().Set("Connection", "close")
		}
		return nil, b.error(r, err)
	}
	return buf.Bytes(), nil
}

// error returns the error of a body that cannot be read.
func (b *bodyReader) error(r *http.Request, err error) error {
	switch {
	case errors.Is(err, errBodyQuota):
		if body, ok := r.Body.(*deadlineBody); ok {
			body.over = true // the response must not wait for the rest of the body
		}
		return dray.Errorf(dray.CodeBusy,
			"too many request bodies are being received (limit %d bytes in total)",
			maxBufferedBodies*b.max).WithHint("retry after the time in Retry-After")
	case isTooLarge(err):
		return dray.Errorf(dray.CodeTooLarge, "the request body is larger than %d bytes", b.max).
			WithHint("send less, send stdin in pieces with their offsets, or raise server.max_body")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return invalid("",
			"request body timed out: no data for %v, or less than %d KiB/s for more than %v",
			maxBodyStall, minBodyRate>>10, bodyTime).WithHint("send the complete body again")
	default:
		return invalid("", "read the request body: %v", err).
			WithHint("send as many bytes as Content-Length says")
	}
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}

// bodyQuota is the body of one request. It counts the bytes of all bodies in progress, so that many
// slow requests cannot use all memory.
type bodyQuota struct {
	io.Reader
	total       *atomic.Int64
	read, limit int64
}

var errBodyQuota = errors.New("too many bytes of bodies in progress")

func (q *bodyQuota) Read(p []byte) (int, error) {
	n, err := q.Reader.Read(p)
	q.read += int64(n)
	if q.total.Add(int64(n)) > q.limit {
		err = errBodyQuota
	}
	return n, err
}

func (q *bodyQuota) release() { q.total.Add(-q.read) }

// checkQuery refuses unknown and repeated query parameters. An empty one counts as absent.
func checkQuery(r *http.Request, known []string) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("", "invalid query: %v", err).WithHint("percent-encode names and values")
	}
	hint := "use one of " + strings.Join(known, ", ")
	if len(known) == 0 {
		hint = "this request has no query parameters"
	}
	for name, values := range q {
		switch {
		case !slices.Contains(known, name):
			return invalid("", "unknown query parameter %q", validate.Quote(name)).WithHint("%s", hint)
		case len(values) > 1:
			return invalid("", "the query parameter %s is repeated", name).WithHint("send it once")
		}
	}
	return nil
}

const (
	// maxBodyStall bounds the time without a byte of a body. A body may take bodyTime, and a second
	// more for each minBodyRate bytes.
	maxBodyStall = 30 * time.Second
	bodyTime     = time.Minute
	minBodyRate  = 1 << 10
	// drainTimeout bounds how long the unread rest of a body is discarded.
	drainTimeout = 5 * time.Second
)

// deadlineBody is a request body with read deadlines, so that a client that stops sending does not
// hold its connection forever. It must not be used concurrently.
type deadlineBody struct {
	io.ReadCloser
	control *http.ResponseController
	// deadline is the latest time of a read. It moves with the bytes that arrive unless fixed is set.
	deadline time.Time
	fixed    bool
	over     bool // no read follows: at the end of the body, or after an error
}

// withBodyDeadline replaces the body of a request, if it has one.
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
	_ = b.control.SetReadDeadline(until) // the recorder of a test supports no deadlines
	n, err := b.ReadCloser.Read(p)
	if !b.fixed {
		b.deadline = b.deadline.Add(time.Duration(n) * time.Second / minBodyRate)
	}
	b.over = err != nil
	if err == io.EOF {
		// net/http keeps reading to detect a disconnect, and must not time out
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// drain discards up to limit bytes of the unread rest of the body, because most clients read the
// response only after they have sent everything. A client that sent Expect is not asked for a body.
func (b *deadlineBody) drain(r *http.Request, limit int64) {
	if b.over || r.Header.Get("Expect") != "" {
		return
	}
	b.deadline, b.fixed = time.Now().Add(drainTimeout), true
	_, _ = io.CopyN(io.Discard, b, limit)
}
