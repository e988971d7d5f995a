package config

import (
	"strings"

	"github.com/spf13/viper"
)

// layeredValues puts what each source says over what the one below it says. viper picks; what it picks carries its own origin.
type layeredValues struct {
	v *viper.Viper
}

// newLayers stacks the defaults, the file, the variables and the flags, the last one highest.
func newLayers(file, variables, flags map[string]value) layeredValues {
	// A key is one word to viper: a delimiter that occurs in none keeps it from looking into them.
	v := viper.NewWithOptions(viper.KeyDelimiter("/"))
	for _, s := range settings {
		if s.defaultValue != "" {
			v.SetDefault(s.key, plain(s.key, s.defaultValue, Origin{}))
		}
	}
	for key, val := range file {
		_ = v.MergeConfigMap(map[string]any{key: val}) // fails for nothing
	}
	// viper's own reading of the environment would look past Options.Environ and forget which variable it was.
	for _, layer := range []map[string]value{variables, flags} {
		for key, val := range layer {
			v.Set(key, val)
		}
	}
	return layeredValues{v}
}

// lookup gives the value that holds for a setting, if any source states one.
func (l layeredValues) lookup(key string) (value, bool) {
	v, ok := l.v.Get(key).(value)
	return v, ok
}

// fileLayer reads the configuration file and gives its name and what it says for each setting.
func (l *loader) fileLayer() (string, map[string]value) {
	name, data := l.configFile()
	if name == "" {
		return "", nil
	}
	at := func(line, column int) Origin { return Origin{File: name, Line: line, Column: column} }
	doc, ok := yamlReader{&l.diagnostics, at}.read(data, "")
	layer := map[string]value{}
	if ok {
		l.section(doc, layer)
	}
	return name, layer
}

// section sorts the members of a section into the layer.
func (l *loader) section(v value, layer map[string]value) {
	if v.shape == empty {
		return // all keys beneath it are commented out
	}
	if v.shape != object {
		l.addValue(v, v.kindMismatch("a block of keys"), "write "+sectionExample(v.key))
		return
	}
	for _, f := range v.fields {
		l.member(v, f, layer)
	}
}

func (l *loader) member(section value, f field, layer map[string]value) {
	s, ok := findSetting(f.value.key)
	switch {
	case strings.Contains(f.name, "."):
		l.refuseDottedKey(f)
	case ok && s.read == nil:
		l.add(unsupported(f.origin, s.key))
	case ok && f.value.shape == empty && s.form != plainForm:
		// a list or block whose elements are commented out
	case ok:
		if s.secret {
			f.value = f.value.hidden()
		}
		layer[s.key] = f.value
	case len(namesIn(f.value.key, false)) > 0:
		l.section(f.value, layer)
	default:
		l.unknownKey(section.key, f)
	}
}

// refuseDottedKey refuses a path where a key belongs: taken as one, it could stand beside the same key written as it should be.
func (l *loader) refuseDottedKey(f field) {
	l.add(Diagnostic{
		Origin: f.origin, Key: f.value.key, Problem: "is a path where a key is expected",
		Suggestion: "nest it: write " + strings.ReplaceAll(f.value.key, ".", ": and below it, indented, ") + ":",
	})
}

func (l *loader) unknownKey(section string, f field) {
	known, supported := namesIn(section, false), namesIn(section, true)
	fix := suggestName(f.name, known, supported)
	if key := sectionOf(f.name); key != "" && closest(f.name, known) == "" {
		fix = "did you mean " + key + "?"
	}
	l.add(Diagnostic{Origin: f.origin, Key: f.value.key, Problem: "is not a key that dray knows", Suggestion: fix})
}

// unsupported is the refusal of a key of the contract that nothing reads yet.
func unsupported(at Origin, key string) Diagnostic {
	return Diagnostic{Origin: at, Key: key, Problem: "is not supported yet", Suggestion: "remove it: this version of dray would not do what it says"}
}

// sectionExample shows how a section is written, with the first of its keys.
func sectionExample(section string) string {
	names := strings.Join(namesIn(section, true), ", ")
	if section == "" {
		return "sections such as server, limits and tools, each followed by a colon"
	}
	return section + ": and below it, indented, any of " + names
}
