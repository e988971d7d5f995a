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
		if _, err := New(rules, nil, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error about %s, got %v", says, err)
		}
	}
}

// RT-03: execution decides as the dry run does, and the result carries the decision, errors
// included.
func TestExecutor(t *testing.T) {
	r, err := New(Rules{Containers: containers}, devcontainers("/ws"),
		func(tool string) (Requirement, error) {
			return map[string]Requirement{"exec": {}, "lint": {Kind: NeedHost}}[tool], nil
		})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken further inside")
	var seen dray.Route
	inner := dray.ExecutorFunc(func(_ context.Context, call dray.Call, _ dray.Sink) (dray.Result,
		error,
	) {
		seen = call.Route
		return dray.Result{Reason: dray.ReasonExited}, broken
	})
	inv := dray.Invocation{Tool: "exec", Workspace: "/ws"}
	res, err := r.Executor(inner).Execute(t.Context(), dray.Call{Invocation: inv}, dray.Discard)
	if !errors.Is(err, broken) || res.Reason != dray.ReasonExited {
		t.Errorf("the inner end was lost: %v, %v", res.Reason, err)
	}
	dry, _ := r.Route(inv)
	for _, got := range []dray.Route{seen, res.Route} {
		if js(t, got) != js(t, dry) || got.Rule != RuleNearest {
			t.Errorf("routed %s, and the dry run says %s", js(t, got), js(t, dry))
		}
	}

	decided := dray.Route{Environment: dray.KindHost, Rule: RuleHost}
	res, _ = r.Executor(inner).Execute(t.Context(), dray.Call{Invocation: inv, Route: decided},
		dray.Discard)
	if js(t, seen) != js(t, decided) || js(t, res.Route) != js(t, decided) {
		t.Errorf("decided as %s, it went to %s", js(t, decided), js(t, seen))
	}

	seen = dray.Route{}
	inv = dray.Invocation{Tool: "lint", Container: "api"}
	res, err = r.Executor(inner).Execute(t.Context(), dray.Call{Invocation: inv}, dray.Discard)
	if dray.CodeOf(err) != dray.CodeRouteConflict || seen.Rule != "" {
		t.Errorf("a conflict gave %v, and the inner executor saw %q", err, seen.Rule)
	}
	if dry, _ := r.Route(inv); js(t, res.Route) != js(t, dry) || len(res.Route.Candidates) == 0 {
		t.Errorf("the refusal carries %s, and the dry run says %s", js(t, res.Route), js(t, dry))
	}
}

func TestRouteOfUnknownTool(t *testing.T) {
	unknown := dray.Errorf(dray.CodeUnknownTool, "no such tool")
	r, err := New(Rules{}, devcontainers(),
		func(string) (Requirement, error) { return Requirement{}, unknown })
	if err != nil {
		t.Fatal(err)
	}
	route, err := r.Route(dray.Invocation{Tool: "x"})
	if !errors.Is(err, unknown) || js(t, route) != `{"environment":"","rule":"","candidates":[]}` {
		t.Errorf("got %s and %v", js(t, route), err)
	}
}

// Candidates tell the whole way, in the order of precedence.
func TestCandidates(t *testing.T) { // RT-03
	route, err := newRouter(t, Rules{Fallback: "api"}).
		Decide(Request{Workspace: "/ws", Tool: Requirement{Kind: NeedPreferred}})
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

func TestParseNeed(t *testing.T) {
	tests := []struct {
		word, specific string
		want           Requirement
		json           string
	}{
		{"", "", Requirement{Kind: NeedAuto}, `"auto"`},
		{"auto", "", Requirement{Kind: NeedAuto}, `"auto"`},
		{"host", "", Requirement{Kind: NeedHost}, `"host"`},
		{"required", "", Requirement{Kind: NeedRequired}, `"required"`},
		{"container", "", Requirement{Kind: NeedRequired}, `"required"`},
		{"preferred", "", Requirement{Kind: NeedPreferred}, `"preferred"`},
		{"", "api", Requirement{NeedSpecific, "api"}, `{"specific":"api"}`},
	}
	for _, tt := range tests {
		got, err := ParseRequirement(tt.word, tt.specific)
		if err != nil || got != tt.want || js(t, got) != tt.json {
			t.Errorf("ParseNeed(%q, %q) = %s, %v", tt.word, tt.specific, js(t, got), err)
		}
	}
	for _, bad := range [][2]string{{"Host", ""}, {"specific", ""}, {"", "a b"}, {"host", "api"}} {
		if got, err := ParseRequirement(bad[0], bad[1]); err == nil {
			t.Errorf("ParseNeed(%q, %q) = %v, want an error", bad[0], bad[1], got)
		}
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
