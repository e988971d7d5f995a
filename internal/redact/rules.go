package redact

import (
	"path"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// Options are what a configuration says about secrets.
type Options struct {
	// Key is the key of the marks. Marks of another key cannot be compared.
	Key []byte
	// Patterns are regular expressions, or names of built-in ones such as "builtin:aws".
	Patterns []string
	// Names are names of variables whose values are secrets. "*" stands for any characters, and case
	// does not matter.
	Names []string
	// Variables are those of the daemon and of the configuration, as "NAME=value".
	Variables []string
}

// Violation is an invalid pattern or name in Options.
type Violation struct {
	// Index is the place in Options.Patterns, or in Options.Names if Name is set.
	Index   int
	Name    bool
	Problem string
	Fix     string
}

// Rules are those of one configuration. They do not change. Nil has none.
type Rules struct {
	key      markKey
	patterns []finder
	names    []string
	values   []string
	// base is of texts that belong to no call.
	base *Redactor
}

// New returns the rules of a configuration, or all that is wrong with it.
func New(opts Options) (*Rules, []*Violation) {
	r := &Rules{key: opts.Key}
	var invalid []*Violation
	for i, text := range opts.Patterns {
		compiled, err := compile(text)
		if err != nil {
			err.Index = i
			invalid = append(invalid, err)
			continue
		}
		r.patterns = append(r.patterns, compiled...)
	}
	for i, name := range opts.Names {
		if name == "" || strings.ContainsAny(name, "=\x00[]\\?/") {
			invalid = append(invalid, &Violation{
				Index: i, Name: true, Problem: "is not the name of a variable",
				Fix: `write a name, with "*" for any characters, for instance *_TOKEN`,
			})
		}
		r.names = append(r.names, strings.ToUpper(name))
	}
	for _, variable := range opts.Variables {
		if name, value, _ := strings.Cut(variable, "="); r.isSecret(name) {
			r.values = append(r.values, value)
		}
	}
	r.base = r.redactor(r.values)
	return r, invalid
}

const builtinPrefix = "builtin:"

func compile(text string) ([]finder, *Violation) {
	texts := []string{text}
	if name, ok := strings.CutPrefix(text, builtinPrefix); ok {
		if texts = builtin(name); texts == nil {
			fix := "use one of " + builtinPrefix + strings.Join(builtinNames(), ", "+builtinPrefix)
			if near := lexical.Closest(name, builtinNames()); near != "" {
				fix = "did you mean " + builtinPrefix + near + "?"
			}
			return nil, &Violation{Problem: "is not a built-in pattern", Fix: fix}
		}
	}
	var all []finder
	for _, text := range texts {
		p, err := compilePattern(text)
		if err != nil {
			return nil, &Violation{
				Problem: err.Error(),
				Fix:     "write an RE2 expression that matches a secret, for instance sk-[0-9a-f]{32}",
			}
		}
		all = append(all, p)
	}
	return all, nil
}

// isSecret reports whether the value of a variable is a secret.
func (r *Rules) isSecret(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc(r.names, func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // the patterns are valid
		return ok
	})
}

// Base returns the redactor of what belongs to no call.
func (r *Rules) Base() *Redactor {
	if r == nil {
		return nil
	}
	return r.base
}

// ForCall returns the redactor of a call; nil if nothing is a secret. fields are the JSON pointers
// of the values of its input that are secrets, as dray.Tool.SecretFields returns them.
func (r *Rules) ForCall(inv dray.Invocation, fields []string) *Redactor {
	if r == nil {
		return nil
	}
	marked := make(map[string]bool, len(fields))
	for _, pointer := range fields {
		marked[pointer] = true
	}
	var values []string
	for _, variables := range []map[string]string{inv.Env, inv.LocalEnv} {
		for name, value := range variables {
			if r.isSecret(name) {
				values = append(values, value)
			}
		}
	}
	values = append(values, valuesAt(inv.Input, marked)...)
	if len(values) == 0 && len(fields) == 0 {
		return r.base
	}
	c := r.redactor(slices.Concat(r.values, values)) // a call cannot displace those of the daemon
	if c == nil {
		c = &Redactor{key: r.key}
	}
	c.fields = marked
	return c
}

// redactor returns a redactor of the patterns and of values; nil if there are none.
func (r *Rules) redactor(values []string) *Redactor {
	finders := slices.Clone(r.patterns)
	if l := newLiterals(values); l != nil {
		finders = append(finders, l)
	}
	if len(finders) == 0 {
		return nil
	}
	return &Redactor{key: r.key, finders: finders}
}
