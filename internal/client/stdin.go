package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/dray-dev/dray"
)

// stdinChunk is the maximum size of one request in bytes: the size of a pipe's buffer, so that a
// slow reader slows down the writer.
const stdinChunk = 64 << 10

// stdinWait is the wait after a 429 without Retry-After.
const stdinWait = 100 * time.Millisecond

// Stdin sends the content of r to a running call, then end of file. It blocks while the tool does
// not read. It returns nil if the call has ended, whether or not the tool has read everything.
func (c *Client) Stdin(ctx context.Context, id string, r io.Reader) error {
	buf := make([]byte, stdinChunk)
	var offset int64
	for {
		n, readErr := r.Read(buf)
		eof := readErr == io.EOF
		if n > 0 || eof {
			if ended, err := c.write(ctx, id, offset, buf[:n], eof); ended || err != nil {
				return err
			}
		}
		offset += int64(n)
		if eof {
			return nil
		}
		if readErr != nil {
			return fmt.Errorf("read stdin: %w", readErr)
		}
	}
}

// write sends one chunk, repeatedly while the daemon's buffer is full. The offset makes a repeat
// harmless.
func (c *Client) write(ctx context.Context, id string, offset int64, p []byte, eof bool,
) (ended bool, err error) {
	query := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	if eof {
		query.Set("eof", "1")
	}
	target := "/v1/invocations/" + url.PathEscape(id) + "/stdin?" + query.Encode()
	for {
		wait, err := c.writeOnce(ctx, target, p)
		switch {
		case err != nil:
			if IsCallEnded(err) {
				err = nil
			}
			return true, err
		case wait == 0:
			return false, nil
		}
		if err := sleep(ctx, wait); err != nil {
			return false, err
		}
	}
}

// writeOnce makes one request. It returns a positive wait if the request must be repeated.
func (c *Client) writeOnce(ctx context.Context, target string, p []byte) (wait time.Duration,
	err error,
) {
	req, err := newRequest(ctx, http.MethodPost, target, bytes.NewReader(p))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := c.http.Do(req)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return 0, cause
	}
	if err != nil {
		return 0, disconnectedError(err) // the call's stream returns the same error
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		return retryAfter(resp.Header), nil
	case resp.StatusCode >= http.StatusMultipleChoices:
		return 0, problemError(resp)
	}
	return 0, nil
}

// IsCallEnded reports whether err means that the call has ended, is being ended with the daemon, or
// no longer reads stdin.
func IsCallEnded(err error) bool {
	switch dray.CodeOf(err) {
	case dray.CodeNotFound, dray.CodeConflict, dray.CodeShuttingDown:
		return true
	default:
		return false
	}
}

// retryAfter returns the wait in seconds. The daemon also sends fractions, which the standard does
// not have.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseFloat(h.Get("Retry-After"), 64)
	if err != nil || seconds <= 0 || seconds > 60 {
		return stdinWait
	}
	return time.Duration(seconds * float64(time.Second))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
