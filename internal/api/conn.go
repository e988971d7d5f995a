package api

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/dray-dev/dray"
)

// problemListener accepts connections on which the errors of net/http are problems as well.
type problemListener struct {
	net.Listener
	version  string // of the daemon
	rejected func(principal string, code dray.Code)
}

func (l problemListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	own := &problemConn{Conn: c, version: l.version, rejected: l.rejected}
	_, own.tcp = c.(*net.TCPConn)
	if p, ok := c.(interface{ Principal() string }); ok {
		own.principal = p.Principal()
	}
	return own, nil
}

// problemConn is a connection of net/http, which answers requests that it cannot parse by itself,
// in plain text and with one write.
type problemConn struct {
	net.Conn
	version   string
	principal string // the peer; empty if it is unknown, as over TCP
	rejected  func(principal string, code dray.Code)
	tcp       bool
	// handled is set from the start of the handler of a request to the end of its response.
	handled atomic.Bool
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// setHandled records that the request has reached the handler.
func setHandled(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*problemConn); ok {
		c.handled.Store(true)
	}
}

// onState is [http.Server.ConnState].
func onState(c net.Conn, state http.ConnState) {
	if c, ok := c.(*problemConn); ok && state == http.StateIdle {
		c.handled.Store(false)
	}
}

// isTCP reports whether a request came over TCP, so has no peer that the kernel names.
func isTCP(r *http.Request) bool {
	c, ok := r.Context().Value(connKey{}).(*problemConn)
	return ok && c.tcp
}

// Write replaces a response that no handler wrote.
func (c *problemConn) Write(p []byte) (int, error) {
	if c.handled.Load() {
		return c.Conn.Write(p)
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(p)), nil)
	if err != nil {
		return c.Conn.Write(p)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	problem := newProblem(parseError(resp.StatusCode, string(text)))
	c.rejected(c.principal, problem.Code)
	body := problem.encode()
	response := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: %s\r\n"+
		"Content-Length: %d\r\nDray-Version: %s\r\n\r\n%s", resp.StatusCode,
		http.StatusText(resp.StatusCode), mediaProblem, len(body), c.version, body)
	if _, err := c.Conn.Write(response); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite lets the client read the response before the connection is closed.
func (c *problemConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// parseError returns the error of a request that net/http refused with a status and a text such as
// "400 Bad Request: missing required Host header".
func parseError(status int, text string) error {
	var err *dray.Error
	switch status {
	case http.StatusRequestHeaderFieldsTooLarge:
		err = dray.Errorf(dray.CodeTooLarge, "the headers of the request are larger than 64 KiB").
			WithHint("send fewer or shorter headers")
	case http.StatusExpectationFailed:
		err = invalid("", "unsupported Expect header").
			WithHint("omit the header, or send Expect: 100-continue")
	default:
		_, reason, _ := strings.Cut(text, ": ")
		err = invalid("", "malformed HTTP request: %s", cmp.Or(reason, "it cannot be parsed")).
			WithHint("send it in the form of RFC 9112; GET /openapi.json describes all requests")
	}
	return &httpError{err: err, status: status}
}
