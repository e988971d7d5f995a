package config

import (
	"slices"
	"strings"
)

// environment is the process's environment by name.
type environment map[string]string

// parseEnviron reads the form of os.Environ. Where a name stands twice the first counts, as it does for getenv.
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

// variables gives the settings that the environment states, and beside them what it states of single entries.
func (l *loader) variables() (layer map[string]value, entries map[string][]entryEnvVar) {
	layer, entries = map[string]value{}, map[string][]entryEnvVar{}
	for _, name := range sortedKeys(l.env) {
		if !strings.HasPrefix(name, "DRAY_") || isReservedVar(name) {
			continue
		}
		if i := slices.IndexFunc(settings, func(s settingDef) bool { return envVarName(s.key) == name }); i >= 0 {
			l.variable(settings[i], name, layer)
		} else if e, ok := parseEntryVar(name); ok {
			l.entry(e, entries)
		} else {
			l.add(Diagnostic{Origin: Origin{Variable: name}, Problem: "is not a variable that dray knows", Suggestion: fixVariable(name)})
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
	if near := closest(strings.TrimPrefix(name, "DRAY_"), names); near != "" {
		return "did you mean DRAY_" + near + "?"
	}
	for _, s := range settings {
		if s.entries != nil && len(s.entries.known) > 0 && strings.HasPrefix(name, envVarName(s.key)+"_") {
			return "write " + envVarName(s.key) + "_NAME_ and one of " + strings.ToUpper(strings.Join(s.entries.names(), ", "))
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
