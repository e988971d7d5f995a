package command

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray/audit"
)

// daemonEvents are the events that a user sees, oldest first.
func (d *accessDaemon) daemonEvents(uid uint32, query string) []audit.Event {
	d.t.Helper()
	status, text := d.as(uid, "", "/v1/audit/events?limit=1000"+query)
	var page audit.EventPage
	if err := json.Unmarshal([]byte(text), &page); err != nil || status != "200" {
		d.t.Fatalf("%s %s: %v", status, text, err)
	}
	slices.Reverse(page.Items)
	return page.Items
}

// What users do beside calls is in the audit log, with who did it; another user sees nothing of it
// (AU-10, SE-06).
func TestEventsOfADaemon(t *testing.T) {
	d := startAccessDaemon(t)
	workspace := "/v1/workspaces/" + strings.ReplaceAll(d.work, "/", "%2F")
	body, _ := d.writes(d.work, "mine")
	var rec struct{ ID string }
	_, response := d.as(4711, strings.Replace(body, `"touch"`, `"sleep"`, 1), "/v1/invocations?wait_ms=0")
	if err := json.Unmarshal([]byte(response), &rec); err != nil || rec.ID == "" {
		t.Fatal(response, err)
	}
	call := "/v1/invocations/" + rec.ID
	d.as(4711, "{}", call+"/cancel")
	for _, act := range []struct {
		uid        uint32
		body, path string
	}{
		{0, "{}", "/v1/tools/keep/disable"},
		{0, `{"id":"box-1"}`, "/v1/containers/box"},
		{4711, `{"hash":"wrong"}`, workspace + "/trust"},
		{0, `{"hash":"wrong"}`, workspace + "/trust"},
		{4711, "{}", workspace + "/up"},
	} {
		d.as(act.uid, act.body, act.path)
	}
	var got []string
	for _, e := range d.daemonEvents(0, "") {
		if decoded, err := audit.DecodeBody(e.Kind, e.Body); err != nil || decoded.Summary() == "" {
			t.Errorf("%s %s: %v", e.Kind, e.Body, err)
		}
		var by struct{ Principal, Action, Error string }
		if err := json.Unmarshal(e.Body, &by); err != nil && e.Kind != "ended" {
			t.Error(err)
		}
		failed, _, _ := strings.Cut(by.Error, ":")
		got = append(got, strings.TrimSpace(strings.Join([]string{e.Kind, by.Principal, by.Action, failed}, " ")))
	}
	want := []string{
		"start uid:0", "begun uid:4711", "ended", "tool uid:0", "registration uid:0 add",
		"trust uid:0 give", "trust uid:0 give no_devcontainer", "workspace uid:4711 up",
		"workspace uid:4711 up no_devcontainer",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, e := range d.daemonEvents(4711, "") {
		if strings.Contains(string(e.Body), `"uid:0"`) || e.Kind == "start" {
			t.Errorf("uid 4711 sees %s %s", e.Kind, e.Body)
		}
	}
	if all := d.daemonEvents(4711, "&invocation="+rec.ID); len(all) != 2 {
		t.Errorf("uid 4711 sees %d events of its call", len(all))
	}
	if all := d.daemonEvents(4711, "&principal=uid:0"); len(all) != 0 {
		t.Errorf("uid 4711 sees %d events of root", len(all))
	}
}

// That root cancels the call of another user is in the log, and the owner sees it (SE-06). The log
// has the end of the daemon (AU-10), and the requests that were refused until then (AU-09).
func TestEventsOfOperatorAndStop(t *testing.T) {
	d := startAccessDaemon(t)
	body, _ := d.writes(d.work, "x")
	body = strings.NewReplacer(`"touch"`, `"sleep"`, d.work+"/x", "600").Replace(body)
	var rec struct{ ID string }
	_, response := d.as(4711, body, "/v1/invocations?wait_ms=0")
	if err := json.Unmarshal([]byte(response), &rec); err != nil {
		t.Fatal(response, err)
	}
	if status, response := d.as(0, "{}", "/v1/invocations/"+rec.ID+"/cancel"); status != "200" {
		t.Fatal(status, response)
	}
	acts := d.daemonEvents(4711, "&kind=operator")
	if len(acts) != 1 || acts[0].Invocation != rec.ID ||
		string(acts[0].Body) != `{"principal":"uid:0","owner":"uid:4711","action":"cancel"}` {
		t.Errorf("%+v", acts)
	}
	d.as(4711, "{}", "/v1/invocations")
	if err := syscall.Kill(d.pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	store := waitForAuditLog(t, d.state)
	page, err := store.Events(t.Context(), audit.EventQuery{Kind: "stop"})
	if err != nil || len(page.Items) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	page, err = store.Events(t.Context(), audit.EventQuery{Kind: "rejected", Principal: "uid:4711"})
	if err != nil || len(page.Items) != 1 || !strings.Contains(string(page.Items[0].Body), `"count":1`) {
		t.Errorf("the rejected request: %+v, %v", page, err)
	}
}

// waitForAuditLog opens the audit log when the daemon that has it open has ended.
func waitForAuditLog(t *testing.T, state string) *audit.Store {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		store, _, err := audit.Open(t.Context(), audit.Options{Path: state + "/audit.db", CapturesDir: state + "/captures"})
		if err == nil {
			t.Cleanup(func() { _ = store.Close(t.Context()) })
			return store
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
