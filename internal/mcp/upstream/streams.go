package upstream

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/dray-dev/dray/internal/lexical"
)

// maxLine bounds a line of a server in an error, maxTail the end of its stderr, in bytes.
const maxLine, maxTail = 200, 2 << 10

var errFlood = fmt.Errorf("it printed more than %d bytes", maxBytes)

// meteredReader bounds the bytes of a stream and keeps the beginning of its last line. It is safe
// for concurrent use.
type meteredReader struct {
	from io.Reader

	mu    sync.Mutex // guards the fields below
	bytes int        // since renew
	line  []byte
	// complete reports whether the end of line was read.
	complete bool
	err      error // the bound that was exceeded
}

func (r *meteredReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(p[:n])
	if r.bytes += n; r.bytes > maxBytes {
		r.err = errFlood
		return 0, errFlood
	}
	return n, err
}

// Close is called by the SDK; the end of the process ends the stream.
func (*meteredReader) Close() error { return nil }

// renew sets the count of bytes to zero.
func (r *meteredReader) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes = 0
}

// note keeps the beginning of the last line. mu must be held.
func (r *meteredReader) note(p []byte) {
	for len(p) > 0 {
		if r.complete {
			r.line, r.complete = r.line[:0], false
		}
		line, rest, found := bytes.Cut(p, []byte("\n"))
		r.line = append(r.line, line[:min(len(line), maxLine-len(r.line))]...)
		r.complete, p = found, rest
	}
}

// tail keeps the end of stderr. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex // guards kept
	kept []byte
}

// Write never fails, so the stream is read to its end.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p[max(0, len(p)-maxTail):]...)
	t.kept = t.kept[max(0, len(t.kept)-maxTail):]
	return len(p), nil
}

// hint returns the end of stderr for the hint of an error.
func (t *tail) hint() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for line := range strings.Lines(string(t.kept)) {
		text := lexical.PlainLine(line, maxTail)
		if text != "" && !strings.HasPrefix(line, "    at ") { // a frame of a trace of Node.js
			lines = append(lines, "\n  "+text)
		}
	}
	switch len(lines) {
	case 0:
		return "its stderr is empty"
	case 1:
		return "its stderr ends with: " + strings.TrimSpace(lines[0])
	default:
		return "its stderr ends with:" + strings.Join(lines, "")
	}
}
