package features

import (
	"net/http"
	"path/filepath"
	"sync"
	"testing"
)

// The budget of a plan is refused with 429 before anything starts, by calls and the dry run alike,
// counts every principal's recorded calls, and survives a restart (RT-11).
func TestPlanBudget(t *testing.T) {
	root := newDir(t)
	writeFiles(t, root, map[string]string{"work/x": "", "config.yaml": "host: {roots: [" + root +
		"/work]}\nrouting: {plans: {few: {override: host, budget: {calls: 3}}, " +
		"terse: {budget: {bytes: 1KiB}}}}\n"})
	start := func() *daemon {
		d := launch(root+"/state", root+"/config.yaml")
		if _, ok := d.log.await("ready"); !ok {
			t.Fatalf("the daemon does not start: %s", d.log.text())
		}
		return d
	}
	body := func(plan, script string) map[string]any {
		return map[string]any{
			"tool": "shell", "input": map[string]any{"command": script}, "cwd": root + "/work",
			"context": map[string]any{"plan_id": plan},
		}
	}
	check := func(d *daemon, plan string, status int) {
		t.Helper()
		a, err := d.call(t.Context(), "", body(plan, "touch ran-$DRAY_CALL_ID; yes | head -c 2000"))
		if err != nil || a.status != status {
			t.Fatalf("plan %s: %v, %s", plan, err, a.raw)
		}
		if status == http.StatusTooManyRequests && a.at("/code") != "budget_exceeded" {
			t.Errorf("plan %s: %s", plan, a.raw)
		}
	}
	d := start()
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			if _, err := d.call(t.Context(), "", body("few", "touch few-$DRAY_CALL_ID")); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if ran, _ := filepath.Glob(root + "/work/few-*"); len(ran) != 3 {
		t.Errorf("%d of 10 calls ran, the budget is 3", len(ran))
	}
	check(d, "terse", http.StatusOK)
	for range 2 { // before and after a restart
		check(d, "few", http.StatusTooManyRequests)
		check(d, "terse", http.StatusTooManyRequests)
		check(d, "other", http.StatusOK)
		a, err := d.ask(t.Context(), http.MethodPost, "/v1/route", body("few", "true"))
		if err != nil || a.at("/error/code") != "budget_exceeded" || a.at("/environment") != "host" {
			t.Errorf("the dry run says %v, %s", err, a.raw)
		}
		if code := d.end(t); code != 0 {
			t.Fatal(d.log.text())
		}
		d = start()
	}
	d.end(t)
	if ran, _ := filepath.Glob(root + "/work/ran-*"); len(ran) != 3 {
		t.Errorf("%d calls ran, 3 were not refused", len(ran))
	}
}
