package config

import (
	"reflect"
	"slices"
	"strings"
)

// textFormat is how a variable contains a setting.
type textFormat int

const (
	// plainForm is the text itself.
	plainForm textFormat = iota
	// commaForm is a list of texts, separated by commas.
	commaForm
	// yamlForm is YAML or JSON.
	yamlForm
)

// settingDef is a key with a fixed name: of the configuration, or of an element such as a tool.
type settingDef struct {
	key string
	// kind decodes the value into the field that has the name of the key. It is zero for a key of the
	// contract that is not supported yet.
	kind valueKind
	// defaultValue is the default in the form of a variable; empty for none, and for elements.
	defaultValue string
	// description is the meaning of the key, for editors and docs/reference/configuration.md.
	description string
}

func (s settingDef) supported() bool { return s.kind.read != nil }

// decode reads a value into its field of a struct.
func (s settingDef) decode(d *decoder, v value, into reflect.Value) {
	fieldOf(into, s.key).Set(reflect.ValueOf(s.kind.read(d, v)))
}

// settingDefs are the keys of the configuration or of an element, with or without support.
type settingDefs []settingDef

// find returns the setting of a key.
func (all settingDefs) find(key string) (settingDef, bool) {
	i := slices.IndexFunc(all, func(s settingDef) bool { return s.key == key })
	if i < 0 {
		return settingDef{}, false
	}
	return all[i], true
}

// names returns the supported keys.
func (all settingDefs) names() []string {
	var names []string
	for _, s := range all {
		if s.supported() {
			names = append(names, s.key)
		}
	}
	return names
}

// valueKind is a kind of value: what it may contain, for editors, and how it is decoded.
type valueKind struct {
	schema *schema
	read   func(d *decoder, v value) any
	form   textFormat
	secret bool
	// named values are blocks of entries whose names the operator chooses. entryKeys are the keys of
	// each entry; without any an entry is a text.
	named     bool
	entryKeys settingDefs
	// blockKeys are the keys of a member of an entry that is a block itself.
	blockKeys settingDefs
}

// entryMembers returns the keys of each entry that have a variable, and those of its blocks, such
// as budget.calls.
func (k valueKind) entryMembers() settingDefs {
	var all settingDefs
	for _, member := range k.entryKeys {
		all = append(all, member)
		for _, s := range member.kind.blockKeys {
			s.key = join(member.key, s.key)
			all = append(all, s)
		}
	}
	return all
}

func kindOf[T any](s *schema, read func(d *decoder, v value) T) valueKind {
	return valueKind{schema: s, read: func(d *decoder, v value) any { return read(d, v) }}
}

func yamlKind[T any](s *schema, read func(d *decoder, v value) T) valueKind {
	k := kindOf(s, read)
	k.form = yamlForm
	return k
}

func namedKind[T any](s *schema, keys settingDefs, read func(d *decoder, v value) T) valueKind {
	k := yamlKind(s, read)
	k.named, k.entryKeys = true, keys
	return k
}

func blockKind[T any](keys settingDefs, read func(d *decoder, v value) T) valueKind {
	k := yamlKind(objectOf(keys), read)
	k.blockKeys = keys
	return k
}

func listKind(item valueKind) valueKind {
	k := kindOf(arrayOf(item.schema), func(d *decoder, v value) []string {
		return d.each(v, func(v value) string {
			return item.read(d, v).(string) //nolint:forcetypeassert,errcheck // an item is a text
		})
	})
	k.form = commaForm
	return k
}

func choiceKind[T ~string](words ...string) valueKind {
	return kindOf(enumOf(words...), func(d *decoder, v value) T { return T(d.choice(v, words...)) })
}

func countKind(least, most int) valueKind {
	return kindOf(&schema{Type: "integer", Minimum: new(least), Maximum: new(most)},
		func(d *decoder, v value) int { return d.count(v, least, most) })
}

func (k valueKind) asSecret() valueKind {
	k.secret = true
	return k
}

// The kinds of values. The patterns use the common subset of ECMAScript and RE2.
var (
	textKind         = kindOf(pattern(`^[^\x00]*$`), (*decoder).argument)
	lineKind         = kindOf(pattern(`^[^\x00-\x1f\x7f]*$`), (*decoder).singleLineText)
	absPathKind      = kindOf(pathPattern(`^/[^\x00]*$`), (*decoder).path)
	pathKind         = kindOf(pathPattern(`^[^\x00]+$`), (*decoder).relativePath)
	rootPattern      = pathPattern(`^/[^\x00]*[^/\x00][^\x00]*$`)
	mappingRootKind  = kindOf(rootPattern, (*decoder).mappingRoot)
	sandboxRootKind  = kindOf(rootPattern, (*decoder).sandboxRoot)
	programKind      = kindOf(pathPattern(`^([^/~\\\x00]*|/[^\x00]*)$`), (*decoder).program)
	addressKind      = kindOf(pattern(addressPattern), (*decoder).engineHost)
	variableKind     = kindOf(pattern(`^[^=\x00-\x1f\x7f]+$`), (*decoder).variableName)
	hostKind         = kindOf(pattern(permittedHostPattern), (*decoder).permittedHost)
	packageKind      = kindOf(pattern(packagePattern), (*decoder).packageName)
	labelKind        = kindOf(pattern(`^[^=\x00-\x1f\x7f]+=[^\x00-\x1f\x7f]*$`), (*decoder).label)
	nameKind         = kindOf(pattern(namePattern), (*decoder).containerRef)
	targetKind       = kindOf(pathPattern(targetPattern), (*decoder).routingTarget)
	denyKind         = kindOf(denySchema, (*decoder).denyPattern)
	sizeKind         = kindOf(sizeSchema, (*decoder).size)
	durationKind     = kindOf(durationSchema, (*decoder).duration)
	positiveKind     = kindOf(positiveSchema, (*decoder).positive)
	leaseKind        = kindOf(positiveSchema, (*decoder).lease)
	userKind         = kindOf(userSchema, (*decoder).userName)
	tcpKind          = kindOf(tcpSchema, (*decoder).tcpAddress)
	booleanKind      = kindOf(&schema{Type: "boolean"}, (*decoder).boolean)
	jsonSchemaKind   = kindOf(&schema{Type: "object"}, (*decoder).jsonObject)
	onFailureKind    = choiceKind[OnFailure]("refuse", "degrade")
	transportKind    = choiceKind[Transport]("auto", "socket", "stdio", "engine")
	toolNameKind     = kindOf(toolNameSchema, (*decoder).toolName)
	argvKind         = kindOf(argvSchema, (*decoder).argv)
	environmentKind  = kindOf(environmentSchema, (*decoder).environment)
	toolTimeoutKind  = kindOf(positiveSchema, (*decoder).toolTimeout)
	capabilitiesKind = kindOf(capabilitiesSchema, (*decoder).capabilities)
	exitCodesKind    = kindOf(exitCodesSchema, (*decoder).exitCodes)
	mappingsKind     = yamlKind(arrayOf(objectOf(mappingKeys, "host", "container")), (*decoder).
				mappings)
	pythonRuntimeKind = kindOf(pythonRuntimeSchema, (*decoder).pythonRuntime)
	allowedHostKind   = kindOf(pattern(hostPattern), (*decoder).allowedHost)
	allowedOriginKind = kindOf(pattern(originPattern), (*decoder).allowedOrigin)
	indexKind         = kindOf(pattern(indexPattern), (*decoder).packageIndex)
	tokensKind        = namedKind(mapOf(&schema{
		Pattern: namePattern, Not: enumOf(DefaultToken),
	}, absPathKind.schema), nil, (*decoder).tokenFiles)
	variablesKind  = namedKind(variablesSchema(), nil, (*decoder).variables)
	budgetKind     = blockKind(budgetKeys, (*decoder).budget)
	plansKind      = namedKind(plansSchema(), planKeys, (*decoder).plans)
	containersKind = namedKind(containersSchema(), containerKeys, (*decoder).containers)
	mcpServersKind = namedKind(mcpServersSchema(), mcpServerKeys, (*decoder).mcpServers)
	toolsKind      = yamlKind(arrayOf(objectOf(toolKeys, "name", "argv")), (*decoder).tools)
)

const (
	aboutOverride = "`host`, the name of a container, or the directory of a workspace: used " +
		"before the devcontainer of the workspace"
	aboutFallback = "`host`, the name of a container, or the directory of a workspace: used if no " +
		"other rule applies"
)

// The keys of elements.
var (
	containerKeys = settingDefs{
		{"workspace", absPathKind, "", "host directory of the devcontainer's workspace"},
		{
			"config", pathKind, "",
			"the workspace's devcontainer.json, absolute or relative to the workspace",
		},
		{"service", lineKind, "", "service of the workspace's compose file"},
		{"id", nameKind, "", "full id or name"},
		{"label", labelKind, "", "label of one container, `key=value`"},
		{"user", lineKind, "", "user of calls; default: the `remoteUser`, else the container's"},
		{"folder", absPathKind, "", "working directory of calls in the container"},
		{"mappings", mappingsKind, "", "additional mappings, which take precedence over its mounts"},
	}
	mappingKeys = settingDefs{
		{"host", mappingRootKind, "", "directory on the host"},
		{"container", mappingRootKind, "", "the same directory in the container"},
	}
	planKeys = settingDefs{
		{"override", targetKind, "", aboutOverride},
		{"fallback", targetKind, "", aboutFallback},
		{"budget", budgetKind, "", "what its calls may use in total: `calls`, `wall`, `bytes`"},
	}
	budgetKeys = settingDefs{
		{"calls", countKind(1, maxBudgetCalls), "", "maximum number of calls"},
		{"wall", positiveKind, "", "maximum sum of the durations of the calls"},
		{
			"bytes", sizeKind, "", "maximum sum of output (stdout and stderr, or a longer structured " +
				"output) and of synced files",
		},
	}
	writesKeys = settingDefs{
		{"writes", listKind(textKind), "", "patterns of the files that the tool writes"},
	}
	mcpServerKeys = settingDefs{
		{"argv", argvKind, "", "required: the program of the server and its arguments"},
		{
			"environment", choiceKind[Environment]("host", "container"), "",
			"`host` (default) or `container`: where it runs, and its calls",
		},
		{
			"workspace", absPathKind, "",
			"required: its working directory beneath `host.roots`, or the workspace of its container",
		},
		{"env", variablesKind.asSecret(), "", "variables of its process"},
		{
			"capabilities", capabilitiesKind, "",
			"effects of its tools, as for `tools`; what the server says about itself is not used",
		},
	}
	specificKeys = settingDefs{{"specific", nameKind, "", "name of a container under containers"}}
	toolKeys     = settingDefs{
		{
			"name", toolNameKind, "",
			"letters, digits, `.`, `_` and `-`; not the name of a built-in tool",
		},
		{"description", textKind, "", "what the tool does, for people and models"},
		{
			"argv", argvKind, "",
			"the program and its arguments; `${input.NAME}` is a value of the input",
		},
		{
			"stdin", choiceKind[string]("input", "none"), "",
			"`input`: the input, as JSON; default `none` if `argv` takes a value of the input, else `input`",
		},
		{
			"env", variablesKind.asSecret(), "",
			"variables of the process, which take precedence over those of the call",
		},
		{
			"cwd", choiceKind[string]("caller", "workspace"), "",
			"`caller` (default): the working directory of the call; `workspace`: the workspace folder",
		},
		{
			"success_codes", exitCodesKind, "",
			"exit codes of calls that succeeded; default `[0]`",
		},
		{
			"capabilities", capabilitiesKind, "",
			"effects that the tool declares: a list of `read_only`, `network`, `unsafe`, " +
				"`human_approval_required` and `{writes: [PATTERN]}`",
		},
		{"idempotent", booleanKind, "", "repeating a call has no further effect"},
		{"input_schema", jsonSchemaKind, "", "JSON Schema of the input; default: any object"},
		{"output_schema", jsonSchemaKind, "", "JSON Schema of the output, for `output: json`"},
		{"environment", environmentKind, "", "where the tool may run; `container` means `required`"},
		{"timeout", toolTimeoutKind, "", "default `limits.timeout`, maximum `limits.max_timeout`"},
		{"output", choiceKind[string]("text", "json"), "", "format of its stdout"},
		{
			"mapping", choiceKind[string]("schema", "heuristic", "none"), "",
			"how paths are found in its input and output",
		},
		{
			"results", listKind(pathKind), "",
			"files and directories fetched when a call ends: absolute, or relative to its working directory",
		},
		{
			"rewrite_text", booleanKind, "",
			"rewrite container paths in its output to the caller's paths",
		},
	}
)

// settings has every key of the contract.
var settings = append(settingDefs{
	{"server.socket", absPathKind, "", "absolute path of the socket"},
	{
		"server.users", listKind(userKind), "",
		"names or uids of other users who may connect to the socket, each with calls and workspaces of " +
			"their own; needs `server.socket`",
	},
	{
		"server.tcp", tcpKind, "",
		"address to listen on as well, `HOST:PORT` or `PORT` of 127.0.0.1; each request needs a token",
	},
	{
		"server.tokens", tokensKind, "",
		"files of tokens by name, besides `STATE/token`, which is `default`",
	},
	{
		"server.allowed_hosts", listKind(allowedHostKind), "",
		"values of the header Host that requests over TCP may have, with `:PORT` for one port only; " +
			"default `localhost` and `127.0.0.1`",
	},
	{
		"server.allowed_origins", listKind(allowedOriginKind), "",
		"values of the header Origin that requests over TCP may have; by default none",
	},
	{"server.max_body", sizeKind, "64MiB", "maximum size of a request body"},
	{
		"engine.host", addressKind, "",
		"address of the engine, as in `DOCKER_HOST`; without it and `engine.context` the engine is " +
			"found as the docker CLI finds it",
	},
	{"engine.context", lineKind, "", "name of a docker context; not together with `engine.host`"},
	{
		"devcontainer.cli", programKind, "",
		"the devcontainer CLI, a name or an absolute path; default `devcontainer`",
	},
	{"devcontainer.up_args", listKind(textKind).asSecret(), "", "additional arguments of its `up`"},
	{
		"devcontainer.local_env", variablesKind.asSecret(), "",
		"values of `${localEnv:NAME}` for `up` and for calls that send none",
	},
	{"devcontainer.up_timeout", positiveKind, "30m", "maximum duration of one `up` of a workspace"},
	{
		"agent.lease", leaseKind, "30s",
		"how long an agent keeps calls running without contact to the daemon; minimum 1s",
	},
	{
		"agent.transport", transportKind, "auto",
		"`auto`, `socket` (an agent by its socket only), `stdio` (an agent by its stdio only), " +
			"`engine` (no agent)",
	},
	{
		"limits.timeout", positiveKind, "120s",
		"timeout of calls and tools without their own; maximum `limits.max_timeout`; " +
			"on a terminal: time without input and output",
	},
	{
		"limits.max_timeout", positiveKind, "1h",
		"maximum timeout of a call or tool, and of a terminal that is in use",
	},
	{"limits.idle_timeout", durationKind, "0s", "maximum time without output; 0 is no limit"},
	{"limits.grace", durationKind, "2s", "time between TERM and KILL"},
	{"limits.concurrent", countKind(1, maxConcurrent), "256", "maximum number of concurrent calls"},
	{
		"limits.per_container", countKind(1, MaxPerContainer), "64",
		"maximum number of concurrent calls in one container, up to 4096, the capacity of one " +
			"connection to an agent",
	},
	{
		"limits.queue", countKind(0, maxQueue), "1024",
		"maximum number of queued calls; with 0 a call that cannot run immediately is `busy`",
	},
	{"limits.drain", durationKind, "10s", "how long a daemon that shuts down waits for its calls"},
	{"limits.capture", sizeKind, "50MiB", "captured bytes of each output stream"},
	{
		"limits.view", sizeKind, "16KiB",
		"size of the head, and of the tail, that a result contains of each stream",
	},
	{
		"limits.captures_disk", sizeKind, "10GiB",
		"maximum size of the captured output of all calls; the oldest is removed first, never that of " +
			"a running call",
	},
	{
		"limits.captures_keep", positiveKind, "168h",
		"how long output is retained after its last byte; the audit log retains its head, tail, length " +
			"and sha256",
	},
	{
		"sandbox.root", sandboxRootKind, "",
		"directory that synced files are written to; must be owned by the daemon's user with mode " +
			"0700; without it syncs are refused",
	},
	{
		"sandbox.sources", listKind(absPathKind), "",
		"directories in containers that files may be fetched from, besides the workspace, its bind " +
			"mounts and `/tmp`",
	},
	{"sandbox.max_file", sizeKind, "64MiB", "maximum size of a file in a sync"},
	{"sandbox.max_total", sizeKind, "512MiB", "maximum size of all files of a sync"},
	{
		"sandbox.max_files", countKind(1, MaxSyncFiles), "10000",
		"maximum number of files and directories of a sync, up to 100000, because the record of a call " +
			"names each",
	},
	{
		"sandbox.max_depth", countKind(1, maxSyncDepth), "64",
		"maximum number of directories between a file and the named path",
	},
	{"sandbox.timeout", positiveKind, "300s", "maximum duration of a sync"},
	{
		"sandbox.deny", listKind(denyKind), "",
		"additional names that are never written to `sandbox.root`: `name` matches at any depth, `a/b` " +
			"matches the sequence",
	},
	{
		"sandbox.executable", booleanKind, "false",
		"keep the executable bit of files: mode 0700 instead of 0600",
	},
	{
		"host.env", listKind(variableKind), "",
		"names of variables of the daemon that host tools get too",
	},
	{
		"host.roots", listKind(absPathKind), "",
		"directories where tools may run and write on the host; without one no tool starts there",
	},
	{"routing.override", targetKind, "", aboutOverride},
	{"routing.fallback", targetKind, "", aboutFallback},
	{
		"routing.plans", plansKind, "",
		"by plan id: `override`, `fallback` and `budget` of one plan; over its budget calls are " +
			"refused with `budget_exceeded`",
	},
	{"containers", containersKind, "", "by name, each with `workspace`, `id` or `label`"},
	{"tools", toolsKind, "", "list of command tools"},
	{
		"tool_dirs", listKind(absPathKind), "",
		"directories whose files `*.yaml` have more tools, in lists like `tools`",
	},
	{
		"retry.attempts", countKind(1, maxRetryAttempts), "3",
		"maximum number of attempts of a call of an idempotent or read-only tool, if the container " +
			"or the engine fails",
	},
	{
		"retry.budget", positiveKind, "30s",
		"maximum time from the first failure until a later attempt has started its process",
	},
	{
		"breaker.failures", countKind(1, maxBreakerFailures), "5",
		"number of calls in a row that fail because of the container or the engine, after which calls " +
			"to the container are refused",
	},
	{"breaker.open", positiveKind, "30s", "how long they are refused before one call tries again"},
	{
		"policy.files", listKind(lineKind), "",
		"Cedar policies that decide about calls: absolute paths of files, or `builtin:default`; " +
			"without any every call is allowed",
	},
	{
		"policy.approval_lifetime", positiveKind, "15m",
		"how long a call that needs an approval can be approved, and run once it is",
	},
	{
		"audit.keep", durationKind, "0s",
		"how long the audit log retains a call after its end, and other events; then hashes are left; " +
			"0s is for ever",
	},
	{
		"audit.redact.patterns", listKind(textKind), "",
		"secrets in what is recorded, logged and returned: regular expressions (RE2), `builtin:all`, " +
			"or one of `builtin:authorization`, `builtin:aws`, `builtin:github`, `builtin:jwt`, " +
			"`builtin:private_key`, `builtin:slack` and `builtin:url`",
	},
	{
		"audit.redact.env", listKind(variableKind), "",
		"names of variables whose values are secrets, with `*` for any characters; case does not matter",
	},
	{
		"audit.on_failure", onFailureKind, "refuse",
		"what becomes of calls that cannot be recorded: `refuse`, or `degrade`: they run, and their " +
			"records wait in memory",
	},
	{
		"audit.disk_low", sizeKind, "1GiB",
		"free space of the state directory's disk below which dray warns; at most 10% of the disk",
	},
	{
		"audit.disk_reserve", sizeKind, "64MiB",
		"free space below which new calls are refused, so that running ones can be recorded; at most " +
			"5% of the disk",
	},
	{
		"mcp.view", sizeKind, "16KiB",
		"maximum size of each output stream in the result of a call over MCP",
	},
	{
		"mcp.servers", mcpServersKind, "",
		"MCP servers over stdio by name, each with `argv` and `workspace`; their tools are `NAME__TOOL`",
	},
	{
		"trust.workspaces", listKind(absPathKind), "",
		"directories that are trusted with any configuration",
	},
}, pythonSettings()...)

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
