package router

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

func TestNewRefuses(t *testing.T) { // CF-01, RT-02
	for says, rules := range map[string]Rules{
		"routing.override": {Override: "apx", Containers: containers},
		"routing.fallback": {Fallback: "a b", Containers: containers},
		"routing.plans.p.override": {
			Plans:      map[string]PlanRules{"p": {Override: "apx"}},
			Containers: containers,
		},
		"routing.plans.p.fallback": {
			Plans:      map[string]PlanRules{"p": {Fallback: "/a/"}},
			Containers: containers,
		},
		"needs a name":    {Plans: map[string]PlanRules{"": {Override: "host"}}},
		"containers.host": {Containers: map[string]string{"host": ""}},
		"containers.-x":   {Containers: map[string]string{"-x": ""}},
	} {
		if _, err := New(rules, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error about %s, got %v", says, err)
		}
	}
}

// RT-03: a call without a route is routed as a dry run routes it, and the result has the route,
// with an error too.
func TestExecutor(t *testing.T) {
	r, err := New(Rules{Containers: containers}, devcontainers("/ws"))
	if err != nil {
		t.Fatal(err)
	}
	anyTool, hostTool := &dray.Tool{}, &dray.Tool{Environment: dray.Requirement{Kind: dray.RequireHost}}
	broken := errors.New("the tool failed")
	var seen dray.Route
	inner := dray.ExecutorFunc(func(_ context.Context, call dray.Call, _ dray.Sink) (dray.Result,
		error,
	) {
		seen = call.Route
		return dray.Result{Reason: dray.ReasonExited}, broken
	})
	call := dray.Call{Invocation: dray.Invocation{Workspace: "/ws"}, Tool: anyTool}
	res, err := r.Executor(inner).Execute(t.Context(), call, dray.Discard)
	if !errors.Is(err, broken) || res.Reason != dray.ReasonExited {
		t.Errorf("the inner result was lost: %v, %v", res.Reason, err)
	}
	dry, _ := r.Route(call.Invocation, anyTool.Environment)
	for _, got := range []dray.Route{seen, res.Route} {
		if js(t, got) != js(t, dry) || got.Rule != RuleNearest {
			t.Errorf("routed %s, dry run %s", js(t, got), js(t, dry))
		}
	}

	call.Route = dray.Route{Environment: dray.KindHost, Rule: RuleHost}
	res, _ = r.Executor(inner).Execute(t.Context(), call, dray.Discard)
	if js(t, seen) != js(t, call.Route) || js(t, res.Route) != js(t, call.Route) {
		t.Errorf("the route of the call is %s, and %s was used", js(t, call.Route), js(t, seen))
	}

	seen = dray.Route{}
	call = dray.Call{Invocation: dray.Invocation{Container: "api"}, Tool: hostTool}
	res, err = r.Executor(inner).Execute(t.Context(), call, dray.Discard)
	if dray.CodeOf(err) != dray.CodeRouteConflict || seen.Rule != "" {
		t.Errorf("got %v, and the inner executor was called with %q", err, seen.Rule)
	}
	dry, _ = r.Route(call.Invocation, hostTool.Environment)
	if js(t, res.Route) != js(t, dry) || len(res.Route.Candidates) == 0 {
		t.Errorf("the refusal has %s, the dry run %s", js(t, res.Route), js(t, dry))
	}
}

// Candidates tell the whole way, in the order of precedence.
func TestCandidates(t *testing.T) { // RT-03
	route, err := decide(newRouter(t, Rules{Fallback: "api"}),
		call{Workspace: "/ws", Tool: dray.Requirement{Kind: dray.PreferContainer}})
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for _, c := range route.Candidates {
		rules = append(rules, c.Rule)
		if c.Reason == "" || (c.Environment != "") != (c.Rule == route.Rule) {
			t.Errorf("candidate %+v", c)
		}
	}
	want := "call.container call.environment plan.override project.override tool.environment devcontainer.nearest plan.fallback project.fallback"
	if got := strings.Join(rules, " "); got != want {
		t.Errorf("got %s", got)
	}
}

func js(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
