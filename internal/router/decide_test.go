package router

import (
	"context"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// containers are the configured containers of the tests: api without a workspace, web with one.
var containers = map[string]string{"api": "", "web": "/srv/web"}

// devcontainers returns a search for directories that have a devcontainer.
func devcontainers(folders ...string) nearestFunc {
	return func(_ context.Context, dir, root string) (string, bool) {
		best := ""
		for _, f := range folders {
			if lexical.Contains(f, dir) && lexical.Contains(root, f) && len(f) > len(best) {
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
	r, err := New(rules, devcontainers(folders...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// call is what a route depends on: a part of an invocation, and the requirement of its tool.
type call struct {
	Container      string
	Environment    dray.EnvironmentChoice
	Workspace, Cwd string
	PlanID         string
	Plan           dray.PlanRouting
	Tool           dray.Requirement
}

func decide(r *Router, c call) (dray.Route, error) {
	return r.Route(context.Background(), dray.Invocation{
		Container: c.Container, Environment: c.Environment, Workspace: c.Workspace, Cwd: c.Cwd,
		Context: dray.CallContext{PlanID: c.PlanID}, Plan: c.Plan,
	}, c.Tool)
}

// Each rule decides if the rules above it do not match (RT-01, EX-01).
func TestRoute(t *testing.T) {
	app := []string{"/home/me/app"}
	plans := map[string]PlanRules{"p": {Override: "api", Fallback: "web"}}
	tests := []struct {
		name      string
		rules     Rules
		folders   []string
		req       call
		rule      string
		kind      dray.EnvironmentKind
		container string
		workspace string
	}{
		{
			name: "nothing says anything", req: call{Workspace: "/home/me/app"},
			rule: RuleHost, kind: dray.KindHost, workspace: "/home/me/app",
		},
		{name: "no workspace either", req: call{}, rule: RuleHost, kind: dray.KindHost},
		{
			name: "blank counts as absent", req: call{
				Container: " ", Workspace: "\t",
				Plan: dray.PlanRouting{Override: "  "},
			},
			rule: RuleHost, kind: dray.KindHost,
		},
		{
			name: "the workspace's devcontainer", folders: app, req: call{Workspace: "/home/me/app"},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "the nearest of two", folders: []string{"/home/me/app", "/home/me/app/ui"},
			req:  call{Workspace: "/home/me/app", Cwd: "ui/src"},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app/ui",
		},
		{
			name: "an absolute working folder", folders: []string{"/home/me/app/ui"},
			req:  call{Workspace: "/home/me/app", Cwd: "/home/me/app/ui/src"},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app/ui",
		},
		{
			name: "not above the workspace", folders: []string{"/home/me"},
			req: call{Workspace: "/home/me/app"}, rule: RuleHost, kind: dray.KindHost, workspace: "/home/me/app",
		},
		{
			name: "a working folder outside the workspace leads nowhere", folders: []string{
				"/home/me/app",
				"/home/me/application",
			},
			req:  call{Workspace: "/home/me/app", Cwd: "/home/me/application"},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "a working folder without a workspace is its own", folders: app, req: call{Cwd: "/home/me/app"},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "the call's container", rules: Rules{Override: "host"}, folders: app, req: call{Container: "api", Plan: dray.PlanRouting{Override: "host"}},
			rule: RuleCallContainer, kind: dray.KindContainer, container: "api",
		},
		{
			name: "the call's container that the engine knows", req: call{Container: "0123abcd"},
			rule: RuleCallContainer, kind: dray.KindContainer, container: "0123abcd",
		},
		{
			name: "the call's container and workspace stay together", req: call{
				Container: "api",
				Workspace: "/home/me/app",
			},
			rule: RuleCallContainer, kind: dray.KindContainer, container: "api", workspace: "/home/me/app",
		},
		{
			name: "a configured container brings its workspace", req: call{Container: "web"},
			rule: RuleCallContainer, kind: dray.KindContainer, container: "web", workspace: "/srv/web",
		},
		{
			name: "which may be in the call's", req: call{Container: "web", Workspace: "/srv"},
			rule: RuleCallContainer, kind: dray.KindContainer, container: "web", workspace: "/srv/web",
		},
		{
			name: "the call says host", rules: Rules{Override: "api"}, folders: app, req: call{Environment: dray.ChooseHost, Workspace: "/home/me/app"},
			rule: RuleCallEnvironment, kind: dray.KindHost, workspace: "/home/me/app",
		},
		{
			name: "the call says container: the override's", rules: Rules{Override: "api"}, folders: app,
			req:  call{Environment: dray.ChooseContainer, Workspace: "/home/me/app"},
			rule: RuleCallEnvironment, kind: dray.KindContainer, container: "api",
		},
		{
			name: "the call says container: the plan's override first", rules: Rules{Override: "api"},
			req:  call{Environment: dray.ChooseContainer, Plan: dray.PlanRouting{Override: "web"}},
			rule: RuleCallEnvironment, kind: dray.KindContainer, container: "web", workspace: "/srv/web",
		},
		{
			name: "the call says container: else the workspace's", rules: Rules{
				Override: "host",
				Fallback: "api",
			}, folders: app,
			req:  call{Environment: dray.ChooseContainer, Workspace: "/home/me/app", Cwd: "src"},
			rule: RuleCallEnvironment, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "the call says container: whose file may be elsewhere", req: call{Environment: dray.ChooseContainer, Workspace: "/home/me/app"},
			rule: RuleCallEnvironment, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "the call says container: the tool knows which", req: call{Environment: dray.ChooseContainer, Tool: dray.Requirement{Kind: dray.RequireSpecific, Container: "api"}},
			rule: RuleCallEnvironment, kind: dray.KindContainer, container: "api",
		},
		{
			name: "the call's plan overrides the project", rules: Rules{Override: "api"}, folders: app,
			req:  call{Plan: dray.PlanRouting{Override: "host"}, Workspace: "/home/me/app"},
			rule: RulePlanOverride, kind: dray.KindHost, workspace: "/home/me/app",
		},
		{
			name: "an override may be a folder", req: call{Plan: dray.PlanRouting{Override: "/srv/other"}},
			rule: RulePlanOverride, kind: dray.KindContainer, workspace: "/srv/other",
		},
		{
			// the call cannot override the configuration of its plan (SE-05)
			name: "the configured plan goes before the call's", rules: Rules{Plans: plans},
			req:  call{PlanID: "p", Plan: dray.PlanRouting{Override: "host"}, Workspace: "/home/me/app"},
			rule: RulePlanOverride, kind: dray.KindContainer, container: "api",
		},
		{
			name: "another plan's rules do not hold", rules: Rules{Plans: plans}, req: call{PlanID: "P"},
			rule: RuleHost, kind: dray.KindHost,
		},
		{
			name: "the call fills in what the plan leaves open", rules: Rules{Plans: map[string]PlanRules{"p": {Fallback: "web"}}},
			req:  call{PlanID: "p", Plan: dray.PlanRouting{Override: "host"}},
			rule: RulePlanOverride, kind: dray.KindHost,
		},
		{
			name: "the project overrides the devcontainer", rules: Rules{Override: "host"}, folders: app, req: call{Workspace: "/home/me/app"},
			rule: RuleProjectOverride, kind: dray.KindHost, workspace: "/home/me/app",
		},
		{
			name: "the plan's fallback", rules: Rules{Fallback: "host"}, req: call{Plan: dray.PlanRouting{Fallback: "api"}},
			rule: RulePlanFallback, kind: dray.KindContainer, container: "api",
		},
		{
			// SE-05
			name: "the configured plan's fallback goes before the call's", rules: Rules{Plans: map[string]PlanRules{"p": {Fallback: "web"}}},
			req:  call{PlanID: "p", Plan: dray.PlanRouting{Fallback: "host"}},
			rule: RulePlanFallback, kind: dray.KindContainer, container: "web", workspace: "/srv/web",
		},
		{
			name: "no fallback where there is a devcontainer", rules: Rules{Fallback: "api"}, folders: app,
			req:  call{Plan: dray.PlanRouting{Fallback: "host"}, Workspace: "/home/me/app"},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "the project's fallback", rules: Rules{Fallback: "api"}, req: call{Workspace: "/home/me/app"},
			rule: RuleProjectFallback, kind: dray.KindContainer, container: "api",
		},
		{
			name: "a tool of host beside a devcontainer", folders: app, req: call{
				Workspace: "/home/me/app",
				Tool:      dray.Requirement{Kind: dray.RequireHost},
			},
			rule: RuleTool, kind: dray.KindHost, workspace: "/home/me/app",
		},
		{
			name: "a tool of host before a fallback", rules: Rules{Fallback: "api"}, req: call{Tool: dray.Requirement{Kind: dray.RequireHost}},
			rule: RuleTool, kind: dray.KindHost,
		},
		{
			name: "a tool of host that the call sends there", req: call{
				Environment: dray.ChooseHost,
				Tool:        dray.Requirement{Kind: dray.RequireHost},
			},
			rule: RuleCallEnvironment, kind: dray.KindHost,
		},
		{
			name: "a tool of one container", folders: app, req: call{
				Workspace: "/home/me/app",
				Tool:      dray.Requirement{Kind: dray.RequireSpecific, Container: "web"},
			},
			rule: RuleTool, kind: dray.KindContainer, container: "web", workspace: "/srv/web",
		},
		{
			name: "a tool of one container that the override names too", rules: Rules{Override: "web"}, req: call{Tool: dray.Requirement{Kind: dray.RequireSpecific, Container: "web"}},
			rule: RuleProjectOverride, kind: dray.KindContainer, container: "web", workspace: "/srv/web",
		},
		{
			name: "a tool that requires a container", folders: app, req: call{
				Workspace: "/home/me/app",
				Tool:      dray.Requirement{Kind: dray.RequireContainer},
			},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "a tool that requires a container takes a fallback's", rules: Rules{Fallback: "api"}, req: call{Tool: dray.Requirement{Kind: dray.RequireContainer}},
			rule: RuleProjectFallback, kind: dray.KindContainer, container: "api",
		},
		{
			name: "a tool that prefers a container falls back", req: call{
				Workspace: "/home/me/app",
				Tool:      dray.Requirement{Kind: dray.PreferContainer},
			},
			rule: RuleHost, kind: dray.KindHost, workspace: "/home/me/app",
		},
		{
			name: "a tool that prefers a container finds one", folders: app, req: call{Workspace: "/home/me/app", Tool: dray.Requirement{Kind: dray.PreferContainer}},
			rule: RuleNearest, kind: dray.KindContainer, workspace: "/home/me/app",
		},
		{
			name: "a tool that prefers a container obeys an override", rules: Rules{Override: "host"}, folders: app,
			req:  call{Workspace: "/home/me/app", Tool: dray.Requirement{Kind: dray.PreferContainer}},
			rule: RuleProjectOverride, kind: dray.KindHost, workspace: "/home/me/app",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decide(newRouter(t, tt.rules, tt.folders...), tt.req)
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
