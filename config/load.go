package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/viper"

	"github.com/dray-dev/dray/internal/lexical"
)

// Options are what the command line and the process give to Load.
type Options struct {
	// State is the value of --state, ConfigFile of --config; empty means that the flag was not given.
	// Relative paths are relative to the process's working folder.
	State      string
	ConfigFile string
	// Flags are the flags that stand for a setting and were given.
	Flags []Flag
	// Environ is the process's environment in the form of os.Environ. Nothing else of the environment
	// is looked at.
	Environ []string
	// ReadFile reads the configuration file; nil means from the file system. Its errors match
	// fs.ErrNotExist for a file that is not there.
	ReadFile func(name string) ([]byte, error)
}

// Flag is a setting that was given on the command line.
type Flag struct {
	// Name is the flag with its dashes, for errors.
	Name string
	// Key is the setting, for instance "server.socket".
	Key string
	// Value is written as the setting's variable would be.
	Value string
}

// loader carries what Load knows on its way.
type loader struct {
	diagnostics
	opts Options
	env  environment
}

// Load reads, merges and validates. Its error is an [*Error] with all mistakes. A missing file is
// one only where --config or DRAY_CONFIG names it. Load makes nothing on the disk.
func Load(opts Options) (*Config, error) {
	if opts.ReadFile == nil {
		opts.ReadFile = readFile
	}
	l := &loader{opts: opts, env: parseEnviron(opts.Environ)}
	d := &decoder{diagnostics: &l.diagnostics, c: &Config{origins: map[string]Origin{}}}
	d.state(l.stateFolder())
	name, file := l.fileLayer()
	d.c.File = name
	variables, entries := l.variables()
	flags := l.flags()
	stack := newLayers(file, variables, flags)
	for _, s := range settings {
		if v, ok := l.withEntries(stack, s, entries[s.key]); ok && s.read != nil {
			s.read(d, v)
		}
	}
	l.validateShadowed(stack, file, variables)
	d.finalize(stack, l.env)
	if err := l.err(); err != nil {
		return nil, err
	}
	return d.c, nil
}

// validateShadowed checks the values that another source overrides: a mistake in the file is found
// when it is made, not on the day when the variable above it goes away.
func (l *loader) validateShadowed(stack layeredValues, lower ...map[string]value) {
	aside := &decoder{diagnostics: &l.diagnostics, c: &Config{origins: map[string]Origin{}}}
	for _, layer := range lower {
		for _, key := range sortedKeys(layer) {
			s, _ := findSetting(key)
			if v, _ := stack.lookup(key); v.origin != layer[key].origin {
				s.read(aside, layer[key])
			}
		}
	}
}

// flags gives the settings that the command line states.
func (l *loader) flags() map[string]value {
	layer := map[string]value{}
	for _, f := range l.opts.Flags {
		at := Origin{Flag: f.Name}
		s, ok := findSetting(f.Key)
		if !ok || s.read == nil {
			l.add(Diagnostic{
				Origin: at, Key: f.Key, Problem: "is no setting",
				Suggestion: "this is a defect of dray: please report it",
			})
			continue
		}
		if v, ok := l.parse(s, f.Value, at); ok {
			layer[s.key] = v
		}
	}
	return layer
}

// finalize fills in what follows from other values and checks what holds between several.
func (d *decoder) finalize(stack layeredValues, env environment) {
	if d.c.Server.Socket == "" && d.c.State != "" {
		d.c.Server.Socket = d.c.State.socket()
		d.c.origins["server.socket"] = d.c.origins["state"]
	}
	d.checkSocket(env)
	d.checkSandbox(stack)
	d.checkTimeouts(stack)
	d.checkRoutingTargets()
	if e := d.c.Engine; e.Host != "" && e.Context != "" {
		other, _ := stack.lookup("engine.host")
		v, _ := stack.lookup("engine.context")
		d.addValue(v, "stands beside engine.host, set by "+other.origin.String(),
			"keep one of the two: a context names a host already")
	}
}

// checkTimeouts keeps every configured timeout below the maximum, the tools' own too.
func (d *decoder) checkTimeouts(stack layeredValues) {
	limits := &d.c.Limits
	if limits.MaxTimeout == 0 {
		return // reported already
	}
	idle, _ := stack.lookup("limits.idle_timeout")
	stated := append(slices.Clone(d.toolTimeouts), idle)
	if timeout, _ := stack.lookup("limits.timeout"); timeout.origin != (Origin{}) {
		stated = append(stated, timeout)
	} else if limits.Timeout > limits.MaxTimeout { // nobody asked for the default's 120s
		limits.Timeout = limits.MaxTimeout
		d.c.origins["limits.timeout"] = d.c.origins["limits.max_timeout"]
	}
	most, _ := stack.lookup("limits.max_timeout")
	for _, v := range stated {
		if span, bad := parseDuration(v.text); bad == nil && span > limits.MaxTimeout {
			d.addValue(v,
				"is longer than limits.max_timeout, which is "+most.text+" ("+most.origin.String()+")",
				"write "+most.text+" or less, or raise limits.max_timeout")
		}
	}
}

// sortedKeys gives the keys of a map in order, so that mistakes do not change places from run to
// run.
func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// layeredValues puts what each source says over what the one below it says. viper picks; what it
// picks carries its own origin.
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
	// viper's own reading of the environment would look past Options.Environ and forget which variable
	// it was.
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

// refuseDottedKey refuses a path where a key belongs: taken as one, it could stand beside the same
// key written as it should be.
func (l *loader) refuseDottedKey(f field) {
	l.add(Diagnostic{
		Origin: f.origin, Key: f.value.key, Problem: "is a path where a key is expected",
		Suggestion: "nest it: write " + strings.ReplaceAll(f.value.key, ".",
			": and below it, indented, ") + ":",
	})
}

func (l *loader) unknownKey(section string, f field) {
	known, supported := namesIn(section, false), namesIn(section, true)
	fix := suggestName(f.name, known, supported)
	if key := sectionOf(f.name); key != "" && lexical.Closest(f.name, known) == "" {
		fix = "did you mean " + key + "?"
	}
	l.add(Diagnostic{
		Origin: f.origin, Key: f.value.key, Problem: "is not a key that dray knows",
		Suggestion: fix,
	})
}

// unsupported is the refusal of a key of the contract that nothing reads yet.
func unsupported(at Origin, key string) Diagnostic {
	return Diagnostic{
		Origin: at, Key: key, Problem: "is not supported yet",
		Suggestion: "remove it: this version of dray would not do what it says",
	}
}

// sectionExample shows how a section is written, with the first of its keys.
func sectionExample(section string) string {
	names := strings.Join(namesIn(section, true), ", ")
	if section == "" {
		return "sections such as server, limits and tools, each followed by a colon"
	}
	return section + ": and below it, indented, any of " + names
}
