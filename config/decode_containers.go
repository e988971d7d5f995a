package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/dray-dev/dray/internal/lexical"
)

const (
	fixContainerName = "begin with a letter or digit, continue with letters, digits, _ . and -"
	fixConflict      = "keep one of the two"
)

// object decodes the members of an element into a struct and reports unknown ones.
func (d *decoder) object(v value, keys settingDefs, into any) {
	d.recordOrigin(v)
	if v.shape != object {
		d.addValue(v, v.kindMismatch("a block of keys"),
			"write any of "+strings.Join(keys.names(), ", ")+", each followed by a colon and its value")
		return
	}
	for _, f := range v.fields {
		switch s, ok := keys.find(f.name); {
		case !ok:
			d.addKey(f.origin, f.value.key, "is not a known key",
				suggestName(f.name, keys.names(), keys.names()))
		case !s.supported():
			d.add(unsupported(f.origin, f.value.key))
		default:
			if s.kind.secret {
				f.value = f.value.hidden()
			}
			s.decode(d, f.value, reflect.ValueOf(into).Elem())
		}
	}
}

// eachNamed decodes a block whose keys are names that the operator chose.
func (d *decoder) eachNamed(v value, read func(f field)) {
	d.recordOrigin(v)
	if v.shape != object {
		d.addValue(v, v.kindMismatch("a block of names"),
			"write each name followed by a colon, with its keys indented below it")
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
			d.addKey(f.origin, f.value.key, "is not a valid container name", fixContainerName)
		case f.name == "host":
			d.addKey(f.origin, f.value.key, "is reserved: in routing, host means no container",
				"use another name")
		default:
			all[f.name] = d.container(f.value)
		}
	})
	return all
}

func (d *decoder) container(v value) Container {
	var c Container
	before := len(d.found)
	d.object(v, containerKeys, &c)
	if len(d.found) == before {
		d.checkTarget(v, c)
	}
	return c
}

// checkTarget checks that exactly one key identifies the container.
func (d *decoder) checkTarget(v value, c Container) {
	refuse := func(key, problem, fix string) {
		member, _ := v.field(key)
		d.addValue(member, problem, fix)
	}
	switch {
	case c.Workspace == "" && c.ID == "" && c.Label == "":
		d.addValue(v.withoutText(), "identifies no container",
			"add workspace (a directory), id (an id or a name) or label (key=value)")
	case c.ID != "" && c.Label != "":
		refuse("label", "conflicts with id", fixConflict)
	case c.Workspace != "" && c.ID != "":
		refuse("id", "conflicts with workspace", fixConflict)
	case c.Workspace != "" && c.Label != "":
		refuse("label", "conflicts with workspace", fixConflict)
	case c.Workspace == "" && c.Config != "":
		refuse("config", "requires workspace", "add workspace, or remove config")
	case c.Workspace == "" && c.Service != "":
		refuse("service", "requires workspace", "add workspace, or remove service")
	}
}

// containerRef returns a full id or a name.
func (r valueReader) containerRef(v value) string {
	s, ok := r.text(v)
	if ok && !lexical.IsName(s) {
		return r.refuse(v, "is neither an id nor a valid container name", fixContainerName)
	}
	return s
}

func (r valueReader) label(v value) string {
	s, ok := r.lineText(v)
	if strings.Index(s, "=") < 1 && ok {
		return r.refuse(v, "is not a label", "write key=value, for instance com.example.role=tools")
	}
	return s
}

func (d *decoder) mappings(v value) []Mapping {
	d.recordOrigin(v)
	if v.shape == empty {
		return nil // all entries are commented out
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
				d.addValue(item.withoutText(), "maps a second host directory to "+quoteValue(m.Container),
					fixConflict)
			}
		}
		all = append(all, m)
	}
	return all
}

func (d *decoder) mapping(v value) Mapping {
	var m Mapping
	before := len(d.found)
	d.object(v, mappingKeys, &m)
	switch {
	case len(d.found) > before: // reported already
	case m.Host == "" || m.Container == "":
		d.addValue(v.withoutText(), "is incomplete", "set both host and container")
	case m.Host != m.Container && (lexical.Contains(m.Container, m.Host) ||
		lexical.Contains(m.Host, m.Container)):
		d.addValue(v.withoutText(),
			"maps "+quoteValue(m.Host)+" to "+quoteValue(m.Container)+", and one contains the other",
			"make the two equal, or map directories that do not contain each other")
	}
	return m
}

// mappingRoot returns a path that may be the root of a mapping.
func (r valueReader) mappingRoot(v value) string {
	s := r.path(v)
	if s == "/" {
		return r.refuse(v, "cannot be mapped: it contains everything", "use the shared directory")
	}
	return s
}

func (d *decoder) plans(v value) map[string]Plan {
	all := map[string]Plan{}
	d.eachNamed(v, func(f field) {
		var p Plan
		if f.name == "" {
			d.addKey(f.origin, v.key, "has a plan without an id", "write the plan's id before the colon")
		}
		d.object(f.value, planKeys, &p)
		all[f.name] = p
	})
	return all
}

func (d *decoder) budget(v value) Budget {
	var b Budget
	d.object(v, budgetKeys, &b)
	return b
}

// routingTarget returns the target of a route: "host", the name of a container, or the directory of
// a workspace.
func (d *decoder) routingTarget(v value) string {
	s, ok := d.text(v)
	switch {
	case !ok || s == "":
		return ""
	case strings.HasPrefix(s, "/"):
		return d.path(v)
	case !lexical.IsName(s):
		return d.refuse(v, "is not a routing target",
			"write host, the name of a container, or the absolute directory of a workspace")
	}
	d.targets = append(d.targets, v)
	return s
}

// checkRoutingTargets checks that the targets exist. A misspelled name would fail every call.
func (d *decoder) checkRoutingTargets() {
	containers := sortedKeys(d.c.Containers)
	d.checkKnown(d.targets, append(containers, "host"), "add it under containers, or write host")
	d.checkKnown(d.specifics, containers, "add it under containers, or write environment: required")
}

func (d *decoder) checkKnown(names []value, known []string, fix string) {
	for _, v := range names {
		if !slices.Contains(known, v.text) {
			d.addValue(v, "is not a configured container", didYouMean(v.text, known, fix))
		}
	}
}
