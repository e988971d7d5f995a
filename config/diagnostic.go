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

// Origin is where something was written: a place in the file, a variable, a flag. The zero Origin
// is the default.
type Origin struct {
	// File is a path. Line and Column begin at 1; 0 means the file as a whole, or the line as a whole.
	File         string
	Line, Column int
	// Variable is the name of an environment variable.
	Variable string
	// Flag is a flag with its dashes.
	Flag string
}

// String gives "FILE:LINE:COLUMN", the variable, the flag, or "default".
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

// rank orders mistakes as an operator meets them: down the file, then the variables, then the
// flags.
func (o Origin) rank() int {
	switch {
	case o.Flag != "":
		return 3
	case o.Variable != "":
		return 2
	case o.File != "":
		return 1
	default:
		return 0
	}
}

func compareOrigins(a, b Origin) int {
	return cmp.Or(
		cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.File, b.File), cmp.Compare(a.Line,
			b.Line), cmp.Compare(a.Column, b.Column),
		cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.Flag, b.Flag),
	)
}

// Diagnostic is one thing that is wrong, in the parts that an operator needs: where it stands, what
// it is, what to write instead.
type Diagnostic struct {
	Origin Origin
	// Key is the path of the setting, for instance "tools[2].timeout"; empty where the mistake is not
	// about one.
	Key string
	// Value is what was written, quoted and cut to a readable length. It is empty where nothing was
	// written, where the value does not matter, and where it may be a secret.
	Value string
	// Problem continues the sentence that key and value begin. Fix is what to do next.
	Problem    string
	Suggestion string
}

// String gives two lines: what is wrong and, indented, the fix.
func (m Diagnostic) String() string {
	what := m.Problem
	if m.Value != "" {
		what = m.Value + " " + what
	}
	if m.Key != "" {
		what = m.Key + ": " + what
	}
	return fmt.Sprintf("%s: %s\n    %s", m.Origin, what, m.Suggestion)
}

// InvalidError is a configuration that cannot be used, with every mistake that was found in it.
type InvalidError struct {
	Diagnostics []Diagnostic
}

// Error lists all mistakes.
func (e *InvalidError) Error() string {
	var b strings.Builder
	if len(e.Diagnostics) == 1 {
		b.WriteString("the configuration has a mistake:")
	} else {
		fmt.Fprintf(&b, "the configuration has %d mistakes:", len(e.Diagnostics))
	}
	for _, m := range e.Diagnostics {
		b.WriteString("\n  ")
		b.WriteString(strings.ReplaceAll(m.String(), "\n", "\n  "))
	}
	return b.String()
}

// diagnostics collects mistakes.
type diagnostics struct {
	mistakes []Diagnostic
}

func (r *diagnostics) add(m Diagnostic) { r.mistakes = append(r.mistakes, m) }

// addValue reports that a value is not what its key wants.
func (r *diagnostics) addValue(v value, problem, fix string) {
	if v.shape == invalid {
		return
	}
	r.add(Diagnostic{
		Origin: v.origin, Key: v.key, Value: v.display(), Problem: problem,
		Suggestion: fix,
	})
}

// err gives the mistakes in the order of their origins, or nil.
func (r *diagnostics) err() error {
	if len(r.mistakes) == 0 {
		return nil
	}
	slices.SortStableFunc(r.mistakes, func(a,
		b Diagnostic,
	) int {
		return compareOrigins(a.Origin, b.Origin)
	})
	return &InvalidError{Diagnostics: r.mistakes}
}

// shownLength is how many bytes of a value an error repeats.
const shownLength = 80

// quoteValue makes a text safe for a terminal and short enough for a line.
func quoteValue(s string) string {
	if len(s) > shownLength {
		return strconv.Quote(s[:shownLength]) + "..."
	}
	return strconv.Quote(s)
}

// printable gives a text of somebody else's as it is if a terminal can show it, else quoted.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return quoteValue(s)
	}
	return s
}

// redacted stands for what may be a secret.
const redacted = "(not shown)"

// maskPassword hides the password of an address such as tcp://user:password@host, and all of what
// only looks like one.
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

// suggestName says what to write instead of a name that is not among the known ones.
func suggestName(name string, known, supported []string) string {
	if near := lexical.Closest(name, known); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	if len(supported) == 0 {
		return "remove it: no key of this section is supported yet"
	}
	return "remove it, or write one of " + strings.Join(supported, ", ")
}

// sectionOf finds the one setting that has this name in another section.
func sectionOf(name string) string {
	found := ""
	for _, s := range settings {
		if s.read == nil || !strings.HasSuffix(s.key, "."+normalize(name)) {
			continue
		}
		if found != "" {
			return ""
		}
		found = s.key
	}
	return found
}

// normalize takes away what people vary without thinking of it.
func normalize(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "-", "_")
}
