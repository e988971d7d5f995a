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
	"github.com/dray-dev/dray/internal/api"
	"github.com/dray-dev/dray/internal/call"
)

// narrow is a daemon in which one call runs at a time and one waits.
func narrow(t *testing.T, run dray.ExecutorFunc) *daemon {
	gate := admission.New(admission.Limits{Concurrent: 1, PerContainer: 1, Queue: 1})
	return start(t, func(p *fakeDeps) {
		p.run = func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
			leave, _, err := gate.Acquire(ctx, "", sink)
			if err != nil {
				return dray.Result{}, err
			}
			defer leave()
			return run(ctx, call, sink)
		}
		p.config = func(c *api.Config) { c.Executor = gate.Executor(p.trail.Executor(call.MarkAccepted(p.run))) }
	})
}

// EX-13: a call that waits is queued, wherever one looks; who is too much is refused with an advice
// and leaves no row.
func TestQueued(t *testing.T) {
	release := make(chan struct{})
	var free sync.Once
	let := func() { free.Do(func() { close(release) }) }
	defer let()
	d := narrow(t, func(ctx context.Context, _ dray.Call, sink dray.Sink) (dray.Result, error) {
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
		t.Fatalf("the call that waits (%s) is %s", second, got)
	}
	d.listed(t, "queued")
	if d.trail.listed.Status != dray.StatusRunning || len(d.trail.listed.Only) != 1 ||
		d.trail.listed.Only[0] != second {
		t.Errorf("the trail was asked for %+v", d.trail.listed)
	}
	for _, rec := range d.listed(t, "") {
		if want := map[string]dray.Status{
			first:  dray.StatusRunning,
			second: dray.StatusQueued,
		}[rec.ID]; rec.Status != want {
			t.Errorf("the list says of %s that it is %s, not %s", rec.ID, rec.Status, want)
		}
	}
	d.listed(t, "running")
	if got := d.trail.listed.Except; len(got) != 1 || got[0] != second {
		t.Errorf("of those that run the trail leaves out %v", got)
	}
	busy := d.do("POST", "/v1/invocations", callBody)
	if p := busy.problem(t); busy.status != 429 || p.Code != dray.CodeBusy ||
		!strings.Contains(p.Hint, "limits.") {
		t.Errorf("one too many: %d %s", busy.status, busy.body)
	}
	if after, err := strconv.Atoi(busy.header.Get("Retry-After")); err != nil || after < 1 {
		t.Errorf("Retry-After is %q", busy.header.Get("Retry-After"))
	}
	if n := d.trail.len(); n != 2 {
		t.Errorf("the trail has %d calls", n)
	}
	let()
	if end := waiting.until("end"); !strings.Contains(string(end.Invocation), `"status":"succeeded"`) {
		t.Errorf("%s", end.Invocation)
	}
	if got := d.do("GET", "/v1/invocations/"+second, "").record(t).
		Status; got != dray.StatusSucceeded {
		t.Errorf("at the end it is %s", got)
	}
}

// running starts a call and waits until its tool runs.
func (d *daemon) running() (id string) {
	d.t.Helper()
	f := d.follow("POST", "/v1/invocations", `{"tool":"exec","input":{"argv":["true"]},"on_disconnect":"continue"}`)
	for f.until("state").Phase != "started" {
	}
	return f.id()
}

// listed gives the calls of one status, or all.
func (d *daemon) listed(t *testing.T, status string) []dray.Record {
	t.Helper()
	var page struct{ Items []dray.Record }
	if err := json.Unmarshal(d.do("GET", "/v1/invocations?status="+status, "").body,
		&page); err != nil {
		t.Fatal(err)
	}
	return page.Items
}

// EX-13: a call that waits can be cancelled, a client that goes away takes its call out of the
// queue, and the place is free for another.
func TestLeavingTheQueue(t *testing.T) {
	d := narrow(t, untilCancelled)
	first := d.running()
	second := d.do("POST", "/v1/invocations?wait_ms=0", callBody).record(t)
	if rec := d.do("POST", "/v1/invocations/"+second.ID+"/cancel", "").
		record(t); rec.Status != dray.StatusFailed {
		t.Errorf("cancelled: %+v", rec)
	}
	gone := d.follow("POST", "/v1/invocations", callBody)
	gone.until("progress")
	gone.resp.Body.Close()
	for d.do("POST", "/v1/invocations?wait_ms=0", callBody).status == 429 {
	}
	if rec := d.do("GET", "/v1/invocations/"+first, "").record(t); rec.Status != dray.StatusRunning {
		t.Errorf("the first: %+v", rec)
	}
}
