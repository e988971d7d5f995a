package router

import (
	"fmt"

	"github.com/dray-dev/dray"
)

// callContainer takes the container that the call names. A name that is not configured may be the engine's, so it goes on as it is.
func (d *decision) callContainer() (finding, error) {
	name := d.req.Container
	if name == "" {
		return silent("the call names no container")
	}
	if d.req.Environment == dray.ChooseHost {
		return finding{}, conflict(RuleCallContainer, fmt.Sprintf("container %q", name), RuleCallEnvironment, "the host")
	}
	folder, err := d.workspaceOf(name)
	if err != nil {
		return finding{}, err
	}
	t := target{kind: dray.Container, container: name, workspace: folder}
	return finding{t, "the call names " + t.String()}, nil
}

// workspaceOf gives the folder that supplies the configuration of a container that the call names (EX-01). Where the call gives a
// workspace too, the container must belong to it: if one is configured for the container, it is that or a folder in it; else both
// stay in the route, and the question is answered where the containers are known.
func (d *decision) workspaceOf(name string) (string, error) {
	given, folder := d.req.Workspace, d.rules.Containers[name]
	switch {
	case given == "", folder != "" && within(folder, given):
		return folder, nil
	case folder == "":
		return given, nil
	default:
		return "", conflict(RuleCallContainer, fmt.Sprintf("container %q of %s", name, folder), RuleCallWorkspace, given)
	}
}

func (d *decision) callEnvironment() (finding, error) {
	switch d.req.Environment {
	case dray.ChooseHost:
		return d.host("the call says host"), nil
	case dray.ChooseContainer:
		return d.anyContainer()
	default:
		return silent("the call leaves it to the rules")
	}
}

// anyContainer finds the container that a call means that says "container" and no more: an override's, the tool's own, else the
// workspace's. An override that says host has no container to give. Whether the workspace has a devcontainer is found out when it
// is brought up: its container may be there without a file that is looked for.
func (d *decision) anyContainer() (finding, error) {
	for _, sources := range [][]source{d.planOverrides(), d.projectOverrides()} {
		f, err := d.configured(sources)
		if err != nil {
			return finding{}, err
		}
		if f.kind == dray.Container {
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

func (d *decision) workspaceContainer() (finding, error) {
	dir, root, ok := d.dir()
	if !ok {
		return finding{}, invalid("/environment", "the call says container, and neither it nor an override names a container or a workspace").
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
	t := target{kind: dray.Container, workspace: folder}
	return finding{t, "the call says container, which is " + t.String()}, nil
}

// configured takes the first of several values that is there.
func (d *decision) configured(sources []source) (finding, error) {
	for _, s := range sources {
		if blank(s.value) {
			continue
		}
		t, err := d.rules.resolve(s)
		if err != nil {
			return finding{}, err
		}
		f := finding{t, s.where + " names " + t.String()}
		if t.kind == dray.Host {
			f.workspace = d.req.Workspace
		}
		return f, nil
	}
	return silent("nothing is set")
}

// toolEnvironment decides for tools that belong to one place. The needs that leave a choice are silent here.
func (d *decision) toolEnvironment() (finding, error) {
	switch need := d.req.Tool; need.Kind {
	case NeedHost:
		return d.host("the tool runs on the host"), nil
	case NeedSpecific:
		t, err := d.rules.resolve(source{"the tool's environment", need.Name})
		return finding{t, "the tool runs in " + t.String()}, err
	case NeedRequired:
		return silent("the tool requires a container, and takes the one that the rules below lead to")
	case NeedPreferred:
		return silent("the tool prefers a container, and runs on the host where the rules below lead there")
	default:
		return silent("the tool runs anywhere")
	}
}

func (d *decision) nearestDevcontainer() (finding, error) {
	dir, root, ok := d.dir()
	if !ok {
		return silent("the call gives no workspace")
	}
	folder, found := d.nearest(dir, root)
	if !found {
		return silent(fmt.Sprintf("no devcontainer from %s up to %s", dir, root))
	}
	return finding{target{kind: dray.Container, workspace: folder}, folder + " has a devcontainer"}, nil
}

func (d *decision) host(reason string) finding {
	return finding{target{kind: dray.Host, workspace: d.req.Workspace}, reason}
}

func (d *decision) planOverrides() []source {
	return []source{{planKey(d.req.PlanID, "override"), d.rules.Plans[d.req.PlanID].Override}, d.callOverride()}
}

func (d *decision) planFallbacks() []source {
	return []source{{planKey(d.req.PlanID, "fallback"), d.rules.Plans[d.req.PlanID].Fallback}, d.callFallback()}
}

func (d *decision) projectOverrides() []source {
	return []source{{"routing.override", d.rules.Override}}
}

func (d *decision) callOverride() source { return source{"call.plan.override", d.req.Plan.Override} }

func (d *decision) callFallback() source { return source{"call.plan.fallback", d.req.Plan.Fallback} }

// hold holds the tool's own need against the decision.
func (d *decision) hold(rule string, t target) error {
	need := d.req.Tool
	var ok bool
	switch need.Kind {
	case NeedHost:
		ok = t.kind == dray.Host
	case NeedRequired:
		ok = t.kind == dray.Container
	case NeedSpecific:
		ok = t.container == need.Name
	default:
		ok = true
	}
	if ok {
		return nil
	}
	return conflict(rule, t.String(), RuleTool, need.String())
}

// conflict names two rules that cannot both hold.
func conflict(rule, place, other, otherPlace string) *dray.Error {
	return dray.Errorf(dray.CodeRouteConflict, "%s leads to %s, and %s demands %s", rule, place, other, otherPlace).
		WithHint("%s", conflictHint(rule, other))
}

func conflictHint(rule, other string) string {
	if rule == RuleHost && other == RuleTool {
		return "name a container, or a workspace that has a devcontainer"
	}
	return "drop one of the two, or call another tool"
}
