package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/internal/api"
	"github.com/dray-dev/dray/internal/call"
)

// withAuditStore serves with the audit store and the captures of a directory, as the daemon does.
func withAuditStore(t *testing.T, dir string) (d *daemon, end func()) {
	t.Helper()
	store, _, err := audit.Open(t.Context(),
		audit.Options{Path: filepath.Join(dir, "audit.db"), CapturesDir: filepath.Join(dir, "captures")})
	if err != nil {
		t.Fatal(err)
	}
	captures, err := capture.NewStore(capture.Options{
		Dir: filepath.Join(dir, "captures"), Limit: 1 << 20,
		SummaryBytes: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	run := func(_ context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
		sink.Started()
		out := captures.New(c.Invocation.ID, dray.Stdout)
		p := []byte(strings.Repeat("printed ", 20))
		_, _ = out.Write(p)
		sink.Output(dray.Stdout, p)
		res := exited(3)
		res.Error = &dray.Error{Message: "it \"failed\" <&>"}
		res.Output = json.RawMessage(`{"n":12345678901234567890,"s":"\u00e4"}`)
		err := out.Close()
		res.Stdout = out.Summary()
		out.Release()
		return res, err
	}
	d = start(t, func(p *fakeDeps) {
		p.executor = func(dray.Executor) dray.Executor {
			return store.Executor(call.Recorded(dray.ExecutorFunc(run)))
		}
		p.config = func(c *api.Config) { c.Audit, c.Prover, c.Captures = store, store, captures }
	})
	return d, func() {
		if err := d.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		captures.Close()
		if err := store.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The response, the record in memory, that of the audit log after a restart and the item of a list
// are the same JSON (RS-03, AU-02).
func TestRecordIsTheSameEverywhere(t *testing.T) {
	dir := t.TempDir()
	d, end := withAuditStore(t, dir)
	first := d.do("POST", "/v1/invocations", `{"tool":"exec","input":{"b": 1, "a":[1.50]},"context":{"labels":{"z":"1","a":"2"}}}`)
	rec := first.record(t)
	if first.status != 200 || rec.Status != dray.StatusFailed {
		t.Fatalf("%d %s", first.status, first.body)
	}
	path := "/v1/invocations/" + rec.ID
	if a := d.do("GET", path, ""); !bytes.Equal(a.body, first.body) {
		t.Errorf("from memory:\n%s\nnot\n%s", a.body, first.body)
	}
	end()
	d, end = withAuditStore(t, dir)
	defer end()
	if a := d.do("GET", path, ""); !bytes.Equal(a.body, first.body) {
		t.Errorf("from the audit log:\n%s\nnot\n%s", a.body, first.body)
	}
	if a := d.do("GET", "/v1/invocations?tool=exec&status=failed", ""); string(a.body) != `{"items":[`+string(first.body)+`],"next_cursor":""}` {
		t.Errorf("from the list:\n%s\nnot\n%s", a.body, first.body)
	}
	if all := d.follow("GET", path+"/events", "").all(); len(all) != 1 ||
		!bytes.Equal(all[0].Invocation, first.body) {
		t.Errorf("from the events: %+v", all)
	}
	if a := d.do("GET", path+"/output/stdout", "", "Range: bytes=8-14"); a.status != 206 ||
		string(a.body) != "printed" {
		t.Errorf("output: %d %q", a.status, a.body)
	}
	if a := d.do("GET", "/v1/invocations?cursor=x", ""); a.status != 400 || a.problem(t).
		Code != dray.CodeInvalidRequest {
		t.Errorf("invalid cursor: %d %s", a.status, a.body)
	}
}

// The changed files are listed by plan, in pages, and only those of the caller (AU-11).
func TestChangedFiles(t *testing.T) {
	dir := t.TempDir()
	store, _, err := audit.Open(t.Context(),
		audit.Options{Path: filepath.Join(dir, "audit.db"), CapturesDir: filepath.Join(dir, "captures")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	write := dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
		res := exited(0)
		for _, name := range []string{"/a", "/b", "/c"} {
			res.Metadata.Changes = append(res.Metadata.Changes, dray.FileChange{
				Environment: dray.KindContainer, Path: name, Action: dray.FileReplaced, SHA256Before: "01", SHA256After: "02",
			})
		}
		return res, nil
	})
	d := start(t, func(p *fakeDeps) {
		p.executor = func(dray.Executor) dray.Executor { return store.Executor(call.Recorded(write)) }
		p.config = func(c *api.Config) { c.Audit = store }
	})
	mine := d.doAs("token:ci", "POST", "/v1/invocations", `{"tool":"exec","context":{"plan_id":"p"}}`).record(t)
	d.doAs("token:ci", "POST", "/v1/invocations", `{"tool":"exec"}`)
	other := dray.Invocation{
		ID: "019a7b2c-0000-7000-8000-000000000001", Tool: "exec",
		Principal: "uid:99999", Context: dray.CallContext{PlanID: "p"},
	}
	if _, err := store.Executor(write).
		Execute(t.Context(), dray.Call{Invocation: other}, dray.Discard); err != nil {
		t.Fatal(err)
	}
	var page audit.ChangePage
	got := d.doAs("token:ci", "GET", "/v1/audit/files?plan_id=p&limit=2", "")
	if err := json.Unmarshal(got.body, &page); err != nil || len(page.Items) != 2 ||
		page.NextCursor == "" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for _, member := range []string{
		`"invocation":"` + mine.ID + `"`, `"plan_id":"p"`, `"environment":"container"`, `"path":"/c"`, `"action":"replaced"`, `"sha256_before":"01"`,
		`"sha256_after":"02"`, `"at":"` + mine.EndedAt.Format(time.RFC3339Nano) + `"`,
	} {
		if !strings.Contains(string(got.body), member) {
			t.Errorf("no %s in %s", member, got.body)
		}
	}
	got = d.doAs("token:ci", "GET", "/v1/audit/files?plan_id=p&limit=2&cursor="+page.NextCursor, "")
	if err := json.Unmarshal(got.body, &page); err != nil || len(page.Items) != 1 ||
		page.Items[0].Path != "/a" || page.NextCursor != "" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := d.doAs("token:ci", "GET", "/v1/audit/files?path=/b", ""); strings.Count(string(got.body), `"path":"/b"`) != 2 {
		t.Errorf("by path: %d %s", got.status, got.body)
	}
	if got := d.doAs("token:ci", "GET", "/v1/audit/files?invocation="+other.ID, ""); string(got.body) != `{"items":[],"next_cursor":""}` {
		t.Errorf("of another principal: %d %s", got.status, got.body)
	}
}
