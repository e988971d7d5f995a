package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/dray-dev/dray/internal/lexical"
)

// environment is the process's environment by name.
type environment map[string]string

// parseEnviron reads the form of os.Environ. Where a name stands twice the first counts, as it does
// for getenv.
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

// envVarName gives the name of a setting's variable.
func envVarName(key string) string {
	return "DRAY_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// isReservedVar says that a variable is none of a setting: it names a place, or belongs to a test.
func isReservedVar(name string) bool {
	return name == "DRAY_STATE" || name == "DRAY_CONFIG" || strings.HasPrefix(name, "DRAY_TEST_")
}

// variables gives the settings that the environment states, and beside them what it states of
// single entries.
func (l *loader) variables() (layer map[string]value, entries map[string][]entryEnvVar) {
	layer, entries = map[string]value{}, map[string][]entryEnvVar{}
	for _, name := range sortedKeys(l.env) {
		if !strings.HasPrefix(name, "DRAY_") || isReservedVar(name) {
			continue
		}
		if i := slices.IndexFunc(settings,
			func(s settingDef) bool { return envVarName(s.key) == name }); i >= 0 {
			l.variable(settings[i], name, layer)
		} else if e, ok := parseEntryVar(name); ok {
			l.entry(e, entries)
		} else {
			l.add(Diagnostic{
				Origin: Origin{Variable: name}, Problem: "is not a variable that dray knows",
				Suggestion: fixVariable(name),
			})
		}
	}
	return layer, entries
}

func (l *loader) variable(s settingDef, name string, layer map[string]value) {
	at, val := Origin{Variable: name}, l.env[name]
	switch {
	case val == "": // counts as unset
	case s.read == nil:
		l.add(unsupported(at, s.key))
	default:
		if v, ok := l.parse(s, val, at); ok {
			layer[s.key] = v
		}
	}
}

func fixVariable(name string) string {
	names := []string{"STATE", "CONFIG"}
	for _, s := range settings {
		names = append(names, strings.TrimPrefix(envVarName(s.key), "DRAY_"))
	}
	if near := lexical.Closest(strings.TrimPrefix(name, "DRAY_"), names); near != "" {
		return "did you mean DRAY_" + near + "?"
	}
	for _, s := range settings {
		if s.entries != nil && len(s.entries.known) > 0 &&
			strings.HasPrefix(name, envVarName(s.key)+"_") {
			return "write " + envVarName(s.key) + "_NAME_ and one of " +
				strings.ToUpper(strings.Join(s.entries.names(), ", "))
		}
	}
	return "unset it: names that begin with DRAY_ are kept for settings, such as DRAY_LIMITS_TIMEOUT for limits.timeout"
}

// parse reads the text of a variable or a flag.
func (l *loader) parse(s settingDef, val string, at Origin) (value, bool) {
	v, ok := plain(s.key, val, at), true
	switch {
	case s.form == yamlForm || s.form == commaForm && strings.HasPrefix(strings.TrimSpace(val), "["):
		v, ok = yamlReader{&l.diagnostics, func(int, int) Origin { return at }}.read([]byte(val), s.key)
	case s.form == commaForm:
		v = parseCommaList(s.key, val, at)
	}
	if s.secret {
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
	// entry is the entry's name as the variable spells it.
	entry string
	// key is the entry's key; empty where entries are plain texts.
	key string
}

// parseEntryVar takes the name of a variable apart.
func parseEntryVar(name string) (entryEnvVar, bool) {
	for _, s := range settings {
		rest, ok := strings.CutPrefix(name, envVarName(s.key)+"_")
		if s.entries == nil || !ok || rest == "" {
			continue
		}
		if len(s.entries.known) == 0 {
			return entryEnvVar{name, s, rest, ""}, true
		}
		for _, key := range slices.Concat(s.entries.names(), s.entries.unsupported) {
			entry, ok := strings.CutSuffix(rest, "_"+strings.ToUpper(key))
			if ok && entry != "" && entry == strings.ToUpper(entry) {
				return entryEnvVar{name, s, entry, key}, true
			}
		}
	}
	return entryEnvVar{}, false
}

// entry keeps a variable until it is known which entries there are.
func (l *loader) entry(e entryEnvVar, entries map[string][]entryEnvVar) {
	switch {
	case l.env[e.name] == "": // counts as unset
	case e.setting.read == nil:
		l.add(unsupported(Origin{Variable: e.name}, join(e.setting.key, e.entry)))
	default:
		entries[e.setting.key] = append(entries[e.setting.key], e)
	}
}

// withEntries gives the value that holds for a setting, with what single variables say about its
// entries.
func (l *loader) withEntries(stack layeredValues, s settingDef, entries []entryEnvVar) (value,
	bool,
) {
	v, ok := stack.lookup(s.key)
	if len(entries) == 0 {
		return v, ok
	}
	if !ok {
		v = value{key: s.key, shape: object, origin: Origin{Variable: entries[0].name}}
	}
	if v.shape != object {
		return v, ok // refused by who reads it
	}
	for _, e := range entries {
		v = l.withEntry(v, e)
	}
	return v, true
}

func (l *loader) withEntry(v value, e entryEnvVar) value {
	at := Origin{Variable: e.name}
	name, ok := e.entry, true
	if e.key != "" {
		name, ok = l.resolveEntryName(v, e, at)
	}
	if !ok {
		return v
	}
	key := join(v.key, name)
	if e.key == "" {
		return v.withMember(name, plain(key, l.env[e.name], at))
	}
	one, ok := v.field(name)
	if !ok {
		one = value{key: key, origin: at, shape: object}
	}
	member := settingDef{key: join(key, e.key), form: entryForm(e.key)}
	if said, ok := l.parse(member, l.env[e.name], at); ok {
		one = one.withMember(e.key, said)
	}
	return v.withMember(name, one)
}

// entryForm is how the variable of an entry's key is written: the one key that is more than a text
// is the list of mappings.
func entryForm(key string) textFormat {
	if key == "mappings" || key == "budget" {
		return yamlForm
	}
	return plainForm
}

var notInVariables = regexp.MustCompile(`[^A-Z0-9]`)

// resolveEntryName gives the entry that a variable means: the one whose name reads the same in a
// variable, else a new one in lower case. It is false, and reported, where it may be one or the
// other.
func (l *loader) resolveEntryName(v value, e entryEnvVar, at Origin) (string, bool) {
	var matches []string
	for _, f := range v.fields {
		if notInVariables.ReplaceAllString(strings.ToUpper(f.name), "_") == e.entry {
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
		l.add(Diagnostic{Origin: at, Key: v.key, Problem: problem, Suggestion: "set " +
			envVarName(v.key) + " as a whole, or rename one of them"})
		return "", false
	}
}

// withMember gives the object with a key set. The fields of v itself stay as they are.
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
