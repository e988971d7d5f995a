package features

import (
	"fmt"
	"slices"
)

// cell is one combination of everything that decides where a call runs. "" is not set.
type cell struct {
	target                        string // what the call itself says
	planOverride, projectOverride string
	tool                          string
	nearest                       bool // whether the workspace has a devcontainer
	planFallback, projectFallback string
	state                         string // of the containers; "away" is an engine that is not there
}

// The values of a cell. "box" is a configured container, which dray did not make; "nobody" is a
// container that does not exist.
var (
	tableTargets = []string{"", "host", "container", "box", "nobody", "box on host"}
	tableNames   = []string{"", "host", "box"}
	tableTools   = []string{"auto", "host", "required", "preferred", "specific"}
	tableStates  = []string{"running", "untrusted", "paused", "stopped", "removed", "away"}
)

// tableCells returns all cells of a state of the containers.
func tableCells(state string) (all []cell) {
	each := func(values []string, do func(string)) {
		for _, v := range values {
			do(v)
		}
	}
	c := cell{state: state}
	each(tableTargets, func(v string) {
		c.target = v
		each(tableNames, func(v string) {
			c.planOverride = v
			each(tableNames, func(v string) {
				c.projectOverride = v
				each(tableTools, func(v string) {
					c.tool = v
					each(tableNames, func(v string) {
						c.planFallback = v
						each(tableNames, func(v string) {
							c.projectFallback = v
							for _, c.nearest = range []bool{false, true} {
								all = append(all, c)
							}
						})
					})
				})
			})
		})
	})
	return all
}

// prediction is the outcome of a cell. place is "host", "box", "workspace" or "nobody", and empty
// for a call that is refused. code is the error that the call ends with, if any.
type prediction struct{ rule, place, code string }

// predict reads RT-01 and RT-02 from top to bottom.
func (c cell) predict() prediction {
	if c.target == "box on host" {
		return prediction{code: "route_conflict"}
	}
	p := c.decide()
	if c.toolForbids(p.place) {
		return prediction{code: "route_conflict"}
	}
	p.code = c.availability(p.place)
	return p
}

// decide returns the first level that names an environment.
func (c cell) decide() prediction {
	levels := []prediction{
		{rule: "call.container"},
		{rule: "call.environment"},
		{rule: "plan.override", place: c.planOverride},
		{rule: "project.override", place: c.projectOverride},
		{rule: "tool.environment"},
		{rule: "devcontainer.nearest"},
		{rule: "plan.fallback", place: c.planFallback},
		{rule: "project.fallback", place: c.projectFallback},
		{rule: "host", place: "host"},
	}
	switch c.target {
	case "box", "nobody":
		levels[0].place = c.target
	case "host":
		levels[1].place = "host"
	case "container":
		levels[1].place = c.anyContainer()
	}
	switch c.tool {
	case "host":
		levels[4].place = "host"
	case "specific":
		levels[4].place = "box"
	}
	if c.nearest && c.target != "box" && c.target != "nobody" {
		levels[5].place = "workspace"
	}
	return levels[slices.IndexFunc(levels, func(l prediction) bool { return l.place != "" })]
}

// anyContainer is that of a call which requests a container without a name: the override's, else
// the tool's, else the workspace's.
func (c cell) anyContainer() string {
	if c.planOverride == "box" || c.projectOverride == "box" || c.tool == "specific" {
		return "box"
	}
	return "workspace"
}

func (c cell) toolForbids(place string) bool {
	switch c.tool {
	case "host":
		return place != "host"
	case "required":
		return place == "host"
	case "specific":
		return place != "box"
	default:
		return false
	}
}

// availability returns the error of a call that is sent to a place, which never is another place.
func (c cell) availability(place string) string {
	boxStates := map[string]string{
		"paused": "container_unavailable", "stopped": "container_unavailable",
		"removed": "container_not_found", "away": "engine_unavailable",
	}
	workspaceStates := map[string]string{ // a stopped or removed one is brought up
		"paused": "container_unavailable", "untrusted": "workspace_untrusted",
		"away": "engine_unavailable",
	}
	switch {
	case place == "box":
		return boxStates[c.state]
	case place == "workspace" && !c.nearest:
		return "no_devcontainer"
	case place == "workspace":
		return workspaceStates[c.state]
	case place == "nobody" && c.state == "away":
		return "engine_unavailable"
	case place == "nobody":
		return "container_not_found"
	default:
		return ""
	}
}

// withoutWeaker returns the cell without the levels below the one that decides, which cannot
// matter: cells that are equal then share one execution.
func (c cell) withoutWeaker() cell {
	switch rule := c.predict().rule; rule {
	case "call.container":
		c.planOverride, c.projectOverride = "", ""
		fallthrough
	case "plan.override":
		c.projectOverride = ""
		fallthrough
	case "project.override", "tool.environment":
		c.nearest = false
		fallthrough
	case "call.environment", "devcontainer.nearest":
		c.planFallback = ""
		fallthrough
	case "plan.fallback":
		c.projectFallback = ""
	}
	return c
}

// body returns the request of a call in the cell.
func (c cell) body(root string) map[string]any {
	body := map[string]any{
		"tool": "mark-" + c.tool, "input": map[string]any{}, "workspace": root + "/plain",
		"context": map[string]any{"plan_id": "p" + c.planOverride + "-" + c.planFallback},
	}
	switch {
	case c.nearest && c.state == "untrusted":
		body["workspace"] = root + "/untrusted"
	case c.nearest:
		body["workspace"] = root + "/trusted"
	}
	switch c.target {
	case "host", "container":
		body["environment"] = c.target
	case "box", "nobody":
		body["container"] = c.target + "-of-table"
		delete(body, "workspace") // the container belongs to none
	case "box on host":
		body["environment"], body["container"] = "host", "box-of-table"
		delete(body, "workspace")
	}
	return body
}

// tableConfig is the configuration of a daemon: the project's rules, every plan, and tools that
// leave a file where only a run on the host can.
func tableConfig(root, box, engine, override, fallback string) string {
	named := func(v string) string {
		if v == "box" {
			return "box-of-table"
		}
		return v
	}
	text := "routing:\n"
	if override != "" {
		text += "  override: " + named(override) + "\n"
	}
	if fallback != "" {
		text += "  fallback: " + named(fallback) + "\n"
	}
	text += "  plans:\n"
	for _, o := range tableNames {
		for _, f := range tableNames {
			text += fmt.Sprintf("    p%s-%s: {override: %q, fallback: %q}\n", o, f, named(o), named(f))
		}
	}
	text += "tools:\n"
	for _, tool := range tableTools {
		environment := tool
		if tool == "specific" {
			environment = "{specific: box-of-table}"
		}
		text += fmt.Sprintf("  - {name: mark-%s, environment: %s, argv: [sh, -c, %q]}\n", tool,
			environment, "touch "+root+`/host/$DRAY_CALL_ID 2>/dev/null || exit 42`)
	}
	if engine != "" {
		text += "engine: {host: " + engine + "}\n"
	}
	text += "breaker: {failures: 1000000}\n" // the calls of other cells do not count
	return text + fmt.Sprintf("containers: {box-of-table: {id: %s}}\n"+
		"host: {roots: [%[2]s]}\ntrust: {workspaces: [%[2]s/trusted]}\n", box, root)
}
