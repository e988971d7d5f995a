package router

import (
	"fmt"

	"github.com/dray-dev/dray"
)

// callContainer takes the container that the call names. A name that is not configured may be the engine's, so it goes on as it is.
func (d *evaluation) callContainer() (ruleResult, error) {
	name := d.req.Container
	if name == "" {
		return noMatch("the call names no container")
	}
	if d.req.Environment == dray.ChooseHost {
		return ruleResult{}, conflictError(RuleCallContainer, fmt.Sprintf("container %q", name), RuleCallEnvironment, "the host")
	}
	folder, err := d.workspaceOf(name)
	if err != nil {
		return ruleResult{}, err
	}
	t := target{kind: dray.KindContainer, container: name, workspace: folder}
	return ruleResult{t, "the call names " + t.String()}, nil
}

// workspaceOf gives the folder that supplies the configuration of a container that the call names (EX-01). Where the call gives a
// workspace too, the container must belong to it: if one is configured for the container, it is that or a folder in it; else both
// stay in the route, and the question is answered where the containers are known.
func (d *evaluation) workspaceOf(name string) (string, error) {
	given, folder := d.req.Workspace, d.rules.Containers[name]
	switch {
	case given == "", folder != "" && within(folder, given):
		return folder, nil
	case folder == "":
		return given, nil
	default:
		return "", conflictError(RuleCallContainer, fmt.Sprintf("container %q of %s", name, folder), RuleCallWorkspace, given)
	}
}

func (d *evaluation) callEnvironment() (ruleResult, error) {
	switch d.req.Environment {
	case dray.ChooseHost:
		return d.host("the call says host"), nil
	case dray.ChooseContainer:
		return d.defaultContainer()
	default:
		return noMatch("the call leaves it to the rules")
	}
}

// defaultContainer finds the container that a call means that says "container" and no more: an override's, the tool's own, else the
// workspace's. An override that says host has no container to give. Whether the workspace has a devcontainer is found out when it
// is brought up: its container may be there without a file that is looked for.
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
	if d.req.Tool.Kind == NeedSpecific {
		f, err := d.toolEnvironment()
		f.reason = "the call says container, and " + f.reason
		return f, err
	}
	return d.workspaceContainer()
}

func (d *evaluation) workspaceContainer() (ruleResult, error) {
	dir, root, ok := d.dir()
	if !ok {
		return ruleResult{}, invalid("/environment", "the call says container, and neither it nor an override names a container or a workspace").
			WithHint("give a workspace or a container")
	}
	folder, found := d.nearest(dir, root)
	switch {
	case found:
	case d.req.Workspace != "":
		folder = d.req.Workspace
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
			f.workspace = d.req.Workspace
		}
		return f, nil
	}
	return noMatch("nothing is set")
}

// toolEnvironment decides for tools that belong to one place. The needs that leave a choice are silent here.
func (d *evaluation) toolEnvironment() (ruleResult, error) {
	switch need := d.req.Tool; need.Kind {
	case NeedHost:
		return d.host("the tool runs on the host"), nil
	case NeedSpecific:
		t, err := d.rules.resolve(source{"the tool's environment", need.Name})
		return ruleResult{t, "the tool runs in " + t.String()}, err
	case NeedRequired:
		return noMatch("the tool requires a container, and takes the one that the rules below lead to")
	case NeedPreferred:
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
	return ruleResult{target{kind: dray.KindContainer, workspace: folder}, folder + " has a devcontainer"}, nil
}

func (d *evaluation) host(reason string) ruleResult {
	return ruleResult{target{kind: dray.KindHost, workspace: d.req.Workspace}, reason}
}

func (d *evaluation) planOverrides() []source {
	return []source{{planKey(d.req.PlanID, "override"), d.rules.Plans[d.req.PlanID].Override}, d.callOverride()}
}

func (d *evaluation) planFallbacks() []source {
	return []source{{planKey(d.req.PlanID, "fallback"), d.rules.Plans[d.req.PlanID].Fallback}, d.callFallback()}
}

func (d *evaluation) projectOverrides() []source {
	return []source{{"routing.override", d.rules.Override}}
}

func (d *evaluation) callOverride() source { return source{"call.plan.override", d.req.Plan.Override} }

func (d *evaluation) callFallback() source { return source{"call.plan.fallback", d.req.Plan.Fallback} }

// checkToolNeed holds the tool's own need against the decision.
func (d *evaluation) checkToolNeed(rule string, t target) error {
	need := d.req.Tool
	var ok bool
	switch need.Kind {
	case NeedHost:
		ok = t.kind == dray.KindHost
	case NeedRequired:
		ok = t.kind == dray.KindContainer
	case NeedSpecific:
		ok = t.container == need.Name
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
	return dray.Errorf(dray.CodeRouteConflict, "%s leads to %s, and %s demands %s", rule, place, other, otherPlace).
		WithHint("%s", conflictHint(rule, other))
}

func conflictHint(rule, other string) string {
	if rule == RuleHost && other == RuleTool {
		return "name a container, or a workspace that has a devcontainer"
	}
	return "drop one of the two, or call another tool"
}
