package api_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
)

// Shutdown refuses new calls, waits for the others, and cancels those that are left when its
// context ends (OP-01).
func TestShutdownDrains(t *testing.T) {
	release := make(chan struct{})
	running := sync.WaitGroup{}
	running.Add(2)
	d := start(t, func(p *fakeDeps) {
		p.run = func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
			running.Done()
			if c.Invocation.Tool == "greet" {
				<-release
				return exited(0), nil
			}
			return untilCancelled(ctx, c, sink)
		}
	})
	finishing := d.follow("POST", "/v1/invocations", `{"tool":"greet"}`)
	endless := d.follow("POST", "/v1/invocations", callBody)
	running.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	shutdown := make(chan error)
	go func() { shutdown <- d.server.Shutdown(ctx) }()
	for d.do("GET", "/readyz", "").status != 503 {
	}
	for _, path := range []string{"/v1/invocations", "/v1/workspaces/app/up"} {
		if a := d.do("POST", path, callBody, "Accept: application/json"); a.status != 503 &&
			path == "/v1/invocations" {
			t.Errorf("%s while draining: %d %s", path, a.status, a.body)
		}
	}
	if p := d.do("POST", "/v1/invocations", callBody).problem(t); p.Code != dray.CodeShuttingDown {
		t.Errorf("code %s", p.Code)
	}
	close(release)
	if end := finishing.until("end"); !bytes.Contains(end.Invocation, []byte(`"status":"succeeded"`)) {
		t.Errorf("%s", end.Invocation)
	}
	cancel()
	if end := endless.until("end"); !bytes.Contains(end.Invocation,
		[]byte(executor.ErrShutdown.Error())) {
		t.Errorf("%s", end.Invocation)
	}
	if err := <-shutdown; err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("unix", d.socket); err == nil {
		conn.Close()
		t.Error("the socket accepts connections")
	}
}

func TestIdle(t *testing.T) {
	release := make(chan struct{})
	d := start(t, func(p *fakeDeps) {
		p.run = func(context.Context, dray.Call, dray.Sink) (dray.Result,
			error,
		) {
			<-release
			return exited(0), nil
		}
	})
	before, idle := d.server.Idle()
	if !idle {
		t.Error("a new server is not idle")
	}
	id := d.do("POST", "/v1/invocations?wait_ms=0", callBody).record(t).ID
	if _, idle := d.server.Idle(); idle {
		t.Error("idle while a call runs")
	}
	close(release)
	d.do("GET", "/v1/invocations/"+id+"?wait_ms=60000", "")
	for {
		if since, idle := d.server.Idle(); idle {
			if !since.After(before) {
				t.Errorf("idle since %v, which is not after %v", since, before)
			}
			return
		}
	}
}

// A client that does not read its response does not delay a shutdown.
func TestShutdown_ClientDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := make(chan struct{})
		d := build(t, func(p *fakeDeps) {
			p.run = func(_ context.Context, _ dray.Call, sink dray.Sink) (dray.Result, error) {
				sink.Output(dray.Stdout, make([]byte, 1<<20))
				close(written)
				return exited(0), nil
			}
		})
		l := &pipes{make(chan net.Conn), make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- d.server.Serve(l) }()
		client, server := net.Pipe()
		defer client.Close()
		l.conns <- ownConn{server}
		fmt.Fprintf(client,
			"POST /v1/invocations HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\n"+
				"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(callBody), callBody)
		<-written
		start := time.Now()
		if err := d.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("Shutdown took %v", took)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
