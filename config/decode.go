package config

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decoder decodes values into the configuration. Its methods report problems and return the zero
// value for them, so that one run finds all.
type decoder struct {
	valueReader
	c *Config
	// toolTimeouts are checked when the maximum is known.
	toolTimeouts []value
	// toolNames are the names of the tools so far, from all files.
	toolNames map[string]Origin
	// targets are the names in routing, checked when the containers are known.
	targets []value
	// specifics are the containers of tools, checked likewise.
	specifics []value
}

func newDecoder(r *diagnostics) *decoder {
	c := &Config{origins: map[string]Origin{}}
	return &decoder{
		valueReader: valueReader{r, c.origins}, c: c, toolNames: map[string]Origin{},
	}
}

// valueReader reads values that have no meaning of their own: texts, numbers, lists.
type valueReader struct {
	*diagnostics
	origins map[string]Origin
}

// recordOrigin records where a key was set.
func (r valueReader) recordOrigin(v value) { r.origins[v.key] = v.origin }

// scalar returns the text of a single value; what names the expected value.
func (r valueReader) scalar(v value, what string) (string, bool) {
	r.recordOrigin(v)
	switch v.shape {
	case scalar:
		return v.text, true
	case empty:
		r.addValue(v, "has no value", "write "+what+", or remove the key")
	default:
		r.addValue(v, v.kindMismatch("one value"), "write "+what)
	}
	return "", false
}

// text returns a text. Numbers and booleans are refused, because YAML changes 1.10, 0777 or no.
func (r valueReader) text(v value) (string, bool) {
	s, ok := r.scalar(v, "a text")
	if ok && v.kind != text {
		return r.refuse(v, "is a "+v.kind.String()+" where a text is expected", "put it in quotes"), false
	}
	if strings.ContainsRune(s, 0) {
		return r.refuse(v, "contains a NUL byte", "remove it"), false
	}
	return s, ok
}

// lineText returns a text without control characters.
func (r valueReader) lineText(v value) (string, bool) {
	s, ok := r.text(v)
	if ok && strings.ContainsFunc(s, isControl) {
		return r.refuse(v, "contains a control character", "write it on one line, without tabs"), false
	}
	return s, ok
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }

// singleLineText returns any text on one line.
func (r valueReader) singleLineText(v value) string {
	s, _ := r.lineText(v)
	return s
}

// argument returns an argument of a program: any text.
func (r valueReader) argument(v value) string {
	s, _ := r.text(v)
	return s
}

// choice returns one of several words.
func (r valueReader) choice(v value, words ...string) string {
	s, ok := r.text(v)
	if !ok || slices.Contains(words, s) {
		return s
	}
	return r.refuse(v, "is not one of the choices",
		didYouMean(s, words, "write one of "+strings.Join(words, ", ")))
}

// boolean returns true or false. In YAML the word has no quotes.
func (r valueReader) boolean(v value) bool {
	s, ok := r.scalar(v, "true or false")
	inYAML := v.origin.File != ""
	switch {
	case !ok:
	case v.kind == boolean: // true, True or TRUE
		return strings.EqualFold(s, "true")
	case !inYAML && (s == "true" || s == "false"):
		return s == "true"
	default:
		r.addValue(v, "is not a boolean", "write true or false, without quotes")
	}
	return false
}

// each reads the elements of a list.
func (r valueReader) each(v value, read func(value) string) []string {
	r.recordOrigin(v)
	if v.shape != list {
		r.addValue(v, v.kindMismatch("a list"), "write [a, b] or one element per line, each after a dash")
		return nil
	}
	var all []string
	for _, item := range v.items {
		all = append(all, read(item))
	}
	return all
}

// path returns an absolute path, cleaned.
func (r valueReader) path(v value) string {
	s := r.relativePath(v)
	if s != "" && !filepath.IsAbs(s) {
		return r.refuse(v, "is not an absolute path", fixRelative(v.text))
	}
	return s
}

// relativePath returns a path that is absolute or relative to a directory that is not known yet.
func (r valueReader) relativePath(v value) string {
	s, ok := r.text(v)
	if !ok {
		return ""
	}
	if problem, fix := checkPath(s); problem != "" {
		return r.refuse(v, problem, fix)
	}
	return filepath.Clean(s)
}

// checkPath returns the problem of a path, absolute or not.
func checkPath(s string) (problem, fix string) {
	switch {
	case s == "":
		return "is empty", "write a path, or remove the key"
	case slices.Contains(strings.Split(s, "/"), ".."):
		return "contains ..", "write the path without .. segments"
	default:
		return "", ""
	}
}

func fixRelative(s string) string {
	switch {
	case strings.HasPrefix(s, "~"):
		return "write the full path of your home directory: ~ is not expanded"
	case regexp.MustCompile(`^[A-Za-z]:[\\/]|^\\\\`).MatchString(s):
		return "write a Linux path, beginning with /: Windows paths are not supported"
	default:
		return "write the full path, beginning with /"
	}
}

// positive returns a duration above 0.
func (r valueReader) positive(v value) time.Duration {
	before := len(r.found)
	span := r.duration(v)
	if span == 0 && len(r.found) == before {
		r.addValue(v, "must be above 0", "write a duration such as 120s")
	}
	return span
}

// minLease is the shortest time in which an agent can reply. A shorter lease would end every call
// in a container.
const minLease = time.Second

func (r valueReader) lease(v value) time.Duration {
	span := r.positive(v)
	if span > 0 && span < minLease {
		r.addValue(v, "is shorter than an agent needs to reply", "write 1s or more")
	}
	return span
}

// duration returns a duration of 0 or more.
func (r valueReader) duration(v value) time.Duration {
	s, ok := r.scalar(v, "a duration such as 90s")
	if !ok {
		return 0
	}
	span, bad := parseDuration(s)
	switch {
	case bad != nil:
		r.addValue(v, bad.problem, bad.fix)
	case span < 0:
		r.addValue(v, "is negative", "write a duration such as 90s")
		return 0
	}
	return span
}

// parseProblem is the problem of a text that should be a number with a unit. The patterns that
// classify it are compiled when needed, so that a start without problems pays for none.
type parseProblem struct{ problem, fix string }

func parseDuration(s string) (time.Duration, *parseProblem) {
	span, err := time.ParseDuration(s)
	matches := func(pattern string) bool { return regexp.MustCompile(pattern).MatchString(s) }
	switch {
	case err == nil:
		return span, nil
	case matches(`^[+-]?[0-9]{0,12}\.?[0-9]{1,12}$`):
		fix := "write " + s + "s for seconds; other units are h, m and ms"
		return 0, &parseProblem{"has no unit", fix}
	case matches(`^[0-9]{1,5}d$`):
		n, _ := strconv.Atoi(strings.TrimSuffix(s, "d"))
		return 0, &parseProblem{"has an unknown unit", fmt.Sprintf("write %dh", n*24)}
	case matches(`^[+-]?([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h))+$`):
		return 0, &parseProblem{"is too long", "write less than 290 years"}
	default:
		return 0, &parseProblem{"is not a duration", "write a duration such as 90s, 5m or 1h30m"}
	}
}

// count returns a whole number within bounds.
func (r valueReader) count(v value, least, most int) int {
	fix := fmt.Sprintf("write a number from %d to %d", least, most)
	s, ok := r.scalar(v, "a whole number")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(s)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		r.addValue(v, "is not a whole number", fix)
	case n < least:
		r.addValue(v, fmt.Sprintf("is below %d", least), fix)
	case n > most:
		r.addValue(v, fmt.Sprintf("is above %d", most), fix)
	case strconv.Itoa(n) != s: // 007 or +7
		r.addValue(v, "is not a plain whole number", fix)
	default:
		return n
	}
	return 0
}

// size returns a number of bytes above 0.
func (r valueReader) size(v value) int64 {
	s, ok := r.scalar(v, "a size such as 64KiB")
	if !ok {
		return 0
	}
	n, bad := parseSize(s)
	if bad == nil && n == 0 {
		bad = &parseProblem{"must be above 0", "write a size such as 64KiB"}
	}
	if bad != nil {
		r.addValue(v, bad.problem, bad.fix)
	}
	return n
}

var sizeShift = map[string]uint{"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}

func parseSize(s string) (int64, *parseProblem) {
	unit := strings.TrimLeft(s, "0123456789")
	digits := strings.TrimSuffix(s, unit)
	shift, known := sizeShift[unit]
	if !known || digits == "" {
		return 0, badSize(s)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64>>shift {
		return 0, &parseProblem{"is too large", "write less than 8388608TiB"}
	}
	return n << shift, nil
}

func badSize(s string) *parseProblem {
	otherUnit := regexp.MustCompile(`(?i)^([0-9]{1,12}) ?([KMGT])(i?B)?$`)
	if m := otherUnit.FindStringSubmatch(s); m != nil {
		return &parseProblem{"has an unknown unit", "write " + m[1] + strings.ToUpper(m[2]) + "iB"}
	}
	if strings.HasPrefix(s, "-") {
		return &parseProblem{"is negative", "write a size such as 64KiB"}
	}
	return &parseProblem{
		"is not a size",
		"write whole bytes, or whole KiB, MiB, GiB or TiB such as 64KiB",
	}
}
