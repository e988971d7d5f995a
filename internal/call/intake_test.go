package call_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/tool"
)

// fakeIntake counts how often each dependency of an intake is used.
type fakeIntake struct {
	gets, routes, checks, inputs int
	tool                         dray.Tool
	route                        dray.Route
	routeErr, checkErr, inputErr error
	// need and starts are the last requirement that was routed and the last check.
	need   dray.Requirement
	starts bool
}

func (f *fakeIntake) Get(_ context.Context, name string) (*dray.Tool, error) {
	f.gets++
	if name != f.tool.Name {
		return nil, dray.Errorf(dray.CodeUnknownTool, "no such tool: %s", name)
	}
	return &f.tool, nil
}

func (f *fakeIntake) Route(_ context.Context, _ dray.Invocation, need dray.Requirement,
) (dray.Route, error) {
	f.routes++
	f.need = need
	return f.route, f.routeErr
}

func (f *fakeIntake) Check(_ context.Context, _ dray.Route, _ dray.Invocation, starts bool) error {
	f.checks++
	f.starts = starts
	return f.checkErr
}

func newIntake(tool string) (*call.Intake, *fakeIntake) {
	f := &fakeIntake{
		tool:  dray.Tool{Name: tool, AcceptsStdin: true},
		route: dray.Route{Environment: dray.KindHost, Rule: "host"},
	}
	f.tool.CheckInput = func(json.RawMessage) error { f.inputs++; return f.inputErr }
	return &call.Intake{
		Tools: f, Router: f, Environments: f, MaxTimeout: time.Hour, Budgets: call.NewBudgets(nil, nil),
	}, f
}

// A request is resolved once, and a request that is no HTTP body needs nothing of HTTP.
func TestPrepareResolvesOnce(t *testing.T) {
	in, f := newIntake("exec")
	seconds := 1.5
	p, err := in.Prepare(t.Context(), "me", &call.Request{
		Tool: "exec", Workspace: "/w/", Container: "web", Cwd: "./a", Timeout: &seconds,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := dray.Invocation{
		Tool: "exec", Input: json.RawMessage("{}"), Workspace: "/w", Container: "web", Cwd: "a",
		Timeout: 1500 * time.Millisecond, Principal: "me",
	}
	if got, _ := json.Marshal(p.Invocation); !bytes.Equal(got, mustMarshal(t, want)) {
		t.Errorf("invocation %s", got)
	}
	if p.Tool != &f.tool || p.Route.Rule != "host" || p.RouteErr != nil {
		t.Errorf("%+v", p)
	}
	if f.gets != 1 || f.routes != 1 || f.checks != 1 || f.inputs != 1 {
		t.Errorf("tool looked up %d times, routed %d, checked %d, input %d",
			f.gets, f.routes, f.checks, f.inputs)
	}
}

func mustMarshal(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A tool that takes no stdin refuses one of any form, before its input is checked.
func TestPrepareRefusesStdin(t *testing.T) {
	text, data := "x", []byte("x")
	for name, req := range map[string]call.Request{
		"stdin": {Stdin: &text}, "stdin_base64": {StdinBase64: &data}, "stdin_open": {StdinOpen: true},
	} {
		in, f := newIntake("stat")
		f.tool.AcceptsStdin = false
		req.Tool = "stat"
		_, err := in.Prepare(t.Context(), "me", &req)
		e := dray.AsError(err)
		if dray.CodeOf(err) != dray.CodeInvalidRequest || len(e.Details) != 1 ||
			e.Details[0].Pointer != "/tool" || f.inputs != 0 {
			t.Errorf("%s: %v, input checked %d times", name, err, f.inputs)
		}
		f.tool.AcceptsStdin = true
		if _, err := in.Prepare(t.Context(), "me", &req); err != nil {
			t.Errorf("%s for a tool that takes it: %v", name, err)
		}
	}
}

// A contradiction in the request rejects it; a missing environment is the result of the call
// (RT-02).
func TestPrepareRouteErrors(t *testing.T) {
	for _, c := range []struct {
		code     dray.Code
		rejected bool
	}{
		{dray.CodeInvalidRequest, true},
		{dray.CodeRouteConflict, true},
		{dray.CodeContainerNotFound, false},
		{dray.CodeNoDevcontainer, false},
	} {
		in, f := newIntake("exec")
		f.route = dray.Route{Candidates: []dray.Candidate{{Rule: "call.container"}}}
		f.routeErr = dray.Errorf(c.code, "no route")
		p, err := in.Prepare(t.Context(), "me", &call.Request{Tool: "exec"})
		if c.rejected {
			if dray.CodeOf(err) != c.code {
				t.Errorf("%s: got %v", c.code, err)
			}
			continue
		}
		if err != nil || dray.CodeOf(p.RouteErr) != c.code {
			t.Errorf("%s: %+v, %v", c.code, p, err)
			continue
		}
		started := false
		r := registry(t, call.Recorded(dray.ExecutorFunc(
			func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
				started = true
				return dray.Result{}, nil
			})).Execute)
		ended, err := r.Start(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		<-ended.Done()
		rec := ended.Record()
		if started || rec.Error == nil || rec.Error.Code != c.code || len(rec.Route.Candidates) != 1 {
			t.Errorf("%s: started %v, record %+v", c.code, started, rec)
		}
	}
}

// A sync has its own path: its violations point into its own body, and its recorded input is that
// of the tool sync (SY-10).
func TestPrepareSync(t *testing.T) {
	in, f := newIntake("sync")
	p, err := in.PrepareSync(t.Context(), "me", &call.SyncRequest{
		Workspace: "/w", Paths: []string{"a"}, Destination: "to", OnRefused: "skip",
		Context: dray.CallContext{PlanID: "p"},
	})
	if err != nil {
		t.Fatal(err)
	}
	inv := p.Invocation
	if got := string(inv.Input); got != `{"paths":["a"],"destination":"to","on_refused":"skip"}` ||
		inv.Tool != "sync" || inv.Environment != dray.ChooseContainer || inv.Context.PlanID != "p" ||
		inv.Principal != "me" || p.Tool != &f.tool || f.routes != 1 {
		t.Errorf("%+v with input %s", p, got)
	}
	_, err = in.PrepareSync(t.Context(), "me", &call.SyncRequest{
		Paths: []string{"", strings.Repeat("x", 5000)}, Destination: "\x00", OnRefused: "x",
		Direction: "up", LocalEnv: map[string]string{"=": ""},
	})
	var pointers []string
	for _, d := range dray.AsError(err).Details {
		pointers = append(pointers, d.Pointer)
	}
	slices.Sort(pointers)
	want := "/destination /direction /local_env/= /on_refused /paths/0 /paths/1 /workspace"
	if got := strings.Join(pointers, " "); got != want {
		t.Errorf("violations at %s, want %s", got, want)
	}
}

// Variables of which Linux would start no process are refused before anything is recorded.
func TestPrepareBoundsVariables(t *testing.T) {
	in, f := newIntake("exec")
	for size, pointer := range map[int]string{3 << 20: "", 3<<20 + 1: "/env"} {
		_, err := in.Prepare(t.Context(), "me", &call.Request{
			Tool: "exec", Env: map[string]string{"A": strings.Repeat("x", 3<<20-2), "B": strings.Repeat("y", size)},
		})
		if pointer == "" && err != nil || pointer != "" && (err == nil ||
			dray.AsError(err).Details[0].Pointer != pointer) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if f.gets != 1 {
		t.Errorf("%d requests were resolved", f.gets)
	}
}

// Explain decides as Prepare does, and returns the evaluated rules with an error (RT-03).
func TestExplainDecidesAsPrepare(t *testing.T) {
	in, f := newIntake("exec")
	req := &call.Request{Tool: "exec", Workspace: "/w"}
	p, err := in.Prepare(t.Context(), "me", req)
	if err != nil {
		t.Fatal(err)
	}
	route, routeErr, err := in.Explain(t.Context(), "me", req)
	if err != nil || routeErr != nil || route.Rule != p.Route.Rule {
		t.Errorf("%+v, %v, %v; Prepare decided %+v", route, routeErr, err, p.Route)
	}
	f.checkErr = dray.Errorf(dray.CodeContainerUnavailable, "stopped")
	if _, routeErr, _ := in.Explain(t.Context(), "me", req); routeErr == nil {
		t.Error("Explain does not report that the environment cannot run the call")
	}
	f.route, f.routeErr = dray.Route{Candidates: []dray.Candidate{{Rule: "host"}}}, f.checkErr
	route, routeErr, err = in.Explain(t.Context(), "me", req)
	if err != nil || routeErr == nil || len(route.Candidates) != 1 {
		t.Errorf("%+v, %v, %v", route, routeErr, err)
	}
	f.inputErr = dray.Errorf(dray.CodeInvalidInput, "invalid")
	if _, _, err := in.Explain(t.Context(), "me", req); err != nil {
		t.Errorf("a request without input: %v", err)
	}
	req.Input = json.RawMessage("{}")
	if _, _, err := in.Explain(t.Context(), "me", req); dray.CodeOf(err) != dray.CodeInvalidInput {
		t.Errorf("a request with an invalid input: %v", err)
	}
}

// Where a call runs can depend on its input. Prepare and Explain use the same requirement, and end
// with the same error on the host (RT-03).
func TestNeedsOfInput(t *testing.T) {
	refused := dray.Errorf(dray.CodeUnsupported, "not on the host")
	onHost, inContainer := dray.Requirement{Kind: dray.RequireHost},
		dray.Requirement{Kind: dray.PreferContainer}
	for _, tt := range []struct {
		input  string
		need   dray.Requirement
		starts bool
		code   dray.Code
	}{
		{`{"here":true}`, onHost, false, ""},
		{`{}`, inContainer, true, dray.CodeUnsupported},
	} {
		in, f := newIntake("exec")
		f.tool.Environment, f.tool.StartsProcess = dray.Requirement{Kind: dray.RequireContainer}, true
		f.tool.NeedsOf = func(input json.RawMessage) dray.Needs {
			if string(input) == `{"here":true}` {
				return dray.Needs{Environment: onHost}
			}
			return dray.Needs{Environment: inContainer, StartsProcess: true, OnHost: refused}
		}
		req := &call.Request{Tool: "exec", Input: json.RawMessage(tt.input)}
		p, err := in.Prepare(t.Context(), "me", req)
		if err != nil || f.need != tt.need || dray.CodeOf(p.RouteErr) != tt.code {
			t.Errorf("%s: %v, %v; routed for %+v", tt.input, err, p.RouteErr, f.need)
		}
		f.need, f.starts = dray.Requirement{}, tt.starts
		_, routeErr, err := in.Explain(t.Context(), "me", req)
		if err != nil || f.need != tt.need || dray.CodeOf(routeErr) != tt.code || f.starts != tt.starts {
			t.Errorf("%s: explained with %v, %v, %v, for %+v", tt.input, routeErr, err, f.starts, f.need)
		}
		f.route.Environment = dray.KindContainer
		p, err = in.Prepare(t.Context(), "me", req)
		if err != nil || p.RouteErr != nil {
			t.Errorf("%s in a container: %v, %v", tt.input, err, p.RouteErr)
		}
	}
}

// The input of every valid sync is valid for the schema of the tool.
func TestPrepareSyncMatchesToolSchema(t *testing.T) {
	tools, err := tool.NewRegistry(tool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in, _ := newIntake("sync")
	for _, req := range []call.SyncRequest{
		{Container: "c", Paths: []string{"a"}},
		{
			Container: "c", Paths: slices.Repeat([]string{"a"}, 1000), Destination: "..", DryRun: true,
			OnRefused: "skip", Direction: call.ToContainer,
		},
	} {
		p, err := in.PrepareSync(t.Context(), "me", &req)
		if err != nil {
			t.Fatal(err)
		}
		sync, err := tools.Get(t.Context(), p.Invocation.Tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := sync.CheckInput(p.Invocation.Input); err != nil {
			t.Errorf("%s: %v", p.Invocation.Input, err)
		}
	}
}

// The tools of a project are looked up for who may use its workspace, and their calls are routed
// to a container of it only (RT-15, SE-06).
func TestPrepareProjectTool(t *testing.T) {
	own := t.TempDir()
	for name, tt := range map[string]struct {
		principal, workspace, routed string
		code                         dray.Code
		asked                        int
	}{
		"own workspace":             {"uid:0", own, own, "", 1},
		"another container":         {"uid:0", own, "/other", dray.CodeRouteConflict, 1},
		"host without workspace":    {"uid:0", own, "", dray.CodeRouteConflict, 1},
		"workspace of another user": {"uid:4242", own, own, dray.CodeWorkspaceNotFound, 0},
		"no workspace":              {"uid:0", "", own, dray.CodeUnknownTool, 0},
	} {
		t.Run(name, func(t *testing.T) {
			in, f := newIntake("exec")
			in.Access = call.Access{UID: os.Geteuid()}
			f.route = dray.Route{Environment: dray.KindContainer, Workspace: tt.routed}
			asked := 0
			in.ProjectTools = func(context.Context, string, string) (*dray.Tool, error) {
				asked++
				declared := f.tool
				declared.Name, declared.Workspace = "check", own
				return &declared, nil
			}
			_, err := in.Prepare(t.Context(), tt.principal,
				&call.Request{Tool: "check", Workspace: tt.workspace})
			if dray.CodeOf(err) != tt.code || asked != tt.asked {
				t.Errorf("%v, asked %d times", err, asked)
			}
		})
	}
}

// A call with paths of the container is refused where its route is the host (PM-17).
func TestPrepareContainerPaths(t *testing.T) {
	in, _ := newIntake("exec")
	req := &call.Request{Tool: "exec", Paths: dray.PathsOfContainer, Cwd: "/workspaces/app"}
	if _, err := in.Prepare(t.Context(), "me", req); dray.CodeOf(err) != dray.CodeRouteConflict {
		t.Errorf("on the host: %v", err)
	}
	if _, routeErr, err := in.Explain(t.Context(), "me", req); err != nil ||
		dray.CodeOf(routeErr) != dray.CodeRouteConflict {
		t.Errorf("explained: %v, %v", routeErr, err)
	}
}
