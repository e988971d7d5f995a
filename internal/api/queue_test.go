package api_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/admission"
)

// limited returns a daemon with one slot and a queue of one call.
func limited(t *testing.T, run dray.ExecutorFunc) *daemon {
	limits := admission.New(admission.Limits{Concurrent: 1, PerContainer: 1, Queue: 1})
	return start(t, func(p *fakeDeps) {
		p.run = func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
			release, _, err := limits.Acquire(ctx, "", sink)
			if err != nil {
				return dray.Result{}, err
			}
			defer release()
			return run(ctx, c, sink)
		}
		p.executor = limits.Executor
	})
}

// A waiting call has the status queued everywhere. A call beyond the queue is refused with
// Retry-After and has no row (EX-13).
func TestQueuedCall(t *testing.T) {
	release := make(chan struct{})
	var once sync.Once
	finish := func() { once.Do(func() { close(release) }) }
	defer finish()
	d := limited(t, func(ctx context.Context, _ dray.Call, sink dray.Sink) (dray.Result, error) {
		sink.Started()
		select {
		case <-release:
		case <-ctx.Done():
		}
		return exited(0), nil
	})
	first := d.running()
	waiting := d.follow("POST", "/v1/invocations", callBody)
	waiting.until("progress")
	second := waiting.id()
	if got := d.do("GET", "/v1/invocations/"+second, "").record(t).Status; second == "" ||
		got != dray.StatusQueued {
		t.Fatalf("the waiting call (%s) has the status %s", second, got)
	}
	d.listed(t, "queued")
	if d.audit.listed.Status != dray.StatusRunning || len(d.audit.listed.Only) != 1 ||
		d.audit.listed.Only[0] != second {
		t.Errorf("query of the audit log: %+v", d.audit.listed)
	}
	for _, rec := range d.listed(t, "") {
		if want := map[string]dray.Status{
			first:  dray.StatusRunning,
			second: dray.StatusQueued,
		}[rec.ID]; rec.Status != want {
			t.Errorf("status of %s in the list: %s, want %s", rec.ID, rec.Status, want)
		}
	}
	d.listed(t, "running")
	if got := d.audit.listed.Except; len(got) != 1 || got[0] != second {
		t.Errorf("running calls without %v", got)
	}
	busy := d.do("POST", "/v1/invocations", callBody)
	if p := busy.problem(t); busy.status != 429 || p.Code != dray.CodeBusy ||
		!strings.Contains(p.Hint, "limits.") {
		t.Errorf("call beyond the queue: %d %s", busy.status, busy.body)
	}
	if after, err := strconv.Atoi(busy.header.Get("Retry-After")); err != nil || after < 1 {
		t.Errorf("Retry-After is %q", busy.header.Get("Retry-After"))
	}
	if n := d.audit.len(); n != 2 {
		t.Errorf("the audit log has %d calls", n)
	}
	finish()
	if end := waiting.until("end"); !strings.Contains(string(end.Invocation), `"status":"succeeded"`) {
		t.Errorf("%s", end.Invocation)
	}
	if got := d.do("GET", "/v1/invocations/"+second, "").record(t).
		Status; got != dray.StatusSucceeded {
		t.Errorf("final status %s", got)
	}
}

// running starts a call and waits until its process has started.
func (d *daemon) running() (id string) {
	d.t.Helper()
	f := d.follow("POST", "/v1/invocations", `{"tool":"exec","input":{"argv":["true"]},"on_disconnect":"continue"}`)
	for f.until("state").Phase != "started" {
	}
	return f.id()
}

// listed returns the calls with a status, or all calls.
func (d *daemon) listed(t *testing.T, status string) []dray.Record {
	t.Helper()
	var page struct{ Items []dray.Record }
	if err := json.Unmarshal(d.do("GET", "/v1/invocations?status="+status, "").body,
		&page); err != nil {
		t.Fatal(err)
	}
	return page.Items
}

// A waiting call leaves the queue when it is cancelled and when its client disconnects (EX-13).
func TestWaitingCallLeavesTheQueue(t *testing.T) {
	d := limited(t, untilCancelled)
	first := d.running()
	second := d.do("POST", "/v1/invocations?wait_ms=0", callBody).record(t)
	if rec := d.do("POST", "/v1/invocations/"+second.ID+"/cancel", "").
		record(t); rec.Status != dray.StatusFailed {
		t.Errorf("cancelled: %+v", rec)
	}
	waiting := d.follow("POST", "/v1/invocations", callBody)
	waiting.until("progress")
	waiting.resp.Body.Close()
	for d.do("POST", "/v1/invocations?wait_ms=0", callBody).status == 429 {
	}
	if rec := d.do("GET", "/v1/invocations/"+first, "").record(t); rec.Status != dray.StatusRunning {
		t.Errorf("the running call: %+v", rec)
	}
}
