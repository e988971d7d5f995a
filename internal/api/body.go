package api

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sys/unix"

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
	// maxInMemory bounds the bytes of a body that are kept in memory while it is received. The rest
	// goes to a file, so that many unfinished bodies cannot use all memory.
	maxInMemory = 64 << 10
	// maxBodies bounds the bytes of all bodies in progress, in bodies of the maximum size.
	maxBodies = 8
)

// bodyReader reads request bodies. It is safe for concurrent use.
type bodyReader struct {
	dir      string       // of the files
	max      int64        // bytes of one body
	received atomic.Int64 // bytes of the bodies in progress
	mapped   sync.Mutex   // held while the body in a file is decoded
}

// decode decodes a JSON body into v.
func (b *bodyReader) decode(w http.ResponseWriter, r *http.Request, v any) error {
	if err := checkContentType(r); err != nil {
		return err
	}
	return b.read(w, r, func(data []byte) error { return strictjson.Decode(data, v) })
}

// read receives a whole body. data must not be used after use has returned.
func (b *bodyReader) read(w http.ResponseWriter, r *http.Request, use func(data []byte) error,
) error {
	body := &bodyQuota{
		Reader: http.MaxBytesReader(unwrap(w), r.Body, b.max), total: &b.received,
		limit: maxBodies * b.max,
	}
	defer body.release()
	data, free, err := b.receive(r, body)
	if err != nil {
		if errors.Is(err, errBodyQuota) {
			stopReading(w, r)
		}
		return b.error(err)
	}
	defer free()
	return use(data)
}

// receive receives a whole body. The caller must call free when it is done with data.
func (b *bodyReader) receive(r *http.Request, body io.Reader) (data []byte, free func(),
	err error,
) {
	var head bytes.Buffer
	head.Grow(int(min(max(r.ContentLength, 0), maxInMemory)) + bytes.MinRead)
	_, err = head.ReadFrom(io.LimitReader(body, maxInMemory))
	if err != nil || head.Len() < maxInMemory {
		return head.Bytes(), func() {}, err
	}
	f, err := os.CreateTemp(b.dir, ".body-*")
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil { // a killed daemon leaves no stdin behind
		return nil, nil, err
	}
	size, err := io.Copy(f, io.MultiReader(&head, body))
	if err != nil {
		return nil, nil, err
	}
	return b.mapFile(f, size)
}

// mapFile returns the content of a file as memory that is returned to the system by free. There is
// one at a time.
func (b *bodyReader) mapFile(f *os.File, size int64) (data []byte, free func(), err error) {
	b.mapped.Lock()
	data, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		b.mapped.Unlock()
		return nil, nil, &fs.PathError{Op: "mmap", Path: f.Name(), Err: err}
	}
	return data, func() {
		_ = unix.Munmap(data)
		b.mapped.Unlock()
	}, nil
}

// decodeOptional decodes a JSON body if the request has one.
func (b *bodyReader) decodeOptional(w http.ResponseWriter, r *http.Request, v any) error {
	if r.ContentLength == 0 {
		return nil
	}
	return b.decode(w, r, v)
}

// stopReading leaves the rest of a body unread, so that the response does not wait for it.
func stopReading(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	if body, ok := r.Body.(*deadlineBody); ok {
		body.done = true
	}
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

// error returns the error of a body that cannot be received.
func (b *bodyReader) error(err error) error {
	switch {
	case errors.Is(err, errBodyQuota):
		return dray.Errorf(dray.CodeBusy,
			"too many request bodies are being received (limit %d bytes in total)",
			maxBodies*b.max).WithHint("retry after the time in Retry-After")
	case isTooLarge(err):
		return tooLarge(b.max)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return invalid("",
			"request body timed out: no data for %v, or less than %d KiB/s for more than %v",
			maxBodyStall, minBodyRate>>10, bodyTimeout).WithHint("send the complete body again")
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return dray.Errorf(dray.CodeDiskFull, "store the request body: %w", err).
			WithHint("free space on the disk of %s", b.dir)
	case isFileError(err):
		return dray.Errorf(dray.CodeInternal, "store the request body: %w", err).
			WithHint("make %s a writable directory of the daemon's user", b.dir)
	default:
		return invalid("", "read the request body: %v", err).
			WithHint("send as many bytes as Content-Length says")
	}
}

// tooLarge returns the error of a body of more than limit bytes.
func tooLarge(limit int64) error {
	return dray.Errorf(dray.CodeTooLarge, "the request body is larger than %d bytes", limit).
		WithHint("send less, send stdin in pieces with their offsets, or raise server.max_body")
}

// isFileError reports whether the file of a body failed, not the body itself.
func isFileError(err error) bool {
	_, ok := errors.AsType[*fs.PathError](err)
	return ok
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}

// bodyQuota is the body of one request. It counts the bytes of all bodies in progress, so that many
// slow requests cannot fill the disk.
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

// checkQuery refuses unknown and repeated query parameters. An empty text counts as absent; numbers
// and words of a list must not be empty.
func checkQuery(r *http.Request, params []*huma.Param) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	var known []string
	for _, p := range params {
		if p.In == "query" {
			known = append(known, p.Name)
		}
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
		case values[0] == "" && name != cursorParam:
			return invalid("", "the query parameter %s is empty", name).
				WithHint("write its value, or leave it out")
		}
	}
	return nil
}

const (
	// maxBodyStall bounds the time without a byte of a body. A body may take bodyTimeout, and a second
	// more for each minBodyRate bytes.
	maxBodyStall = 30 * time.Second
	bodyTimeout  = time.Minute
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
	done     bool // no read follows: at the end of the body, or after an error
}

// withBodyDeadline returns the request with a deadlineBody, if it has a body. It is a copy, because
// net/http finds out from its own request whether a client with Expect: 100-continue waits.
func withBodyDeadline(w http.ResponseWriter, r *http.Request) (*http.Request, *deadlineBody) {
	b := &deadlineBody{
		ReadCloser: r.Body, control: http.NewResponseController(w),
		deadline: time.Now().Add(bodyTimeout), done: r.Body == nil || r.Body == http.NoBody,
	}
	if b.done {
		return r, b
	}
	withBody := *r
	withBody.Body = b
	return &withBody, b
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
	b.done = err != nil
	if err == io.EOF {
		// net/http keeps reading to detect a disconnect, and must not time out
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// drain sends the response t and discards up to limit bytes of the unread rest of the body, because
// most clients read the response only after they have sent everything. A client that sent Expect is
// not asked for a body.
func (b *deadlineBody) drain(t *responseTracker, r *http.Request, limit int64) {
	if b.done || r.Header.Get("Expect") != "" {
		return
	}
	b.deadline, b.fixed = time.Now().Add(drainTimeout), true
	if t.written {
		_ = b.control.SetReadDeadline(b.deadline) // net/http may read a part of the rest first
		_ = b.control.Flush()
	}
	_, _ = io.CopyN(io.Discard, b, limit)
}
