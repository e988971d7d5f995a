package config

import (
	"slices"
	"strings"
)

// form is how a variable or a flag writes a setting.
type form int

const (
	// plainForm is the text itself.
	plainForm form = iota
	// commaForm is a list of texts.
	commaForm
	// yamlForm is YAML, or JSON, which is a part of it.
	yamlForm
)

// setting is one key whose name is fixed.
type setting struct {
	key  string
	form form
	// initial is the default, written as a variable would write it; empty for none.
	initial string
	// read checks a value and puts it into the configuration. It is nil for what is not supported yet.
	read func(d *decoder, v value)
	// entries are the keys of each element where the operator chooses the elements' names; nil elsewhere.
	entries *members
	secret  bool
}

// members are the keys of an element of a list or of a named entry.
type members struct {
	known []string
	// later are keys of the contract that are not supported yet.
	later []string
}

var (
	containerKeys = members{known: []string{"workspace", "config", "service", "id", "label", "mappings"}}
	mappingKeys   = members{known: []string{"host", "container"}}
	planKeys      = members{known: []string{"override", "fallback"}, later: []string{"budget"}}
	specificKeys  = members{known: []string{"specific"}}
	toolKeys      = members{
		known: []string{"name", "description", "argv", "input_schema", "output_schema", "environment", "timeout", "output", "mapping"},
		later: []string{"capabilities", "idempotent", "results", "rewrite_text"},
	}
)

// settings is every key of the contract.
var settings = append([]setting{
	{key: "server.socket", read: func(d *decoder, v value) { d.c.Server.Socket = d.path(v) }},
	{key: "server.max_body", initial: "64MiB", read: func(d *decoder, v value) { d.c.Server.MaxBody = d.size(v) }},

	{key: "engine.host", read: func(d *decoder, v value) { d.c.Engine.Host = d.engineHost(v) }},
	{key: "engine.context", read: func(d *decoder, v value) { d.c.Engine.Context = d.word(v) }},

	{key: "devcontainer.cli", read: func(d *decoder, v value) { d.c.Devcontainer.CLI = d.program(v) }},
	{key: "devcontainer.up_args", form: commaForm, secret: true, read: func(d *decoder, v value) { d.c.Devcontainer.UpArgs = d.each(v, d.argument) }},
	{key: "devcontainer.local_env", form: yamlForm, secret: true, entries: &members{}, read: func(d *decoder, v value) { d.c.Devcontainer.LocalEnv = d.variables(v) }},

	{key: "agent.lease", initial: "30s", read: func(d *decoder, v value) { d.c.Agent.Lease = d.positive(v) }},
	{key: "agent.transport", initial: "auto", read: func(d *decoder, v value) { d.c.Agent.Transport = d.transport(v) }},

	{key: "limits.timeout", initial: "120s", read: func(d *decoder, v value) { d.c.Limits.Timeout = d.positive(v) }},
	{key: "limits.max_timeout", initial: "1h", read: func(d *decoder, v value) { d.c.Limits.MaxTimeout = d.positive(v) }},
	{key: "limits.idle_timeout", initial: "0s", read: func(d *decoder, v value) { d.c.Limits.IdleTimeout = d.duration(v) }},
	{key: "limits.grace", initial: "2s", read: func(d *decoder, v value) { d.c.Limits.Grace = d.duration(v) }},
	{key: "limits.drain", initial: "10s", read: func(d *decoder, v value) { d.c.Limits.Drain = d.duration(v) }},
	{key: "limits.capture", initial: "50MiB", read: func(d *decoder, v value) { d.c.Limits.Capture = d.size(v) }},
	{key: "limits.view", initial: "16KiB", read: func(d *decoder, v value) { d.c.Limits.View = d.size(v) }},

	{key: "host.env", form: commaForm, read: func(d *decoder, v value) { d.c.Host.Env = d.each(v, d.variableName) }},
	{key: "host.roots", form: commaForm, read: func(d *decoder, v value) { d.c.Host.Roots = d.each(v, d.path) }},

	{key: "routing.override", read: func(d *decoder, v value) { d.c.Routing.Override = d.target(v) }},
	{key: "routing.fallback", read: func(d *decoder, v value) { d.c.Routing.Fallback = d.target(v) }},
	{key: "routing.plans", form: yamlForm, entries: &planKeys, read: func(d *decoder, v value) { d.c.Routing.Plans = d.plans(v) }},

	{key: "containers", form: yamlForm, entries: &containerKeys, read: func(d *decoder, v value) { d.c.Containers = d.containers(v) }},
	{key: "tools", form: yamlForm, read: func(d *decoder, v value) { d.c.Tools = d.tools(v) }},
	{key: "trust.workspaces", form: commaForm, read: func(d *decoder, v value) { d.c.Trust.Workspaces = d.each(v, d.path) }},
}, notYet()...)

// notYet are the keys of the contract that are refused by name.
func notYet() []setting {
	keys := []string{
		"server.tcp", "server.allowed_hosts", "server.allowed_origins",
		"limits.concurrent", "limits.per_container", "limits.queue", "limits.captures_disk", "limits.captures_keep",
		"sandbox.root", "sandbox.sources", "sandbox.max_file", "sandbox.max_total", "sandbox.max_files", "sandbox.max_depth",
		"sandbox.timeout", "sandbox.deny", "sandbox.executable",
		"tool_dirs",
		"audit.on_failure", "audit.keep", "audit.redact.patterns", "audit.redact.env",
		"retry.attempts", "retry.budget", "breaker.failures", "breaker.open", "policy.approval_lifetime",
	}
	later := []setting{{key: "server.tokens", entries: &members{}}}
	for _, key := range keys {
		later = append(later, setting{key: key})
	}
	return later
}

// findSetting gives the setting of a key.
func findSetting(key string) (setting, bool) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
	if i < 0 {
		return setting{}, false
	}
	return settings[i], true
}

// namesIn gives the names that may stand in a section, "" being the top; onlySupported leaves out those that lead to nothing but refusals.
func namesIn(section string, onlySupported bool) []string {
	var names []string
	for _, s := range settings {
		rest, ok := s.key, true
		if section != "" {
			rest, ok = strings.CutPrefix(s.key, section+".")
		}
		if !ok || onlySupported && s.read == nil {
			continue
		}
		name, _, _ := strings.Cut(rest, ".")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
