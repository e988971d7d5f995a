package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/viper"

	"github.com/dray-dev/dray/internal/lexical"
)

// Options are the inputs of Load.
type Options struct {
	// State is the value of --state, ConfigFile of --config; empty if the flag was not given. Relative
	// paths are relative to the working directory.
	State      string
	ConfigFile string
	// Environ is the environment in the form of os.Environ. No other variable is read.
	Environ []string
	// ReadFile reads the configuration file; nil reads from the file system. It returns fs.ErrNotExist
	// for a missing file.
	ReadFile func(name string) ([]byte, error)
	// ReadDir returns the sorted names in a directory; nil reads from the file system.
	ReadDir func(name string) ([]string, error)
}

// loader is the state of one Load.
type loader struct {
	diagnostics
	opts Options
	env  environment
}

// Load reads, merges and validates the configuration. Its error is an [*InvalidError] with all
// problems. A missing file is a problem only if --config or DRAY_CONFIG names it. Load writes
// nothing.
func Load(opts Options) (*Config, error) {
	if opts.ReadFile == nil {
		opts.ReadFile = readFile
	}
	if opts.ReadDir == nil {
		opts.ReadDir = readDir
	}
	l := &loader{opts: opts, env: parseEnviron(opts.Environ)}
	d := newDecoder(&l.diagnostics)
	d.state(l.stateDir())
	name, file := l.fileLayer()
	d.c.File, d.c.options = name, opts
	variables, entries := l.variables()
	stack := newLayers(file, variables)
	for _, s := range settings {
		if v, ok := l.withEntries(stack, s, entries[s.key]); ok && s.supported() {
			s.decode(d, v, reflect.ValueOf(d.c).Elem())
		}
	}
	l.validateShadowed(stack, file)
	l.toolDirs(d)
	d.finalize(stack, l.env)
	if err := l.err(); err != nil {
		return nil, err
	}
	return d.c, nil
}

// validateShadowed checks the values of the file that variables override, so that a problem is
// found before the variable is removed.
func (l *loader) validateShadowed(stack layeredValues, file map[string]value) {
	discarded := newDecoder(&l.diagnostics)
	for _, key := range sortedKeys(file) {
		s, _ := settings.find(key)
		if v, _ := stack.lookup(key); v.origin != file[key].origin {
			s.decode(discarded, file[key], reflect.ValueOf(discarded.c).Elem())
		}
	}
}

// finalize sets the values that depend on others, and checks the rules between several.
func (d *decoder) finalize(stack layeredValues, env environment) {
	if d.c.Server.Socket == "" && d.c.State != "" {
		d.c.Server.Socket = d.c.State.Socket()
		d.c.origins["server.socket"] = d.c.origins["state"]
	}
	if len(d.c.Server.AllowedHosts) == 0 {
		d.c.Server.AllowedHosts = []string{"localhost", "127.0.0.1"}
	}
	d.checkSocket(env)
	d.checkUsers()
	d.checkSandbox(stack)
	d.checkTimeouts(stack)
	d.checkPython(stack)
	d.checkRoutingTargets()
	if e := d.c.Engine; e.Host != "" && e.Context != "" {
		other, _ := stack.lookup("engine.host")
		v, _ := stack.lookup("engine.context")
		d.addValue(v, "conflicts with engine.host, set by "+other.origin.String(), "keep one of the two")
	}
}

// checkTimeouts checks that no configured timeout, also of a tool, exceeds the maximum.
func (d *decoder) checkTimeouts(stack layeredValues) {
	limits := &d.c.Limits
	if limits.MaxTimeout == 0 {
		return // reported already
	}
	idle, _ := stack.lookup("limits.idle_timeout")
	stated := append(slices.Clone(d.toolTimeouts), idle)
	if timeout, _ := stack.lookup("limits.timeout"); timeout.origin != (Origin{}) {
		stated = append(stated, timeout)
	} else if limits.Timeout > limits.MaxTimeout { // the default is not a request
		limits.Timeout = limits.MaxTimeout
		d.c.origins["limits.timeout"] = d.c.origins["limits.max_timeout"]
	}
	most, _ := stack.lookup("limits.max_timeout")
	for _, v := range stated {
		if span, bad := parseDuration(v.text); bad == nil && span > limits.MaxTimeout {
			d.addValue(v, "exceeds limits.max_timeout, which is "+most.text+" ("+most.origin.String()+")",
				"write "+most.text+" or less, or raise limits.max_timeout")
		}
	}
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// layeredValues merges the sources. viper selects among values that have their own origin.
type layeredValues struct{ v *viper.Viper }

// newLayers merges the defaults, the file and the variables, in ascending precedence. The flags,
// --state and --config, select the directory and the file.
func newLayers(file, variables map[string]value) layeredValues {
	// A delimiter that occurs in no key prevents viper from splitting keys.
	v := viper.NewWithOptions(viper.KeyDelimiter("/"))
	for _, s := range settings {
		if s.defaultValue != "" {
			v.SetDefault(s.key, plain(s.key, s.defaultValue, Origin{}))
		}
	}
	for key, val := range file {
		_ = v.MergeConfigMap(map[string]any{key: val}) // never fails
	}
	// viper's own reading of the environment would ignore Options.Environ and lose the origin.
	for key, val := range variables {
		v.Set(key, val)
	}
	return layeredValues{v}
}

// lookup returns the effective value of a setting, if any source has one.
func (l layeredValues) lookup(key string) (value, bool) {
	v, ok := l.v.Get(key).(value)
	return v, ok
}

// fileLayer reads the configuration file and returns its name and its settings.
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

// section adds the members of a section to the layer.
func (l *loader) section(v value, layer map[string]value) {
	if v.shape == empty {
		return // all its keys are commented out
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
	s, ok := settings.find(f.value.key)
	switch {
	case strings.Contains(f.name, "."):
		l.refuseDottedKey(f)
	case ok && !s.supported():
		l.add(unsupported(f.origin, s.key))
	case ok && f.value.shape == empty && s.kind.form != plainForm:
		// all elements of the list or block are commented out
	case ok:
		if s.kind.secret {
			f.value = f.value.hidden()
		}
		layer[s.key] = f.value
	case len(namesIn(f.value.key, false)) > 0:
		l.section(f.value, layer)
	default:
		l.unknownKey(section.key, f)
	}
}

// refuseDottedKey refuses a dotted path as a key. It could be a duplicate of the nested key.
func (l *loader) refuseDottedKey(f field) {
	nested := strings.ReplaceAll(f.value.key, ".", ": and below it, indented, ") + ":"
	l.addKey(f.origin, f.value.key, "is a path where a key is expected", "nest it: write "+nested)
}

func (l *loader) unknownKey(section string, f field) {
	known, supported := namesIn(section, false), namesIn(section, true)
	fix := suggestName(f.name, known, supported)
	if key := sectionOf(f.name); key != "" && lexical.Closest(f.name, known) == "" {
		fix = "did you mean " + key + "?"
	}
	l.addKey(f.origin, f.value.key, "is not a known key", fix)
}

// unsupported returns the diagnostic of a key that is not supported yet.
func unsupported(at Origin, key string) Diagnostic {
	return Diagnostic{
		Origin: at, Key: key, Problem: "is not supported yet",
		Suggestion: "remove it: this version of dray would ignore it",
	}
}

// sectionExample returns how a section is written.
func sectionExample(section string) string {
	names := strings.Join(namesIn(section, true), ", ")
	if section == "" {
		return "sections such as server, limits and tools, each followed by a colon"
	}
	return section + ": and below it, indented, any of " + names
}
