package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// withPipe runs a test in a synctest bubble with a connection to a server.
func withPipe(t *testing.T, do func(t *testing.T, conn net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := build(t, nil)
		l := &pipes{make(chan net.Conn), make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- d.server.Serve(l) }()
		client, server := net.Pipe()
		l.conns <- ownConn{server}
		do(t, client)
		_ = client.Close()
		if err := d.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func requestHead(path string, length int, headers ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n\r\n", path, length,
		strings.Join(headers, "\r\n"))
}

// A body that stalls times out, for every endpoint.
func TestBody_Stalls(t *testing.T) {
	for _, path := range []string{
		"/v1/invocations", "/v1/route", "/v1/paths",
		"/v1/workspaces/app/up",
	} {
		t.Run(path, func(t *testing.T) {
			withPipe(t, func(t *testing.T, conn net.Conn) {
				fmt.Fprint(conn, requestHead(path, 100, "Content-Type: application/json"), `{"tool":`)
				start := time.Now()
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if took := time.Since(start); resp.StatusCode != http.StatusBadRequest ||
					took != 30*time.Second {
					t.Errorf("%s after %v", resp.Status, took)
				}
			})
		})
	}
}

// A slow body is accepted, here 400 KiB in 400 seconds.
func TestBody_Slow(t *testing.T) {
	body := callBody + strings.Repeat(" ", 400<<10)
	withPipe(t, func(t *testing.T, conn net.Conn) {
		fmt.Fprint(conn, requestHead("/v1/invocations", len(body), "Content-Type: application/json"))
		start := time.Now()
		for rest := body; rest != ""; {
			time.Sleep(20 * time.Second)
			n := min(20<<10, len(rest))
			fmt.Fprint(conn, rest[:n])
			rest = rest[n:]
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if took := time.Since(start); resp.StatusCode != http.StatusOK || took < 400*time.Second {
			t.Errorf("%s after %v", resp.Status, took)
		}
	})
}

// A body below the minimum rate times out.
func TestBody_BelowMinimumRate(t *testing.T) {
	withPipe(t, func(t *testing.T, conn net.Conn) {
		fmt.Fprint(conn, requestHead("/v1/invocations", 100, "Content-Type: application/json"))
		var writing sync.WaitGroup
		defer func() { conn.Close(); writing.Wait() }()
		writing.Go(func() {
			for {
				time.Sleep(10 * time.Second)
				if _, err := conn.Write([]byte(" ")); err != nil {
					return
				}
			}
		})
		start := time.Now()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if took := time.Since(start); resp.StatusCode != http.StatusBadRequest || took > 61*time.Second {
			t.Errorf("%s after %v", resp.Status, took)
		}
	})
}

// The body of a refused request is drained for a few seconds only.
func TestBody_NotRead(t *testing.T) {
	withPipe(t, func(t *testing.T, conn net.Conn) {
		fmt.Fprint(conn, requestHead("/v1/invocations", 100, "Content-Type: text/plain"), "x")
		start := time.Now()
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil ||
			resp.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("%s", resp.Status)
		}
		if _, err := in.ReadByte(); err == nil {
			t.Error("the connection has more than a response")
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("the connection was open for %v", took)
		}
	})
}
