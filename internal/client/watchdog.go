package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/dray-dev/dray"
)

// ErrUnresponsive is returned if a daemon accepts connections and does not respond, not even to a
// health check. It may still execute the request.
var ErrUnresponsive = errors.New("the daemon does not respond")

// If there is no response after slowAfter, the daemon's health is checked. The request fails if
// that gets no response within probeTimeout; otherwise it may take any time.
const (
	slowAfter    = 5 * time.Second
	probeTimeout = 20 * time.Second
)

// doWatched makes a request. It fails with ErrUnresponsive if the daemon hangs.
func (c *Client) doWatched(req *http.Request) (*http.Response, error) {
	ctx, leave := context.WithCancelCause(req.Context())
	probing, answered := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { c.pollHealth(probing, leave) })
	resp, err := c.http.Do(req.WithContext(ctx))
	answered()
	watching.Wait()
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, ErrUnresponsive) {
			err = cause
		}
		leave(nil)
		return nil, err
	}
	resp.Body = &cancelOnClose{ReadCloser: resp.Body, leave: leave}
	return resp, nil
}

// pollHealth checks the daemon's health repeatedly until ctx ends.
func (c *Client) pollHealth(ctx context.Context, leave context.CancelCauseFunc) {
	for reported := false; sleep(ctx, c.slowAfter) == nil; {
		err := c.probe(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, context.DeadlineExceeded):
			leave(c.unresponsiveError())
			return
		case err == nil && c.OnSlow != nil && !reported:
			c.OnSlow()
			reported = true
		} // the request itself reports any other failure
	}
}

// probe checks the daemon's health on a new connection. It does not start a daemon.
func (c *Client) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.probeTimeout)
	defer cancel()
	req, err := newRequest(ctx, http.MethodGet, "/healthz", nil)
	if err != nil {
		return err
	}
	d := dialer{socket: c.dialer.socket}
	alone := http.Transport{DialContext: d.dial, DisableKeepAlives: true}
	resp, err := alone.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (c *Client) unresponsiveError() error {
	hint := "it may be stopped or hung: resume or kill it, and repeat the command"
	if pid := peerPID(c.dialer.socket); pid != 0 {
		hint = fmt.Sprintf("it may be stopped or hung: run `kill -CONT %d`, or `kill -9 %d`, "+
			"and repeat the command", pid, pid)
	}
	return dray.Errorf(dray.CodeInternal, "%w: it accepts connections on %s", ErrUnresponsive,
		c.dialer.socket).WithHint("%s", hint)
}

// cancelOnClose cancels the request's context when the response is closed.
type cancelOnClose struct {
	io.ReadCloser
	leave context.CancelCauseFunc
}

func (l *cancelOnClose) Close() error {
	err := l.ReadCloser.Close()
	l.leave(nil)
	return err
}
