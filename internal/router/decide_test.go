package router

import (
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// rules are those of the tables below: api is a container that runs anyway, web one that a workspace leads to.
var containers = map[string]string{"api": "", "web": "/srv/web"}

// devcontainers answers as a tree would that has a devcontainer in each of the folders.
func devcontainers(folders ...string) func(dir, root string) (string, bool) {
	return func(dir, root string) (string, bool) {
		best := ""
		for _, f := range folders {
			if within(dir, f) && within(f, root) && len(f) > len(best) {
				best = f
			}
		}
		return best, best != ""
	}
}

func newRouter(t *testing.T, rules Rules, folders ...string) *Router {
	t.Helper()
	if rules.Containers == nil {
		rules.Containers = containers
	}
	r, err := New(rules, devcontainers(folders...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// RT-01, EX-01: each rule decides where those above it are silent, and only there.
func TestDecide(t *testing.T) {
	app := []string{"/home/me/app"}
	plans := map[string]PlanRules{"p": {Override: "api", Fallback: "web"}}
	tests := []struct {
		name      string
		rules     Rules
		folders   []string
		req       Request
		rule      string
		kind      dray.Kind
		container string
		workspace string
	}{
		{
			name: "nothing says anything", req: Request{Workspace: "/home/me/app"},
			rule: RuleHost, kind: dray.Host, workspace: "/home/me/app",
		},
		{name: "no workspace either", req: Request{}, rule: RuleHost, kind: dray.Host},
		{
			name: "blank counts as absent", req: Request{Container: " ", Workspace: "\t", Plan: dray.Plan{Override: "  "}},
			rule: RuleHost, kind: dray.Host, workspace: "\t",
		},
		{
			name: "the workspace's devcontainer", folders: app, req: Request{Workspace: "/home/me/app"},
			rule: RuleNearest, kind: dray.Container, workspace: "/home/me/app",
		},
		{
			name: "the nearest of two", folders: []string{"/home/me/app", "/home/me/app/ui"},
			req:  Request{Workspace: "/home/me/app", Cwd: "ui/src"},
			rule: RuleNearest, kind: dray.Container, workspace: "/home/me/app/ui",
		},
		{
			name: "an absolute working folder", folders: []string{"/home/me/app/ui"},
			req:  Request{Workspace: "/home/me/app", Cwd: "/home/me/app/ui/src"},
			rule: RuleNearest, kind: dray.Container, workspace: "/home/me/app/ui",
		},
		{
			name: "not above the workspace", folders: []string{"/home/me"},
			req: Request{Workspace: "/home/me/app"}, rule: RuleHost, kind: dray.Host, workspace: "/home/me/app",
		},
		{
			name: "a working folder outside the workspace leads nowhere", folders: []string{"/home/me/app", "/home/me/application"},
			req:  Request{Workspace: "/home/me/app", Cwd: "/home/me/application"},
			rule: RuleNearest, kind: dray.Container, workspace: "/home/me/app",
		},
		{
			name: "a working folder without a workspace is its own", folders: app, req: Request{Cwd: "/home/me/app"},
			rule: RuleNearest, kind: dray.Container, workspace: "/home/me/app",
		},
		{
			name: "the call's container", rules: Rules{Override: "host"}, folders: app, req: Request{Container: "api", Plan: dray.Plan{Override: "host"}},
			rule: RuleCallContainer, kind: dray.Container, container: "api",
		},
		{
			name: "the call's container that the engine knows", req: Request{Container: "0123abcd"},
			rule: RuleCallContainer, kind: dray.Container, container: "0123abcd",
		},
		{
			name: "the call's container and workspace stay together", req: Request{Container: "web", Workspace: "/home/me/app"},
			rule: RuleCallContainer, kind: dray.Container, container: "web", workspace: "/home/me/app",
		},
		{
			name: "a configured container brings its workspace", req: Request{Container: "web"},
			rule: RuleCallContainer, kind: dray.Container, container: "web", workspace: "/srv/web",
		},
		{
			name: "the call says host", rules: Rules{Override: "api"}, folders: app, req: Request{Environment: dray.ChooseHost, Workspace: "/home/me/app"},
			rule: RuleCallEnvironment, kind: dray.Host, workspace: "/home/me/app",
		},
		{
			name: "the call says container: the override's", rules: Rules{Override: "api"}, folders: app,
			req:  Request{Environment: dray.ChooseContainer, Workspace: "/home/me/app"},
			rule: RuleCallEnvironment, kind: dray.Container, container: "api",
		},
		{
			name: "the call says container: the plan's override first", rules: Rules{Override: "api"},
			req:  Request{Environment: dray.ChooseContainer, Plan: dray.Plan{Override: "web"}},
			rule: RuleCallEnvironment, kind: dray.Container, container: "web", workspace: "/srv/web",
		},
		{
			name: "the call says container: else the workspace's", rules: Rules{Override: "host", Fallback: "api"}, folders: app,
			req:  Request{Environment: dray.ChooseContainer, Workspace: "/home/me/app", Cwd: "src"},
			rule: RuleCallEnvironment, kind: dray.Container, workspace: "/home/me/app",
		},
		{
			name: "the call says container: whose file may be elsewhere", req: Request{Environment: dray.ChooseContainer, Workspace: "/home/me/app"},
			rule: RuleCallEnvironment, kind: dray.Container, workspace: "/home/me/app",
		},
		{
			name: "the call says container: the tool knows which", req: Request{Environment: dray.ChooseContainer, Tool: Need{NeedSpecific, "api"}},
			rule: RuleCallEnvironment, kind: dray.Container, container: "api",
		},
		{
			name: "the call's plan overrides the project", rules: Rules{Override: "api"}, folders: app,
			req:  Request{Plan: dray.Plan{Override: "host"}, Workspace: "/home/me/app"},
			rule: RulePlanOverride, kind: dray.Host, workspace: "/home/me/app",
		},
		{
			name: "an override may be a folder", req: Request{Plan: dray.Plan{Override: "/srv/other"}},
			rule: RulePlanOverride, kind: dray.Container, workspace: "/srv/other",
		},
		{
			// SE-05: the call cannot undo what is configured for its plan.
			name: "the configured plan goes before the call's", rules: Rules{Plans: plans},
			req:  Request{PlanID: "p", Plan: dray.Plan{Override: "host"}, Workspace: "/home/me/app"},
			rule: RulePlanOverride, kind: dray.Container, container: "api",
		},
		{
			name: "another plan's rules do not hold", rules: Rules{Plans: plans}, req: Request{PlanID: "P"},
			rule: RuleHost, kind: dray.Host,
		},
		{
			name: "the call fills in what the plan leaves open", rules: Rules{Plans: map[string]PlanRules{"p": {Fallback: "web"}}},
			req:  Request{PlanID: "p", Plan: dray.Plan{Override: "host"}},
			rule: RulePlanOverride, kind: dray.Host,
		},
		{
			name: "the project overrides the devcontainer", rules: Rules{Override: "host"}, folders: app, req: Request{Workspace: "/home/me/app"},
			rule: RuleProjectOverride, kind: dray.Host, workspace: "/home/me/app",
		},
		{
			name: "the plan's fallback", rules: Rules{Fallback: "host"}, req: Request{Plan: dray.Plan{Fallback: "api"}},
			rule: RulePlanFallback, kind: dray.Container, container: "api",
		},
		{
			// SE-05
			name: "the configured plan's fallback goes before the call's", rules: Rules{Plans: map[string]PlanRules{"p": {Fallback: "web"}}},
			req:  Request{PlanID: "p", Plan: dray.Plan{Fallback: "host"}},
			rule: RulePlanFallback, kind: dray.Container, container: "web", workspace: "/srv/web",
		},
		{
			name: "no fallback where there is a devcontainer", rules: Rules{Fallback: "api"}, folders: app,
			req:  Request{Plan: dray.Plan{Fallback: "host"}, Workspace: "/home/me/app"},
			rule: RuleNearest, kind: dray.Container, workspace: "/home/me/app",
		},
		{
			name: "the project's fallback", rules: Rules{Fallback: "api"}, req: Request{Workspace: "/home/me/app"},
			rule: RuleProjectFallback, kind: dray.Container, container: "api",
		},
		{
			name: "a tool of host beside a devcontainer", folders: app, req: Request{Workspace: "/home/me/app", Tool: Need{Kind: NeedHost}},
			rule: RuleTool, kind: dray.Host, workspace: "/home/me/app",
		},
		{
			name: "a tool of host before a fallback", rules: Rules{Fallback: "api"}, req: Request{Tool: Need{Kind: NeedHost}},
			rule: RuleTool, kind: dray.Host,
		},
		{
			name: "a tool of host that the call sends there", req: Request{Environment: dray.ChooseHost, Tool: Need{Kind: NeedHost}},
			rule: RuleCallEnvironment, kind: dray.Host,
		},
		{
			name: "a tool of one container", folders: app, req: Request{Workspace: "/home/me/app", Tool: Need{NeedSpecific, "web"}},
			rule: RuleTool, kind: dray.Container, container: "web", workspace: "/srv/web",
		},
		{
			name: "a tool of one container that the override names too", rules: Rules{Override: "web"}, req: Request{Tool: Need{NeedSpecific, "web"}},
			rule: RuleProjectOverride, kind: dray.Container, container: "web", workspace: "/srv/web",
		},
		{
			name: "a tool that requires a container", folders: app, req: Request{Workspace: "/home/me/app", Tool: Need{Kind: NeedRequired}},
			rule: RuleNearest, kind: dray.Container, workspace: "/home/me/app",
		},
		{
			name: "a tool that requires a container takes a fallback's", rules: Rules{Fallback: "api"}, req: Request{Tool: Need{Kind: NeedRequired}},
			rule: RuleProjectFallback, kind: dray.Container, container: "api",
		},
		{
			name: "a tool that prefers a container falls back", req: Request{Workspace: "/home/me/app", Tool: Need{Kind: NeedPreferred}},
			rule: RuleHost, kind: dray.Host, workspace: "/home/me/app",
		},
		{
			name: "a tool that prefers a container finds one", folders: app, req: Request{Workspace: "/home/me/app", Tool: Need{Kind: NeedPreferred}},
			rule: RuleNearest, kind: dray.Container, workspace: "/home/me/app",
		},
		{
			name: "a tool that prefers a container obeys an override", rules: Rules{Override: "host"}, folders: app,
			req:  Request{Workspace: "/home/me/app", Tool: Need{Kind: NeedPreferred}},
			rule: RuleProjectOverride, kind: dray.Host, workspace: "/home/me/app",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := newRouter(t, tt.rules, tt.folders...).Decide(tt.req)
			if err != nil {
				t.Fatal(err)
			}
			if got.Rule != tt.rule || got.Environment != tt.kind || got.Container != tt.container || got.Workspace != tt.workspace {
				t.Errorf("got %s %s container %q workspace %q, want %s %s %q %q", got.Rule, got.Environment, got.Container, got.Workspace,
					tt.rule, tt.kind, tt.container, tt.workspace)
			}
		})
	}
}

// RT-01, RT-02, EX-01, EX-02, SE-05: what cannot be decided is refused with a code and both rules, and never run on the host.
func TestDecideRefuses(t *testing.T) {
	tests := []struct {
		name    string
		rules   Rules
		folders []string
		req     Request
		code    dray.Code
		says    []string
	}{
		{
			"a malformed container",
			Rules{},
			nil,
			Request{Container: "../x"},
			dray.CodeInvalidRequest,
			[]string{"../x"},
		},
		{
			"a container's name is not trimmed",
			Rules{},
			nil,
			Request{Container: " api"},
			dray.CodeInvalidRequest,
			nil,
		},
		{
			"an unknown environment",
			Rules{},
			nil,
			Request{Environment: "docker"},
			dray.CodeInvalidRequest,
			[]string{"docker"},
		},
		{
			"a malformed override",
			Rules{},
			nil,
			Request{Plan: dray.Plan{Override: "-x"}},
			dray.CodeInvalidRequest,
			[]string{"plan.override"},
		},
		{
			"a malformed fallback that is never looked at",
			Rules{Override: "api"},
			nil,
			Request{Plan: dray.Plan{Fallback: "/a/../b"}},
			dray.CodeInvalidRequest,
			[]string{"plan.fallback"},
		},
		{
			"an unknown override",
			Rules{},
			nil,
			Request{Plan: dray.Plan{Override: "apx"}},
			dray.CodeContainerNotFound,
			[]string{"apx", "plan.override"},
		},
		{
			"an unknown fallback",
			Rules{},
			nil,
			Request{Plan: dray.Plan{Fallback: "Host"}},
			dray.CodeContainerNotFound,
			[]string{"Host"},
		},
		{
			"a container of nothing",
			Rules{Fallback: "api"},
			nil,
			Request{Environment: dray.ChooseContainer},
			dray.CodeInvalidRequest,
			[]string{"workspace"},
		},
		{
			"a container on the host",
			Rules{},
			nil,
			Request{Environment: dray.ChooseHost, Container: "api"},
			dray.CodeRouteConflict,
			[]string{RuleCallContainer, RuleCallEnvironment},
		},
		{
			"a tool of host, sent into a container",
			Rules{},
			nil,
			Request{Container: "api", Tool: Need{Kind: NeedHost}},
			dray.CodeRouteConflict,
			[]string{RuleCallContainer, RuleTool},
		},
		{
			"a tool of host, overridden",
			Rules{Override: "api"},
			nil,
			Request{Tool: Need{Kind: NeedHost}},
			dray.CodeRouteConflict,
			[]string{RuleProjectOverride, RuleTool},
		},
		{
			"a tool that requires a container, sent to the host",
			Rules{},
			[]string{"/a"},
			Request{Workspace: "/a", Environment: dray.ChooseHost, Tool: Need{Kind: NeedRequired}},
			dray.CodeRouteConflict,
			[]string{RuleCallEnvironment, RuleTool},
		},
		{
			"a tool that requires a container, fallen back to the host",
			Rules{Fallback: "host"},
			nil,
			Request{Workspace: "/a", Tool: Need{Kind: NeedRequired}},
			dray.CodeRouteConflict,
			[]string{RuleProjectFallback, RuleTool},
		},
		{
			"a tool that requires a container where there is none",
			Rules{},
			nil,
			Request{Workspace: "/a", Tool: Need{Kind: NeedRequired}},
			dray.CodeRouteConflict,
			[]string{RuleHost, RuleTool},
		},
		{
			"a tool of another container",
			Rules{},
			nil,
			Request{Container: "api", Tool: Need{NeedSpecific, "web"}},
			dray.CodeRouteConflict,
			[]string{"api", "web", RuleTool},
		},
		{
			"a tool of one container, overridden to the host",
			Rules{Override: "host"},
			nil,
			Request{Tool: Need{NeedSpecific, "web"}},
			dray.CodeRouteConflict,
			[]string{RuleProjectOverride, RuleTool},
		},
		{
			"a tool of an unknown container",
			Rules{},
			nil,
			Request{Workspace: "/a", Tool: Need{NeedSpecific, "db"}},
			dray.CodeContainerNotFound,
			[]string{"db"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			route, err := newRouter(t, tt.rules, tt.folders...).Decide(tt.req)
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

// A value of the call that is malformed is pointed at in the caller's own JSON.
func TestDecidePoints(t *testing.T) {
	for pointer, req := range map[string]Request{
		"/container":     {Container: "a b"},
		"/environment":   {Environment: "x"},
		"/plan/override": {Plan: dray.Plan{Override: "a b"}},
		"/plan/fallback": {Plan: dray.Plan{Fallback: "a\x00"}},
	} {
		_, err := newRouter(t, Rules{}).Decide(req)
		if d := dray.AsError(err).Details; len(d) != 1 || d[0].Pointer != pointer {
			t.Errorf("want a pointer to %s, got %v", pointer, d)
		}
	}
}
