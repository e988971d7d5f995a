package config

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/dray-dev/dray/internal/lexical"
)

// Origin is the source of a value: a position in the file, a variable or a flag. The zero Origin is
// the default.
type Origin struct {
	// File is a path. Line and Column begin at 1; 0 means the whole file or the whole line.
	File         string
	Line, Column int
	// Variable is the name of an environment variable.
	Variable string
	// Flag is a flag with its dashes.
	Flag string
}

// String returns "FILE:LINE:COLUMN", the variable, the flag, or "default".
func (o Origin) String() string {
	switch {
	case o.Flag != "":
		return o.Flag
	case o.Variable != "":
		return quoteName(o.Variable)
	case o.File == "":
		return "default"
	case o.Line == 0:
		return o.File
	case o.Column == 0:
		return o.File + ":" + strconv.Itoa(o.Line)
	default:
		return fmt.Sprintf("%s:%d:%d", o.File, o.Line, o.Column)
	}
}

// MarshalText returns the text of String, for JSON.
func (o Origin) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// compareOrigins orders diagnostics: the file, then the variables, then the flags. An origin has
// only one of the three, and the empty string is the least.
func compareOrigins(a, b Origin) int {
	return cmp.Or(
		cmp.Compare(a.Flag, b.Flag), cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.File, b.File),
		cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
	)
}

// Diagnostic is one problem of a configuration.
type Diagnostic struct {
	Origin Origin `json:"origin"`
	// Key is the path of the setting, for instance "tools[2].timeout"; empty if there is none.
	Key string `json:"key,omitempty"`
	// Value is the value, quoted and truncated. It is empty if there is none, if it does not matter,
	// and if it may be a secret.
	Value string `json:"value,omitempty"`
	// Problem completes the sentence "key: value ...". Suggestion is what to do.
	Problem    string `json:"problem"`
	Suggestion string `json:"fix"`
}

// String returns two lines: the problem and, indented, the suggestion.
func (m Diagnostic) String() string { return m.Summary() + "\n    " + m.Suggestion }

// Summary returns the origin, the key, the value and the problem.
func (m Diagnostic) Summary() string {
	what := m.Problem
	if m.Value != "" {
		what = m.Value + " " + what
	}
	if m.Key != "" {
		what = m.Key + ": " + what
	}
	return fmt.Sprintf("%s: %s", m.Origin, what)
}

// SortDiagnostics sorts problems by their origins.
func SortDiagnostics(all []Diagnostic) {
	slices.SortStableFunc(all, func(a, b Diagnostic) int { return compareOrigins(a.Origin, b.Origin) })
}

// InvalidError is returned for an invalid configuration, with all problems found.
type InvalidError struct{ Diagnostics []Diagnostic }

// Error lists all problems.
func (e *InvalidError) Error() string {
	var b strings.Builder
	if len(e.Diagnostics) == 1 {
		b.WriteString("the configuration has a problem:")
	} else {
		fmt.Fprintf(&b, "the configuration has %d problems:", len(e.Diagnostics))
	}
	for _, m := range e.Diagnostics {
		b.WriteString("\n  ")
		b.WriteString(strings.ReplaceAll(m.String(), "\n", "\n  "))
	}
	return b.String()
}

// diagnostics collects problems.
type diagnostics struct{ found []Diagnostic }

func (r *diagnostics) add(m Diagnostic) { r.found = append(r.found, m) }

// addValue reports an invalid value.
func (r *diagnostics) addValue(v value, problem, fix string) {
	if v.shape == invalid {
		return
	}
	r.add(Diagnostic{v.origin, v.key, v.display(), problem, fix})
}

// refuse reports an invalid value and returns "".
func (r *diagnostics) refuse(v value, problem, fix string) string {
	r.addValue(v, problem, fix)
	return ""
}

// addKey reports a problem of a key and not of its value.
func (r *diagnostics) addKey(at Origin, key, problem, fix string) {
	r.add(Diagnostic{Origin: at, Key: key, Problem: problem, Suggestion: fix})
}

// err returns the problems in the order of their origins, or nil.
func (r *diagnostics) err() error {
	if len(r.found) == 0 {
		return nil
	}
	SortDiagnostics(r.found)
	return &InvalidError{Diagnostics: r.found}
}

// maxQuoted is the maximum number of bytes of a value in an error.
const maxQuoted = 80

// quoteValue quotes and truncates a text for a line on a terminal.
func quoteValue(s string) string {
	if len(s) > maxQuoted {
		return strconv.Quote(s[:maxQuoted]) + "..."
	}
	return strconv.Quote(s)
}

// printable returns a text unchanged if it has only printable characters, else quoted.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return quoteValue(s)
	}
	return s
}

// redacted replaces values that may be secret.
const redacted = "(not shown)"

// maskPassword hides the password of an address such as tcp://user:password@host, and a whole text
// that resembles an address and cannot be parsed.
func maskPassword(s string) string {
	if before, _, ok := strings.Cut(s, "@"); !ok || !strings.Contains(before, ":") {
		return s
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return redacted
	}
	return u.Redacted()
}

// suggestName returns the suggestion for an unknown name.
func suggestName(name string, known, supported []string) string {
	if len(supported) == 0 {
		return didYouMean(name, known, "remove it: no key of this section is supported yet")
	}
	return didYouMean(name, known, "remove it, or write one of "+strings.Join(supported, ", "))
}

// didYouMean returns the suggestion of the known name that is similar, or else another one.
func didYouMean(name string, known []string, otherwise string) string {
	if near := lexical.Closest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return otherwise
}

// sectionOf returns the key of the only setting with this name, or "".
func sectionOf(name string) string {
	suffix := "." + lexical.Normalize(name)
	found := slices.DeleteFunc(settings.names(),
		func(key string) bool { return !strings.HasSuffix(key, suffix) })
	if len(found) != 1 {
		return ""
	}
	return found[0]
}
