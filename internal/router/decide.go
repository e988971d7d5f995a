package router

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// The rules, as routes name them.
const (
	RuleCallContainer   = "call.container"
	RuleCallEnvironment = "call.environment"
	RulePlanOverride    = "plan.override"
	RuleProjectOverride = "project.override"
	RuleTool            = "tool.environment"
	RuleNearest         = "devcontainer.nearest"
	RulePlanFallback    = "plan.fallback"
	RuleProjectFallback = "project.fallback"
	RuleHost            = "host"
)

// RuleCallWorkspace never decides. A container in the call can conflict with it.
const RuleCallWorkspace = "call.workspace"

// Route returns where a call runs, which rule decided it, and what the rules before it returned
// (RT-03). need is the requirement of the call's tool. Blank strings of inv count as absent. Route
// fails with invalid_request if the call is malformed or requests a container that nothing names,
// with route_conflict if two rules contradict each other, and with container_not_found if a rule
// names a container that is not configured. With an error the route has only candidates.
func (r *Router) Route(ctx context.Context, inv dray.Invocation, need dray.Requirement,
) (dray.Route, error) {
	plan := &inv.Plan
	for _, s := range []*string{
		&inv.Container, &inv.Workspace, &inv.Cwd, &inv.Context.PlanID, &plan.Override, &plan.Fallback,
	} {
		if blank(*s) {
			*s = ""
		}
	}
	e := evaluation{
		Router: r, inv: inv, need: need, candidates: []dray.Candidate{},
		nearest: func(dir, root string) (string, bool) { return r.nearest(ctx, dir, root) },
	}
	rule, t, err := e.firstMatch()
	if err == nil {
		err = e.checkToolNeed(rule, t)
	}
	if err != nil {
		return dray.Route{Candidates: e.candidates}, err
	}
	return dray.Route{
		Environment: t.kind, Rule: rule, Container: t.container, Workspace: t.workspace,
		Candidates: e.candidates,
	}, nil
}

type evaluation struct {
	*Router

	inv        dray.Invocation
	need       dray.Requirement
	nearest    func(dir, root string) (workspace string, ok bool)
	candidates []dray.Candidate
}

// ruleResult is the target of a rule, with an empty kind if the rule does not match, and the
// reason.
type ruleResult struct {
	target
	reason string
}

func noMatch(reason string) (ruleResult, error) { return ruleResult{reason: reason}, nil }

// firstMatch evaluates the rules in order and stops at the first match.
func (e *evaluation) firstMatch() (string, target, error) {
	if err := e.validate(); err != nil {
		return "", target{}, err
	}
	for _, r := range []struct {
		rule string
		eval func() (ruleResult, error)
	}{
		{RuleCallContainer, e.callContainer},
		{RuleCallEnvironment, e.callEnvironment},
		{RulePlanOverride, e.planOverride},
		{RuleProjectOverride, e.projectOverride},
		{RuleTool, e.toolEnvironment},
		{RuleNearest, e.nearestDevcontainer},
		{RulePlanFallback, e.planFallback},
		{RuleProjectFallback, e.projectFallback},
		{RuleHost, func() (ruleResult, error) { return e.host("no other rule matches"), nil }},
	} {
		result, err := r.eval()
		if err != nil {
			result = ruleResult{reason: dray.AsError(err).Message}
		}
		e.candidates = append(e.candidates, dray.Candidate{
			Rule: r.rule, Environment: string(result.kind), Reason: result.reason,
		})
		if err != nil || result.kind != "" {
			return r.rule, result.target, err
		}
	}
	return "", target{}, dray.Errorf(dray.CodeInternal, "no rule decides where the call runs")
}

// validate refuses a malformed call even if the malformed value would not be evaluated.
func (e *evaluation) validate() error {
	if e.inv.Container != "" && !lexical.IsName(e.inv.Container) {
		return invalid("/container", "container %q is malformed", e.inv.Container).
			WithHint("use letters, digits, '_', '.' and '-', the first a letter or a digit")
	}
	switch e.inv.Environment {
	case "", dray.ChooseAuto, dray.ChooseHost, dray.ChooseContainer:
	default:
		return invalid("/environment", "environment %q is unknown", e.inv.Environment).
			WithHint("use auto, host or container")
	}
	for _, s := range []source{
		{"call.plan.override", e.inv.Plan.Override}, {"call.plan.fallback", e.inv.Plan.Fallback},
	} {
		// a name that is not configured is an error only if its rule is evaluated
		_, err := e.rules.resolve(s)
		if s.value != "" && dray.CodeOf(err) == dray.CodeInvalidRequest {
			return err
		}
	}
	return nil
}

func invalid(pointer, format string, args ...any) *dray.Error {
	e := dray.Errorf(dray.CodeInvalidRequest, format, args...)
	e.Details = []dray.Detail{{Pointer: pointer, Message: e.Message}}
	return e
}

// searchDirs returns the directories where the search for a devcontainer begins and ends. A working
// directory outside the workspace may be a path of the container, so the search then begins at the
// workspace.
func (e *evaluation) searchDirs() (dir, root string, ok bool) {
	root, cwd := e.inv.Workspace, e.inv.Cwd
	switch {
	case root == "" && filepath.IsAbs(cwd): // find the workspace, as the CLI does
		return cwd, "/", true
	case root == "":
		return "", "", false
	case cwd != "" && !filepath.IsAbs(cwd):
		return filepath.Join(root, cwd), root, true
	case lexical.Contains(root, cwd):
		return cwd, root, true
	default:
		return root, root, true
	}
}

// callContainer matches if the call names a container. The name need not be configured: it may be
// known to the engine.
func (e *evaluation) callContainer() (ruleResult, error) {
	name := e.inv.Container
	if name == "" {
		return noMatch("the call names no container")
	}
	if e.inv.Environment == dray.ChooseHost {
		return ruleResult{}, conflictError(RuleCallContainer, fmt.Sprintf("container %q", name),
			RuleCallEnvironment, "the host")
	}
	workspace, err := e.workspaceOf(name)
	if err != nil {
		return ruleResult{}, err
	}
	t := target{kind: dray.KindContainer, container: name, workspace: workspace}
	return ruleResult{t, "the call names " + t.String()}, nil
}

// workspaceOf returns the workspace that configures a container which the call names (EX-01). If
// the call names a workspace too, it must be the configured workspace of the container or contain
// it. For a container without a configured workspace internal/workspace checks that the two match.
func (e *evaluation) workspaceOf(name string) (string, error) {
	given, configured := e.inv.Workspace, e.rules.Containers[name]
	switch {
	case given == "", lexical.Contains(given, configured):
		return configured, nil
	case configured == "":
		return given, nil
	default:
		return "", conflictError(RuleCallContainer, fmt.Sprintf("container %q of %s", name, configured),
			RuleCallWorkspace, given)
	}
}

func (e *evaluation) callEnvironment() (ruleResult, error) {
	switch e.inv.Environment {
	case dray.ChooseHost:
		return e.host("the call requests the host"), nil
	case dray.ChooseContainer:
		return e.defaultContainer()
	default:
		return noMatch("the call leaves it to the rules")
	}
}

// defaultContainer returns the container of a call that requests a container without naming it: the
// first container of the overrides, else the tool's, else the workspace's. The workspace need not
// have a devcontainer file: its container may be running without one.
func (e *evaluation) defaultContainer() (ruleResult, error) {
	rules := []func() (ruleResult, error){e.planOverride, e.projectOverride}
	if e.need.Kind == dray.RequireSpecific {
		rules = append(rules, e.toolEnvironment)
	}
	for _, rule := range rules {
		result, err := rule()
		if err != nil {
			return ruleResult{}, err
		}
		if result.kind == dray.KindContainer {
			result.reason = "the call requests a container, and " + result.reason
			return result, nil
		}
	}
	dir, root, ok := e.searchDirs()
	if !ok {
		return ruleResult{}, invalid("/environment",
			"the call requests a container, and neither it nor an override names one or a workspace").
			WithHint("set workspace or container")
	}
	workspace, found := e.nearest(dir, root)
	if !found {
		workspace = cmp.Or(e.inv.Workspace, dir)
	}
	t := target{kind: dray.KindContainer, workspace: workspace}
	return ruleResult{t, "the call requests a container, which is " + t.String()}, nil
}

// configured matches the first source that has a value.
func (e *evaluation) configured(sources ...source) (ruleResult, error) {
	for _, s := range sources {
		if blank(s.value) {
			continue
		}
		t, err := e.rules.resolve(s)
		if err != nil {
			return ruleResult{}, err
		}
		reason := s.where + " names " + t.String()
		if t.kind == dray.KindHost {
			return e.host(reason), nil
		}
		return ruleResult{t, reason}, nil
	}
	return noMatch("not set")
}

func (e *evaluation) planOverride() (ruleResult, error) {
	id, call := e.inv.Context.PlanID, source{"call.plan.override", e.inv.Plan.Override}
	return e.configured(source{planKey(id, "override"), e.rules.Plans[id].Override}, call)
}

func (e *evaluation) projectOverride() (ruleResult, error) {
	return e.configured(source{"routing.override", e.rules.Override})
}

func (e *evaluation) planFallback() (ruleResult, error) {
	id, call := e.inv.Context.PlanID, source{"call.plan.fallback", e.inv.Plan.Fallback}
	return e.configured(source{planKey(id, "fallback"), e.rules.Plans[id].Fallback}, call)
}

func (e *evaluation) projectFallback() (ruleResult, error) {
	return e.configured(source{"routing.fallback", e.rules.Fallback})
}

// toolEnvironment matches if the tool can run in one environment only.
func (e *evaluation) toolEnvironment() (ruleResult, error) {
	switch e.need.Kind {
	case dray.RequireHost:
		return e.host("the tool requires the host"), nil
	case dray.RequireSpecific:
		t, err := e.rules.resolve(source{"the environment of the tool", e.need.Container})
		return ruleResult{t, "the tool requires " + t.String()}, err
	case dray.RequireContainer:
		return noMatch("the tool requires a container, which the rules below select")
	case dray.PreferContainer:
		return noMatch("the tool prefers a container and accepts the host")
	default:
		return noMatch("the tool runs in any environment")
	}
}

func (e *evaluation) nearestDevcontainer() (ruleResult, error) {
	dir, root, ok := e.searchDirs()
	if !ok {
		return noMatch("the call names no workspace")
	}
	workspace, found := e.nearest(dir, root)
	if !found {
		return noMatch(fmt.Sprintf("no devcontainer from %s up to %s", dir, root))
	}
	t := target{kind: dray.KindContainer, workspace: workspace}
	return ruleResult{t, workspace + " has a devcontainer"}, nil
}

func (e *evaluation) host(reason string) ruleResult {
	return ruleResult{target{kind: dray.KindHost, workspace: e.inv.Workspace}, reason}
}

// checkToolNeed checks the decision against the requirement of the tool.
func (e *evaluation) checkToolNeed(rule string, t target) error {
	ok := true
	switch e.need.Kind {
	case dray.RequireHost:
		ok = t.kind == dray.KindHost
	case dray.RequireContainer:
		ok = t.kind == dray.KindContainer
	case dray.RequireSpecific:
		ok = t.container == e.need.Container ||
			t.container == "" && t.kind == dray.KindContainer && t.workspace == e.need.Container
	}
	if !ok {
		err := conflictError(rule, t.String(), RuleTool, e.need.String())
		if e.need.Hint != "" {
			err.Hint = e.need.Hint
		}
		return err
	}
	return nil
}

func conflictError(rule, place, other, otherPlace string) *dray.Error {
	hint := "remove one of the two, or call another tool"
	if rule == RuleHost && other == RuleTool {
		hint = "name a container, or a workspace that has a devcontainer"
	}
	return dray.Errorf(dray.CodeRouteConflict, "%s selects %s, and %s requires %s", rule, place, other,
		otherPlace).WithHint("%s", hint)
}
