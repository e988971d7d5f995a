package router

import (
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

// Candidates are all evaluated rules in order of precedence.
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
	want := "call.container call.environment plan.override project.override tool.environment " +
		"devcontainer.nearest plan.fallback project.fallback"
	if got := strings.Join(rules, " "); got != want {
		t.Errorf("got %s", got)
	}
}
