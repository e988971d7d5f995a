package config

import (
	"maps"
	"slices"
)

// Options are what the command line and the process give to Load.
type Options struct {
	// State is the value of --state, ConfigFile of --config; empty means that the flag was not given. Relative paths are relative to
	// the process's working folder.
	State      string
	ConfigFile string
	// Flags are the flags that stand for a setting and were given.
	Flags []Flag
	// Environ is the process's environment in the form of os.Environ. Nothing else of the environment is looked at.
	Environ []string
	// ReadFile reads the configuration file; nil means from the file system. Its errors match fs.ErrNotExist for a file that is
	// not there.
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

// Load reads, merges and validates. Its error is an [*Error] with all mistakes. A missing file is one only where --config or DRAY_CONFIG
// names it. Load makes nothing on the disk.
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

// validateShadowed checks the values that another source overrides: a mistake in the file is found when it is made, not on the day when the
// variable above it goes away.
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
			l.add(Diagnostic{Origin: at, Key: f.Key, Problem: "is no setting", Suggestion: "this is a defect of dray: please report it"})
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
		d.addValue(v, "stands beside engine.host, set by "+other.origin.String(), "keep one of the two: a context names a host already")
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
			d.addValue(v, "is longer than limits.max_timeout, which is "+most.text+" ("+most.origin.String()+")",
				"write "+most.text+" or less, or raise limits.max_timeout")
		}
	}
}

// sortedKeys gives the keys of a map in order, so that mistakes do not change places from run to run.
func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
