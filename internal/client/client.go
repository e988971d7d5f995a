package client

import (
	"bytes"
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
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// maxReply bounds what is read of one answer that is not a stream. A record carries its call's
// input, 64 MiB at most, beside its output.
const maxReply = 256 << 20

// The waits for a daemon that ends: longer than a drain and the kill after it take by default.
const (
	exitWait = time.Minute
	endPoll  = 20 * time.Millisecond
)

// Client is a connection pool to one daemon. It may be used from several goroutines.
type Client struct {
	// Waiting, if set, is called once when an answer is long in coming and the daemon lives, from
	// another goroutine.
	OnSlow func()
	// Version is that of the program. Other, if set, is called once when the daemon is of another,
	// with its process id (0: unknown).
	Version           string
	OnVersionMismatch func(version string, pid int)

	mismatchOnce sync.Once
	http         *http.Client
	socket       string
	autostart    bool

	slowAfter, probeTime time.Duration
}

// Reply is an answer of the daemon: its value, and the JSON that it was read from, which may have
// members that this version does not know.
type Reply[T any] struct {
	Value T
	JSON  jsontext.Value
}

// New makes a client of the daemon that listens on the socket. With a start function, a daemon that
// does not answer is started by it, and the connection is tried once more; without one, the error
// is [ErrNoDaemon]. Nothing is sent before a request is.
func New(socket string, start func(context.Context) error) *Client {
	d := dialer{socket: socket, start: start}
	transport := &http.Transport{DialContext: d.dial, DisableCompression: true, MaxIdleConnsPerHost: 4}
	return &Client{
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: noRedirect,
		}, socket: socket, autostart: start != nil,
		slowAfter: slowAfter, probeTime: probeTime,
	}
}

// Close ends the connections that no request uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// get reads one JSON value.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (Reply[T], error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return exchange[T](ctx, c, http.MethodGet, path, nil)
}

// exchange sends a body as JSON, if there is one, and reads one JSON value.
func exchange[T any](ctx context.Context, c *Client, method, path string, body any) (Reply[T],
	error,
) {
	var reply Reply[T]
	resp, err := c.send(ctx, method, path, body, "application/json")
	if err != nil {
		return reply, err
	}
	defer resp.Body.Close()
	reply.JSON, err = readAll(resp.Body)
	if err != nil {
		return reply, fmt.Errorf("reading the daemon's answer: %w", err)
	}
	if err := json.Unmarshal(reply.JSON, &reply.Value); err != nil {
		return reply, dray.Errorf(dray.CodeInternal, "understanding the daemon's answer to %s %s: %w",
			method, path, err).
			WithHint("daemon and command may be of different versions: end the daemon and try again")
	}
	return reply, nil
}

// send makes one request and turns a refusal into its error. The caller closes the body of the
// response.
//
// A daemon that ends refuses what is new, and nothing of it has run. Where another may be started,
// its end is waited for, and the request is made once more.
func (c *Client) send(ctx context.Context, method, path string, body any,
	accept string,
) (*http.Response, error) {
	resp, err := c.sendOnce(ctx, method, path, body, accept)
	if err == nil || dray.CodeOf(err) != dray.CodeShuttingDown || !c.autostart || !c.waitForExit(ctx) {
		return resp, err
	}
	return c.sendOnce(ctx, method, path, body, accept)
}

// waitForExit waits until nobody answers on the socket.
func (c *Client) waitForExit(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, exitWait)
	defer cancel()
	c.Close()
	tick := time.NewTicker(endPoll)
	defer tick.Stop()
	for IsListening(ctx, c.socket) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

func (c *Client) sendOnce(ctx context.Context, method, path string, body any,
	accept string,
) (*http.Response, error) {
	var payload io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encoding the request: %w", err)
		}
		payload = bytes.NewReader(encoded)
	}
	req, err := c.request(ctx, method, path, payload)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return c.do(req)
}

// request makes a request for a path. The host is a name that no resolver is asked for: the
// transport knows one socket only.
func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request,
	error,
) {
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, body)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	return req, nil
}

// do sends a request and turns a refusal into its error.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	resp, err := c.doWatched(req)
	if err != nil {
		return nil, c.transportError(req.Context(), err)
	}
	c.checkVersion(resp.Header.Get(versionHeader))
	if resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, refusal(resp)
}

// versionHeader is where the daemon says its version.
const versionHeader = "Dray-Version"

// checkVersion tells of a daemon that is of another version.
func (c *Client) checkVersion(daemon string) {
	if c.OnVersionMismatch == nil || daemon == "" || c.Version == "" || daemon == c.Version {
		return
	}
	c.mismatchOnce.Do(func() { c.OnVersionMismatch(daemon, peerPID(c.socket)) })
}

// transportError says what became of a request that got no answer. The cause of a cancelled context
// goes before the broken connection that it left.
func (c *Client) transportError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if request := (*url.Error)(nil); errors.As(err, &request) {
		err = request.Err // without the method and the address, which says nothing
	}
	if known := (*dray.Error)(nil); errors.Is(err, ErrNoDaemon) || errors.As(err, &known) {
		return err
	}
	return dray.Errorf(dray.CodeInternal, "talking to the daemon on %s: %w", c.socket, err).
		WithHint("the daemon may have ended: its log is daemon.log in the state folder")
}

// readAll reads an answer as far as maxReply.
func readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxReply+1))
	if err == nil && len(b) > maxReply {
		err = fmt.Errorf("it is longer than %d bytes", maxReply)
	}
	return b, err
}

// problem is RFC 9457 with the members that the daemon adds.
type problem struct {
	Title  string        `json:"title"`
	Detail string        `json:"detail"`
	Code   dray.Code     `json:"code"`
	Hint   string        `json:"hint"`
	Errors []dray.Detail `json:"errors"`
}

// refusal reads the error that an answer carries. Whatever listens there and does not speak as the
// daemon does reads as internal.
func refusal(resp *http.Response) error {
	var p problem
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	body, err := readAll(resp.Body)
	if err != nil || kind != "application/problem+json" || json.Unmarshal(body, &p) != nil ||
		p.Code == "" {
		return dray.Errorf(dray.CodeInternal, "the daemon answered %q and did not say why", resp.Status).
			WithHint("check that the socket is that of a dray daemon of this version")
	}
	message := p.Detail
	if message == "" {
		message = p.Title
	}
	return &dray.Error{Code: p.Code, Message: message, Hint: p.Hint, Details: p.Errors}
}

// ErrNoDaemon says that no daemon answers on the socket. Nothing was sent.
var ErrNoDaemon = errors.New("no daemon answers")

// dialer connects to the socket, and starts the daemon if it may and must.
type dialer struct {
	socket string
	start  func(context.Context) error
}

// dial is http.Transport's DialContext. Starting belongs here, and not before the first request:
// between a check and a request an idle daemon may end, and a connection that was refused is the
// one failure after which a repeat can never run a call twice.
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

// IsListening says whether a daemon accepts connections on the socket.
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

// checkPeer refuses a daemon of another user, root aside: a call carries the caller's environment,
// and a socket in a shared folder may be anyone's.
func checkPeer(conn *net.UnixConn) error {
	cred, err := peer(conn)
	if err != nil {
		return fmt.Errorf("asking who listens: %w", err)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return dray.Errorf(dray.CodeUnauthorized, "the daemon on this socket belongs to user %d",
			cred.Uid).
			WithHint("use a state folder of your own: --state DIR")
	}
	return nil
}

// peer asks the kernel who listens.
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

// peerPID is the process that listens on a socket, 0 where that is not known.
func peerPID(socket string) int {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return 0
	}
	defer conn.Close()
	cred, err := peer(conn)
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}
