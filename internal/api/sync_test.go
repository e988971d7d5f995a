package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
)

// startSync serves a tool sync that ends as run does.
func startSync(t *testing.T, run dray.ExecutorFunc) *daemon {
	t.Helper()
	return start(t, func(p *fakeDeps) {
		p.tools["sync"] = &dray.Tool{Name: "sync"}
		p.run = run
	})
}

// withReport returns a tool that ends with a report and an error.
func withReport(report *dray.SyncReport, err error) dray.ExecutorFunc {
	return func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
		res := dray.Result{}
		if err == nil {
			res = exited(0)
		}
		res.Metadata.Sync = report
		return res, err
	}
}

var manifest = dray.SyncReport{
	State: dray.SyncComplete, Bytes: 7, Refused: []dray.RefusedPath{},
	Files: []dray.SyncedFile{{
		Path: "/root/a", Source: "/w/a", Size: 7, SHA256: "02",
		SHA256Before: "01", Mode: "0600", Action: dray.FileReplaced,
	}},
}

// A sync is a recorded call of the tool sync, and responds with its report (SY-10).
func TestSyncRespondsWithReport(t *testing.T) {
	var got dray.Invocation
	d := startSync(t, func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
		got = c.Invocation
		return withReport(&manifest, nil)(ctx, c, sink)
	})
	a := d.do("POST", "/v1/sync", `{"workspace":"/home/me/app/","paths":["/w/a","b/../c","d\u0000"],"destination":"to/here","dry_run":true,"on_refused":"skip",
		"direction":"to_host","context":{"plan_id":"p"},"local_env":{"A":"b"}}`)
	want := `{"id":"` + got.ID + `","files":[{"path":"/root/a","source":"/w/a","size":7,"sha256":"02","sha256_before":"01","mode":"0600","action":"replaced"}],` +
		`"refused":[],"bytes":7}`
	if a.status != 200 || string(a.body) != want {
		t.Errorf("%d %s, want %s", a.status, a.body, want)
	}
	input := `{"paths":["/w/a","b/../c","d\u0000"],"destination":"to/here","dry_run":true,"on_refused":"skip","direction":"to_host"}`
	if string(got.Input) != input || got.Tool != "sync" || got.Workspace != "/home/me/app" ||
		got.Environment != dray.ChooseContainer ||
		got.Context.PlanID != "p" || got.LocalEnv["A"] != "b" || got.Principal != selfPrincipal {
		t.Errorf("invocation %+v with input %s", got, got.Input)
	}
	if rec, err := d.audit.Get(t.Context(), selfPrincipal, got.ID); err != nil ||
		rec.Status != dray.StatusSucceeded {
		t.Errorf("in the audit log: %+v, %v", rec, err)
	}
	d.do("POST", "/v1/sync", `{"container":"web","paths":["/a"]}`)
	if string(got.Input) != `{"paths":["/a"]}` || got.Container != "web" || got.Environment != "" {
		t.Errorf("invocation without options %+v with input %s", got, got.Input)
	}
}

// Each failure has its status and code, the id of the call and the refused paths (SY-09).
func TestSyncFailures(t *testing.T) {
	refused := &dray.SyncReport{
		State:   dray.SyncRefused,
		Refused: []dray.RefusedPath{{Path: "/w/l", Code: dray.CodePathInvalid, Message: "is a link"}},
	}
	failed := &dray.SyncReport{State: dray.SyncFailed}
	failWith := func(code dray.Code) error { return dray.Errorf(code, "the sync failed").WithHint("try again") }
	timeout := func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
		return dray.Result{Reason: dray.ReasonTimeout, Error: &dray.Error{Message: "it took too long"}},
			nil
	}
	for name, c := range map[string]struct {
		run     dray.ExecutorFunc
		status  int
		code    dray.Code
		refused string
	}{
		"refused":           {withReport(refused, failWith(dray.CodeSyncRefused)), 422, dray.CodeSyncRefused, `"refused":[{"path":"/w/l","code":"path_invalid","message":"is a link"}]`},
		"refused by policy": {withReport(refused, failWith(dray.CodeDenied)), 422, dray.CodeSyncRefused, `"code":"path_invalid"`},
		"disk full":         {withReport(failed, failWith(dray.CodeDiskFull)), 422, dray.CodeDiskFull, `"refused":[]`},
		"limit": {
			withReport(failed, failWith(dray.CodeLimitExceeded)), 422, dray.CodeLimitExceeded,
			"",
		},
		"interrupted": {
			withReport(failed, failWith(dray.CodeTransferFailed)), 422,
			dray.CodeTransferFailed, "",
		},
		"timeout": {timeout, 422, dray.CodeLimitExceeded, ""},
		"cancelled": {func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
			return dray.Result{Reason: dray.ReasonCancelled}, nil
		}, 422, dray.CodeTransferFailed, ""},
		"no container": {
			withReport(nil, failWith(dray.CodeContainerNotFound)), 404,
			dray.CodeContainerNotFound, "",
		},
		"no engine": {
			withReport(nil, failWith(dray.CodeEngineUnavailable)), 503,
			dray.CodeEngineUnavailable, "",
		},
		"untrusted": {
			withReport(nil, failWith(dray.CodeWorkspaceUntrusted)), 403,
			dray.CodeWorkspaceUntrusted, "",
		},
		"without a report": {func(context.Context, dray.Call, dray.Sink) (dray.Result,
			error,
		) {
			return exited(0), nil
		}, 500, dray.CodeInternal, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := startSync(t, c.run)
			a := d.do("POST", "/v1/sync", `{"workspace":"/w","paths":["/w/l"]}`)
			p := a.problem(t)
			if a.status != c.status || p.Code != c.code || p.Detail == "" || p.Hint == "" ||
				!strings.Contains(string(a.body), c.refused) {
				t.Errorf("%d %s", a.status, a.body)
			}
			var with struct{ ID string }
			if err := json.Unmarshal(a.body, &with); err != nil {
				t.Fatal(err)
			}
			if rec, err := d.audit.Get(t.Context(), selfPrincipal, with.ID); err != nil ||
				rec.Tool != "sync" {
				t.Errorf("record %+v, %v: %s", rec, err, a.body)
			}
		})
	}
}

// The violations of a sync point into its body, and nothing is accepted.
func TestSyncRejectsInvalidRequest(t *testing.T) {
	d := start(t, func(p *fakeDeps) { p.tools["sync"] = &dray.Tool{Name: "sync"} })
	a := d.do("POST", "/v1/sync", `{"workspace":"/w","paths":["/a"],"destination":"a\u0000"}`)
	if p := a.problem(t); a.status != 400 || p.Errors[0].Pointer != "/destination" ||
		d.audit.len() != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestSync_ClientDisconnects(t *testing.T) {
	cause, started := make(chan error, 1), make(chan struct{})
	d := startSync(t, func(ctx context.Context, _ dray.Call, sink dray.Sink) (dray.Result, error) {
		sink.Started()
		close(started)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return dray.Result{Reason: dray.ReasonCancelled}, nil
	})
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-started
		leave()
	}()
	req := d.request("POST", "/v1/sync", `{"workspace":"/w","paths":["/a"]}`).WithContext(ctx)
	if resp, err := d.client.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("response %d", resp.StatusCode)
	}
	if err := <-cause; !errors.Is(err, executor.ErrCancelled) ||
		!strings.Contains(err.Error(), "client disconnected") {
		t.Errorf("the sync was cancelled with %v", err)
	}
}

// The stream of a sync has its progress and ends with its invocation.
func TestSync_Stream(t *testing.T) {
	d := startSync(t, func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
		sink.Started()
		sink.Progress("sync", "3 files, 12 bytes")
		return withReport(&manifest, nil)(ctx, c, sink)
	})
	all := d.follow("POST", "/v1/sync", `{"workspace":"/w","paths":["/a"]}`).all()
	var names []string
	for _, ev := range all {
		names = append(names, ev.Event)
	}
	if got := strings.Join(names, " "); got != "state state progress end" ||
		all[2].Message != "3 files, 12 bytes" {
		t.Fatalf("events %s: %+v", got, all)
	}
	var rec dray.Record
	if err := json.Unmarshal(all[3].Invocation, &rec); err != nil || rec.Metadata.Sync == nil ||
		len(rec.Metadata.Sync.Files) != 1 {
		t.Errorf("end event %s", all[3].Invocation)
	}
}
