package pep508

import (
	"fmt"
	"slices"
	"strings"
)

// operators are those of PEP 440; a longer one stands before its prefixes.
var operators = []string{"===", "~=", "==", "!=", "<=", ">=", "<", ">"}

// Specifier is one condition on a version: an operator and a version.
type Specifier struct {
	Operator string
	// Version is in its normal form. Prefix means that it ended with ".*".
	Version Version
	Prefix  bool
	// literal is the text of ===, which need not be a version.
	literal string
}

// String returns the normal form.
func (s Specifier) String() string {
	switch {
	case s.Operator == "===":
		return s.Operator + s.literal
	case s.Prefix:
		return s.Operator + s.Version.String() + ".*"
	default:
		return s.Operator + s.Version.String()
	}
}

// parseSpecifiers parses conditions separated by commas. They are sorted, without repetitions.
func parseSpecifiers(text string) ([]Specifier, error) {
	var all []Specifier
	for part := range strings.SplitSeq(text, ",") {
		s, err := parseSpecifier(strings.Trim(part, blanks))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Specifier) int { return strings.Compare(a.String(), b.String()) })
	return slices.CompactFunc(all, func(a, b Specifier) bool { return a.String() == b.String() }), nil
}

func parseSpecifier(text string) (Specifier, error) {
	i := slices.IndexFunc(operators, func(op string) bool { return strings.HasPrefix(text, op) })
	if i < 0 {
		return Specifier{}, fmt.Errorf("%q is not a version specifier such as >=1.2", text)
	}
	s := Specifier{Operator: operators[i]}
	version := strings.Trim(text[len(s.Operator):], blanks)
	if s.Operator == "===" {
		s.literal = strings.ToLower(version)
		return s, checkLiteral(version)
	}
	version, s.Prefix = strings.CutSuffix(version, ".*")
	var err error
	if s.Version, err = ParseVersion(version); err != nil {
		return Specifier{}, err
	}
	return s, s.check(text)
}

func checkLiteral(text string) error {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return !isLiteral(r) }) {
		return fmt.Errorf("%q is not a version", text)
	}
	return nil
}

func isLiteral(r rune) bool {
	return isAlphanumeric(r) || strings.ContainsRune("._-+!*", r)
}

// check refuses the combinations that PEP 440 forbids.
func (s Specifier) check(text string) error {
	equality := s.Operator == "==" || s.Operator == "!="
	suffix := s.Version.pre != "" || s.Version.post != nil || s.Version.dev != nil
	switch {
	case s.Prefix && (!equality || suffix || s.Version.local != nil):
		return fmt.Errorf("%q: .* needs == or != and a plain release", text)
	case s.Version.local != nil && !equality:
		return fmt.Errorf("%q: a local version needs == or !=", text)
	case s.Operator == "~=" && len(s.Version.release) < 2:
		return fmt.Errorf("%q: ~= needs two numbers, such as ~=1.2", text)
	}
	return nil
}

// Contains reports whether the version meets the condition.
func (s Specifier) Contains(v Version) bool {
	switch s.Operator {
	case "==":
		return s.equals(v)
	case "!=":
		return !s.equals(v)
	case "<=":
		return v.comparePublic(s.Version) <= 0
	case ">=":
		return v.comparePublic(s.Version) >= 0
	case "<":
		return s.isAbove(v)
	case ">":
		return s.isBelow(v)
	case "~=":
		release := s.Version.release[:len(s.Version.release)-1]
		return v.comparePublic(s.Version) >= 0 && hasPrefix(v, s.Version.epoch, release)
	default:
		return strings.EqualFold(v.String(), s.literal)
	}
}

func (s Specifier) equals(v Version) bool {
	switch {
	case s.Prefix:
		return hasPrefix(v, s.Version.epoch, s.Version.release)
	case s.Version.local == nil:
		return v.comparePublic(s.Version) == 0
	default:
		return v.Compare(s.Version) == 0
	}
}

// isAbove reports v < s. A pre-release of s itself is not below s, unless s is one.
func (s Specifier) isAbove(v Version) bool {
	bound := s.Version
	if !bound.IsPrerelease() {
		bound.dev = new(uint64)
	}
	return v.Compare(bound) < 0
}

// isBelow reports v > s. A local version and a post-release of s itself are not above s.
func (s Specifier) isBelow(v Version) bool {
	bound := s.Version
	switch {
	case bound.dev != nil:
		return v.comparePublic(bound) > 0
	case bound.post != nil:
		next := *bound.post + 1
		bound.post, bound.dev = &next, new(uint64)
		return v.Compare(bound) >= 0
	}
	family := v.compareBase(bound) == 0 && v.pre == bound.pre && v.preN == bound.preN &&
		(v.dev == nil || v.post != nil)
	return v.Compare(bound) > 0 && !family
}

// hasPrefix reports whether the release of v begins with release; missing numbers are zero.
func hasPrefix(v Version, epoch uint64, release []uint64) bool {
	if v.epoch != epoch {
		return false
	}
	for i, n := range release {
		var got uint64
		if i < len(v.release) {
			got = v.release[i]
		}
		if got != n {
			return false
		}
	}
	return true
}
