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

// terminal is a process that remembers what it is told, as far as these requests reach one.
type terminal struct {
	dray.Process
	told chan string
	err  error
}

func (p terminal) Resize(size dray.TerminalSize) error {
	p.told <- fmt.Sprintf("%dx%d", size.Columns, size.Rows)
	return p.err
}

func (p terminal) Signal(sig syscall.Signal) error {
	p.told <- fmt.Sprint("signal ", int(sig))
	return p.err
}

// obeying is a tool that does what it is told until it is cancelled. It starts once begin is
// closed.
func obeying(p terminal, begin <-chan struct{}) dray.ExecutorFunc {
	return func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
		select {
		case <-begin:
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

func now() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

const onTerminal = `{"tool":"exec","tty":{"columns":80,"rows":24},"stdin_open":true}`

// begun starts a call that goes on, and gives its path.
func (d *daemon) begun(body string) string {
	d.t.Helper()
	a := d.do("POST", "/v1/invocations?wait_ms=0", body)
	if a.status != 202 {
		d.t.Fatalf("%d %s", a.status, a.body)
	}
	return a.header.Get("Location")
}

// EX-19: the size and the signals of a request reach the process, and the answer says what was
// done.
func TestResizeAndSignal(t *testing.T) {
	p := terminal{told: make(chan string, 1)}
	d := start(t, func(parts *fakeDeps) { parts.run = obeying(p, now()) })
	path := d.begun(onTerminal)
	for _, c := range []struct{ verb, body, answer, told string }{
		{"resize", `{"columns":132,"rows":43}`, `{"columns":132,"rows":43}`, "132x43"},
		{"resize", `{"columns":1,"rows":65535}`, `{"columns":1,"rows":65535}`, "1x65535"},
		{"signal", `{"signal":"SIGINT"}`, `{"signal":{"name":"SIGINT","number":2}}`, "signal 2"},
		{"signal", `{"signal":"term"}`, `{"signal":{"name":"SIGTERM","number":15}}`, "signal 15"},
		{"signal", `{"signal":"\u0048UP"}`, `{"signal":{"name":"SIGHUP","number":1}}`, "signal 1"},
		{"signal", `{"signal":10}`, `{"signal":{"name":"SIGUSR1","number":10}}`, "signal 10"},
		{"signal", `{"signal":"28"}`, `{"signal":{"name":"SIGWINCH","number":28}}`, "signal 28"},
		{"signal", `{"signal":"SIGRTMIN+2"}`, `{"signal":{"name":"SIGRTMIN+2","number":36}}`, "signal 36"},
	} {
		a := d.do("POST", path+"/"+c.verb, c.body)
		if a.status != 200 || string(a.body) != c.answer {
			t.Fatalf("%s %s: %d %s", c.verb, c.body, a.status, a.body)
		}
		if got := <-p.told; got != c.told {
			t.Errorf("%s %s: the process was told %s", c.verb, c.body, got)
		}
	}
}

// What comes before the start waits for it: whoever got an id may use it at once.
func TestControlBeforeTheStart(t *testing.T) {
	p, begin := terminal{told: make(chan string, 1)}, make(chan struct{})
	d := start(t, func(parts *fakeDeps) { parts.run = obeying(p, begin) })
	path := d.begun(onTerminal)
	answered := make(chan answer, 1)
	go func() { answered <- d.do("POST", path+"/signal", `{"signal":"INT"}`) }()
	close(begin)
	if a := <-answered; a.status != 200 || <-p.told != "signal 2" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A request that waits for a start that never comes ends with the call, and what comes later is
// refused likewise.
func TestControlOfACallThatIsOver(t *testing.T) {
	d := start(t, func(parts *fakeDeps) { parts.run = obeying(terminal{}, nil) })
	path := d.begun(onTerminal)
	answered := make(chan answer, 1)
	go func() { answered <- d.do("POST", path+"/resize", `{"columns":80,"rows":24}`) }()
	if a := d.do("POST", path+"/cancel", ""); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	refusals := []answer{<-answered, d.do("POST", path+"/resize", `{"columns":80,"rows":24}`), d.do("POST", path+"/signal", `{"signal":9}`)}
	rec := dray.NewRecord(dray.Invocation{ID: someID, Tool: "exec", Principal: selfPrincipal},
		time.Now())
	d.trail.put(rec) // of an earlier daemon
	refusals = append(refusals, d.do("POST", "/v1/invocations/"+someID+"/signal", `{"signal":9}`))
	for i, a := range refusals {
		if p := a.problem(t); a.status != 409 || p.Code != dray.CodeConflict ||
			!strings.Contains(p.Detail, "over") || p.Hint == "" {
			t.Errorf("request %d: %d %s", i, a.status, a.body)
		}
	}
}

// Another's call does not exist.
func TestControlOfAnothersCall(t *testing.T) {
	d := start(t, nil)
	d.trail.put(dray.NewRecord(dray.Invocation{ID: someID, Tool: "exec", Principal: "uid:0815"},
		time.Now()))
	for verb, body := range map[string]string{"resize": `{"columns":80,"rows":24}`, "signal": `{"signal":9}`} {
		if a := d.do("POST", "/v1/invocations/"+someID+"/"+verb, body); a.status != 404 || a.problem(t).
			Code != dray.CodeNotFound {
			t.Errorf("%s: %d %s", verb, a.status, a.body)
		}
	}
}

// A call without a terminal has no size, whether it has started or not.
func TestResizeWithoutATerminal(t *testing.T) {
	d := start(t, func(parts *fakeDeps) { parts.run = obeying(terminal{}, nil) })
	path := d.begun(`{"tool":"exec"}`)
	a := d.do("POST", path+"/resize", `{"columns":80,"rows":24}`)
	if p := a.problem(t); a.status != 409 || p.Code != dray.CodeConflict ||
		!strings.Contains(p.Hint, "tty") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A process that cannot be told is no defect of the server's.
func TestControlThatFails(t *testing.T) {
	for _, c := range []struct {
		err  error
		code dray.Code
		says string
	}{
		{errors.New("it ends just now"), dray.CodeConflict, "it ends just now"},
		{dray.ErrNoTerminal, dray.CodeConflict, "no terminal"},
		{
			dray.Errorf(dray.CodeConflict, "the engine has no call for it").WithHint("use the agent"),
			dray.CodeConflict, "no call for it",
		},
	} {
		p := terminal{told: make(chan string, 1), err: c.err}
		d := start(t, func(parts *fakeDeps) { parts.run = obeying(p, now()) })
		a := d.do("POST", d.begun(onTerminal)+"/resize", `{"columns":80,"rows":24}`)
		if p := a.problem(t); a.status != 409 || p.Code != c.code ||
			!strings.Contains(p.Detail, c.says) || p.Hint == "" {
			t.Errorf("%v: %d %s", c.err, a.status, a.body)
		}
	}
}

// EX-19: the size of the request is the invocation's, and nothing is one.
func TestTerminalOfTheRequest(t *testing.T) {
	got := make(chan *dray.TerminalSize, 1)
	d := start(t, func(p *fakeDeps) {
		p.run = func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
			got <- c.Invocation.Terminal
			return succeed(ctx, c, sink)
		}
	})
	d.do("POST", "/v1/invocations", onTerminal)
	if size := <-got; size == nil || *size != (dray.TerminalSize{Columns: 80, Rows: 24}) {
		t.Errorf("the call's terminal is %v", size)
	}
	d.do("POST", "/v1/invocations", callBody)
	if size := <-got; size != nil {
		t.Errorf("a call that asked for none has a terminal of %v", *size)
	}
}
