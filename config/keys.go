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
	// about says what it means, in the words of docs/reference/configuration.md; is says what may stand there. Editors get both.
	about string
	is    *schema
	// read checks a value and puts it into the configuration. It is nil for what is not supported yet.
	read func(d *decoder, v value)
	// entries are the keys of each element where the operator chooses the elements' names; nil elsewhere.
	entries *members
	secret  bool
}

// members are the keys of an element of a list or of a named entry.
type members struct {
	known []memberKey
	// later are keys of the contract that are not supported yet.
	later []string
}

// memberKey is one key of an element.
type memberKey struct {
	name  string
	is    *schema
	about string
}

// names gives the keys that are supported.
func (m members) names() []string {
	names := make([]string, len(m.known))
	for i, k := range m.known {
		names[i] = k.name
	}
	return names
}

var (
	containerKeys = members{known: []memberKey{
		{"workspace", anAbsolutePath, "the host folder whose devcontainer it is"},
		{"config", aPath, "which devcontainer.json of the workspace, absolute or relative to it"},
		{"service", aLine, "which service of the workspace's compose file"},
		{"id", aContainer, "a full id or a name"},
		{"label", aLabel, "a label that one container has, `key=value`"},
		{"mappings", listOf(objectOf(mappingKeys, "host", "container")), "laid over those that follow from its mounts"},
	}}
	mappingKeys = members{known: []memberKey{
		{"host", aMappedPath, "a folder on the host"},
		{"container", aMappedPath, "the same folder in the container"},
	}}
	planKeys = members{
		known: []memberKey{
			{"override", aTarget, "`host`, a container's name, or a workspace's folder: before the tool's own wish"},
			{"fallback", aTarget, "the same, where no other rule speaks"},
		},
		later: []string{"budget"},
	}
	specificKeys = members{known: []memberKey{{"specific", aContainer, "a container's name or id"}}}
	toolKeys     = members{
		known: []memberKey{
			{"name", aToolName, "letters, digits, `.`, `_` and `-`, and not the name of a built-in tool"},
			{"description", aText, "what it does, for people and models"},
			{"argv", anArgv, "the program and its arguments; its input is JSON on stdin"},
			{"input_schema", aJSONSchema, "JSON Schema of the input; without it any object is one"},
			{"output_schema", aJSONSchema, "JSON Schema of the output, for `output: json`"},
			{"environment", anEnvironment, "where it may run; `container` says the same as `required`"},
			{"timeout", aPositiveDuration, "at most `limits.max_timeout`; without it `limits.timeout`"},
			{"output", oneOf("text", "json"), "what its stdout is"},
			{"mapping", oneOf("schema", "heuristic", "none"), "how paths are found in its input and output"},
			{"results", listOf(aPath), "files and folders that come home when it ends: absolute, or relative to its working folder"},
			{"rewrite_text", aTruth, "whether the paths in what it prints are rewritten to the caller's"},
		},
		later: []string{"capabilities", "idempotent"},
	}
)

// settings is every key of the contract.
var settings = append([]setting{
	{
		key: "server.socket", is: anAbsolutePath,
		about: "the socket, an absolute path",
		read:  func(d *decoder, v value) { d.c.Server.Socket = d.path(v) },
	},
	{
		key: "server.max_body", initial: "64MiB", is: aSize,
		about: "longest request body",
		read:  func(d *decoder, v value) { d.c.Server.MaxBody = d.size(v) },
	},
	{
		key: "engine.host", is: anAddress,
		about: "address of the engine, as in `DOCKER_HOST`; without it and `engine.context` the engine is found as the docker CLI finds it",
		read:  func(d *decoder, v value) { d.c.Engine.Host = d.engineHost(v) },
	},
	{
		key: "engine.context", is: aLine,
		about: "name of a docker context; not beside `engine.host`",
		read:  func(d *decoder, v value) { d.c.Engine.Context = d.word(v) },
	},
	{
		key: "devcontainer.cli", is: aProgram,
		about: "the devcontainer CLI, a bare name or an absolute path; empty looks for `devcontainer`",
		read:  func(d *decoder, v value) { d.c.Devcontainer.CLI = d.program(v) },
	},
	{
		key: "devcontainer.up_args", form: commaForm, secret: true, is: listOf(aText),
		about: "further arguments of its `up`",
		read:  func(d *decoder, v value) { d.c.Devcontainer.UpArgs = d.each(v, d.argument) },
	},
	{
		key: "devcontainer.local_env", form: yamlForm, secret: true, entries: &members{}, is: variablesSchema(),
		about: "values of `${localEnv:NAME}` for calls that bring none, and for `up`",
		read:  func(d *decoder, v value) { d.c.Devcontainer.LocalEnv = d.variables(v) },
	},
	{
		key: "devcontainer.up_timeout", initial: "30m", is: aPositiveDuration,
		about: "how long bringing up a workspace's container may take, whoever waits for it",
		read:  func(d *decoder, v value) { d.c.Devcontainer.UpTimeout = d.positive(v) },
	},
	{
		key: "agent.lease", initial: "30s", is: aPositiveDuration,
		about: "how long an agent that hears nothing lets its calls live; at least 1s",
		read:  func(d *decoder, v value) { d.c.Agent.Lease = d.lease(v) },
	},
	{
		key: "agent.transport", initial: "auto", is: oneOf("auto", "socket", "stdio", "engine"),
		about: "`auto`, `socket` (an agent by its socket or nothing), `stdio` (an agent by its stdio or nothing), `engine` (no agent)",
		read:  func(d *decoder, v value) { d.c.Agent.Transport = d.transport(v) },
	},
	{
		key: "limits.timeout", initial: "120s", is: aPositiveDuration,
		about: "for calls and tools that state none; at most `limits.max_timeout`",
		read:  func(d *decoder, v value) { d.c.Limits.Timeout = d.positive(v) },
	},
	{
		key: "limits.max_timeout", initial: "1h", is: aPositiveDuration,
		about: "the longest that a call or tool may state",
		read:  func(d *decoder, v value) { d.c.Limits.MaxTimeout = d.positive(v) },
	},
	{
		key: "limits.idle_timeout", initial: "0s", is: aDuration,
		about: "the longest silence; 0 is any",
		read:  func(d *decoder, v value) { d.c.Limits.IdleTimeout = d.duration(v) },
	},
	{
		key: "limits.grace", initial: "2s", is: aDuration,
		about: "between TERM and KILL",
		read:  func(d *decoder, v value) { d.c.Limits.Grace = d.duration(v) },
	},
	{
		key: "limits.concurrent", initial: "256", is: countFrom(1, maxConcurrent),
		about: "calls that run at once",
		read:  func(d *decoder, v value) { d.c.Limits.Concurrent = d.count(v, 1, maxConcurrent) },
	},
	{
		key: "limits.per_container", initial: "64", is: countFrom(1, MaxPerContainer),
		about: "calls that run at once in one container; at most 4096, which is what one connection to an agent carries",
		read:  func(d *decoder, v value) { d.c.Limits.PerContainer = d.count(v, 1, MaxPerContainer) },
	},
	{
		key: "limits.queue", initial: "1024", is: countFrom(0, maxQueue),
		about: "calls that wait for their turn beside those that run; 0: none waits, what cannot run at once is `busy`",
		read:  func(d *decoder, v value) { d.c.Limits.Queue = d.count(v, 0, maxQueue) },
	},
	{
		key: "limits.drain", initial: "10s", is: aDuration,
		about: "how long a daemon that ends waits for its calls",
		read:  func(d *decoder, v value) { d.c.Limits.Drain = d.duration(v) },
	},
	{
		key: "limits.capture", initial: "50MiB", is: aSize,
		about: "kept of each output stream",
		read:  func(d *decoder, v value) { d.c.Limits.Capture = d.size(v) },
	},
	{
		key: "limits.view", initial: "16KiB", is: aSize,
		about: "shown in a result of each stream's head, and as much of its tail",
		read:  func(d *decoder, v value) { d.c.Limits.View = d.size(v) },
	},
	{
		key: "limits.captures_disk", initial: "10GiB", is: aSize,
		about: "what the kept output of all calls takes together; beyond it the oldest goes first, and never that of a running call",
		read:  func(d *decoder, v value) { d.c.Limits.CapturesDisk = d.size(v) },
	},
	{
		key: "limits.captures_keep", initial: "168h", is: aPositiveDuration,
		about: "how long output is kept after its last byte; the trail keeps its head, tail, length and sha256",
		read:  func(d *decoder, v value) { d.c.Limits.CapturesKeep = d.positive(v) },
	},
	{
		key: "sandbox.root", is: aMappedPath,
		about: "the folder that files come home to, of this user alone with mode 0700; none: every sync is refused",
		read:  func(d *decoder, v value) { d.c.Sandbox.Root = d.sandboxRoot(v) },
	},
	{
		key: "sandbox.sources", form: commaForm, is: listOf(anAbsolutePath),
		about: "folders in containers that files may come from, beside the workspace, its bind mounts and `/tmp`",
		read:  func(d *decoder, v value) { d.c.Sandbox.Sources = d.each(v, d.path) },
	},
	{
		key: "sandbox.max_file", initial: "64MiB", is: aSize,
		about: "the largest file of a sync",
		read:  func(d *decoder, v value) { d.c.Sandbox.MaxFile = d.size(v) },
	},
	{
		key: "sandbox.max_total", initial: "512MiB", is: aSize,
		about: "all files of a sync together",
		read:  func(d *decoder, v value) { d.c.Sandbox.MaxTotal = d.size(v) },
	},
	{
		key: "sandbox.max_files", initial: "10000", is: countFrom(1, MaxSyncFiles),
		about: "files and folders of a sync; at most 100000, since the record of a call names each",
		read:  func(d *decoder, v value) { d.c.Sandbox.MaxFiles = d.count(v, 1, MaxSyncFiles) },
	},
	{
		key: "sandbox.max_depth", initial: "64", is: countFrom(1, maxSyncDepth),
		about: "folders that a file lies in below what was named",
		read:  func(d *decoder, v value) { d.c.Sandbox.MaxDepth = d.count(v, 1, maxSyncDepth) },
	},
	{
		key: "sandbox.timeout", initial: "300s", is: aPositiveDuration,
		about: "how long a sync may take",
		read:  func(d *decoder, v value) { d.c.Sandbox.Timeout = d.positive(v) },
	},
	{
		key: "sandbox.deny", form: commaForm, is: listOf(aDeniedName),
		about: "names that never come home, beside those that dray knows: one without a slash at any depth, `a/b` where the one lies in the other",
		read:  func(d *decoder, v value) { d.c.Sandbox.Deny = d.each(v, d.deniedName) },
	},
	{
		key: "sandbox.executable", initial: "false", is: aTruth,
		about: "whether files keep their right to be run: 0700 then, else 0600",
		read:  func(d *decoder, v value) { d.c.Sandbox.Executable = d.truth(v) },
	},
	{
		key: "host.env", form: commaForm, is: listOf(aVariable),
		about: "names of the daemon's variables that host tools get too",
		read:  func(d *decoder, v value) { d.c.Host.Env = d.each(v, d.variableName) },
	},
	{
		key: "host.roots", form: commaForm, is: listOf(anAbsolutePath),
		about: "folders where tools may run and write on the host; none: no tool starts there",
		read:  func(d *decoder, v value) { d.c.Host.Roots = d.each(v, d.path) },
	},
	{
		key: "routing.override", is: aTarget,
		about: "`host`, a container's name, or a workspace's folder: before the tool's own wish",
		read:  func(d *decoder, v value) { d.c.Routing.Override = d.target(v) },
	},
	{
		key: "routing.fallback", is: aTarget,
		about: "the same, where no other rule speaks",
		read:  func(d *decoder, v value) { d.c.Routing.Fallback = d.target(v) },
	},
	{
		key: "routing.plans", form: yamlForm, entries: &planKeys, is: plansSchema(),
		about: "by plan id: `override` and `fallback` of one plan",
		read:  func(d *decoder, v value) { d.c.Routing.Plans = d.plans(v) },
	},
	{
		key: "containers", form: yamlForm, entries: &containerKeys, is: containersSchema(),
		about: "by name, each with `workspace`, or one of `id` and `label`",
		read:  func(d *decoder, v value) { d.c.Containers = d.containers(v) },
	},
	{
		key: "tools", form: yamlForm, is: listOf(objectOf(toolKeys, "name", "argv")),
		about: "a list of command tools",
		read:  func(d *decoder, v value) { d.c.Tools = d.tools(v) },
	},
	{
		key: "trust.workspaces", form: commaForm, is: listOf(anAbsolutePath),
		about: "folders that are trusted whatever configuration stands in them",
		read:  func(d *decoder, v value) { d.c.Trust.Workspaces = d.each(v, d.path) },
	},
}, notYet()...)

// notYet are the keys of the contract that are refused by name.
func notYet() []setting {
	keys := []string{
		"server.tcp", "server.allowed_hosts", "server.allowed_origins",
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
