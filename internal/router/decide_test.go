package router

import (
	"testing"

	"github.com/dray-dev/dray"
)

// rules are those of the tables below: api is a container that runs anyway, web one that a
// workspace leads to.
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
		kind      dray.EnvironmentKind
		container string
		workspace string
	}{
		{
			name: "nothing says anything", req: Request{Workspace: "/home/me/app"},
			rule: RuleHost, kind: dray.KindHost, workspace: "/home/me/app",
		},
		{name: "no workspace either", req: Request{}, rule: RuleHost, kind: dray.KindHost},
		{
			name: "blank counts as absent", req: Request{
				Container: " ", Workspace: "\t",
				Plan: dray.PlanRouting{Override: "  "},
			},
			rule: RuleHost, kind: dray.KindHost,
		},
		{
			name: "the workspace's devcontainer", folders: app, req: Request{Workspace: "/home/me/app"},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "the nearest of two", folders: []string{"/home/me/app", "/home/me/app/ui"},
			req:  Request{Workspace: "/home/me/app", Cwd: "ui/src"},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app/ui",
		},
		{
			name: "an absolute working folder", folders: []string{"/home/me/app/ui"},
			req:  Request{Workspace: "/home/me/app", Cwd: "/home/me/app/ui/src"},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app/ui",
		},
		{
			name: "not above the workspace", folders: []string{"/home/me"},
			req: Request{Workspace: "/home/me/app"}, rule: RuleHost, kind: dray.KindHost, workspace: "/home/me/app",
		},
		{
			name: "a working folder outside the workspace leads nowhere", folders: []string{
				"/home/me/app",
				"/home/me/application",
			},
			req:  Request{Workspace: "/home/me/app", Cwd: "/home/me/application"},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "a working folder without a workspace is its own", folders: app, req: Request{Cwd: "/home/me/app"},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "the call's container", rules: Rules{Override: "host"}, folders: app, req: Request{Container: "api", Plan: dray.PlanRouting{Override: "host"}},
			rule: RuleCallContainer, kind: dray.KindContainer, container: "api",
		},
		{
			name: "the call's container that the engine knows", req: Request{Container: "0123abcd"},
			rule: RuleCallContainer, kind: dray.KindContainer, container: "0123abcd",
		},
		{
			name: "the call's container and workspace stay together", req: Request{
				Container: "api",
				Workspace: "/home/me/app",
			},
			rule: RuleCallContainer, kind: dray.KindContainer, container: "api", workspace: "/home/me/app",
		},
		{
			name: "a configured container brings its workspace", req: Request{Container: "web"},
			rule: RuleCallContainer, kind: dray.KindContainer, container: "web", workspace: "/srv/web",
		},
		{
			name: "which may be in the call's", req: Request{Container: "web", Workspace: "/srv"},
			rule: RuleCallContainer, kind: dray.KindContainer, container: "web", workspace: "/srv/web",
		},
		{
			name: "the call says host", rules: Rules{Override: "api"}, folders: app, req: Request{Environment: dray.ChooseHost, Workspace: "/home/me/app"},
			rule: RuleCallEnvironment, kind: dray.KindHost, workspace: "/home/me/app",
		},
		{
			name: "the call says container: the override's", rules: Rules{Override: "api"}, folders: app,
			req:  Request{Environment: dray.ChooseContainer, Workspace: "/home/me/app"},
			rule: RuleCallEnvironment, kind: dray.KindContainer, container: "api",
		},
		{
			name: "the call says container: the plan's override first", rules: Rules{Override: "api"},
			req:  Request{Environment: dray.ChooseContainer, Plan: dray.PlanRouting{Override: "web"}},
			rule: RuleCallEnvironment, kind: dray.KindContainer, container: "web", workspace: "/srv/web",
		},
		{
			name: "the call says container: else the workspace's", rules: Rules{
				Override: "host",
				Fallback: "api",
			}, folders: app,
			req:  Request{Environment: dray.ChooseContainer, Workspace: "/home/me/app", Cwd: "src"},
			rule: RuleCallEnvironment, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "the call says container: whose file may be elsewhere", req: Request{Environment: dray.ChooseContainer, Workspace: "/home/me/app"},
			rule: RuleCallEnvironment, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "the call says container: the tool knows which", req: Request{Environment: dray.ChooseContainer, Tool: Requirement{NeedSpecific, "api"}},
			rule: RuleCallEnvironment, kind: dray.KindContainer, container: "api",
		},
		{
			name: "the call's plan overrides the project", rules: Rules{Override: "api"}, folders: app,
			req:  Request{Plan: dray.PlanRouting{Override: "host"}, Workspace: "/home/me/app"},
			rule: RulePlanOverride, kind: dray.KindHost, workspace: "/home/me/app",
		},
		{
			name: "an override may be a folder", req: Request{Plan: dray.PlanRouting{Override: "/srv/other"}},
			rule: RulePlanOverride, kind: dray.KindContainer, workspace: "/srv/other",
		},
		{
			// SE-05: the call cannot undo what is configured for its plan.
			name: "the configured plan goes before the call's", rules: Rules{Plans: plans},
			req:  Request{PlanID: "p", Plan: dray.PlanRouting{Override: "host"}, Workspace: "/home/me/app"},
			rule: RulePlanOverride, kind: dray.KindContainer, container: "api",
		},
		{
			name: "another plan's rules do not hold", rules: Rules{Plans: plans}, req: Request{PlanID: "P"},
			rule: RuleHost, kind: dray.KindHost,
		},
		{
			name: "the call fills in what the plan leaves open", rules: Rules{Plans: map[string]PlanRules{"p": {Fallback: "web"}}},
			req:  Request{PlanID: "p", Plan: dray.PlanRouting{Override: "host"}},
			rule: RulePlanOverride, kind: dray.KindHost,
		},
		{
			name: "the project overrides the devcontainer", rules: Rules{Override: "host"}, folders: app, req: Request{Workspace: "/home/me/app"},
			rule: RuleProjectOverride, kind: dray.KindHost, workspace: "/home/me/app",
		},
		{
			name: "the plan's fallback", rules: Rules{Fallback: "host"}, req: Request{Plan: dray.PlanRouting{Fallback: "api"}},
			rule: RulePlanFallback, kind: dray.KindContainer, container: "api",
		},
		{
			// SE-05
			name: "the configured plan's fallback goes before the call's", rules: Rules{Plans: map[string]PlanRules{"p": {Fallback: "web"}}},
			req:  Request{PlanID: "p", Plan: dray.PlanRouting{Fallback: "host"}},
			rule: RulePlanFallback, kind: dray.KindContainer, container: "web", workspace: "/srv/web",
		},
		{
			name: "no fallback where there is a devcontainer", rules: Rules{Fallback: "api"}, folders: app,
			req:  Request{Plan: dray.PlanRouting{Fallback: "host"}, Workspace: "/home/me/app"},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "the project's fallback", rules: Rules{Fallback: "api"}, req: Request{Workspace: "/home/me/app"},
			rule: RuleProjectFallback, kind: dray.KindContainer, container: "api",
		},
		{
			name: "a tool of host beside a devcontainer", folders: app, req: Request{Workspace: "/home/me/app", Tool: Requirement{Kind: NeedHost}},
			rule: RuleTool, kind: dray.KindHost, workspace: "/home/me/app",
		},
		{
			name: "a tool of host before a fallback", rules: Rules{Fallback: "api"}, req: Request{Tool: Requirement{Kind: NeedHost}},
			rule: RuleTool, kind: dray.KindHost,
		},
		{
			name: "a tool of host that the call sends there", req: Request{
				Environment: dray.ChooseHost,
				Tool:        Requirement{Kind: NeedHost},
			},
			rule: RuleCallEnvironment, kind: dray.KindHost,
		},
		{
			name: "a tool of one container", folders: app, req: Request{
				Workspace: "/home/me/app",
				Tool:      Requirement{NeedSpecific, "web"},
			},
			rule: RuleTool, kind: dray.KindContainer, container: "web", workspace: "/srv/web",
		},
		{
			name: "a tool of one container that the override names too", rules: Rules{Override: "web"}, req: Request{Tool: Requirement{NeedSpecific, "web"}},
			rule: RuleProjectOverride, kind: dray.KindContainer, container: "web", workspace: "/srv/web",
		},
		{
			name: "a tool that requires a container", folders: app, req: Request{
				Workspace: "/home/me/app",
				Tool:      Requirement{Kind: NeedRequired},
			},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "a tool that requires a container takes a fallback's", rules: Rules{Fallback: "api"}, req: Request{Tool: Requirement{Kind: NeedRequired}},
			rule: RuleProjectFallback, kind: dray.KindContainer, container: "api",
		},
		{
			name: "a tool that prefers a container falls back", req: Request{
				Workspace: "/home/me/app",
				Tool:      Requirement{Kind: NeedPreferred},
			},
			rule: RuleHost, kind: dray.KindHost, workspace: "/home/me/app",
		},
		{
			name: "a tool that prefers a container finds one", folders: app, req: Request{Workspace: "/home/me/app", Tool: Requirement{Kind: NeedPreferred}},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "a tool that prefers a container obeys an override", rules: Rules{Override: "host"}, folders: app,
			req:  Request{Workspace: "/home/me/app", Tool: Requirement{Kind: NeedPreferred}},
			rule: RuleProjectOverride, kind: dray.KindHost, workspace: "/home/me/app",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := newRouter(t, tt.rules, tt.folders...).Decide(tt.req)
			if err != nil {
				t.Fatal(err)
			}
			if got.Rule != tt.rule || got.Environment != tt.kind || got.Container != tt.container ||
				got.Workspace != tt.workspace {
				t.Errorf("got %s %s container %q workspace %q, want %s %s %q %q", got.Rule, got.Environment,
					got.Container, got.Workspace,
					tt.rule, tt.kind, tt.container, tt.workspace)
			}
		})
	}
}
