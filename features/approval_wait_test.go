package features

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A call that waits for an approval can be cancelled, and does not time out while it waits (SE-04).
func TestApprovalWait(t *testing.T) {
	a := startAsking(t, "")
	body := a.deploy("prod")
	body["timeout_seconds"] = 0.2
	park := func() (call, approval string) {
		t.Helper()
		got, err := a.call(t.Context(), "?wait_ms=400", body)
		if err != nil || got.status != http.StatusAccepted || got.at("/status") != "queued" {
			t.Fatalf("the call does not wait: %v: %s", err, got.raw)
		}
		return got.id(), fmt.Sprint(got.at("/approval"))
	}
	id, approval := park()
	ps := a.dray(t.Context(), nil, "ps")
	if !strings.Contains(string(ps.stdout), "deploy  approval ") {
		t.Errorf("dray ps: %s", ps.stdout)
	}
	got, err := a.ask(t.Context(), http.MethodPost, "/v1/invocations/"+id+"/cancel", nil)
	if err != nil || got.at("/reason") != "cancelled" || got.at("/approval") != nil {
		t.Errorf("the cancelled call: %v: %s", err, got.raw)
	}
	again, same := park()
	if same != approval {
		t.Errorf("the repeated call waits for %s, want %s", same, approval)
	}
	if status := a.decide(approval, "approve"); status != http.StatusOK {
		t.Errorf("the decision: %d", status)
	}
	end := getFrom(t, a.daemon, "/v1/invocations/"+again+"?wait_ms=60000")
	if end.at("/status") != "succeeded" || a.runs() != 1 {
		t.Errorf("%d runs: %s", a.runs(), end.raw)
	}
	a.steps(approval, "pending", "approved", "used")
}

// A daemon that shuts down does not wait for a human: the call ends, and its approval stays
// (SE-04).
func TestApprovalWaitEndsAtShutdown(t *testing.T) {
	a := startAsking(t, "limits: {drain: 1h}\n")
	got, err := a.call(t.Context(), "?wait_ms=0", a.deploy("prod"))
	for ; err == nil && got.at("/approval") == nil; got, err = a.ask(t.Context(), http.MethodGet,
		"/v1/invocations/"+got.id(), nil) {
		if got.status != http.StatusOK && got.status != http.StatusAccepted {
			t.Fatalf("the call does not wait: %s", got.raw)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	approval := fmt.Sprint(got.at("/approval"))
	if code := a.end(t); code != 0 {
		t.Fatalf("the daemon ended with %d: %s", code, a.log.text())
	}
	a.start()
	end := getFrom(t, a.daemon, "/v1/invocations/"+got.id())
	if end.at("/reason") != "cancelled" || end.at("/error/code") != "shutting_down" {
		t.Errorf("the call: %s", end.raw)
	}
	if status := a.decide(approval, "approve"); status != http.StatusOK {
		t.Errorf("the decision after the restart: %d", status)
	}
	if reason := a.reason(a.deploy("prod")); reason != "exited" || a.runs() != 1 {
		t.Errorf("the repeated call: %s, %d runs", reason, a.runs())
	}
}
