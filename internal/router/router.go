package router

import (
	"context"

	"github.com/dray-dev/dray"
)

// Router decides by fixed rules. It is safe for concurrent use.
type Router struct {
	rules   Rules
	nearest func(dir, workspaceRoot string) (folder string, ok bool)
	need    func(tool string) (Requirement, error)
}

// New makes a router and refuses rules that name nothing known. Nearest finds the closest folder with a devcontainer from dir up to
// workspaceRoot, both included; need gives a tool's own environment, or unknown_tool.
func New(rules Rules, nearest func(dir, workspaceRoot string) (folder string, ok bool), need func(tool string) (Requirement, error)) (*Router, error) {
	if err := rules.check(); err != nil {
		return nil, err
	}
	return &Router{rules: rules, nearest: nearest, need: need}, nil
}

// Route decides for an invocation. It is what execution does and what a dry run shows (RT-03). Beside an error the route holds the
// rules that were looked at.
func (r *Router) Route(inv dray.Invocation) (dray.Route, error) {
	need, err := r.need(inv.Tool)
	if err != nil {
		return dray.Route{Candidates: []dray.Candidate{}}, err
	}
	return r.Decide(Request{
		Container: inv.Container, Environment: inv.Environment, Workspace: inv.Workspace, Cwd: inv.Cwd,
		PlanID: inv.Context.PlanID, Plan: inv.Plan, Tool: need,
	})
}

// Executor puts the decision into each call's result, whichever way it ends. A call that was decided when it was let in goes there; others
// are decided here.
func (r *Router) Executor(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
		if call.Route.Rule == "" {
			var err error
			if call.Route, err = r.Route(call.Invocation); err != nil {
				return dray.Result{Route: call.Route}, err
			}
		}
		res, err := next.Execute(ctx, call, sink)
		res.Route = call.Route
		return res, err
	})
}
