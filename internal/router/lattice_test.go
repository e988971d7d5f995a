package router

import (
	"slices"
	"testing"

	"github.com/dray-dev/dray"
)

// TestRoute_AllCombinations compares every combination of rule values with an independent
// formulation of RT-01 (RT-01, RT-02).
func TestRoute_AllCombinations(t *testing.T) { // RT-01, RT-02
	said := []string{"", "host", "api"}
	needs := []dray.Requirement{
		{Kind: dray.RequireAny},
		{Kind: dray.RequireHost},
		{Kind: dray.RequireContainer},
		{Kind: dray.PreferContainer},
		{Kind: dray.RequireSpecific, Container: "api"},
		{Kind: dray.RequireSpecific, Container: "web"},
	}
	tried := 0
	for _, configured := range pairs(said) {
		for _, project := range pairs(said) {
			rules := Rules{
				Override: project[0], Fallback: project[1], Containers: containers,
				Plans: map[string]PlanRules{"p": {Override: configured[0], Fallback: configured[1]}},
			}
			for _, found := range []bool{false, true} {
				r := newRouter(t, rules, map[bool][]string{true: {"/ws"}}[found]...)
				for _, req := range requests(said, needs) {
					check(t, r, rules, found, req)
					tried++
				}
			}
		}
	}
	if tried < 100_000 {
		t.Errorf("only %d combinations were tried", tried)
	}
}

func pairs(values []string) (all [][2]string) {
	for _, a := range values {
		for _, b := range values {
			all = append(all, [2]string{a, b})
		}
	}
	return all
}

func requests(said []string, needs []dray.Requirement) (all []call) {
	for _, plan := range pairs(said) {
		for _, container := range []string{"", "api"} {
			for _, choice := range []dray.EnvironmentChoice{
				dray.ChooseAuto, dray.ChooseHost,
				dray.ChooseContainer,
			} {
				for _, workspace := range []string{"", "/ws"} {
					for _, need := range needs {
						all = append(all, call{
							Container: container, Environment: choice, Workspace: workspace, PlanID: "p",
							Plan: dray.PlanRouting{Override: plan[0], Fallback: plan[1]}, Tool: need,
						})
					}
				}
			}
		}
	}
	return all
}

func check(t *testing.T, r *Router, rules Rules, found bool, req call) {
	t.Helper()
	want := expect(rules, found && req.Workspace != "", req)
	route, err := decide(r, req)
	got := outcome{rule: route.Rule, place: string(route.Environment), code: codeOf(err)}
	if route.Environment == dray.KindContainer {
		got.place = route.Container + "@" + route.Workspace
	}
	if got != want {
		t.Fatalf("%+v under %+v, devcontainer %v:\n got %+v\nwant %+v", req, rules, found, got, want)
	}
	if err == nil && route.Environment == dray.KindHost && !saysHost(rules, req, route.Rule) {
		// RT-02
		t.Fatalf("%+v under %+v runs on the host by %s, which does not say so", req, rules, route.Rule)
	}
	if err == nil && route.Candidates[len(route.Candidates)-1].Rule != route.Rule {
		t.Fatalf("%+v: the last candidate is not the rule that decided", req)
	}
}

func codeOf(err error) dray.Code {
	if err == nil {
		return ""
	}
	return dray.CodeOf(err)
}

// outcome is a rule and a target ("host", or container@workspace), or a code.
type outcome struct {
	rule, place string
	code        dray.Code
}

// expect is RT-01 as a table: the value of each rule, from the strongest to the weakest.
func expect(rules Rules, devcontainer bool, req call) outcome {
	if req.Container != "" && req.Environment == dray.ChooseHost {
		return outcome{code: dray.CodeRouteConflict}
	}
	place := map[string]string{"host": "host", "api": "api@", "web": "web@/srv/web"}
	said := []outcome{
		{rule: RuleCallContainer, place: map[bool]string{true: "api@" +
			req.Workspace}[req.Container != ""]},
		{rule: RuleCallEnvironment, place: map[dray.EnvironmentChoice]string{
			dray.ChooseHost:      "host",
			dray.ChooseContainer: meant(rules, req),
		}[req.Environment]},
		{rule: RulePlanOverride, place: place[rules.Plans["p"].Override]},
		{rule: RulePlanOverride, place: place[req.Plan.Override]},
		{rule: RuleProjectOverride, place: place[rules.Override]},
		{rule: RuleTool, place: map[dray.RequirementKind]string{
			dray.RequireHost:     "host",
			dray.RequireSpecific: place[req.Tool.Container],
		}[req.Tool.Kind]},
		{rule: RuleNearest, place: map[bool]string{true: "@/ws"}[devcontainer]},
		{rule: RulePlanFallback, place: place[rules.Plans["p"].Fallback]},
		{rule: RulePlanFallback, place: place[req.Plan.Fallback]},
		{rule: RuleProjectFallback, place: place[rules.Fallback]},
		{rule: RuleHost, place: "host"},
	}
	first := said[slices.IndexFunc(said, func(o outcome) bool { return o.place != "" })]
	switch {
	case first.place == "nothing":
		return outcome{code: dray.CodeInvalidRequest}
	case !fits(req.Tool, first.place):
		return outcome{code: dray.CodeRouteConflict}
	default:
		return first
	}
}

// meant is the container of a call that requests a container without naming it: the first one in
// the overrides, else the tool's, else the workspace's.
func meant(rules Rules, req call) string {
	overrides := []string{req.Plan.Override, rules.Override}
	if o := rules.Plans["p"].Override; o != "" {
		overrides[0] = o
	}
	switch {
	case slices.Contains(overrides, "api"):
		return "api@"
	case req.Tool.Kind == dray.RequireSpecific:
		return map[string]string{"api": "api@", "web": "web@/srv/web"}[req.Tool.Container]
	case req.Workspace != "":
		return "@/ws"
	default:
		return "nothing"
	}
}

func fits(need dray.Requirement, place string) bool {
	switch need.Kind {
	case dray.RequireHost:
		return place == "host"
	case dray.RequireContainer:
		return place != "host"
	case dray.RequireSpecific:
		return len(place) >= 4 && place[:4] == need.Container+"@"
	default:
		return true
	}
}

// saysHost is RT-02: a rule that decided for the host must name the host, and the last rule decides
// only if no rule names anything.
func saysHost(rules Rules, req call, rule string) bool {
	plan := rules.Plans["p"]
	switch rule {
	case RuleCallEnvironment:
		return req.Environment == dray.ChooseHost
	case RulePlanOverride:
		return plan.Override == "host" || plan.Override == "" && req.Plan.Override == "host"
	case RuleProjectOverride:
		return rules.Override == "host"
	case RuleTool:
		return req.Tool.Kind == dray.RequireHost
	case RulePlanFallback:
		return plan.Fallback == "host" || plan.Fallback == "" && req.Plan.Fallback == "host"
	case RuleProjectFallback:
		return rules.Fallback == "host"
	case RuleHost:
		named := []string{
			plan.Override, plan.Fallback, req.Plan.Override, req.Plan.Fallback,
			rules.Override, rules.Fallback, req.Container,
		}
		return !slices.ContainsFunc(named, func(s string) bool { return s != "" }) &&
			req.Environment != dray.ChooseContainer
	default:
		return false
	}
}
