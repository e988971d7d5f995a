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

// syncing serves with a tool sync that ends as told.
func syncing(t *testing.T, run dray.ExecutorFunc) *daemon {
	t.Helper()
	return start(t, func(p *fakeDeps) {
		p.tools["sync"] = &dray.Tool{Name: "sync", Description: "syncs", InputSchema: json.RawMessage(`{"type":"object"}`)}
		p.run = run
	})
}

// reporting is a tool that ends with a report, and with an error if there is one.
func reporting(report *dray.SyncReport, err error) dray.ExecutorFunc {
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

// SY-10: a sync is a call of the tool sync with a row in the trail, and its answer is the manifest.
func TestSyncAnswersWithTheManifest(t *testing.T) {
	var got dray.Invocation
	d := syncing(t, func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
		got = c.Invocation
		return reporting(&manifest, nil)(ctx, c, sink)
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
		t.Errorf("the call is %+v with %s", got, got.Input)
	}
	if rec, err := d.trail.Get(t.Context(), selfPrincipal, got.ID); err != nil ||
		rec.Status != dray.StatusSucceeded {
		t.Errorf("in the trail: %+v, %v", rec, err)
	}
	d.do("POST", "/v1/sync", `{"container":"web","paths":["/a"]}`)
	if string(got.Input) != `{"paths":["/a"]}` || got.Container != "web" || got.Environment != "" {
		t.Errorf("the shortest is %+v with %s", got, got.Input)
	}
}

// SY-09: each way to fail has its status and code, with the call's id and what was refused.
func TestSyncFailures(t *testing.T) {
	refused := &dray.SyncReport{
		State:   dray.SyncRefused,
		Refused: []dray.RefusedPath{{Path: "/w/l", Code: dray.CodePathInvalid, Message: "is a link"}},
	}
	failed := &dray.SyncReport{State: dray.SyncFailed}
	said := func(code dray.Code) error { return dray.Errorf(code, "it did not work").WithHint("do better") }
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
		"refused":          {reporting(refused, said(dray.CodeSyncRefused)), 422, dray.CodeSyncRefused, `"refused":[{"path":"/w/l","code":"path_invalid","message":"is a link"}]`},
		"refused, its way": {reporting(refused, said(dray.CodeDenied)), 422, dray.CodeSyncRefused, `"code":"path_invalid"`},
		"disk full":        {reporting(failed, said(dray.CodeDiskFull)), 422, dray.CodeDiskFull, `"refused":[]`},
		"limit": {
			reporting(failed, said(dray.CodeLimitExceeded)), 422, dray.CodeLimitExceeded,
			"",
		},
		"broken off": {
			reporting(failed, said(dray.CodeTransferFailed)), 422,
			dray.CodeTransferFailed, "",
		},
		"timeout": {timeout, 422, dray.CodeLimitExceeded, ""},
		"cancelled": {func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
			return dray.Result{Reason: dray.ReasonCancelled}, nil
		}, 422, dray.CodeTransferFailed, ""},
		"no container": {
			reporting(nil, said(dray.CodeContainerNotFound)), 404,
			dray.CodeContainerNotFound, "",
		},
		"no engine": {
			reporting(nil, said(dray.CodeEngineUnavailable)), 503,
			dray.CodeEngineUnavailable, "",
		},
		"untrusted": {
			reporting(nil, said(dray.CodeWorkspaceUntrusted)), 403,
			dray.CodeWorkspaceUntrusted, "",
		},
		"without a word": {func(context.Context, dray.Call, dray.Sink) (dray.Result,
			error,
		) {
			return exited(0), nil
		}, 500, dray.CodeInternal, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := syncing(t, c.run)
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
			if rec, err := d.trail.Get(t.Context(), selfPrincipal, with.ID); err != nil ||
				rec.Tool != "sync" {
				t.Errorf("its id leads to %+v, %v: %s", rec, err, a.body)
			}
		})
	}
}

// The tool's word on its input points into what was sent, and nothing is accepted.
func TestSyncInputThatDoesNotFit(t *testing.T) {
	d := start(t, func(p *fakeDeps) {
		p.tools["sync"] = &dray.Tool{Name: "sync"}
		p.validate = func(string, json.RawMessage) error {
			e := dray.Errorf(dray.CodeInvalidInput, "it is malformed").WithHint("see the schema")
			e.Details = []dray.Detail{{Pointer: "/input/destination", Message: "is malformed"}}
			return e
		}
	})
	a := d.do("POST", "/v1/sync", `{"workspace":"/w","paths":["/a"],"destination":"//"}`)
	if p := a.problem(t); a.status != 400 || p.Errors[0].Pointer != "/destination" ||
		d.trail.len() != 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A client that goes away takes its sync with it.
func TestSyncEndsWithItsClient(t *testing.T) {
	cause, begun := make(chan error, 1), make(chan struct{})
	d := syncing(t, func(ctx context.Context, _ dray.Call, sink dray.Sink) (dray.Result, error) {
		sink.Started()
		close(begun)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return dray.Result{Reason: dray.ReasonCancelled}, nil
	})
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-begun
		leave()
	}()
	req := d.request("POST", "/v1/sync", `{"workspace":"/w","paths":["/a"]}`).WithContext(ctx)
	if resp, err := d.client.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("an answer: %d", resp.StatusCode)
	}
	if err := <-cause; !errors.Is(err, executor.ErrCancelled) ||
		!strings.Contains(err.Error(), "client went away") {
		t.Errorf("the sync was ended by %v", err)
	}
}

// Who asks for a stream hears how far it is, and gets the call with its end.
func TestSyncAsAStream(t *testing.T) {
	d := syncing(t, func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result, error) {
		sink.Started()
		sink.Progress("sync", "3 files, 12 bytes")
		return reporting(&manifest, nil)(ctx, c, sink)
	})
	all := d.follow("POST", "/v1/sync", `{"workspace":"/w","paths":["/a"]}`).all()
	var names []string
	for _, ev := range all {
		names = append(names, ev.Event)
	}
	if got := strings.Join(names, " "); got != "state state progress end" ||
		all[2].Message != "3 files, 12 bytes" {
		t.Fatalf("the events are %s: %+v", got, all)
	}
	var rec dray.Record
	if err := json.Unmarshal(all[3].Invocation, &rec); err != nil || rec.Metadata.Sync == nil ||
		len(rec.Metadata.Sync.Files) != 1 {
		t.Errorf("the end is %s", all[3].Invocation)
	}
}
