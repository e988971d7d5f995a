package config

import (
	"slices"
	"strings"

	"github.com/dray-dev/dray/internal/lexical"
)

// environment has the environment variables by name.
type environment map[string]string

// parseEnviron reads the form of os.Environ. Of duplicates the first counts, as for getenv.
func parseEnviron(environ []string) environment {
	env := make(environment, len(environ))
	for _, entry := range environ {
		name, val, ok := strings.Cut(entry, "=")
		if _, twice := env[name]; ok && !twice {
			env[name] = val
		}
	}
	return env
}

// envVarName returns the name of a setting's variable.
func envVarName(key string) string {
	return "DRAY_" + inVarName(key)
}

// inVarName returns a key as it is written in the name of a variable.
func inVarName(key string) string { return strings.ToUpper(strings.ReplaceAll(key, ".", "_")) }

// reservedVars are variables of other things than settings. Those of a call are set in its process,
// which may use the dray command.
var reservedVars = []string{
	"DRAY_STATE", "DRAY_CONFIG", "DRAY_CALL_ID", "DRAY_RESULTS", "DRAY_PLAN_ID", "DRAY_SESSION_ID",
	"DRAY_SANDBOX_ID",
	"DRAY_ACTIVE_HELP", // set by the completion script of fish
}

// isReservedVar reports whether a variable is not that of a setting.
func isReservedVar(name string) bool {
	return slices.Contains(reservedVars, name) || strings.HasPrefix(name, "DRAY_TEST_")
}

// IsVariable reports whether an environment variable configures the daemon.
func IsVariable(name string) bool {
	return strings.HasPrefix(name, "DRAY_") && (name == "DRAY_CONFIG" || !isReservedVar(name))
}

// variables returns the settings of the environment, and its variables of single entries by key.
func (l *loader) variables() (layer map[string]value, entries map[string][]entryEnvVar) {
	layer, entries = map[string]value{}, map[string][]entryEnvVar{}
	for _, name := range sortedKeys(l.env) {
		if !strings.HasPrefix(name, "DRAY_") || isReservedVar(name) {
			continue
		}
		isNamed := func(s settingDef) bool { return envVarName(s.key) == name }
		if i := slices.IndexFunc(settings, isNamed); i >= 0 {
			l.variable(settings[i], name, layer)
		} else if e, ok := parseEntryVar(name); ok {
			l.entry(e, entries)
		} else {
			l.addKey(Origin{Variable: name}, "", "is not a known variable", suggestVariable(name))
		}
	}
	return layer, entries
}

func (l *loader) variable(s settingDef, name string, layer map[string]value) {
	at, val := Origin{Variable: name}, l.env[name]
	switch {
	case val == "": // counts as unset
	case !s.supported():
		l.add(unsupported(at, s.key))
	default:
		if v, ok := l.parse(s, val, at); ok {
			layer[s.key] = v
		}
	}
}

func suggestVariable(name string) string {
	names := []string{"STATE", "CONFIG"}
	for _, s := range settings {
		names = append(names, strings.TrimPrefix(envVarName(s.key), "DRAY_"))
	}
	if near := lexical.Closest(strings.TrimPrefix(name, "DRAY_"), names); near != "" {
		return "did you mean DRAY_" + near + "?"
	}
	for _, s := range settings {
		keys, prefix := s.kind.entryMembers().names(), envVarName(s.key)+"_"
		if keys != nil && strings.HasPrefix(name, prefix) {
			return "write " + prefix + "NAME_ and one of " + inVarName(strings.Join(keys, ", "))
		}
	}
	return "unset it: names that begin with DRAY_ are reserved for settings, " +
		"such as DRAY_LIMITS_TIMEOUT for limits.timeout"
}

// parse reads the text of a variable.
func (l *loader) parse(s settingDef, val string, at Origin) (value, bool) {
	v, ok := plain(s.key, val, at), true
	switch {
	case s.kind.form == yamlForm,
		s.kind.form == commaForm && strings.HasPrefix(strings.TrimSpace(val), "["):
		v, ok = yamlReader{&l.diagnostics, func(int, int) Origin { return at }}.read([]byte(val), s.key)
	case s.kind.form == commaForm:
		v = parseCommaList(s.key, val, at)
	}
	if s.kind.secret {
		v = v.hidden()
	}
	return v, ok
}

func parseCommaList(key, val string, at Origin) value {
	v := value{key: key, origin: at, shape: list}
	for i, item := range strings.Split(val, ",") {
		v.items = append(v.items, plain(index(key, i), strings.TrimSpace(item), at))
	}
	return v
}

// entryEnvVar is a variable of one key of one named entry, such as DRAY_CONTAINERS_DB_ID.
type entryEnvVar struct {
	name    string
	setting settingDef
	// entry is the entry's name in upper case.
	entry string
	// member is a key of the entry, or of a block in it (budget.calls); its own key is empty if
	// entries are plain texts.
	member settingDef
}

// parseEntryVar parses the name of a variable.
func parseEntryVar(name string) (entryEnvVar, bool) {
	for _, s := range settings {
		rest, ok := strings.CutPrefix(name, envVarName(s.key)+"_")
		if !s.kind.named || !ok || rest == "" {
			continue
		}
		if len(s.kind.entryKeys) == 0 {
			return entryEnvVar{name, s, rest, settingDef{}}, true
		}
		for _, member := range s.kind.entryMembers() {
			entry, ok := strings.CutSuffix(rest, "_"+inVarName(member.key))
			if ok && entry != "" && entry == strings.ToUpper(entry) {
				return entryEnvVar{name, s, entry, member}, true
			}
		}
	}
	return entryEnvVar{}, false
}

// entry stores a variable until the names of the entries are known.
func (l *loader) entry(e entryEnvVar, entries map[string][]entryEnvVar) {
	switch {
	case l.env[e.name] == "": // counts as unset
	case !e.setting.supported():
		l.add(unsupported(Origin{Variable: e.name}, join(e.setting.key, e.entry)))
	default:
		entries[e.setting.key] = append(entries[e.setting.key], e)
	}
}

// withEntries returns the effective value of a setting, including the variables of its entries.
func (l *loader) withEntries(stack layeredValues, s settingDef, entries []entryEnvVar) (
	value, bool,
) {
	v, ok := stack.lookup(s.key)
	if len(entries) == 0 {
		return v, ok
	}
	if !ok {
		v = value{key: s.key, shape: object, origin: Origin{Variable: entries[0].name}}
	}
	if v.shape != object {
		return v, ok // refused when it is decoded
	}
	for _, e := range entries {
		v = l.withEntry(v, e)
	}
	return v, true
}

func (l *loader) withEntry(v value, e entryEnvVar) value {
	at := Origin{Variable: e.name}
	name, ok := e.entry, true
	if e.member.key != "" {
		name, ok = l.resolveEntryName(v, e, at)
	}
	if !ok {
		return v
	}
	key := join(v.key, name)
	if e.member.key == "" {
		return v.withMember(name, plain(key, l.env[e.name], at))
	}
	one, ok := v.field(name)
	if !ok {
		one = value{key: key, origin: at, shape: object}
	}
	member := settingDef{key: join(key, e.member.key), kind: e.member.kind}
	if val, ok := l.parse(member, l.env[e.name], at); ok {
		one = one.withValue(e.member.key, val)
	}
	return v.withMember(name, one)
}

// withValue returns a copy of the object with the value of a key, which may be one of a block in
// it.
func (v value) withValue(key string, val value) value {
	outer, inner, isInBlock := strings.Cut(key, ".")
	if !isInBlock {
		return v.withMember(key, val)
	}
	block, ok := v.field(outer)
	if !ok {
		block = value{key: join(v.key, outer), origin: val.origin, shape: object}
	}
	return v.withMember(outer, block.withMember(inner, val))
}

// inVariables returns a name as it stands in the name of a variable.
func inVariables(name string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, strings.ToUpper(name))
}

// resolveEntryName returns the entry with the name of a variable, else a new name in lower case. It
// reports an ambiguous name and returns false.
func (l *loader) resolveEntryName(v value, e entryEnvVar, at Origin) (string, bool) {
	var matches []string
	for _, f := range v.fields {
		if inVariables(f.name) == e.entry {
			matches = append(matches, f.name)
		}
	}
	switch len(matches) {
	case 0:
		return strings.ToLower(e.entry), true
	case 1:
		return matches[0], true
	default:
		problem := "may mean " + quoteName(matches[0]) + " or " + quoteName(matches[1])
		l.addKey(at, v.key, problem, "set "+envVarName(v.key)+" instead, or rename one of them")
		return "", false
	}
}

// withMember returns a copy of the object with a key set.
func (v value) withMember(name string, member value) value {
	member.secret = member.secret || v.secret
	v.fields = slices.Clone(v.fields)
	for i := range v.fields {
		if v.fields[i].name == name {
			v.fields[i].value = member
			return v
		}
	}
	v.fields = append(v.fields, field{name, member.origin, member})
	return v
}
