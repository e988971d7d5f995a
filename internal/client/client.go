// Package client is a typed client of the daemon's HTTP interface on its unix socket, for the
// commands of the CLI.
//
// Every method takes a context that bounds the whole exchange. If the daemon refuses a request, the
// error is a [dray.Error] with the daemon's code, message and hint. If no daemon listens on the
// socket, the error is [ErrNoDaemon], and nothing was sent.
package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// maxReply bounds a response in bytes. A record contains the call's input, at most 64 MiB, and
// output.
const maxReply = 256 << 20

// The time bounds of the wait for the exit of a daemon that shuts down: longer than a drain takes
// by default.
const (
	exitWait         = time.Minute
	exitPollInterval = 20 * time.Millisecond
)

// Client is a connection pool to one daemon. It is safe for concurrent use.
type Client struct {
	// OnSlow, if set, is called once, from another goroutine, when a response takes long and the
	// daemon is alive.
	OnSlow func()
	// Version is the version of this program. OnVersionMismatch, if set, is called once if the daemon
	// has another version.
	Version           string
	OnVersionMismatch func(version string)
	// OnConfig, if set, is called once with the digest of the daemon's configuration.
	OnConfig func(digest string)

	mismatchOnce sync.Once
	configOnce   sync.Once
	http         *http.Client
	dialer       dialer

	slowAfter, probeTimeout time.Duration
}

// Reply is a response of the daemon: its value, and its JSON, which may have additional members.
type Reply[T any] struct {
	Value T
	JSON  jsontext.Value
}

// New returns a client of the daemon that listens on the socket. If no daemon listens, start is
// called and the connection is tried once more; if start is nil, the error is [ErrNoDaemon].
func New(socket string, start func(context.Context) error) *Client {
	c := &Client{
		dialer: dialer{socket: socket, start: start}, slowAfter: slowAfter, probeTimeout: probeTimeout,
	}
	c.http = &http.Client{
		Transport: &http.Transport{
			DialContext: c.dialer.dial, DisableCompression: true, MaxIdleConnsPerHost: 4,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Close closes the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// get requests one JSON value.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (Reply[T], error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return exchange[T](ctx, c, http.MethodGet, path, nil)
}

// post sends body as JSON, unless it is nil, and returns the JSON value of the response.
func post[T any](ctx context.Context, c *Client, path string, body any) (Reply[T], error) {
	return exchange[T](ctx, c, http.MethodPost, path, body)
}

func exchange[T any](ctx context.Context, c *Client, method, path string, body any,
) (reply Reply[T], err error) {
	resp, err := c.send(ctx, method, path, body, "application/json")
	if err != nil {
		return reply, err
	}
	defer resp.Body.Close()
	if reply.JSON, err = readAll(resp.Body); err != nil {
		return reply, fmt.Errorf("read the response of %s %s: %w", method, path, err)
	}
	if err := json.Unmarshal(reply.JSON, &reply.Value); err != nil {
		return reply, dray.Errorf(dray.CodeInternal, "decode response of %s %s: %w", method, path, err).
			WithHint("the daemon may be of another version: stop it and try again")
	}
	return reply, nil
}

// command makes a POST request whose response has no content.
func (c *Client) command(ctx context.Context, path string, body any) error {
	resp, err := c.send(ctx, http.MethodPost, path, body, "application/json")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// send makes a request and returns a refusal as an error. The caller closes the body of the
// response.
//
// A daemon that shuts down refuses new calls and runs none of them. If another daemon may be
// started, send waits for the exit of this one and repeats the request.
func (c *Client) send(ctx context.Context, method, path string, body any, accept string,
) (*http.Response, error) {
	resp, err := c.sendOnce(ctx, method, path, body, accept)
	if dray.CodeOf(err) != dray.CodeShuttingDown || c.dialer.start == nil || !c.waitForExit(ctx) {
		return resp, err
	}
	return c.sendOnce(ctx, method, path, body, accept)
}

// waitForExit waits until no daemon listens on the socket, and reports whether that is so.
func (c *Client) waitForExit(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, exitWait)
	defer cancel()
	c.Close()
	for IsListening(ctx, c.dialer.socket) {
		if sleep(ctx, exitPollInterval) != nil {
			return false
		}
	}
	return ctx.Err() == nil
}

func (c *Client) sendOnce(ctx context.Context, method, path string, body any, accept string,
) (*http.Response, error) {
	var payload io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		payload = bytes.NewReader(encoded)
	}
	req, err := newRequest(ctx, method, path, payload)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if call, ok := body.(Call); ok && call.IdempotencyKey != "" {
		req.Header.Set("Idempotency-Key", call.IdempotencyKey)
	}
	return c.do(req)
}

// newRequest returns a request. Its host is a dummy: the transport connects to the socket only.
func newRequest(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, body)
	if err != nil {
		return nil, fmt.Errorf("create the request: %w", err)
	}
	return req, nil
}

// do sends a request and returns a refusal as an error.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	resp, err := c.doWatched(req)
	if err != nil {
		return nil, c.transportError(req.Context(), err)
	}
	c.checkVersion(resp.Header.Get(versionHeader))
	c.checkConfig(resp.Header.Get(configHeader))
	if resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, problemError(resp)
}

// versionHeader contains the version of the daemon.
const versionHeader = "Dray-Version"

func (c *Client) checkVersion(daemon string) {
	if c.OnVersionMismatch == nil || daemon == "" || c.Version == "" || daemon == c.Version {
		return
	}
	c.mismatchOnce.Do(func() { c.OnVersionMismatch(daemon) })
}

// configHeader contains the digest of the daemon's configuration.
const configHeader = "Dray-Config"

func (c *Client) checkConfig(daemon string) {
	if c.OnConfig == nil || daemon == "" {
		return
	}
	c.configOnce.Do(func() { c.OnConfig(daemon) })
}

// transportError returns the error of a request without a response. The cause of a cancelled
// context takes precedence over the broken connection.
func (c *Client) transportError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if request := (*url.Error)(nil); errors.As(err, &request) {
		err = request.Err // without method and dummy address
	}
	if known := (*dray.Error)(nil); errors.Is(err, ErrNoDaemon) || errors.As(err, &known) {
		return err
	}
	return dray.Errorf(dray.CodeInternal, "send a request to the daemon on %s: %w",
		c.dialer.socket, err).
		WithHint("the daemon may have exited: see daemon.log in the state directory")
}

// readAll reads a response of at most maxReply bytes.
func readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxReply+1))
	if err == nil && len(b) > maxReply {
		err = fmt.Errorf("longer than %d bytes", maxReply)
	}
	return b, err
}

// problem is an RFC 9457 problem with the daemon's additional members.
type problem struct {
	Title  string        `json:"title"`
	Detail string        `json:"detail"`
	Code   dray.Code     `json:"code"`
	Hint   string        `json:"hint"`
	Errors []dray.Detail `json:"errors"`
}

// problemError returns the error in a response. A response that no daemon sends is an internal
// error.
func problemError(resp *http.Response) error {
	var p problem
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	body, err := readAll(resp.Body)
	if err != nil || kind != "application/problem+json" || json.Unmarshal(body, &p) != nil ||
		p.Code == "" {
		return dray.Errorf(dray.CodeInternal, "unexpected response %q", resp.Status).
			WithHint("check that a dray daemon of this version listens on the socket")
	}
	return &dray.Error{
		Code: p.Code, Message: cmp.Or(p.Detail, p.Title), Hint: p.Hint, Details: p.Errors,
	}
}

// ErrNoDaemon is returned if no daemon listens on the socket. Nothing was sent.
var ErrNoDaemon = errors.New("no daemon is running")

// dialer connects to the socket. It starts the daemon if start is not nil and no daemon listens.
type dialer struct {
	socket string
	start  func(context.Context) error
}

// dial is http.Transport's DialContext. The daemon is started here and not before the first
// request: an idle daemon may exit between a check and a request. Only after a refused connection a
// repeat can never run a call twice.
func (d *dialer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := connect(ctx, d.socket)
	if !errors.Is(err, ErrNoDaemon) || d.start == nil {
		return conn, err
	}
	if err := d.start(ctx); err != nil {
		return nil, err
	}
	return connect(ctx, d.socket)
}

// IsListening reports whether a daemon accepts connections on the socket.
func IsListening(ctx context.Context, socket string) bool {
	conn, err := connect(ctx, socket)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func connect(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialUnix(ctx, "unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w on %s", ErrNoDaemon, socket)
	case err != nil:
		return nil, err
	}
	if err := checkPeer(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// checkPeer returns an error if the daemon belongs to another user, except root: calls carry the
// caller's environment variables, and any user may listen in a shared directory.
func checkPeer(conn *net.UnixConn) error {
	cred, err := peer(conn)
	if err != nil {
		return fmt.Errorf("read the credentials of the daemon: %w", err)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return dray.Errorf(dray.CodeUnauthorized, "the daemon on this socket belongs to user %d",
			cred.Uid).WithHint("use your own state directory: --state DIR")
	}
	return nil
}

// peer returns the credentials of the listening process.
func peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}

// ErrUnresponsive is returned if a daemon accepts connections and does not respond, not even to a
// health check. It may still execute the request.
var ErrUnresponsive = errors.New("the daemon does not respond")

// The daemon's health is checked every slowAfter until the response was read to its end: the stream
// of a quiet tool looks like that of a hung daemon. The request fails if a check gets no response
// within probeTimeout; otherwise it may take any time.
const (
	slowAfter    = 5 * time.Second
	probeTimeout = 20 * time.Second
)

// doWatched makes a request. It fails with ErrUnresponsive if the daemon hangs.
func (c *Client) doWatched(req *http.Request) (*http.Response, error) {
	ctx, leave := context.WithCancelCause(req.Context())
	w := &watched{ctx: ctx, leave: leave}
	w.polling.Go(func() { c.pollHealth(w) })
	resp, err := c.http.Do(req.WithContext(ctx))
	w.responded.Store(true)
	if err != nil {
		err = w.cause(err)
		w.end()
		return nil, err
	}
	w.ReadCloser, resp.Body = resp.Body, w
	return resp, nil
}

// pollHealth checks the daemon's health repeatedly until the request ends.
func (c *Client) pollHealth(w *watched) {
	ctx := w.ctx
	for reported := false; sleep(ctx, c.slowAfter) == nil; {
		err := c.probe(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, context.DeadlineExceeded):
			w.leave(c.unresponsiveError())
			return
		case err == nil && c.OnSlow != nil && !reported && !w.responded.Load():
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
	return dray.Errorf(dray.CodeInternal, "%w: it accepts connections on %s", ErrUnresponsive,
		c.dialer.socket).
		WithHint("it may be stopped or hung: run `dray stop`, and repeat the command")
}

// watched is a request and the body of its response. The daemon's health is checked until the body
// is closed.
type watched struct {
	io.ReadCloser
	ctx       context.Context //nolint:containedctx // of the request, which the body belongs to
	leave     context.CancelCauseFunc
	polling   sync.WaitGroup
	responded atomic.Bool
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	return n, w.cause(err)
}

func (w *watched) Close() error {
	err := w.ReadCloser.Close()
	w.end()
	return err
}

// end ends the request and its health checks.
func (w *watched) end() {
	w.leave(nil)
	w.polling.Wait()
}

// cause returns the error of a failed health check, which ended the request, else err.
func (w *watched) cause(err error) error {
	if cause := context.Cause(w.ctx); err != nil && errors.Is(cause, ErrUnresponsive) {
		return cause
	}
	return err
}

// MCP sends a request to /mcp. Its caller gets every response, also refusals.
func (c *Client) MCP(req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req) //nolint:gosec // the transport connects to the socket only
	if err != nil {
		return nil, c.transportError(req.Context(), err)
	}
	return resp, nil
}
