package config

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/dray-dev/dray/internal/lexical"
)

const fixContainerName = "begin with a letter or digit, go on with letters, digits, _ . and -"

// memberReader reads one key of an element.
type memberReader func(v value)

// object reads the members of an element and reports those that it does not have.
func (d *decoder) object(v value, keys objectKeys, read map[string]memberReader) {
	d.recordOrigin(v)
	if v.shape != object {
		d.addValue(v, v.kindMismatch("a block of keys"),
			"write any of "+strings.Join(keys.names(), ", ")+", each followed by a colon and its value")
		return
	}
	for _, f := range v.fields {
		switch {
		case slices.Contains(keys.unsupported, f.name):
			d.add(unsupported(f.origin, f.value.key))
		case read[f.name] == nil:
			fix := suggestName(f.name, keys.names(), keys.names())
			d.add(Diagnostic{
				Origin: f.origin, Key: f.value.key, Problem: "is not a key that dray knows",
				Suggestion: fix,
			})
		default:
			read[f.name](f.value)
		}
	}
}

// eachNamed reads a block whose keys are names that the operator chose.
func (d *decoder) eachNamed(v value, read func(f field)) {
	d.recordOrigin(v)
	if v.shape != object {
		d.addValue(v, v.kindMismatch("a block of names"),
			"write each name followed by a colon, and what belongs to it below it, indented")
		return
	}
	for _, f := range v.fields {
		read(f)
	}
}

func (d *decoder) containers(v value) map[string]Container {
	all := map[string]Container{}
	d.eachNamed(v, func(f field) {
		switch {
		case !lexical.IsName(f.name):
			d.add(Diagnostic{
				Origin: f.origin, Key: f.value.key, Problem: "is not the name of a container",
				Suggestion: fixContainerName,
			})
		case f.name == "host":
			d.add(Diagnostic{
				Origin: f.origin, Key: f.value.key,
				Problem: "is taken: in routing, host means no container", Suggestion: "name it otherwise",
			})
		default:
			all[f.name] = d.container(f.value)
		}
	})
	return all
}

func (d *decoder) container(v value) Container {
	var c Container
	before := len(d.mistakes)
	d.object(v, containerKeys, map[string]memberReader{
		"workspace": func(v value) { c.Workspace = d.path(v) },
		"config":    func(v value) { c.Config = d.relativePath(v) },
		"service":   func(v value) { c.Service = d.singleLineText(v) },
		"id":        func(v value) { c.ID = d.containerRef(v) },
		"label":     func(v value) { c.Label = d.label(v) },
		"mappings":  func(v value) { c.Mappings = d.mappings(v) },
	})
	if len(d.mistakes) == before {
		d.checkTarget(v, c)
	}
	return c
}

// checkTarget sees to it that a container can be found, and in one way only.
func (d *decoder) checkTarget(v value, c Container) {
	at := func(key string) value {
		m, _ := v.field(key)
		return m
	}
	switch {
	case c.Workspace == "" && c.ID == "" && c.Label == "":
		d.addValue(v.withoutText(), "does not say which container it is",
			"add workspace (a folder), id (an id or a name) or label (key=value)")
	case c.ID != "" && c.Label != "":
		d.addValue(at("label"), "stands beside id", "keep one of the two")
	case c.Workspace != "" && c.ID != "":
		d.addValue(at("id"), "stands beside workspace, whose container may be another",
			"keep one of the two")
	case c.Workspace != "" && c.Label != "":
		d.addValue(at("label"), "stands beside workspace, whose container may be another",
			"keep one of the two")
	case c.Workspace == "" && c.Config != "":
		d.addValue(at("config"), "needs a workspace: it chooses among the configurations of one",
			"add workspace, or remove config")
	case c.Workspace == "" && c.Service != "":
		d.addValue(at("service"), "needs a workspace: it chooses among the services of one",
			"add workspace, or remove service")
	}
}

// containerRef gives a full id or a name.
func (d *decoder) containerRef(v value) string {
	s, ok := d.text(v)
	if ok && !lexical.IsName(s) {
		d.addValue(v, "is neither an id nor the name of a container", fixContainerName)
		return ""
	}
	return s
}

func (d *decoder) label(v value) string {
	s, ok := d.lineText(v)
	if !ok {
		return ""
	}
	if key, _, ok := strings.Cut(s, "="); !ok || key == "" {
		d.addValue(v, "is not a label", "write key=value, for instance com.example.role=tools")
		return ""
	}
	return s
}

// relativePath gives a path that is absolute or lies beneath a folder that is not known yet.
func (d *decoder) relativePath(v value) string {
	s, ok := d.text(v)
	if !ok {
		return ""
	}
	if problem, fix := checkPath(s); problem != "" {
		d.addValue(v, problem, fix)
		return ""
	}
	return filepath.Clean(s)
}

func (d *decoder) mappings(v value) []Mapping {
	d.recordOrigin(v)
	if v.shape == empty {
		return nil // all of them are commented out
	}
	if v.shape != list {
		d.addValue(v, v.kindMismatch("a list"),
			"write - {host: /srv/app, container: /workspaces/app}, one per line")
		return nil
	}
	all := make([]Mapping, 0, len(v.items))
	for _, item := range v.items {
		m := d.mapping(item)
		for _, other := range all {
			if m.Container != "" && m.Container == other.Container {
				d.addValue(item.withoutText(),
					"maps a second host folder to "+quoteValue(m.Container)+", so that the way back is not clear", "keep one of the two")
			}
		}
		all = append(all, m)
	}
	return all
}

func (d *decoder) mapping(v value) Mapping {
	var m Mapping
	before := len(d.mistakes)
	d.object(v, mappingKeys, map[string]memberReader{
		"host":      func(v value) { m.Host = d.mappingRoot(v) },
		"container": func(v value) { m.Container = d.mappingRoot(v) },
	})
	switch {
	case len(d.mistakes) > before: // half a mapping has been reported
	case m.Host == "" || m.Container == "":
		d.addValue(v.withoutText(), "leads from nowhere or to nowhere", "give both host and container")
	case m.Host != m.Container && (lexical.Contains(m.Container, m.Host) || lexical.Contains(m.Host, m.Container)):
		d.addValue(v.withoutText(),
			"maps "+quoteValue(m.Host)+" to "+quoteValue(m.Container)+", and one lies in the other",
			"make the two equal, or map folders that do not contain each other")
	}
	return m
}

// mappingRoot gives a path that may be the root of a mapping.
func (d *decoder) mappingRoot(v value) string {
	s := d.path(v)
	if s == "/" {
		d.addValue(v, "cannot be mapped: everything lies in it", "name the folder that is shared")
		return ""
	}
	return s
}

func (d *decoder) plans(v value) map[string]Plan {
	all := map[string]Plan{}
	d.eachNamed(v, func(f field) {
		var p Plan
		if f.name == "" {
			d.add(Diagnostic{
				Origin: f.origin, Key: v.key, Problem: "has a plan without an id",
				Suggestion: "write the plan's id before the colon",
			})
		}
		d.object(f.value, planKeys, map[string]memberReader{
			"override": func(v value) { p.Override = d.routingTarget(v) },
			"fallback": func(v value) { p.Fallback = d.routingTarget(v) },
		})
		all[f.name] = p
	})
	return all
}

// routingTarget gives where routing leads: "host", the name of a container or workspace, or a
// workspace's folder.
func (d *decoder) routingTarget(v value) string {
	s, ok := d.text(v)
	switch {
	case !ok || s == "":
		return ""
	case strings.HasPrefix(s, "/"):
		return d.path(v)
	case !lexical.IsName(s):
		d.addValue(v, "names no place",
			"write host, the name of a container, or the absolute folder of a workspace")
		return ""
	}
	d.targets = append(d.targets, v)
	return s
}

// checkRoutingTargets sees to it that routing leads somewhere, so that a mistyped name does not
// fail call after call.
func (d *decoder) checkRoutingTargets() {
	names := sortedKeys(d.c.Containers)
	for _, v := range d.targets {
		if v.text == "host" || slices.Contains(names, v.text) {
			continue
		}
		fix := "add it under containers, or write host"
		if near := lexical.Closest(v.text, append(names, "host")); near != "" {
			fix = "did you mean " + near + "?"
		}
		d.addValue(v, "is not the name of a container that is configured", fix)
	}
}
