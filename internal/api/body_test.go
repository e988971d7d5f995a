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

// within runs a test against a server with a connection whose time is the bubble's.
func within(t *testing.T, do func(t *testing.T, conn net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := build(t, nil)
		l := &pipes{make(chan net.Conn), make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- d.server.Serve(l) }()
		here, there := net.Pipe()
		l.conns <- known{there}
		do(t, here)
		_ = here.Close()
		if err := d.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func headOf(path string, length int, headers ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n\r\n", path, length,
		strings.Join(headers, "\r\n"))
}

// A body that stands still is given up, whichever request it belongs to.
func TestBodyThatStandsStill(t *testing.T) {
	for _, path := range []string{
		"/v1/invocations", "/v1/route", "/v1/paths",
		"/v1/workspaces/app/up",
	} {
		t.Run(path, func(t *testing.T) {
			within(t, func(t *testing.T, conn net.Conn) {
				fmt.Fprint(conn, headOf(path, 100, "Content-Type: application/json"), `{"tool":`)
				begun := time.Now()
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if took := time.Since(begun); resp.StatusCode != http.StatusBadRequest ||
					took != 30*time.Second {
					t.Errorf("%s after %v", resp.Status, took)
				}
			})
		})
	}
}

// A body that is slow arrives, however long it takes in all: here 400 KiB in as many seconds.
func TestBodyThatIsSlow(t *testing.T) {
	body := callBody + strings.Repeat(" ", 400<<10)
	within(t, func(t *testing.T, conn net.Conn) {
		fmt.Fprint(conn, headOf("/v1/invocations", len(body), "Content-Type: application/json"))
		begun := time.Now()
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
		if took := time.Since(begun); resp.StatusCode != http.StatusOK || took < 400*time.Second {
			t.Errorf("%s after %v", resp.Status, took)
		}
	})
}

// A body that only trickles is given up.
func TestBodyThatTrickles(t *testing.T) {
	within(t, func(t *testing.T, conn net.Conn) {
		fmt.Fprint(conn, headOf("/v1/invocations", 100, "Content-Type: application/json"))
		var dripping sync.WaitGroup
		defer func() { conn.Close(); dripping.Wait() }()
		dripping.Go(func() {
			for {
				time.Sleep(10 * time.Second)
				if _, err := conn.Write([]byte(" ")); err != nil {
					return
				}
			}
		})
		begun := time.Now()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if took := time.Since(begun); resp.StatusCode != http.StatusBadRequest || took > 61*time.Second {
			t.Errorf("%s after %v", resp.Status, took)
		}
	})
}

// A body that nobody wants, because the request is refused before it is read, is waited for a few
// seconds and no longer.
func TestBodyThatNobodyReads(t *testing.T) {
	within(t, func(t *testing.T, conn net.Conn) {
		fmt.Fprint(conn, headOf("/v1/invocations", 100, "Content-Type: text/plain"), "x")
		begun := time.Now()
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
			t.Error("the connection goes on with something that is no answer")
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("the connection was kept for %v", took)
		}
	})
}
