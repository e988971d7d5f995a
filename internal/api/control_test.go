package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// terminal is a process that records what it receives.
type terminal struct {
	dray.Process
	received chan string
	err      error
}

func (p terminal) Resize(size dray.TerminalSize) error {
	p.received <- fmt.Sprintf("%dx%d", size.Columns, size.Rows)
	return p.err
}

func (p terminal) Signal(sig syscall.Signal) error {
	p.received <- fmt.Sprint("signal ", int(sig))
	return p.err
}

// controllable is a tool that applies controls until it is cancelled. It starts when started is
// closed.
func controllable(p terminal, started <-chan struct{}) dray.ExecutorFunc {
	return func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
		select {
		case <-started:
			sink.Started()
		case <-ctx.Done():
		}
		for ctx.Err() == nil {
			select {
			case do := <-c.Control:
				do(p)
			case <-ctx.Done():
			}
		}
		return dray.Result{
			Reason: dray.ReasonCancelled,
			Error:  &dray.Error{Message: context.Cause(ctx).Error()},
		}, nil
	}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

const onTerminal = `{"tool":"exec","tty":{"columns":80,"rows":24},"stdin_open":true}`

// startRunning starts a call and returns its path without waiting for its end.
func (d *daemon) startRunning(body string) string {
	d.t.Helper()
	a := d.do("POST", "/v1/invocations?wait_ms=0", body)
	if a.status != 202 {
		d.t.Fatalf("%d %s", a.status, a.body)
	}
	return a.header.Get("Location")
}

// Sizes and signals reach the process, and are in the response (EX-19).
func TestResizeAndSignal(t *testing.T) {
	p := terminal{received: make(chan string, 1)}
	d := start(t, func(parts *fakeDeps) { parts.run = controllable(p, closed()) })
	path := d.startRunning(onTerminal)
	for _, c := range []struct{ action, body, reply, received string }{
		{"resize", `{"columns":132,"rows":43}`, `{"columns":132,"rows":43}`, "132x43"},
		{"resize", `{"columns":1,"rows":65535}`, `{"columns":1,"rows":65535}`, "1x65535"},
		{"signal", `{"signal":"SIGINT"}`, `{"signal":{"name":"SIGINT","number":2}}`, "signal 2"},
		{"signal", `{"signal":"term"}`, `{"signal":{"name":"SIGTERM","number":15}}`, "signal 15"},
		{"signal", `{"signal":"\u0048UP"}`, `{"signal":{"name":"SIGHUP","number":1}}`, "signal 1"},
		{"signal", `{"signal":10}`, `{"signal":{"name":"SIGUSR1","number":10}}`, "signal 10"},
		{"signal", `{"signal":"28"}`, `{"signal":{"name":"SIGWINCH","number":28}}`, "signal 28"},
		{"signal", `{"signal":"SIGRTMIN+2"}`, `{"signal":{"name":"SIGRTMIN+2","number":36}}`, "signal 36"},
	} {
		a := d.do("POST", path+"/"+c.action, c.body)
		if a.status != 200 || string(a.body) != c.reply {
			t.Fatalf("%s %s: %d %s", c.action, c.body, a.status, a.body)
		}
		if got := <-p.received; got != c.received {
			t.Errorf("%s %s: the process received %s", c.action, c.body, got)
		}
	}
}

// A control before the start of the process waits for it.
func TestControl_BeforeStart(t *testing.T) {
	p, started := terminal{received: make(chan string, 1)}, make(chan struct{})
	d := start(t, func(parts *fakeDeps) { parts.run = controllable(p, started) })
	path := d.startRunning(onTerminal)
	answered := make(chan answer, 1)
	go func() { answered <- d.do("POST", path+"/signal", `{"signal":"INT"}`) }()
	close(started)
	if a := <-answered; a.status != 200 || <-p.received != "signal 2" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A control fails when the call ends before its process has started, and after that.
func TestControl_CallEnded(t *testing.T) {
	d := start(t, func(parts *fakeDeps) { parts.run = controllable(terminal{}, nil) })
	path := d.startRunning(onTerminal)
	answered := make(chan answer, 1)
	go func() { answered <- d.do("POST", path+"/resize", `{"columns":80,"rows":24}`) }()
	if a := d.do("POST", path+"/cancel", ""); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	refusals := []answer{<-answered, d.do("POST", path+"/resize", `{"columns":80,"rows":24}`), d.do("POST", path+"/signal", `{"signal":9}`)}
	rec := dray.NewRecord(dray.Invocation{ID: someID, Tool: "exec", Principal: selfPrincipal},
		time.Now())
	d.audit.put(rec) // of an earlier daemon
	refusals = append(refusals, d.do("POST", "/v1/invocations/"+someID+"/signal", `{"signal":9}`))
	for i, a := range refusals {
		if p := a.problem(t); a.status != 409 || p.Code != dray.CodeConflict ||
			!strings.Contains(p.Detail, "already ended") || p.Hint == "" {
			t.Errorf("request %d: %d %s", i, a.status, a.body)
		}
	}
}

func TestResize_NoTerminal(t *testing.T) {
	d := start(t, func(parts *fakeDeps) { parts.run = controllable(terminal{}, nil) })
	path := d.startRunning(`{"tool":"exec"}`)
	a := d.do("POST", path+"/resize", `{"columns":80,"rows":24}`)
	if p := a.problem(t); a.status != 409 || p.Code != dray.CodeConflict ||
		!strings.Contains(p.Hint, "tty") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A control that fails is a conflict.
func TestControl_Fails(t *testing.T) {
	for _, c := range []struct {
		err      error
		code     dray.Code
		contains string
	}{
		{errors.New("process exited"), dray.CodeConflict, "process exited"},
		{dray.ErrNoTerminal, dray.CodeConflict, "no terminal"},
		{
			dray.Errorf(dray.CodeConflict, "not supported by the engine").WithHint("use the agent"),
			dray.CodeConflict, "not supported",
		},
	} {
		p := terminal{received: make(chan string, 1), err: c.err}
		d := start(t, func(parts *fakeDeps) { parts.run = controllable(p, closed()) })
		a := d.do("POST", d.startRunning(onTerminal)+"/resize", `{"columns":80,"rows":24}`)
		if p := a.problem(t); a.status != 409 || p.Code != c.code ||
			!strings.Contains(p.Detail, c.contains) || p.Hint == "" {
			t.Errorf("%v: %d %s", c.err, a.status, a.body)
		}
	}
}

// The size of the terminal is part of the invocation (EX-19).
func TestTerminalSizeOfInvocation(t *testing.T) {
	got := make(chan *dray.TerminalSize, 1)
	d := start(t, func(p *fakeDeps) {
		p.run = func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
			got <- c.Invocation.Terminal
			return succeed(ctx, c, sink)
		}
	})
	d.do("POST", "/v1/invocations", onTerminal)
	if size := <-got; size == nil || *size != (dray.TerminalSize{Columns: 80, Rows: 24}) {
		t.Errorf("terminal %v", size)
	}
	d.do("POST", "/v1/invocations", callBody)
	if size := <-got; size != nil {
		t.Errorf("terminal %v of a call without tty", *size)
	}
}
