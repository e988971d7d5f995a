package config

import (
	"slices"
	"strings"
)

// textFormat is how a variable or a flag writes a setting.
type textFormat int

const (
	// plainForm is the text itself.
	plainForm textFormat = iota
	// commaForm is a list of texts.
	commaForm
	// yamlForm is YAML, or JSON, which is a part of it.
	yamlForm
)

// settingDef is one key whose name is fixed.
type settingDef struct {
	key  string
	form textFormat
	// defaultValue is the default, written as a variable would write it; empty for none.
	defaultValue string
	// description says what it means, in the words of docs/reference/configuration.md; is says what
	// may stand there. Editors get both.
	description string
	schema      *schema
	// read checks a value and puts it into the configuration. It is nil for what is not supported yet.
	read func(d *decoder, v value)
	// entries are the keys of each element where the operator chooses the elements' names; nil
	// elsewhere.
	entries *objectKeys
	secret  bool
}

// objectKeys are the keys of an element of a list or of a named entry.
type objectKeys struct {
	known []memberKey
	// unsupported are keys of the contract that are not supported yet.
	unsupported []string
}

// memberKey is one key of an element.
type memberKey struct {
	name  string
	is    *schema
	about string
}

// names gives the keys that are supported.
func (m objectKeys) names() []string {
	names := make([]string, len(m.known))
	for i, k := range m.known {
		names[i] = k.name
	}
	return names
}

var (
	containerKeys = objectKeys{known: []memberKey{
		{"workspace", anAbsolutePath, "the host folder whose devcontainer it is"},
		{"config", pathSchema, "which devcontainer.json of the workspace, absolute or relative to it"},
		{"service", lineSchema, "which service of the workspace's compose file"},
		{"id", aContainer, "a full id or a name"},
		{"label", aLabel, "a label that one container has, `key=value`"},
		{
			"mappings", arrayOf(objectOf(mappingKeys, "host", "container")),
			"laid over those that follow from its mounts",
		},
	}}
	mappingKeys = objectKeys{known: []memberKey{
		{"host", aMappedPath, "a folder on the host"},
		{"container", aMappedPath, "the same folder in the container"},
	}}
	planKeys = objectKeys{
		known: []memberKey{
			{"override", targetSchema, "`host`, a container's name, or a workspace's folder: before the tool's own wish"},
			{"fallback", targetSchema, "the same, where no other rule speaks"},
		},
		unsupported: []string{"budget"},
	}
	specificKeys = objectKeys{known: []memberKey{{"specific", aContainer, "a container's name or id"}}}
	toolKeys     = objectKeys{
		known: []memberKey{
			{"name", aToolName, "letters, digits, `.`, `_` and `-`, and not the name of a built-in tool"},
			{"description", textSchema, "what it does, for people and models"},
			{"argv", anArgv, "the program and its arguments; its input is JSON on stdin"},
			{"input_schema", aJSONSchema, "JSON Schema of the input; without it any object is one"},
			{"output_schema", aJSONSchema, "JSON Schema of the output, for `output: json`"},
			{"environment", anEnvironment, "where it may run; `container` says the same as `required`"},
			{"timeout", aPositiveDuration, "at most `limits.max_timeout`; without it `limits.timeout`"},
			{"output", enumOf("text", "json"), "what its stdout is"},
			{
				"mapping", enumOf("schema", "heuristic", "none"),
				"how paths are found in its input and output",
			},
			{
				"results", arrayOf(pathSchema),
				"files and folders that come home when it ends: absolute, or relative to its working folder",
			},
			{
				"rewrite_text", boolSchema,
				"whether the paths in what it prints are rewritten to the caller's",
			},
		},
		unsupported: []string{"capabilities", "idempotent"},
	}
)

// settings is every key of the contract.
var settings = append([]settingDef{
	{
		key: "server.socket", schema: anAbsolutePath,
		description: "the socket, an absolute path",
		read:        func(d *decoder, v value) { d.c.Server.Socket = d.path(v) },
	},
	{
		key: "server.max_body", defaultValue: "64MiB", schema: aSize,
		description: "longest request body",
		read:        func(d *decoder, v value) { d.c.Server.MaxBody = d.size(v) },
	},
	{
		key: "engine.host", schema: anAddress,
		description: "address of the engine, as in `DOCKER_HOST`; without it and `engine.context` the engine is found as the docker CLI finds it",
		read:        func(d *decoder, v value) { d.c.Engine.Host = d.engineHost(v) },
	},
	{
		key: "engine.context", schema: lineSchema,
		description: "name of a docker context; not beside `engine.host`",
		read:        func(d *decoder, v value) { d.c.Engine.Context = d.singleLineText(v) },
	},
	{
		key: "devcontainer.cli", schema: aProgram,
		description: "the devcontainer CLI, a bare name or an absolute path; empty looks for `devcontainer`",
		read:        func(d *decoder, v value) { d.c.Devcontainer.CLI = d.program(v) },
	},
	{
		key: "devcontainer.up_args", form: commaForm, secret: true, schema: arrayOf(textSchema),
		description: "further arguments of its `up`",
		read:        func(d *decoder, v value) { d.c.Devcontainer.UpArgs = d.each(v, d.argument) },
	},
	{
		key: "devcontainer.local_env", form: yamlForm, secret: true, entries: &objectKeys{}, schema: variablesSchema(),
		description: "values of `${localEnv:NAME}` for calls that bring none, and for `up`",
		read:        func(d *decoder, v value) { d.c.Devcontainer.LocalEnv = d.variables(v) },
	},
	{
		key: "devcontainer.up_timeout", defaultValue: "30m", schema: aPositiveDuration,
		description: "how long bringing up a workspace's container may take, whoever waits for it",
		read:        func(d *decoder, v value) { d.c.Devcontainer.UpTimeout = d.positive(v) },
	},
	{
		key: "agent.lease", defaultValue: "30s", schema: aPositiveDuration,
		description: "how long an agent that hears nothing lets its calls live; at least 1s",
		read:        func(d *decoder, v value) { d.c.Agent.Lease = d.lease(v) },
	},
	{
		key: "agent.transport", defaultValue: "auto", schema: enumOf("auto", "socket", "stdio", "engine"),
		description: "`auto`, `socket` (an agent by its socket or nothing), `stdio` (an agent by its stdio or nothing), `engine` (no agent)",
		read:        func(d *decoder, v value) { d.c.Agent.Transport = d.transport(v) },
	},
	{
		key: "limits.timeout", defaultValue: "120s", schema: aPositiveDuration,
		description: "for calls and tools that state none; at most `limits.max_timeout`",
		read:        func(d *decoder, v value) { d.c.Limits.Timeout = d.positive(v) },
	},
	{
		key: "limits.max_timeout", defaultValue: "1h", schema: aPositiveDuration,
		description: "the longest that a call or tool may state",
		read:        func(d *decoder, v value) { d.c.Limits.MaxTimeout = d.positive(v) },
	},
	{
		key: "limits.idle_timeout", defaultValue: "0s", schema: aDuration,
		description: "the longest silence; 0 is any",
		read:        func(d *decoder, v value) { d.c.Limits.IdleTimeout = d.duration(v) },
	},
	{
		key: "limits.grace", defaultValue: "2s", schema: aDuration,
		description: "between TERM and KILL",
		read:        func(d *decoder, v value) { d.c.Limits.Grace = d.duration(v) },
	},
	{
		key: "limits.concurrent", defaultValue: "256", schema: countFrom(1, maxConcurrent),
		description: "calls that run at once",
		read:        func(d *decoder, v value) { d.c.Limits.Concurrent = d.count(v, 1, maxConcurrent) },
	},
	{
		key: "limits.per_container", defaultValue: "64", schema: countFrom(1, MaxPerContainer),
		description: "calls that run at once in one container; at most 4096, which is what one connection to an agent carries",
		read: func(d *decoder,
			v value,
		) {
			d.c.Limits.PerContainer = d.count(v, 1, MaxPerContainer)
		},
	},
	{
		key: "limits.queue", defaultValue: "1024", schema: countFrom(0, maxQueue),
		description: "calls that wait for their turn beside those that run; 0: none waits, what cannot run at once is `busy`",
		read:        func(d *decoder, v value) { d.c.Limits.Queue = d.count(v, 0, maxQueue) },
	},
	{
		key: "limits.drain", defaultValue: "10s", schema: aDuration,
		description: "how long a daemon that ends waits for its calls",
		read:        func(d *decoder, v value) { d.c.Limits.Drain = d.duration(v) },
	},
	{
		key: "limits.capture", defaultValue: "50MiB", schema: aSize,
		description: "kept of each output stream",
		read:        func(d *decoder, v value) { d.c.Limits.Capture = d.size(v) },
	},
	{
		key: "limits.view", defaultValue: "16KiB", schema: aSize,
		description: "shown in a result of each stream's head, and as much of its tail",
		read:        func(d *decoder, v value) { d.c.Limits.View = d.size(v) },
	},
	{
		key: "limits.captures_disk", defaultValue: "10GiB", schema: aSize,
		description: "what the kept output of all calls takes together; beyond it the oldest goes first, and never that of a running call",
		read:        func(d *decoder, v value) { d.c.Limits.CapturesDisk = d.size(v) },
	},
	{
		key: "limits.captures_keep", defaultValue: "168h", schema: aPositiveDuration,
		description: "how long output is kept after its last byte; the trail keeps its head, tail, length and sha256",
		read:        func(d *decoder, v value) { d.c.Limits.CapturesKeep = d.positive(v) },
	},
	{
		key: "sandbox.root", schema: aMappedPath,
		description: "the folder that files come home to, of this user alone with mode 0700; none: every sync is refused",
		read:        func(d *decoder, v value) { d.c.Sandbox.Root = d.sandboxRoot(v) },
	},
	{
		key: "sandbox.sources", form: commaForm, schema: arrayOf(anAbsolutePath),
		description: "folders in containers that files may come from, beside the workspace, its bind mounts and `/tmp`",
		read:        func(d *decoder, v value) { d.c.Sandbox.Sources = d.each(v, d.path) },
	},
	{
		key: "sandbox.max_file", defaultValue: "64MiB", schema: aSize,
		description: "the largest file of a sync",
		read:        func(d *decoder, v value) { d.c.Sandbox.MaxFile = d.size(v) },
	},
	{
		key: "sandbox.max_total", defaultValue: "512MiB", schema: aSize,
		description: "all files of a sync together",
		read:        func(d *decoder, v value) { d.c.Sandbox.MaxTotal = d.size(v) },
	},
	{
		key: "sandbox.max_files", defaultValue: "10000", schema: countFrom(1, MaxSyncFiles),
		description: "files and folders of a sync; at most 100000, since the record of a call names each",
		read:        func(d *decoder, v value) { d.c.Sandbox.MaxFiles = d.count(v, 1, MaxSyncFiles) },
	},
	{
		key: "sandbox.max_depth", defaultValue: "64", schema: countFrom(1, maxSyncDepth),
		description: "folders that a file lies in below what was named",
		read:        func(d *decoder, v value) { d.c.Sandbox.MaxDepth = d.count(v, 1, maxSyncDepth) },
	},
	{
		key: "sandbox.timeout", defaultValue: "300s", schema: aPositiveDuration,
		description: "how long a sync may take",
		read:        func(d *decoder, v value) { d.c.Sandbox.Timeout = d.positive(v) },
	},
	{
		key: "sandbox.deny", form: commaForm, schema: arrayOf(aDeniedName),
		description: "names that never come home, beside those that dray knows: one without a slash at any depth, `a/b` where the one lies in the other",
		read:        func(d *decoder, v value) { d.c.Sandbox.Deny = d.each(v, d.denyPattern) },
	},
	{
		key: "sandbox.executable", defaultValue: "false", schema: boolSchema,
		description: "whether files keep their right to be run: 0700 then, else 0600",
		read:        func(d *decoder, v value) { d.c.Sandbox.Executable = d.boolean(v) },
	},
	{
		key: "host.env", form: commaForm, schema: arrayOf(aVariable),
		description: "names of the daemon's variables that host tools get too",
		read:        func(d *decoder, v value) { d.c.Host.Env = d.each(v, d.variableName) },
	},
	{
		key: "host.roots", form: commaForm, schema: arrayOf(anAbsolutePath),
		description: "folders where tools may run and write on the host; none: no tool starts there",
		read:        func(d *decoder, v value) { d.c.Host.Roots = d.each(v, d.path) },
	},
	{
		key: "routing.override", schema: targetSchema,
		description: "`host`, a container's name, or a workspace's folder: before the tool's own wish",
		read:        func(d *decoder, v value) { d.c.Routing.Override = d.routingTarget(v) },
	},
	{
		key: "routing.fallback", schema: targetSchema,
		description: "the same, where no other rule speaks",
		read:        func(d *decoder, v value) { d.c.Routing.Fallback = d.routingTarget(v) },
	},
	{
		key: "routing.plans", form: yamlForm, entries: &planKeys, schema: plansSchema(),
		description: "by plan id: `override` and `fallback` of one plan",
		read:        func(d *decoder, v value) { d.c.Routing.Plans = d.plans(v) },
	},
	{
		key: "containers", form: yamlForm, entries: &containerKeys, schema: containersSchema(),
		description: "by name, each with `workspace`, or one of `id` and `label`",
		read:        func(d *decoder, v value) { d.c.Containers = d.containers(v) },
	},
	{
		key: "tools", form: yamlForm, schema: arrayOf(objectOf(toolKeys, "name", "argv")),
		description: "a list of command tools",
		read:        func(d *decoder, v value) { d.c.Tools = d.tools(v) },
	},
	{
		key: "trust.workspaces", form: commaForm, schema: arrayOf(anAbsolutePath),
		description: "folders that are trusted whatever configuration stands in them",
		read:        func(d *decoder, v value) { d.c.Trust.Workspaces = d.each(v, d.path) },
	},
}, unsupportedSettings()...)

// unsupportedSettings are the keys of the contract that are refused by name.
func unsupportedSettings() []settingDef {
	keys := []string{
		"server.tcp", "server.allowed_hosts", "server.allowed_origins",
		"tool_dirs",
		"audit.on_failure", "audit.keep", "audit.redact.patterns", "audit.redact.env",
		"retry.attempts", "retry.budget", "breaker.failures", "breaker.open", "policy.approval_lifetime",
	}
	later := []settingDef{{key: "server.tokens", entries: &objectKeys{}}}
	for _, key := range keys {
		later = append(later, settingDef{key: key})
	}
	return later
}

// findSetting gives the setting of a key.
func findSetting(key string) (settingDef, bool) {
	i := slices.IndexFunc(settings, func(s settingDef) bool { return s.key == key })
	if i < 0 {
		return settingDef{}, false
	}
	return settings[i], true
}

// namesIn gives the names that may stand in a section, "" being the top; onlySupported leaves out
// those that lead to nothing but refusals.
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
