package router

import (
	"fmt"
	"path/filepath"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// The rules, by the names that routes carry.
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

// RuleCallWorkspace never decides; it is what a container that the call names can be in conflict
// with.
const RuleCallWorkspace = "call.workspace"

// Route returns where a call runs, which rule decided it, and what the rules before it said (RT-03).
// need is the requirement of the call's tool; blank strings of inv count as absent. Route fails with
// invalid_request if the call is malformed or asks for a container that nothing names, with
// route_conflict if two rules contradict each other, and with container_not_found if a rule names a
// container that is not configured. The route that it returns with an error has only candidates.
func (r *Router) Route(inv dray.Invocation, need dray.Requirement) (dray.Route, error) {
	for _, s := range []*string{
		&inv.Container, &inv.Workspace, &inv.Cwd, &inv.Context.PlanID, &inv.Plan.Override,
		&inv.Plan.Fallback,
	} {
		if blank(*s) {
			*s = ""
		}
	}
	d := evaluation{Router: r, inv: inv, need: need, candidates: []dray.Candidate{}}
	rule, place, err := d.firstMatch()
	if err == nil {
		err = d.checkToolNeed(rule, place)
	}
	if err != nil {
		return dray.Route{Candidates: d.candidates}, err
	}
	return dray.Route{
		Environment: place.kind, Rule: rule, Container: place.container, Workspace: place.workspace,
		Candidates: d.candidates,
	}, nil
}

// evaluation is one run through the rules.
type evaluation struct {
	*Router
	inv        dray.Invocation
	need       dray.Requirement
	candidates []dray.Candidate
}

// ruleResult is what one rule has to say: a place, or none, and why.
type ruleResult struct {
	target
	reason string
}

// noMatch is the finding of a rule that leaves the decision to the next.
func noMatch(reason string) (ruleResult, error) { return ruleResult{reason: reason}, nil }

// firstMatch looks at the rules in their order and stops at the one that decides.
func (d *evaluation) firstMatch() (string, target, error) {
	if err := d.validate(); err != nil {
		return "", target{}, err
	}
	for _, level := range d.levels() {
		f, err := level.eval()
		if err != nil {
			d.note(level.rule, ruleResult{reason: dray.AsError(err).Message})
			return "", target{}, err
		}
		d.note(level.rule, f)
		if f.kind != "" {
			return level.rule, f.target, nil
		}
	}
	return "", target{}, dray.Errorf(dray.CodeInternal, "no rule decides where the call runs")
}

func (d *evaluation) note(rule string, f ruleResult) {
	d.candidates = append(d.candidates,
		dray.Candidate{Rule: rule, Environment: string(f.kind), Reason: f.reason})
}

type ruleFunc struct {
	rule string
	eval func() (ruleResult, error)
}

func (d *evaluation) levels() []ruleFunc {
	return []ruleFunc{
		{RuleCallContainer, d.callContainer},
		{RuleCallEnvironment, d.callEnvironment},
		{RulePlanOverride, func() (ruleResult, error) { return d.configured(d.planOverrides()) }},
		{RuleProjectOverride, func() (ruleResult, error) { return d.configured(d.projectOverrides()) }},
		{RuleTool, d.toolEnvironment},
		{RuleNearest, d.nearestDevcontainer},
		{RulePlanFallback, func() (ruleResult, error) { return d.configured(d.planFallbacks()) }},
		{RuleProjectFallback, func() (ruleResult, error) {
			return d.configured([]source{{"routing.fallback", d.rules.Fallback}})
		}},
		{RuleHost, func() (ruleResult, error) { return d.host("no other rule says anything"), nil }},
	}
}

// validate refuses what the call itself got wrong, whether or not the rules would come to look at
// it.
func (d *evaluation) validate() error {
	if d.inv.Container != "" && !lexical.IsName(d.inv.Container) {
		return invalid("/container", "container %q is malformed", d.inv.Container).
			WithHint("a name or id is letters, digits, '_', '.' and '-', and begins with a letter or digit")
	}
	switch d.inv.Environment {
	case "", dray.ChooseAuto, dray.ChooseHost, dray.ChooseContainer:
	default:
		return invalid("/environment", "environment %q is unknown", d.inv.Environment).
			WithHint("write auto, host or container")
	}
	for _, s := range []source{d.callOverride(), d.callFallback()} {
		if err := d.validateValue(s); err != nil {
			return err
		}
	}
	return nil
}

// validateValue is resolve without the question whether the name is known: that is asked only where
// the rule decides.
func (d *evaluation) validateValue(s source) error {
	if s.value == "" {
		return nil
	}
	if _, err := d.rules.resolve(s); err != nil && dray.CodeOf(err) == dray.CodeInvalidRequest {
		return err
	}
	return nil
}

func invalid(pointer, format string, args ...any) *dray.Error {
	e := dray.Errorf(dray.CodeInvalidRequest, format, args...)
	e.Details = []dray.Detail{{Pointer: pointer, Message: e.Message}}
	return e
}

// dir is the absolute working folder where the search for a devcontainer begins, and the folder
// where it ends. A folder outside the workspace may be one of the container's own, so it leads
// nowhere: the search stays in the workspace.
func (d *evaluation) dir() (dir, root string, ok bool) {
	root, cwd := d.inv.Workspace, d.inv.Cwd
	switch {
	case root == "" && filepath.IsAbs(cwd): // the workspace is to be found, as the CLI finds it
		return cwd, "/", true
	case root == "":
		return "", "", false
	case cwd == "":
		return root, root, true
	case !filepath.IsAbs(cwd):
		return filepath.Join(root, cwd), root, true
	case lexical.Contains(root, cwd):
		return cwd, root, true
	default:
		return root, root, true
	}
}

// callContainer takes the container that the call names. A name that is not configured may be the
// engine's, so it goes on as it is.
func (d *evaluation) callContainer() (ruleResult, error) {
	name := d.inv.Container
	if name == "" {
		return noMatch("the call names no container")
	}
	if d.inv.Environment == dray.ChooseHost {
		return ruleResult{}, conflictError(RuleCallContainer, fmt.Sprintf("container %q", name),
			RuleCallEnvironment, "the host")
	}
	folder, err := d.workspaceOf(name)
	if err != nil {
		return ruleResult{}, err
	}
	t := target{kind: dray.KindContainer, container: name, workspace: folder}
	return ruleResult{t, "the call names " + t.String()}, nil
}

// workspaceOf gives the folder that supplies the configuration of a container that the call names
// (EX-01). Where the call gives a workspace too, the container must belong to it: if one is
// configured for the container, it is that or a folder in it; else both stay in the route, and the
// question is answered where the containers are known.
func (d *evaluation) workspaceOf(name string) (string, error) {
	given, folder := d.inv.Workspace, d.rules.Containers[name]
	switch {
	case given == "", folder != "" && lexical.Contains(given, folder):
		return folder, nil
	case folder == "":
		return given, nil
	default:
		return "", conflictError(RuleCallContainer, fmt.Sprintf("container %q of %s", name, folder),
			RuleCallWorkspace, given)
	}
}

func (d *evaluation) callEnvironment() (ruleResult, error) {
	switch d.inv.Environment {
	case dray.ChooseHost:
		return d.host("the call says host"), nil
	case dray.ChooseContainer:
		return d.defaultContainer()
	default:
		return noMatch("the call leaves it to the rules")
	}
}

// defaultContainer finds the container that a call means that says "container" and no more: an
// override's, the tool's own, else the workspace's. An override that says host has no container to
// give. Whether the workspace has a devcontainer is found out when it is brought up: its container
// may be there without a file that is looked for.
func (d *evaluation) defaultContainer() (ruleResult, error) {
	for _, sources := range [][]source{d.planOverrides(), d.projectOverrides()} {
		f, err := d.configured(sources)
		if err != nil {
			return ruleResult{}, err
		}
		if f.kind == dray.KindContainer {
			f.reason = "the call says container, and " + f.reason
			return f, nil
		}
	}
	if d.need.Kind == dray.RequireSpecific {
		f, err := d.toolEnvironment()
		f.reason = "the call says container, and " + f.reason
		return f, err
	}
	return d.workspaceContainer()
}

func (d *evaluation) workspaceContainer() (ruleResult, error) {
	dir, root, ok := d.dir()
	if !ok {
		return ruleResult{}, invalid("/environment",
			"the call says container, and neither it nor an override names a container or a workspace").
			WithHint("give a workspace or a container")
	}
	folder, found := d.nearest(dir, root)
	switch {
	case found:
	case d.inv.Workspace != "":
		folder = d.inv.Workspace
	default:
		folder = dir
	}
	t := target{kind: dray.KindContainer, workspace: folder}
	return ruleResult{t, "the call says container, which is " + t.String()}, nil
}

// configured takes the first of several values that is there.
func (d *evaluation) configured(sources []source) (ruleResult, error) {
	for _, s := range sources {
		if blank(s.value) {
			continue
		}
		t, err := d.rules.resolve(s)
		if err != nil {
			return ruleResult{}, err
		}
		f := ruleResult{t, s.where + " names " + t.String()}
		if t.kind == dray.KindHost {
			f.workspace = d.inv.Workspace
		}
		return f, nil
	}
	return noMatch("nothing is set")
}

// toolEnvironment decides for tools that belong to one place. The needs that leave a choice are
// silent here.
func (d *evaluation) toolEnvironment() (ruleResult, error) {
	switch need := d.need; need.Kind {
	case dray.RequireHost:
		return d.host("the tool runs on the host"), nil
	case dray.RequireSpecific:
		t, err := d.rules.resolve(source{"the tool's environment", need.Container})
		return ruleResult{t, "the tool runs in " + t.String()}, err
	case dray.RequireContainer:
		return noMatch("the tool requires a container, and takes the one that the rules below lead to")
	case dray.PreferContainer:
		return noMatch("the tool prefers a container, and runs on the host where the rules below lead there")
	default:
		return noMatch("the tool runs anywhere")
	}
}

func (d *evaluation) nearestDevcontainer() (ruleResult, error) {
	dir, root, ok := d.dir()
	if !ok {
		return noMatch("the call gives no workspace")
	}
	folder, found := d.nearest(dir, root)
	if !found {
		return noMatch(fmt.Sprintf("no devcontainer from %s up to %s", dir, root))
	}
	return ruleResult{target{kind: dray.KindContainer, workspace: folder}, folder +
		" has a devcontainer"}, nil
}

func (d *evaluation) host(reason string) ruleResult {
	return ruleResult{target{kind: dray.KindHost, workspace: d.inv.Workspace}, reason}
}

func (d *evaluation) planOverrides() []source {
	return []source{
		{planKey(d.inv.Context.PlanID, "override"), d.rules.Plans[d.inv.Context.PlanID].Override},
		d.callOverride(),
	}
}

func (d *evaluation) planFallbacks() []source {
	return []source{
		{planKey(d.inv.Context.PlanID, "fallback"), d.rules.Plans[d.inv.Context.PlanID].Fallback},
		d.callFallback(),
	}
}

func (d *evaluation) projectOverrides() []source {
	return []source{{"routing.override", d.rules.Override}}
}

func (d *evaluation) callOverride() source {
	return source{
		"call.plan.override",
		d.inv.Plan.Override,
	}
}

func (d *evaluation) callFallback() source {
	return source{
		"call.plan.fallback",
		d.inv.Plan.Fallback,
	}
}

// checkToolNeed holds the tool's own need against the decision.
func (d *evaluation) checkToolNeed(rule string, t target) error {
	need := d.need
	var ok bool
	switch need.Kind {
	case dray.RequireHost:
		ok = t.kind == dray.KindHost
	case dray.RequireContainer:
		ok = t.kind == dray.KindContainer
	case dray.RequireSpecific:
		ok = t.container == need.Container
	default:
		ok = true
	}
	if ok {
		return nil
	}
	return conflictError(rule, t.String(), RuleTool, need.String())
}

// conflictError names two rules that cannot both hold.
func conflictError(rule, place, other, otherPlace string) *dray.Error {
	return dray.Errorf(dray.CodeRouteConflict, "%s leads to %s, and %s demands %s", rule, place, other,
		otherPlace).
		WithHint("%s", conflictHint(rule, other))
}

func conflictHint(rule, other string) string {
	if rule == RuleHost && other == RuleTool {
		return "name a container, or a workspace that has a devcontainer"
	}
	return "drop one of the two, or call another tool"
}
