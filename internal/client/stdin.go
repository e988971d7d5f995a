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

// stdinChunk is what one request carries: as much as a pipe holds, so that a tool that reads slowly
// is felt by whoever writes.
const stdinChunk = 64 << 10

// stdinWait is how long to wait after a 429 that does not say; most tools read again soon.
const stdinWait = 100 * time.Millisecond

// Stdin passes everything that r gives to a running call, then end of file. It returns when that is
// done, when the call is over (which is no error, whether or not it has read), or with the error of
// reading or sending. While the tool does not read, it waits, and r is not read either.
func (c *Client) Stdin(ctx context.Context, id string, r io.Reader) error {
	buf := make([]byte, stdinChunk)
	var offset int64
	for {
		n, readErr := r.Read(buf)
		eof := readErr == io.EOF
		if n > 0 || eof {
			if over, err := c.write(ctx, id, offset, buf[:n], eof); over || err != nil {
				return err
			}
		}
		offset += int64(n)
		if eof {
			return nil
		}
		if readErr != nil {
			return fmt.Errorf("reading stdin: %w", readErr)
		}
	}
}

// write passes one chunk, as often as the daemon says that there is no room yet. A repeat never
// doubles: the offset says what was there before.
func (c *Client) write(ctx context.Context, id string, offset int64, p []byte, eof bool) (over bool,
	err error,
) {
	query := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	if eof {
		query.Set("eof", "1")
	}
	target := "/v1/invocations/" + url.PathEscape(id) + "/stdin?" + query.Encode()
	for {
		wait, err := c.writeOnce(ctx, target, p)
		switch {
		case err != nil:
			return true, ignoreCallEnded(err)
		case wait == 0:
			return false, nil
		}
		if err := sleep(ctx, wait); err != nil {
			return false, err
		}
	}
}

// writeOnce makes one request; a wait above 0 says that it has to be made again.
func (c *Client) writeOnce(ctx context.Context, target string, p []byte) (wait time.Duration,
	err error,
) {
	req, err := c.request(ctx, http.MethodPost, target, bytes.NewReader(p))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := c.http.Do(req)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return 0, cause
	}
	if err != nil {
		return 0, disconnectedError(err) // the call's stream will say the same, sooner or later
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		return retryAfter(resp.Header), nil
	case resp.StatusCode >= http.StatusMultipleChoices:
		return 0, refusal(resp)
	}
	return 0, nil
}

// IsCallEnded says of an error that the call has ended, ends with the daemon, or takes no stdin any
// more. What was sent to it then has nobody to miss it.
func IsCallEnded(err error) bool {
	switch dray.CodeOf(err) {
	case dray.CodeNotFound, dray.CodeConflict, dray.CodeShuttingDown:
		return true
	default:
		return false
	}
}

func ignoreCallEnded(err error) error {
	if IsCallEnded(err) {
		return nil
	}
	return err
}

// retryAfter reads a wait in seconds, fractions allowed, as the daemon gives it for waits shorter
// than the standard's whole seconds.
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
