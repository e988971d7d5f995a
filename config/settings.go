package config

import (
	"reflect"
	"slices"
	"strings"
)

// textFormat is how a variable or a flag contains a setting.
type textFormat int

const (
	// plainForm is the text itself.
	plainForm textFormat = iota
	// commaForm is a list of texts, separated by commas.
	commaForm
	// yamlForm is YAML or JSON.
	yamlForm
)

// settingDef is a key with a fixed name.
type settingDef struct {
	key  string
	form textFormat
	// defaultValue is the default in the form of a variable; empty for none.
	defaultValue string
	// description is the meaning of the key, for editors and docs/reference/configuration.md.
	description string
	// kind decodes the value into the field of Config that has the name of the key. It is zero for a
	// key that is not supported yet.
	kind valueKind
	// entries are the keys of each element of a map whose names the operator chooses; else nil.
	entries *objectKeys
	secret  bool
}

func (s settingDef) supported() bool { return s.kind.read != nil }

// decode reads a value into its field of the configuration.
func (s settingDef) decode(d *decoder, v value) {
	fieldOf(reflect.ValueOf(d.c).Elem(), s.key).Set(reflect.ValueOf(s.kind.read(d, v)))
}

// valueKind is a kind of value: what it may contain, for editors, and how it is decoded.
type valueKind struct {
	schema *schema
	read   func(d *decoder, v value) any
}

func kindOf[T any](s *schema, read func(d *decoder, v value) T) valueKind {
	return valueKind{s, func(d *decoder, v value) any { return read(d, v) }}
}

func listKind(item valueKind) valueKind {
	return kindOf(arrayOf(item.schema), func(d *decoder, v value) []string {
		return d.each(v, func(v value) string { return item.read(d, v).(string) }) //nolint:forcetypeassert // by construction
	})
}

func countKind(least, most int) valueKind {
	return kindOf(countFrom(least, most), func(d *decoder, v value) int { return d.count(v, least, most) })
}

var (
	absPathKind          = kindOf(absPathSchema, (*decoder).path)
	absPathsKind         = listKind(absPathKind)
	sizeKind             = kindOf(sizeSchema, (*decoder).size)
	durationKind         = kindOf(durationSchema, (*decoder).duration)
	positiveDurationKind = kindOf(positiveDurationSchema, (*decoder).positive)
	leaseKind            = kindOf(positiveDurationSchema, (*decoder).lease)
	booleanKind          = kindOf(boolSchema, (*decoder).boolean)
	lineKind             = kindOf(lineSchema, (*decoder).singleLineText)
	addressKind          = kindOf(addressSchema, (*decoder).engineHost)
	programKind          = kindOf(programSchema, (*decoder).program)
	argumentsKind        = listKind(kindOf(textSchema, (*decoder).argument))
	variablesKind        = kindOf(variablesSchema(), (*decoder).variables)
	variableNamesKind    = listKind(kindOf(variableSchema, (*decoder).variableName))
	transportKind        = kindOf(enumOf("auto", "socket", "stdio", "engine"), (*decoder).transport)
	sandboxRootKind      = kindOf(mappingRootSchema, (*decoder).sandboxRoot)
	denyPatternsKind     = listKind(kindOf(denyPatternSchema, (*decoder).denyPattern))
	targetKind           = kindOf(targetSchema, (*decoder).routingTarget)
	plansKind            = kindOf(plansSchema(), (*decoder).plans)
	containersKind       = kindOf(containersSchema(), (*decoder).containers)
	toolsKind            = kindOf(arrayOf(objectOf(toolKeys, "name", "argv")), (*decoder).tools)
)

// objectKeys are the keys of an element of a list or of a named entry.
type objectKeys struct {
	known []memberKey
	// unsupported are keys of the contract that are not supported yet.
	unsupported []string
}

// memberKey is one key of an element.
type memberKey struct {
	name        string
	schema      *schema
	description string
}

// names returns the supported keys.
func (m objectKeys) names() []string {
	names := make([]string, len(m.known))
	for i, k := range m.known {
		names[i] = k.name
	}
	return names
}

var (
	containerKeys = objectKeys{known: []memberKey{
		{"workspace", absPathSchema, "host directory of the devcontainer's workspace"},
		{"config", pathSchema, "the workspace's devcontainer.json, absolute or relative to the workspace"},
		{"service", lineSchema, "service of the workspace's compose file"},
		{"id", nameSchema, "full id or name"},
		{"label", labelSchema, "label of one container, `key=value`"},
		{
			"mappings", arrayOf(objectOf(mappingKeys, "host", "container")),
			"additional mappings, which take precedence over its mounts",
		},
	}}
	mappingKeys = objectKeys{known: []memberKey{
		{"host", mappingRootSchema, "directory on the host"},
		{"container", mappingRootSchema, "the same directory in the container"},
	}}
	planKeys = objectKeys{
		known: []memberKey{
			{"override", targetSchema, "`host`, the name of a container, or the directory of a workspace: overrides the environment of the tool"},
			{"fallback", targetSchema, "`host`, the name of a container, or the directory of a workspace: used if no other rule applies"},
		},
		unsupported: []string{"budget"},
	}
	specificKeys = objectKeys{known: []memberKey{{"specific", nameSchema, "name or id of a container"}}}
	toolKeys     = objectKeys{
		known: []memberKey{
			{"name", toolNameSchema, "letters, digits, `.`, `_` and `-`; not the name of a built-in tool"},
			{"description", textSchema, "what the tool does, for people and models"},
			{"argv", argvSchema, "the program and its arguments; the input is JSON on stdin"},
			{"input_schema", objectSchema, "JSON Schema of the input; default: any object"},
			{"output_schema", objectSchema, "JSON Schema of the output, for `output: json`"},
			{"environment", environmentSchema, "where the tool may run; `container` means `required`"},
			{"timeout", positiveDurationSchema, "default `limits.timeout`, maximum `limits.max_timeout`"},
			{"output", enumOf("text", "json"), "format of its stdout"},
			{"mapping", enumOf("schema", "heuristic", "none"), "how paths are found in its input and output"},
			{
				"results", arrayOf(pathSchema),
				"files and directories fetched when a call ends: absolute, or relative to its working directory",
			},
			{"rewrite_text", boolSchema, "rewrite container paths in its output to the caller's paths"},
		},
		unsupported: []string{"capabilities", "idempotent"},
	}
)

// settings has every key of the contract.
var settings = append([]settingDef{
	{
		key: "server.socket", kind: absPathKind,
		description: "absolute path of the socket",
	},
	{
		key: "server.max_body", defaultValue: "64MiB", kind: sizeKind,
		description: "maximum size of a request body",
	},
	{
		key: "engine.host", kind: addressKind,
		description: "address of the engine, as in `DOCKER_HOST`; without it and `engine.context` the " +
			"engine is found as the docker CLI finds it",
	},
	{
		key: "engine.context", kind: lineKind,
		description: "name of a docker context; not together with `engine.host`",
	},
	{
		key: "devcontainer.cli", kind: programKind,
		description: "the devcontainer CLI, a name or an absolute path; default `devcontainer`",
	},
	{
		key: "devcontainer.up_args", form: commaForm, secret: true, kind: argumentsKind,
		description: "additional arguments of its `up`",
	},
	{
		key: "devcontainer.local_env", form: yamlForm, secret: true, entries: &objectKeys{}, kind: variablesKind,
		description: "values of `${localEnv:NAME}` for `up` and for calls that send none",
	},
	{
		key: "devcontainer.up_timeout", defaultValue: "30m", kind: positiveDurationKind,
		description: "maximum duration of one `up` of a workspace",
	},
	{
		key: "agent.lease", defaultValue: "30s", kind: leaseKind,
		description: "how long an agent keeps calls running without contact to the daemon; minimum 1s",
	},
	{
		key: "agent.transport", defaultValue: "auto", kind: transportKind,
		description: "`auto`, `socket` (an agent by its socket only), `stdio` (an agent by its stdio " +
			"only), `engine` (no agent)",
	},
	{
		key: "limits.timeout", defaultValue: "120s", kind: positiveDurationKind,
		description: "timeout of calls and tools without their own; maximum `limits.max_timeout`",
	},
	{
		key: "limits.max_timeout", defaultValue: "1h", kind: positiveDurationKind,
		description: "maximum timeout of a call or tool",
	},
	{
		key: "limits.idle_timeout", defaultValue: "0s", kind: durationKind,
		description: "maximum time without output; 0 is no limit",
	},
	{
		key: "limits.grace", defaultValue: "2s", kind: durationKind,
		description: "time between TERM and KILL",
	},
	{
		key: "limits.concurrent", defaultValue: "256", kind: countKind(1, maxConcurrent),
		description: "maximum number of concurrent calls",
	},
	{
		key: "limits.per_container", defaultValue: "64", kind: countKind(1, MaxPerContainer),
		description: "maximum number of concurrent calls in one container, up to 4096, the capacity " +
			"of one connection to an agent",
	},
	{
		key: "limits.queue", defaultValue: "1024", kind: countKind(0, maxQueue),
		description: "maximum number of queued calls; with 0 a call that cannot run immediately is " +
			"`busy`",
	},
	{
		key: "limits.drain", defaultValue: "10s", kind: durationKind,
		description: "how long a daemon that shuts down waits for its calls",
	},
	{
		key: "limits.capture", defaultValue: "50MiB", kind: sizeKind,
		description: "captured bytes of each output stream",
	},
	{
		key: "limits.view", defaultValue: "16KiB", kind: sizeKind,
		description: "size of the head, and of the tail, that a result contains of each stream",
	},
	{
		key: "limits.captures_disk", defaultValue: "10GiB", kind: sizeKind,
		description: "maximum size of the captured output of all calls; the oldest is removed first, " +
			"never that of a running call",
	},
	{
		key: "limits.captures_keep", defaultValue: "168h", kind: positiveDurationKind,
		description: "how long output is retained after its last byte; the audit log retains its " +
			"head, tail, length and sha256",
	},
	{
		key: "sandbox.root", kind: sandboxRootKind,
		description: "directory that synced files are written to; must be owned by the daemon's user " +
			"with mode 0700; without it syncs are refused",
	},
	{
		key: "sandbox.sources", form: commaForm, kind: absPathsKind,
		description: "directories in containers that files may be fetched from, besides the " +
			"workspace, its bind mounts and `/tmp`",
	},
	{
		key: "sandbox.max_file", defaultValue: "64MiB", kind: sizeKind,
		description: "maximum size of a file in a sync",
	},
	{
		key: "sandbox.max_total", defaultValue: "512MiB", kind: sizeKind,
		description: "maximum size of all files of a sync",
	},
	{
		key: "sandbox.max_files", defaultValue: "10000", kind: countKind(1, MaxSyncFiles),
		description: "maximum number of files and directories of a sync, up to 100000, because the " +
			"record of a call names each",
	},
	{
		key: "sandbox.max_depth", defaultValue: "64", kind: countKind(1, maxSyncDepth),
		description: "maximum number of directories between a file and the named path",
	},
	{
		key: "sandbox.timeout", defaultValue: "300s", kind: positiveDurationKind,
		description: "maximum duration of a sync",
	},
	{
		key: "sandbox.deny", form: commaForm, kind: denyPatternsKind,
		description: "additional names that are never written to `sandbox.root`: `name` matches at " +
			"any depth, `a/b` matches the sequence",
	},
	{
		key: "sandbox.executable", defaultValue: "false", kind: booleanKind,
		description: "keep the executable bit of files: mode 0700 instead of 0600",
	},
	{
		key: "host.env", form: commaForm, kind: variableNamesKind,
		description: "names of variables of the daemon that host tools get too",
	},
	{
		key: "host.roots", form: commaForm, kind: absPathsKind,
		description: "directories where tools may run and write on the host; without one no tool " +
			"starts there",
	},
	{
		key: "routing.override", kind: targetKind,
		description: "`host`, the name of a container, or the directory of a workspace: overrides the " +
			"environment of the tool",
	},
	{
		key: "routing.fallback", kind: targetKind,
		description: "`host`, the name of a container, or the directory of a workspace: used if no " +
			"other rule applies",
	},
	{
		key: "routing.plans", form: yamlForm, entries: &planKeys, kind: plansKind,
		description: "by plan id: `override` and `fallback` of one plan",
	},
	{
		key: "containers", form: yamlForm, entries: &containerKeys, kind: containersKind,
		description: "by name, each with `workspace`, `id` or `label`",
	},
	{
		key: "tools", form: yamlForm, kind: toolsKind,
		description: "list of command tools",
	},
	{
		key: "trust.workspaces", form: commaForm, kind: absPathsKind,
		description: "directories that are trusted with any configuration",
	},
}, unsupportedSettings()...)

// unsupportedSettings returns the keys of the contract that are refused by name.
func unsupportedSettings() []settingDef {
	keys := []string{
		"server.tcp", "server.allowed_hosts", "server.allowed_origins",
		"tool_dirs",
		"audit.on_failure", "audit.keep", "audit.redact.patterns", "audit.redact.env",
		"retry.attempts", "retry.budget", "breaker.failures", "breaker.open", "policy.approval_lifetime",
	}
	unsupported := []settingDef{{key: "server.tokens", entries: &objectKeys{}}}
	for _, key := range keys {
		unsupported = append(unsupported, settingDef{key: key})
	}
	return unsupported
}

// findSetting returns the setting of a key.
func findSetting(key string) (settingDef, bool) {
	i := slices.IndexFunc(settings, func(s settingDef) bool { return s.key == key })
	if i < 0 {
		return settingDef{}, false
	}
	return settings[i], true
}

// namesIn returns the names in a section, "" being the top; onlySupported omits those without a
// supported key.
func namesIn(section string, onlySupported bool) []string {
	var names []string
	for _, s := range settings {
		rest, ok := s.key, true
		if section != "" {
			rest, ok = strings.CutPrefix(s.key, section+".")
		}
		if !ok || onlySupported && !s.supported() {
			continue
		}
		name, _, _ := strings.Cut(rest, ".")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
