package router

import (
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// A call that cannot be routed is refused with a code and both rules, and never runs on the host
// (RT-01, RT-02, EX-01, EX-02, SE-05).
func TestRouteRefuses(t *testing.T) {
	tests := []struct {
		name    string
		rules   Rules
		folders []string
		req     call
		code    dray.Code
		says    []string
	}{
		{
			"a malformed container",
			Rules{},
			nil,
			call{Container: "../x"},
			dray.CodeInvalidRequest,
			[]string{"../x"},
		},
		{
			"a container's name is not trimmed",
			Rules{},
			nil,
			call{Container: " api"},
			dray.CodeInvalidRequest,
			nil,
		},
		{
			"an unknown environment",
			Rules{},
			nil,
			call{Environment: "docker"},
			dray.CodeInvalidRequest,
			[]string{"docker"},
		},
		{
			"a malformed override",
			Rules{},
			nil,
			call{Plan: dray.PlanRouting{Override: "-x"}},
			dray.CodeInvalidRequest,
			[]string{"plan.override"},
		},
		{
			"a malformed fallback that is never looked at",
			Rules{Override: "api"},
			nil,
			call{Plan: dray.PlanRouting{Fallback: "/a/../b"}},
			dray.CodeInvalidRequest,
			[]string{"plan.fallback"},
		},
		{
			"an unknown override",
			Rules{},
			nil,
			call{Plan: dray.PlanRouting{Override: "apx"}},
			dray.CodeContainerNotFound,
			[]string{"apx", "plan.override"},
		},
		{
			"an unknown fallback",
			Rules{},
			nil,
			call{Plan: dray.PlanRouting{Fallback: "Host"}},
			dray.CodeContainerNotFound,
			[]string{"Host"},
		},
		{
			"a container of nothing",
			Rules{Fallback: "api"},
			nil,
			call{Environment: dray.ChooseContainer},
			dray.CodeInvalidRequest,
			[]string{"workspace"},
		},
		{
			"a container on the host",
			Rules{},
			nil,
			call{Environment: dray.ChooseHost, Container: "api"},
			dray.CodeRouteConflict,
			[]string{RuleCallContainer, RuleCallEnvironment},
		},
		{
			"a container of another workspace",
			Rules{},
			nil,
			call{Container: "web", Workspace: "/srv/website"},
			dray.CodeRouteConflict,
			[]string{RuleCallContainer, RuleCallWorkspace, "/srv/web,", "/srv/website"},
		},
		{
			"a tool of host, sent into a container",
			Rules{},
			nil,
			call{Container: "api", Tool: dray.Requirement{Kind: dray.RequireHost}},
			dray.CodeRouteConflict,
			[]string{RuleCallContainer, RuleTool},
		},
		{
			"a tool of host, overridden",
			Rules{Override: "api"},
			nil,
			call{Tool: dray.Requirement{Kind: dray.RequireHost}},
			dray.CodeRouteConflict,
			[]string{RuleProjectOverride, RuleTool},
		},
		{
			"a tool of host, overridden by the plan",
			Rules{},
			nil,
			call{
				Workspace: "/a", Plan: dray.PlanRouting{Override: "api"},
				Tool: dray.Requirement{Kind: dray.RequireHost},
			},
			dray.CodeRouteConflict,
			[]string{RulePlanOverride, RuleTool},
		},
		{
			"a tool of host, whose call requests a container",
			Rules{},
			[]string{"/a"},
			call{
				Workspace: "/a", Environment: dray.ChooseContainer,
				Tool: dray.Requirement{Kind: dray.RequireHost},
			},
			dray.CodeRouteConflict,
			[]string{RuleCallEnvironment, RuleTool},
		},
		{
			"a tool that requires a container, sent to the host",
			Rules{},
			[]string{"/a"},
			call{
				Workspace: "/a", Environment: dray.ChooseHost,
				Tool: dray.Requirement{Kind: dray.RequireContainer},
			},
			dray.CodeRouteConflict,
			[]string{RuleCallEnvironment, RuleTool},
		},
		{
			"a tool that requires a container, fallen back to the host",
			Rules{Fallback: "host"},
			nil,
			call{Workspace: "/a", Tool: dray.Requirement{Kind: dray.RequireContainer}},
			dray.CodeRouteConflict,
			[]string{RuleProjectFallback, RuleTool},
		},
		{
			"a tool that requires a container where there is none",
			Rules{},
			nil,
			call{Workspace: "/a", Tool: dray.Requirement{Kind: dray.RequireContainer}},
			dray.CodeRouteConflict,
			[]string{RuleHost, RuleTool},
		},
		{
			"a tool of another container",
			Rules{},
			nil,
			call{Container: "api", Tool: dray.Requirement{Kind: dray.RequireSpecific, Container: "web"}},
			dray.CodeRouteConflict,
			[]string{"api", "web", RuleTool},
		},
		{
			"a tool of one container, overridden to the host",
			Rules{Override: "host"},
			nil,
			call{Tool: dray.Requirement{Kind: dray.RequireSpecific, Container: "web"}},
			dray.CodeRouteConflict,
			[]string{RuleProjectOverride, RuleTool},
		},
		{
			"a tool of an unknown container",
			Rules{},
			nil,
			call{Workspace: "/a", Tool: dray.Requirement{Kind: dray.RequireSpecific, Container: "db"}},
			dray.CodeContainerNotFound,
			[]string{"db"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			route, err := decide(newRouter(t, tt.rules, tt.folders...), tt.req)
			if err == nil {
				t.Fatalf("decided for %s by %s", route.Environment, route.Rule)
			}
			e := dray.AsError(err)
			if e.Code != tt.code || e.Hint == "" {
				t.Errorf("got code %q with hint %q, want %q with a hint", e.Code, e.Hint, tt.code)
			}
			for _, s := range tt.says {
				if !strings.Contains(e.Message, s) {
					t.Errorf("%q does not name %q", e.Message, s)
				}
			}
			if route.Environment != "" || route.Candidates == nil {
				t.Errorf("beside an error the route is %+v", route)
			}
		})
	}
}

// The hint of a conflict is that of the requirement, if it has one.
func TestRoute_HintOfRequirement(t *testing.T) {
	need := dray.Requirement{Kind: dray.RequireHost, Hint: "set runtime"}
	_, err := decide(newRouter(t, Rules{}), call{Container: "api", Tool: need})
	if e := dray.AsError(err); e == nil || e.Hint != need.Hint {
		t.Errorf("got %v with hint %q", err, e.Hint)
	}
}

// The error of a malformed value points into the caller's JSON.
func TestRoute_ErrorPointers(t *testing.T) {
	for pointer, req := range map[string]call{
		"/container":     {Container: "a b"},
		"/environment":   {Environment: "x"},
		"/plan/override": {Plan: dray.PlanRouting{Override: "a b"}},
		"/plan/fallback": {Plan: dray.PlanRouting{Fallback: "a\x00"}},
	} {
		_, err := decide(newRouter(t, Rules{}), req)
		if d := dray.AsError(err).Details; len(d) != 1 || d[0].Pointer != pointer {
			t.Errorf("want a pointer to %s, got %v", pointer, d)
		}
	}
}
