package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/api"
)

// raw sends bytes, closes the sending side and reads until the server closes the connection.
func (d *daemon) raw(request string) string {
	d.t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: d.socket, Net: "unix"})
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn,
		request) // the server may close the connection before it has everything
	_ = conn.CloseWrite()
	b, _ := io.ReadAll(conn)
	return string(b)
}

// dial connects until the end of the test.
func (d *daemon) dial() *net.UnixConn {
	d.t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: d.socket, Net: "unix"})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// The headers of a request have at most 64 KiB (SE-02).
func TestLargeHeaders(t *testing.T) {
	d := start(t, nil)
	with := func(n int) string {
		head := "GET /healthz HTTP/1.0\r\nHost: x\r\nX: "
		return d.raw(head + strings.Repeat("x", n-len(head)-4) + "\r\n\r\n")
	}
	if got := with(60 << 10); !strings.HasPrefix(got, "HTTP/1.0 200") {
		t.Errorf("60 KiB: %.200s", got)
	}
	d.wantProblem("more than 64 KiB", with(64<<10+1), "431", dray.CodeTooLarge)
	many := "GET /healthz HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", 20000) + "\r\n"
	d.wantProblem("many headers", d.raw(many), "431", dray.CodeTooLarge)
	d.wantProblem("after another request", d.raw("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"+many),
		"431", dray.CodeTooLarge)
}

// wantProblem checks the last response: an error of the closed list as problem+json (SE-03).
func (d *daemon) wantProblem(name, responses, status string, code dray.Code) {
	d.t.Helper()
	got := responses[max(strings.LastIndex(responses, "HTTP/1.1 "), 0):]
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(got)), nil)
	if err != nil {
		d.t.Errorf("%s: %.200q: %v", name, responses, err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.Header.Get("Dray-Version") == "" || !resp.Close {
		d.t.Errorf("%s: %.400q: %v", name, got, err)
	}
	p := answer{resp.StatusCode, resp.Header, body}.problem(d.t)
	if !strings.HasPrefix(resp.Status, status) || p.Status != resp.StatusCode || p.Code != code ||
		p.Hint == "" || p.Detail == "" {
		d.t.Errorf("%s: %s %+v", name, resp.Status, p)
	}
}

func TestMalformedRequests(t *testing.T) {
	d := start(t, nil)
	for name, request := range map[string]string{
		"no host":  "GET /healthz HTTP/1.1\r\n\r\n",
		"not HTTP": "\x16\x03\x01\x02\x00\x01\x00",
		"two lengths": "POST /v1/invocations HTTP/1.1\r\nHost: x\r\nContent-Length: " +
			"2\r\nContent-Length: 3\r\n\r\n{}",
		"negative length": "POST /v1/invocations HTTP/1.1\r\nHost: x\r\nContent-Length: " +
			"-2\r\n\r\n{}",
		"odd transfer": "POST /v1/invocations HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " +
			"gzip, chunked\r\n\r\n0\r\n\r\n",
		"space in a header": "GET /healthz HTTP/1.1\r\nHost : x\r\n\r\n",
		"NUL in the path":   "GET /healthz\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		d.wantProblem(name, d.raw(request), "", dray.CodeInvalidRequest)
	}
	d.wantProblem("Expect", d.raw("POST /v1/route HTTP/1.1\r\nHost: x\r\nExpect: y\r\n\r\n"), "417",
		dray.CodeInvalidRequest)
	d.wantProblem("an upgrade to HTTP/2", d.raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "404",
		dray.CodeNotFound)
	if got := d.raw("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasPrefix(got,
		"HTTP/1.1 404") || !strings.Contains(got, "not_found") {
		t.Errorf("OPTIONS *: %.200q", got)
	}
	if got := d.raw("POST /v1/invocations HTTP/1.0\r\nContent-Type: " +
		"application/json\r\nContent-Length: 500\r\n\r\n{\"tool\":"); got != "" && !strings.Contains(got, " 4") {
		t.Errorf("half a body: %q", got)
	}
	if d.audit.len() != 0 {
		t.Error("a call was accepted")
	}
}

// A body that is too large is refused with and without a length. A client that sends everything
// before it reads gets the response.
func TestBodyTooLarge(t *testing.T) {
	d := start(t, nil)
	size := d.maxBody + 1
	for name, body := range map[string]io.Reader{
		"with a length":    bytes.NewReader(make([]byte, size)),
		"without a length": io.LimitReader(zeros{}, size),
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://localhost/v1/invocations",
			body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if a := d.send(req); a.status != 413 || a.problem(t).Code != dray.CodeTooLarge {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

// A length over the maximum is refused before any of the body is sent, for every endpoint (SE-02).
func TestBodyTooLarge_AtOnce(t *testing.T) {
	d := start(t, nil)
	for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
		for _, path := range []string{
			"/v1/invocations", "/v1/paths", "/v1/workspaces/app/up",
			"/v1/invocations/" + someID + "/stdin", "/v1/invocations/" + someID + "/cancel",
		} {
			conn := d.dial()
			// the rest of a body is awaited for 5 s, and that of a client that waits without end
			_ = conn.SetReadDeadline(time.Now().Add(3 * time.Second))
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
				"Content-Length: %d\r\n%s\r\n", path, d.maxBody+1, expect)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Errorf("%s %s: %v", path, expect, err)
				continue
			}
			var p problem
			if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.StatusCode != 413 ||
				p.Code != dray.CodeTooLarge {
				t.Errorf("%s %s: %s %+v, %v", path, expect, resp.Status, p, err)
			}
			_ = resp.Body.Close()
		}
	}
}

// Many bodies without a length that never end take no memory (SE-02).
func TestBodyFlood(t *testing.T) {
	d := start(t, func(p *fakeDeps) { p.maxBody = 64 << 20 })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	chunk := []byte("10000\r\n" + strings.Repeat(" ", 1<<16) + "\r\n")
	var floods sync.WaitGroup
	for range 16 {
		floods.Go(func() {
			conn := d.dial()
			fmt.Fprint(conn, "POST /v1/invocations HTTP/1.1\r\nHost: x\r\n"+
				"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
			for range 16 << 20 / (1 << 16) {
				if _, err := conn.Write(chunk); err != nil {
					t.Error(err)
				}
			}
		})
	}
	floods.Wait()
	runtime.ReadMemStats(&after)
	if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 64 {
		t.Errorf("256 MiB of bodies took %d MiB of memory", grown)
	}
}

// A body that went through a file is decoded as any other, and leaves no file.
func TestBodyInFile(t *testing.T) {
	var dir string
	d := start(t, func(p *fakeDeps) { p.config = func(cfg *api.Config) { dir = cfg.BodyDir } })
	for _, size := range []int{1<<16 - 1, 1 << 16, 1<<16 + 1, 1 << 19} {
		body := strings.Repeat(" ", size-len(callBody)) + callBody
		if a := d.do("POST", "/v1/invocations", body); a.status != 200 {
			t.Errorf("%d bytes: %d %s", size, a.status, a.body)
		}
		if a := d.do("POST", "/v1/invocations", body[:size-1]); a.status != 400 {
			t.Errorf("%d bytes without the last: %d %s", size, a.status, a.body)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	a := d.do("POST", "/v1/invocations", strings.Repeat(" ", 1<<17)+callBody)
	if p := a.problem(t); p.Code != dray.CodeInternal || !strings.Contains(p.Hint, dir) {
		t.Errorf("without the directory: %d %+v", a.status, p)
	}
}

// The rest of a refused body is read, because its client may fail if it cannot send everything.
func TestRefusedBodyIsDrained(t *testing.T) {
	d := start(t, nil)
	for path, want := range map[string]string{
		"/v1/invocations": "413", "/v1/nowhere": "404",
		"/v1/invocations/" + someID + "/stdin": "413",
	} {
		conn := d.dial()
		size := 2 * d.maxBody
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: "+
			"application/json\r\nContent-Length: %d\r\n\r\n", path, size)
		if _, err := conn.Write(append([]byte(head), make([]byte, size)...)); err != nil {
			t.Fatalf("%s: send: %v", path, err)
		}
		b := make([]byte, 100)
		if n, _ := io.ReadAtLeast(conn, b, 20); !strings.HasPrefix(string(b[:n]), "HTTP/1.1 "+want) {
			t.Errorf("%s: %q", path, b[:n])
		}
	}
}

// All bodies in progress share a bounded amount of memory.
func TestBodyQuota(t *testing.T) {
	for _, path := range []string{"/v1/invocations", "/mcp"} {
		t.Run(path, func(t *testing.T) { fillBodyQuota(t, path) })
	}
}

func fillBodyQuota(t *testing.T, path string) {
	d := start(t, func(p *fakeDeps) {
		p.maxBody = 1 << 20
		p.config = func(cfg *api.Config) { cfg.MCP = noMCP{} }
	})
	var slow []*net.UnixConn
	for range 20 {
		conn := d.dial()
		slow = append(slow, conn)
		head := "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: " +
			"application/json\r\nContent-Length: 1000000\r\n\r\n"
		if _, err := io.WriteString(conn, head+strings.Repeat(" ", 900_000)); err != nil &&
			!errors.Is(err, syscall.EPIPE) {
			t.Fatal(err)
		}
	}
	responses := make(chan string, len(slow))
	for _, conn := range slow {
		go func() {
			b, _ := io.ReadAll(io.LimitReader(conn, 20))
			responses <- string(b)
		}()
	}
	if got := <-responses; !strings.HasPrefix(got, "HTTP/1.1 429") { // the quota is 8 MiB
		t.Errorf("%q", got)
	}
	for _, conn := range slow {
		_ = conn.CloseRead()
		_ = conn.Close()
	}
	for range len(slow) - 1 {
		<-responses
	}
	for d.do("POST", "/v1/invocations", callBody).
		status != 200 { // until the server has noticed that they disconnected
		if t.Context().Err() != nil {
			t.Fatal("calls are still refused")
		}
	}
}

// noMCP serves nothing.
type noMCP struct{}

func (noMCP) Serve(http.ResponseWriter, *http.Request, string, func() bool) {}
func (noMCP) Close()                                                        {}

// A client that closes its sending side counts as disconnected, and gets an error.
func TestHalfClosedConnection(t *testing.T) {
	d := start(t, nil)
	d.audit.blocked = make(chan struct{})
	request := fmt.Sprintf("POST /v1/invocations HTTP/1.1\r\nHost: x\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\n\r\n%s", len(callBody), callBody)
	got := d.raw(request)
	close(d.audit.blocked)
	if !strings.HasPrefix(got, "HTTP/1.1 400") ||
		!strings.Contains(got, "connection closed by the client") {
		t.Errorf("%.400q", got)
	}
}

func TestViolationsAreBounded(t *testing.T) {
	d := start(t, nil)
	var env strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&env, `%s"A%d=":""`, strings.Repeat(",", min(i, 1)), i)
	}
	a := d.do("POST", "/v1/invocations", `{"tool":"exec","env":{`+env.String()+`}}`)
	if p := a.problem(t); a.status != 400 || len(p.Errors) != 100 ||
		!strings.Contains(p.Detail, "and 19999 more, of which errors lists 99") {
		t.Errorf("%d, %d errors, %s", a.status, len(p.Errors), p.Detail)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestUnknownPeerIsRefused(t *testing.T) {
	d := start(t, nil)
	a := httpOverPipe(t, d, nil, "GET /healthz HTTP/1.0\r\n\r\n")
	if !strings.HasPrefix(a, "HTTP/1.0 401") || !strings.Contains(a, `"code":"unauthorized"`) {
		t.Errorf("%q", a)
	}
}

// pipes is a listener of connections in memory, for synctest.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// ownConn is a connection of this user.
type ownConn struct{ net.Conn }

func (ownConn) Principal() string { return selfPrincipal }

// httpOverPipe sends a request over a pipe that wrap may change, and returns the whole response.
func httpOverPipe(t *testing.T, d *daemon, wrap func(net.Conn) net.Conn, request string) string {
	t.Helper()
	l := &pipes{make(chan net.Conn), make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- d.server.Serve(l) }()
	client, server := net.Pipe()
	if wrap != nil {
		server = wrap(server)
	}
	l.conns <- server
	go func() { _, _ = io.WriteString(client, request) }()
	b, err := io.ReadAll(client)
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	_ = client.Close()
	_ = l.Close()
	if err := <-served; err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	return string(b)
}

// Headers time out after 10 s, and stalled bodies after 30 s (SE-02).
func TestSlowRequests(t *testing.T) {
	for _, c := range []struct {
		name, request string
		after         time.Duration
		response      string
	}{
		{"headers", "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ", 10 * time.Second, ""},
		{"no request", "", 10 * time.Second, ""},
		{
			"body", "POST /v1/invocations HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: " +
				"application/json\r\nContent-Length: 50\r\n\r\n{",
			30 * time.Second, "HTTP/1.1 400 Bad Request",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := build(t, nil)
				start := time.Now()
				got := httpOverPipe(t, d, func(c net.Conn) net.Conn { return ownConn{c} }, c.request)
				if took := time.Since(start); took < c.after || took > c.after+2*time.Second {
					t.Errorf("closed after %v", took)
				}
				if !strings.HasPrefix(got, c.response) || (c.response == "") != (got == "") {
					t.Errorf("%q", got)
				}
				if err := d.server.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Clients that send incomplete requests do not affect others.
func TestIncompleteRequestsOfOtherClients(t *testing.T) {
	d := start(t, nil)
	var conns []net.Conn
	for i := range 60 {
		conn, err := net.Dial("unix", d.socket)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		switch i % 3 {
		case 0:
			fmt.Fprint(conn, "POST /v1/invocations HTTP/1.1\r\nHost: x\r\n")
		case 1:
			fmt.Fprint(conn,
				"POST /v1/invocations HTTP/1.1\r\nHost: x\r\nContent-Type: "+
					"application/json\r\nContent-Length: 100\r\n\r\n{")
		}
	}
	for range 20 {
		if a := d.do("POST", "/v1/invocations", callBody); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	for _, conn := range conns {
		conn.Close()
	}
}

func TestPipelinedRequests(t *testing.T) {
	d := start(t, nil)
	conn, err := net.Dial("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	one := fmt.Sprintf("POST /v1/invocations HTTP/1.1\r\nHost: x\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\n\r\n%s", len(callBody), callBody)
	fmt.Fprint(conn, one+one+"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	in := bufio.NewReader(conn)
	for i, want := range []string{`"status":"succeeded"`, `"status":"succeeded"`, `{"status":"ok"}`} {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || !bytes.Contains(b, []byte(want)) {
			t.Errorf("response %d: %d %s", i, resp.StatusCode, b)
		}
	}
}
