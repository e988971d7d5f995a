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

	"github.com/dray-dev/dray/internal/lexical"
)

// decoder reads values into the configuration. Its methods report what is wrong and then give the
// zero value, so that one run finds all mistakes.
type decoder struct {
	*diagnostics
	c *Config
	// toolTimeouts wait until the maximum is known.
	toolTimeouts []value
	// targets are the names in routing, which wait until the containers are known.
	targets []value
}

// recordOrigin remembers where a key was set.
func (d *decoder) recordOrigin(v value) { d.c.origins[v.key] = v.origin }

// scalar gives the text of a value that must be a single one; what says which.
func (d *decoder) scalar(v value, what string) (string, bool) {
	d.recordOrigin(v)
	switch v.shape {
	case scalar:
		return v.text, true
	case empty:
		d.addValue(v, "has no value", "write "+what+", or remove the key")
	default:
		d.addValue(v, v.kindMismatch("one value"), "write "+what)
	}
	return "", false
}

// text gives a text. Numbers and booleans are refused, since what YAML makes of 1.10, 0777 or no is
// seldom what was meant.
func (d *decoder) text(v value) (string, bool) {
	s, ok := d.scalar(v, "a text")
	if ok && v.kind != text {
		d.addValue(v, "is a "+v.kind.String()+" where a text is expected", "put it in quotes")
		return "", false
	}
	if strings.ContainsRune(s, 0) {
		d.addValue(v, "holds a NUL byte", "remove it")
		return "", false
	}
	return s, ok
}

// lineText gives a text without line breaks and other control characters.
func (d *decoder) lineText(v value) (string, bool) {
	s, ok := d.text(v)
	if ok && strings.ContainsFunc(s, isControl) {
		d.addValue(v, "holds a control character", "write it on one line, without tabs")
		return "", false
	}
	return s, ok
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// singleLineText gives a text on one line that nothing more is known of.
func (d *decoder) singleLineText(v value) string {
	s, _ := d.lineText(v)
	return s
}

// argument gives an argument of a program: any text, byte for byte.
func (d *decoder) argument(v value) string {
	s, _ := d.text(v)
	return s
}

// choice gives one of several words.
func (d *decoder) choice(v value, words ...string) string {
	s, ok := d.text(v)
	if !ok {
		return ""
	}
	if slices.Contains(words, s) {
		return s
	}
	fix := "write one of " + strings.Join(words, ", ")
	if near := lexical.Closest(s, words); near != "" {
		fix = "did you mean " + near + "?"
	}
	d.addValue(v, "is not one of the choices", fix)
	return ""
}

// each reads the elements of a list.
func (d *decoder) each(v value, read func(value) string) []string {
	d.recordOrigin(v)
	if v.shape != list {
		d.addValue(v, v.kindMismatch("a list"), "write [a, b] or one element per line, each after a dash")
		return nil
	}
	var all []string
	for _, item := range v.items {
		all = append(all, read(item))
	}
	return all
}

// path gives an absolute path, cleaned.
func (d *decoder) path(v value) string {
	s, ok := d.text(v)
	if !ok {
		return ""
	}
	if problem, fix := checkPath(s); problem != "" {
		d.addValue(v, problem, fix)
		return ""
	}
	if !filepath.IsAbs(s) {
		d.addValue(v, "is not an absolute path", fixRelative(s))
		return ""
	}
	return filepath.Clean(s)
}

// checkPath says what is wrong with a path, absolute or not.
func checkPath(s string) (problem, fix string) {
	switch {
	case s == "":
		return "is empty", "write a path, or remove the key"
	case slices.Contains(strings.Split(s, "/"), ".."):
		return "goes up with ..", "write the path that it leads to"
	default:
		return "", ""
	}
}

var windowsPath = regexp.MustCompile(`^[A-Za-z]:[\\/]|^\\\\`)

func fixRelative(s string) string {
	switch {
	case strings.HasPrefix(s, "~"):
		return "write your home folder out: ~ is not expanded here"
	case windowsPath.MatchString(s):
		return "write it as Linux does, beginning with /: Windows paths are not supported"
	default:
		return "write the whole path, beginning with /"
	}
}

// positive gives a duration above 0.
func (d *decoder) positive(v value) time.Duration {
	before := len(d.mistakes)
	span := d.duration(v)
	if span == 0 && len(d.mistakes) == before {
		d.addValue(v, "must be above 0", "write a duration such as 120s")
	}
	return span
}

// minLease leaves an agent time to be heard: under a shorter one every call in a container would be
// lost.
const minLease = time.Second

func (d *decoder) lease(v value) time.Duration {
	span := d.positive(v)
	if span > 0 && span < minLease {
		d.addValue(v, "is shorter than an agent takes to answer", "write 1s or more")
	}
	return span
}

// duration gives a duration of 0 or more.
func (d *decoder) duration(v value) time.Duration {
	s, ok := d.scalar(v, "a duration such as 90s")
	if !ok {
		return 0
	}
	span, bad := parseDuration(s)
	switch {
	case bad != nil:
		d.addValue(v, bad.problem, bad.fix)
	case span < 0:
		d.addValue(v, "is negative", "write a duration such as 90s")
		return 0
	}
	return span
}

// parseProblem is what is wrong with a text that should be a number of something.
type parseProblem struct{ problem, fix string }

var (
	number       = regexp.MustCompile(`^[+-]?[0-9]{0,12}\.?[0-9]{1,12}$`)
	days         = regexp.MustCompile(`^[0-9]{1,5}d$`)
	durationForm = regexp.MustCompile(`^[+-]?([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h))+$`)
)

func parseDuration(s string) (time.Duration, *parseProblem) {
	span, err := time.ParseDuration(s)
	switch {
	case err == nil:
		return span, nil
	case number.MatchString(s):
		return 0, &parseProblem{
			"has no unit",
			fmt.Sprintf("write %ss for seconds; h, m and ms are units too", s),
		}
	case days.MatchString(s):
		n, _ := strconv.Atoi(strings.TrimSuffix(s, "d"))
		return 0, &parseProblem{"has a unit that durations do not have", fmt.Sprintf("write %dh", n*24)}
	case durationForm.MatchString(s):
		return 0, &parseProblem{"is too long", "write less than 290 years"}
	default:
		return 0, &parseProblem{"is not a duration", "write one such as 90s, 5m or 1h30m"}
	}
}

var wholeNumber = regexp.MustCompile(`^(0|[1-9][0-9]{0,6})$`)

// count gives a whole number within bounds.
func (d *decoder) count(v value, least, most int) int {
	fix := fmt.Sprintf("write a number from %d to %d", least, most)
	s, ok := d.scalar(v, "a whole number")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(s)
	switch {
	case wholeNumber.MatchString(s) && err == nil && n >= least && n <= most:
		return n
	case err != nil && !errors.Is(err, strconv.ErrRange):
		d.addValue(v, "is not a whole number", fix)
	case n < least:
		d.addValue(v, fmt.Sprintf("is below %d", least), fix)
	case n > most:
		d.addValue(v, fmt.Sprintf("is above %d", most), fix)
	default:
		d.addValue(v, "is not a plain whole number", fix)
	}
	return 0
}

// size gives a number of bytes above 0.
func (d *decoder) size(v value) int64 {
	s, ok := d.scalar(v, "a size such as 64KiB")
	if !ok {
		return 0
	}
	n, bad := parseSize(s)
	if bad == nil && n == 0 {
		bad = &parseProblem{"must be above 0", "write a size such as 64KiB"}
	}
	if bad != nil {
		d.addValue(v, bad.problem, bad.fix)
	}
	return n
}

var (
	sizeForm     = regexp.MustCompile(`^([0-9]+)(B|KiB|MiB|GiB|TiB)?$`)
	unitlessSize = regexp.MustCompile(`(?i)^([0-9]{1,12}) ?([KMGT])(i?B)?$`)
	sizeShift    = map[string]uint{"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}
)

func parseSize(s string) (int64, *parseProblem) {
	m := sizeForm.FindStringSubmatch(s)
	if m == nil {
		return 0, badSize(s)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || n > math.MaxInt64>>sizeShift[m[2]] {
		return 0, &parseProblem{"is too large", "write less than 8388608TiB"}
	}
	return n << sizeShift[m[2]], nil
}

func badSize(s string) *parseProblem {
	if m := unitlessSize.FindStringSubmatch(s); m != nil {
		return &parseProblem{"has a unit that sizes do not have", "write " + m[1] +
			strings.ToUpper(m[2]) + "iB"}
	}
	if strings.HasPrefix(s, "-") {
		return &parseProblem{"is negative", "write a size such as 64KiB"}
	}
	return &parseProblem{
		"is not a size",
		"write whole bytes, or whole KiB, MiB, GiB or TiB such as 64KiB",
	}
}
