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

// ErrUnresponsive says that a daemon takes connections and answers nothing, not even whether it
// lives. What was sent to it may still be done.
var ErrUnresponsive = errors.New("the daemon does not answer")

// An answer that takes longer than patience has the daemon asked whether it lives. What takes long
// is waited for as long as it takes; a daemon that does not answer that question within probeTime
// hangs, or is stopped.
const (
	slowAfter = 5 * time.Second
	probeTime = 20 * time.Second
)

// doWatched makes a request, and gives it up where the daemon hangs.
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

// pollHealth asks again and again whether the daemon lives, until the context ends.
func (c *Client) pollHealth(ctx context.Context, leave context.CancelCauseFunc) {
	for told := false; sleep(ctx, c.slowAfter) == nil; {
		err := c.probe(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, context.DeadlineExceeded):
			leave(c.unresponsiveError())
			return
		case err == nil && c.OnSlow != nil && !told:
			c.OnSlow()
			told = true
		} // that the daemon is gone, or not there yet, the request itself will tell
	}
}

// probe asks the daemon whether it lives, over a connection of its own, and starts none.
func (c *Client) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.probeTime)
	defer cancel()
	req, err := c.request(ctx, http.MethodGet, "/healthz", nil)
	if err != nil {
		return err
	}
	d := dialer{socket: c.socket}
	alone := http.Transport{DialContext: d.dial, DisableKeepAlives: true}
	resp, err := alone.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (c *Client) unresponsiveError() error {
	end := "end it"
	if pid := peerPID(c.socket); pid != 0 {
		end = fmt.Sprintf("end it (kill -9 %d)", pid)
	}
	return dray.Errorf(dray.CodeInternal, "%w: it takes connections on %s and says nothing",
		ErrUnresponsive, c.socket).
		WithHint("it hangs or is stopped: %s, then repeat the command", end)
}

// cancelOnClose ends the request's context with its answer.
type cancelOnClose struct {
	io.ReadCloser
	leave context.CancelCauseFunc
}

func (l *cancelOnClose) Close() error {
	err := l.ReadCloser.Close()
	l.leave(nil)
	return err
}
