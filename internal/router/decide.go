package router

import (
	"path/filepath"

	"github.com/dray-dev/dray"
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

// RuleCallWorkspace never decides; it is what a container that the call names can be in conflict with.
const RuleCallWorkspace = "call.workspace"

// Request is all of a call that a decision depends on. Blank strings count as absent.
type Request struct {
	Container   string
	Environment dray.EnvironmentChoice
	// Workspace is a clean absolute host folder; Cwd is relative to it or absolute, clean, without "..".
	Workspace string
	Cwd       string
	PlanID    string
	Plan      dray.PlanRouting
	Tool      Requirement
}

// Decide finds the first rule that says where the call runs and holds the tool's own need against it. It fails with
// invalid_request where the call is malformed or says container and nothing names one, with route_conflict where two rules
// disagree, and with container_not_found where a rule names a container that is not configured. Beside an error the route holds
// the candidates alone.
func (r *Router) Decide(req Request) (dray.Route, error) {
	for _, s := range []*string{&req.Container, &req.Workspace, &req.Cwd, &req.PlanID, &req.Plan.Override, &req.Plan.Fallback} {
		if blank(*s) {
			*s = ""
		}
	}
	d := evaluation{Router: r, req: req, candidates: []dray.Candidate{}}
	rule, place, err := d.firstMatch()
	if err == nil {
		err = d.checkToolNeed(rule, place)
	}
	if err != nil {
		return dray.Route{Candidates: d.candidates}, err
	}
	return dray.Route{
		Environment: place.kind, Rule: rule, Container: place.container, Workspace: place.workspace, Candidates: d.candidates,
	}, nil
}

// evaluation is one run through the rules.
type evaluation struct {
	*Router
	req        Request
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
	d.candidates = append(d.candidates, dray.Candidate{Rule: rule, Environment: string(f.kind), Reason: f.reason})
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

// validate refuses what the call itself got wrong, whether or not the rules would come to look at it.
func (d *evaluation) validate() error {
	if d.req.Container != "" && !ValidContainer(d.req.Container) {
		return invalid("/container", "container %q is malformed", d.req.Container).
			WithHint("a name or id is letters, digits, '_', '.' and '-', and begins with a letter or digit")
	}
	switch d.req.Environment {
	case "", dray.ChooseAuto, dray.ChooseHost, dray.ChooseContainer:
	default:
		return invalid("/environment", "environment %q is unknown", d.req.Environment).WithHint("write auto, host or container")
	}
	for _, s := range []source{d.callOverride(), d.callFallback()} {
		if err := d.validateValue(s); err != nil {
			return err
		}
	}
	return nil
}

// validateValue is resolve without the question whether the name is known: that is asked only where the rule decides.
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

// dir is the absolute working folder where the search for a devcontainer begins, and the folder where it ends. A folder outside the
// workspace may be one of the container's own, so it leads nowhere: the search stays in the workspace.
func (d *evaluation) dir() (dir, root string, ok bool) {
	root, cwd := d.req.Workspace, d.req.Cwd
	switch {
	case root == "" && filepath.IsAbs(cwd): // the workspace is to be found, as the CLI finds it
		return cwd, "/", true
	case root == "":
		return "", "", false
	case cwd == "":
		return root, root, true
	case !filepath.IsAbs(cwd):
		return filepath.Join(root, cwd), root, true
	case within(cwd, root):
		return cwd, root, true
	default:
		return root, root, true
	}
}

// within compares whole segments.
func within(dir, root string) bool {
	rel, err := filepath.Rel(root, dir)
	return err == nil && filepath.IsLocal(rel)
}
