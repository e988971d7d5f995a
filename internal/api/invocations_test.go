package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/executor"
)

const callBody = `{"tool":"exec","input":{"argv":["true"]}}`

// The response to a call is 200 with its invocation (RS-01, RS-03).
func TestStartRespondsWithInvocation(t *testing.T) {
	d := start(t, nil)
	a := d.do("POST", "/v1/invocations", `{"tool":"exec","input":{"argv":["true"]},"context":{"plan_id":"p"},"workspace":"/home/me/app/","cwd":"./sub//x"}`)
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	rec := a.record(t)
	if rec.Status != dray.StatusSucceeded || rec.Reason != dray.ReasonExited || *rec.ExitCode != 0 ||
		rec.Error != nil {
		t.Errorf("%s", a.body)
	}
	if rec.Principal != selfPrincipal || rec.Workspace != "/home/me/app" || rec.Cwd != "sub/x" ||
		rec.Context.PlanID != "p" || rec.Tool != "exec" {
		t.Errorf("%s", a.body)
	}
	if rec.StartedAt.Location() != time.UTC || rec.EndedAt == nil || rec.DurationMS == nil ||
		rec.StartedAt.After(*rec.EndedAt) {
		t.Errorf("times: %s", a.body)
	}
	for _, member := range []string{`"signal":null`, `"error":null`, `"candidates":[]`, `"output":null`} {
		if !bytes.Contains(a.body, []byte(member)) {
			t.Errorf("no %s in %s", member, a.body)
		}
	}
	if again := d.do("GET", "/v1/invocations/"+rec.ID, ""); again.status != 200 ||
		!bytes.Equal(again.body, a.body) {
		t.Errorf("GET: %d %s", again.status, again.body)
	}
}

// sync and rewrite_text are part of the invocation (SY-11).
func TestSyncAndRewriteTextOfInvocation(t *testing.T) {
	for body, want := range map[string]string{
		`{"tool":"exec"}`: `null []`,
		`{"tool":"exec","sync":[],"rewrite_text":false}`:                   `false []`,
		`{"tool":"exec","sync":["out/","/a//b",". "],"rewrite_text":true}`: `true [out/ /a//b . ]`,
	} {
		got := make(chan string, 1)
		d := start(t, func(p *fakeDeps) {
			p.run = func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
				rewrite, _ := json.Marshal(c.Invocation.RewriteText)
				got <- fmt.Sprintf("%s %v", rewrite, c.Invocation.Sync)
				return succeed(ctx, c, sink)
			}
		})
		if a := d.do("POST", "/v1/invocations", body); a.status != 200 || <-got != want {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}

func TestFailedCallIs200(t *testing.T) {
	for _, c := range []struct {
		name   string
		run    dray.ExecutorFunc
		reason dray.Reason
		code   dray.Code
	}{
		{"exit 3", func(context.Context, dray.Call, dray.Sink) (dray.Result,
			error,
		) {
			return exited(3), nil
		}, dray.ReasonExited, ""},
		{"not found", func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
			return dray.Result{}, dray.Errorf(dray.CodeExecutableNotFound, "no such program")
		}, dray.ReasonStartFailed, dray.CodeExecutableNotFound},
		{"engine", func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
			return dray.Result{}, dray.Errorf(dray.CodeEngineUnavailable, "no engine")
		}, dray.ReasonUnavailable, dray.CodeEngineUnavailable},
		{
			"shutdown after the begin record",
			func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
				return dray.Result{}, dray.Errorf(dray.CodeShuttingDown, "too late")
			}, dray.ReasonUnavailable, dray.CodeShuttingDown,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := start(t, func(p *fakeDeps) { p.run = c.run })
			a := d.do("POST", "/v1/invocations", callBody)
			rec := a.record(t)
			if a.status != 200 || rec.Status != dray.StatusFailed || rec.Reason != c.reason ||
				rec.Error == nil || rec.Error.Code != c.code {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
}

// Nothing runs without a begin record (AU-01).
func TestNothingRunsWithoutBeginRecord(t *testing.T) {
	ran := false
	d := start(t, func(p *fakeDeps) {
		p.audit.beginErr = dray.Errorf(dray.CodeAuditUnavailable, "audit.db is locked").
			WithHint("stop the other program")
		p.run = func(context.Context, dray.Call, dray.Sink) (dray.Result,
			error,
		) {
			ran = true
			return exited(0), nil
		}
	})
	for _, header := range []string{
		"Accept: application/json", "Accept: text/event-stream",
		"Accept: application/x-ndjson",
	} {
		for _, path := range []string{"/v1/invocations", "/v1/invocations?wait_ms=0"} {
			if strings.Contains(path, "wait") && !strings.Contains(header, "application/json") {
				continue
			}
			a := d.do("POST", path, callBody, header)
			if p := a.problem(t); a.status != 503 || p.Code != dray.CodeAuditUnavailable ||
				a.header.Get("Retry-After") == "" {
				t.Errorf("%s %s: %d %s", path, header, a.status, a.body)
			}
		}
	}
	if ran || d.audit.len() != 0 {
		t.Error("the call ran")
	}
	if d.logs.FilterMessage("call begun").Len() != 0 {
		t.Error("a rejected call was logged")
	}
}

func TestStart_WaitElapses(t *testing.T) {
	release := make(chan struct{})
	d := start(t, func(p *fakeDeps) {
		p.run = func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
			<-release
			return exited(0), nil
		}
	})
	a := d.do("POST", "/v1/invocations?wait_ms=0", callBody)
	rec := a.record(t)
	if a.status != 202 || rec.Status != dray.StatusRunning ||
		a.header.Get("Location") != "/v1/invocations/"+rec.ID {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	if _, err := d.audit.Get(t.Context(), selfPrincipal, rec.ID); err != nil {
		t.Error("202 before the begin record")
	}
	if a := d.do("GET", "/v1/invocations/"+rec.ID+"?wait_ms=1", ""); a.status != 200 || a.record(t).
		Status != dray.StatusRunning {
		t.Errorf("running: %d %s", a.status, a.body)
	}
	close(release)
	if a := d.do("GET", "/v1/invocations/"+rec.ID+"?wait_ms=60000", ""); a.status != 200 ||
		a.record(t).Status != dray.StatusSucceeded {
		t.Errorf("ended: %d %s", a.status, a.body)
	}
}

// The response 202 waits for the begin record, also if wait_ms elapses before.
func TestStart_WaitElapsesBeforeBeginRecord(t *testing.T) {
	blocked := make(chan struct{})
	d := start(t, func(p *fakeDeps) { p.audit.blocked, p.run = blocked, untilCancelled })
	responses := make(chan answer)
	go func() { responses <- d.do("POST", "/v1/invocations?wait_ms=1", callBody) }()
	select {
	case a := <-responses:
		t.Fatalf("%d %s", a.status, a.body)
	case <-time.After(50 * time.Millisecond):
	}
	close(blocked)
	if a := <-responses; a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
}

// A client that disconnects cancels its call, unless the request says otherwise (EX-09).
func TestStart_ClientDisconnects(t *testing.T) {
	for _, c := range []struct {
		name, path, body, accept string
		cancels                  bool
	}{
		{"json", "/v1/invocations", callBody, "application/json", true},
		{"stream", "/v1/invocations", callBody, "application/x-ndjson", true},
		{"says cancel", "/v1/invocations", `{"tool":"exec","on_disconnect":"cancel"}`, "application/json", true},
		{"wait_ms", "/v1/invocations?wait_ms=60000", callBody, "application/json", false},
		{"continue", "/v1/invocations", `{"tool":"exec","on_disconnect":"continue"}`, "application/json", false},
		{"continue as a stream", "/v1/invocations", `{"tool":"exec","on_disconnect":"continue"}`, "text/event-stream", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			running, release := make(chan string, 1), make(chan struct{})
			cause := make(chan error, 1)
			d := start(t, func(p *fakeDeps) {
				p.run = func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
					running <- c.Invocation.ID
					select {
					case <-ctx.Done():
						cause <- context.Cause(ctx)
						return dray.Result{Reason: dray.ReasonCancelled}, nil
					case <-release:
						return exited(0), nil
					}
				}
			})
			ctx, disconnect := context.WithCancel(t.Context())
			disconnected := make(chan struct{})
			go func() {
				defer close(disconnected)
				resp, err := d.client.Do(d.request("POST", c.path, c.body, "Accept: "+c.accept).
					WithContext(ctx))
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			id := <-running
			disconnect()
			<-disconnected
			if c.cancels {
				if err := <-cause; !errors.Is(err, executor.ErrCancelled) {
					t.Errorf("cancelled with %v", err)
				}
			} else {
				close(release)
			}
			rec := d.do("GET", "/v1/invocations/"+id+"?wait_ms=60000", "").record(t)
			if want := map[bool]dray.Reason{
				true:  dray.ReasonCancelled,
				false: dray.ReasonExited,
			}[c.cancels]; rec.Reason != want {
				t.Errorf("reason %q, want %q", rec.Reason, want)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	d := start(t, func(p *fakeDeps) { p.run = untilCancelled })
	id := d.do("POST", "/v1/invocations?wait_ms=0", callBody).record(t).ID
	a := d.do("POST", "/v1/invocations/"+id+"/cancel", "")
	if rec := a.record(t); a.status != 200 || rec.Reason != dray.ReasonCancelled ||
		rec.Error.Message != executor.ErrCancelled.Error() {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, body := range []string{"", "{}"} {
		if again := d.do("POST", "/v1/invocations/"+id+"/cancel", body); again.status != 200 ||
			!bytes.Equal(again.body, a.body) {
			t.Errorf("cancelled again: %d %s", again.status, again.body)
		}
	}
}

func TestCancel_WaitElapses(t *testing.T) {
	release := make(chan struct{})
	d := start(t, func(p *fakeDeps) {
		p.run = func(ctx context.Context, _ dray.Call, _ dray.Sink) (dray.Result, error) {
			<-ctx.Done()
			<-release
			return dray.Result{Reason: dray.ReasonCancelled}, nil
		}
	})
	id := d.do("POST", "/v1/invocations?wait_ms=0", callBody).record(t).ID
	if a := d.do("POST", "/v1/invocations/"+id+"/cancel?wait_ms=1", ""); a.status != 202 ||
		a.header.Get("Location") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	close(release)
}

// Calls of other principals are not found, except for root and the daemon's user, whose changes are
// logged (SE-01, SE-06).
func TestCallsOfOtherPrincipalsAreNotFound(t *testing.T) {
	d := start(t, nil)
	const me, path = "token:ci", "/v1/invocations"
	mine := d.doAs(me, "POST", path, callBody).record(t)
	other := mine
	other.ID, other.Principal = "0198a000-0000-7000-8000-000000000001", "token:other"
	d.audit.put(other)
	for _, rest := range []string{"", "?wait_ms=5", "/events", "/output/stdout"} {
		missing := d.doAs(me, "GET", path+"/0198a000-0000-7000-8000-000000000002"+rest, "")
		hidden := d.doAs(me, "GET", path+"/"+other.ID+rest, "")
		if hidden.status != 404 || hidden.problem(t).Code != dray.CodeNotFound || missing.status != 404 {
			t.Errorf("%s: %d %s", rest, hidden.status, hidden.body)
		}
	}
	for _, rest := range []string{"/stdin", "/cancel", "/signal", "/resize"} {
		body := map[string]string{
			"/signal": `{"signal":"INT"}`, "/resize": `{"columns":1,"rows":1}`,
		}[rest]
		if a := d.doAs(me, "POST", path+"/"+other.ID+rest, body); a.status != 404 {
			t.Errorf("%s: %d %s", rest, a.status, a.body)
		}
	}
	listed := func(principal, query string) (ids []string) {
		var page struct{ Items []dray.Record }
		if err := json.Unmarshal(d.doAs(principal, "GET", path+query, "").body, &page); err != nil {
			t.Error(err)
		}
		for _, rec := range page.Items {
			ids = append(ids, rec.ID)
		}
		return ids
	}
	if got := listed(me, ""); !slices.Equal(got, []string{mine.ID}) {
		t.Errorf("%s lists %v", me, got)
	}
	if got := listed(me, "?principal=token:other"); got != nil {
		t.Errorf("%s lists the calls of another: %v", me, got)
	}
	if got := listed("uid:0", ""); len(got) != 2 {
		t.Errorf("root lists %v", got)
	}
	if a := d.doAs("uid:0", "GET", path+"/"+other.ID, ""); a.status != 200 {
		t.Errorf("root: %d %s", a.status, a.body)
	}
	if a := d.doAs("uid:0", "POST", path+"/"+mine.ID+"/cancel", ""); a.status != 200 ||
		!reflect.DeepEqual(d.audit.events, []audit.Body{&audit.OperatorAct{
			Principal: "uid:0", Owner: me, Action: "cancel", Invocation: mine.ID,
		}}) {
		t.Errorf("root cancels: %d %s, events %v", a.status, a.body, d.audit.events)
	}
}

// Every filter reaches the query (AU-08).
func TestListFilters(t *testing.T) {
	d := start(t, nil)
	a := d.do("GET",
		"/v1/invocations?tool=exec&status=failed&reason=timeout&environment=container&container=box&plan_id=p%201&q=text"+
			"&since=2026-01-02T03:04:05.5Z&until=2026-01-03T03:04:05%2B02:00&limit=7&cursor=abc&principal="+selfPrincipal+
			"&id=01980f2e-5b&workspace=/home/me/app&session_id=s&label=team:a:b&code=bad_cwd&min_duration_ms=1500&argv=go%20test"+
			"&image=debian:12&sort=duration", "")
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	q := d.audit.listed
	if q.Tool != "exec" || q.Status != "failed" || q.Reason != "timeout" ||
		q.Environment != "container" || q.Container != "box" ||
		q.PlanID != "p 1" || q.Text != "text" || q.Limit != 7 || q.Cursor != "abc" ||
		q.Principal != selfPrincipal {
		t.Errorf("%+v", q)
	}
	if q.Workspace != "/home/me/app" || q.SessionID != "s" || q.LabelName != "team" ||
		q.LabelValue != "a:b" || q.Code != dray.CodeBadCwd || q.MinDuration != 1500*time.Millisecond ||
		q.IDPrefix != "01980f2e-5b" || q.Argv != "go test" || q.Image != "debian:12" || q.Sort != audit.SortDuration {
		t.Errorf("%+v", q)
	}
	if q.Since.UTC() != time.Date(2026, 1, 2, 3, 4, 5, 5e8, time.UTC) ||
		q.Until.UTC() != time.Date(2026, 1, 3, 1, 4, 5, 0, time.UTC) {
		t.Errorf("%v %v", q.Since, q.Until)
	}
	if d.do("GET", "/v1/invocations", ""); d.audit.listed.Limit != 50 {
		t.Errorf("default limit %d", d.audit.listed.Limit)
	}
}

// A panic ends only its own call, and is logged with an id (EX-18).
func TestPanicFailsOnlyItsCall(t *testing.T) {
	d := start(t, func(p *fakeDeps) {
		p.run = func(_ context.Context, c dray.Call, _ dray.Sink) (dray.Result, error) {
			if c.Invocation.Tool == "greet" {
				panic("a secret")
			}
			return exited(0), nil
		}
		p.mountsPanic = true
	})
	a := d.do("POST", "/v1/invocations", `{"tool":"greet"}`)
	rec := a.record(t)
	if a.status != 200 || rec.Status != dray.StatusFailed || rec.Error.Code != dray.CodeInternal ||
		!strings.Contains(rec.Error.Hint, rec.ID) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if bytes.Contains(a.body, []byte("secret")) {
		t.Error("the value of the panic is in the response")
	}
	if logged := d.logs.FilterMessage("call panicked").All(); len(logged) != 1 ||
		logged[0].ContextMap()["id"] != rec.ID {
		t.Errorf("logged %v", logged)
	}
	a = d.do("POST", "/v1/paths", `{"workspace":"/w","direction":"to_host","paths":["/a"]}`)
	logged := d.logs.FilterMessage("request panicked").All()
	if a.status != 500 || len(logged) != 1 ||
		!strings.Contains(a.problem(t).Hint, fmt.Sprint(logged[0].ContextMap()["id"])) {
		t.Errorf("%d %s, logged %v", a.status, a.body, logged)
	}
	if a := d.do("POST", "/v1/invocations", callBody); a.record(t).Status != dray.StatusSucceeded {
		t.Errorf("next call: %d %s", a.status, a.body)
	}
}

// The begin and the end of a call are logged, without its input (OP-01).
func TestCallIsLogged(t *testing.T) {
	d := start(t, nil)
	rec := d.do("POST", "/v1/invocations", `{"tool":"exec","input":{"argv":["hunter2"]},"env":{"TOKEN":"hunter2"}}`).record(t)
	// the end is logged after the response
	if err := d.server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for message, fields := range map[string]map[string]any{
		"call begun": {"id": rec.ID, "tool": "exec", "principal": selfPrincipal},
		"call ended": {
			"id": rec.ID, "tool": "exec", "principal": selfPrincipal, "status": "succeeded",
			"reason": "exited", "ms": *rec.DurationMS,
		},
	} {
		lines := d.logs.FilterMessage(message).All()
		if len(lines) != 1 {
			t.Fatalf("%d log lines %q", len(lines), message)
		}
		if got, _ := json.Marshal(lines[0].ContextMap()); string(got) != mustJSON(fields) {
			t.Errorf("%s logged with %s", message, got)
		}
	}
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// A client that disconnects from a flood of events cancels its call.
func TestStart_ClientDisconnectsFromFlood(t *testing.T) {
	for range 8 {
		cause := make(chan error, 1)
		d := start(t, func(p *fakeDeps) {
			p.run = func(ctx context.Context, _ dray.Call, sink dray.Sink) (dray.Result, error) {
				for ctx.Err() == nil {
					sink.Output(dray.Stdout, make([]byte, 32<<10))
				}
				cause <- context.Cause(ctx)
				return dray.Result{Reason: dray.ReasonCancelled}, nil
			}
		})
		f := d.follow("POST", "/v1/invocations", callBody)
		f.until("stdout")
		f.resp.Body.Close()
		if err := <-cause; !errors.Is(err, executor.ErrCancelled) {
			t.Errorf("cancelled with %v", err)
		}
	}
}
