// Package pep508 parses the dependency specifiers of Python packages and their versions
// (https://packaging.python.org/en/latest/specifications/dependency-specifiers/ and PEP 440).
//
// A requirement has one normal form, which begins with the name of the package. It can therefore
// never be taken for an option or a path by a program that gets it as an argument.
package pep508

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// MaxLength is the maximum length of a requirement in bytes.
const MaxLength = 1024

// blanks are the characters that may stand between the parts of a requirement.
const blanks = " \t"

var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?`)
	separators  = regexp.MustCompile(`[-_.]+`)
)

// Requirement is a package with conditions.
type Requirement struct {
	// Name is normalized, as are Extras, which are sorted.
	Name   string
	Extras []string
	// Specifiers are all to be met. URL is where the package is; then there are no specifiers.
	Specifiers []Specifier
	URL        string
	// Marker says in which environments the requirement counts.
	Marker string
}

// Parse parses one requirement.
func Parse(text string) (Requirement, error) {
	if err := checkText(text); err != nil {
		return Requirement{}, err
	}
	text = strings.Trim(text, blanks)
	name := namePattern.FindString(text)
	if name == "" {
		return Requirement{}, errors.New("a requirement begins with the name of a package")
	}
	r := Requirement{Name: NormalizeName(name)}
	rest, err := r.parseExtras(strings.TrimLeft(text[len(name):], blanks))
	if err != nil {
		return Requirement{}, err
	}
	if url, ok := strings.CutPrefix(rest, "@"); ok {
		rest, err = r.parseURL(url)
	} else {
		rest, err = r.parseVersions(rest)
	}
	if err == nil && rest != "" {
		r.Marker, err = normalizeMarker(rest[1:])
	}
	if err != nil {
		return Requirement{}, err
	}
	return r, nil
}

func checkText(text string) error {
	switch {
	case strings.Trim(text, blanks) == "":
		return errors.New("the requirement is empty")
	case len(text) > MaxLength:
		return fmt.Errorf("the requirement is longer than %d bytes", MaxLength)
	}
	for _, r := range text {
		if r != '\t' && (r == unicode.ReplacementChar || !unicode.IsPrint(r)) {
			return fmt.Errorf("the requirement contains the character %U", r)
		}
	}
	return nil
}

// parseExtras takes "[a, b]" from the beginning of text.
func (r *Requirement) parseExtras(text string) (rest string, err error) {
	if !strings.HasPrefix(text, "[") {
		return text, nil
	}
	list, rest, ok := strings.Cut(text[1:], "]")
	if !ok {
		return "", errors.New("the list of extras has no end")
	}
	for extra := range strings.SplitSeq(list, ",") {
		if extra = strings.Trim(extra, blanks); extra == "" || namePattern.FindString(extra) != extra {
			return "", fmt.Errorf("%q is not the name of an extra", extra)
		}
		r.Extras = append(r.Extras, NormalizeName(extra))
	}
	slices.Sort(r.Extras)
	r.Extras = slices.Compact(r.Extras)
	return strings.TrimLeft(rest, blanks), nil
}

// parseURL takes a URL from the beginning of text. A marker follows after a blank.
func (r *Requirement) parseURL(text string) (rest string, err error) {
	text = strings.Trim(text, blanks)
	end := strings.IndexAny(text, blanks)
	if end < 0 {
		end = len(text)
	}
	r.URL, rest = text[:end], strings.TrimLeft(text[end:], blanks)
	switch {
	case r.URL == "" || r.URL[0] == ';':
		return "", errors.New("there is no URL after @")
	case rest != "" && rest[0] != ';':
		return "", fmt.Errorf("unexpected %q after the URL", rest)
	}
	return rest, nil
}

// parseVersions takes version specifiers, with or without parentheses, from the beginning of text.
func (r *Requirement) parseVersions(text string) (rest string, err error) {
	versions, rest := text, ""
	if i := strings.IndexByte(text, ';'); i >= 0 {
		versions, rest = text[:i], text[i:]
	}
	versions = strings.Trim(versions, blanks)
	if strings.HasPrefix(versions, "(") && strings.HasSuffix(versions, ")") {
		versions = strings.Trim(versions[1:len(versions)-1], blanks)
	}
	if versions != "" {
		r.Specifiers, err = parseSpecifiers(versions)
	}
	return rest, err
}

// NormalizeName returns the normal form of the name of a package: "Foo._Bar" is "foo-bar".
func NormalizeName(name string) string {
	return strings.ToLower(separators.ReplaceAllString(name, "-"))
}

// IsName reports whether text is the name of a package.
func IsName(text string) bool {
	return text != "" && len(text) <= MaxLength && namePattern.FindString(text) == text
}

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// IsNameOnly reports whether the requirement has a name and nothing else.
func (r Requirement) IsNameOnly() bool {
	return len(r.Extras)+len(r.Specifiers) == 0 && r.URL == "" && r.Marker == ""
}

// String returns the normal form, which Parse accepts.
func (r Requirement) String() string {
	text := r.Name
	if len(r.Extras) > 0 {
		text += "[" + strings.Join(r.Extras, ",") + "]"
	}
	conditions := make([]string, 0, len(r.Specifiers))
	for _, s := range r.Specifiers {
		conditions = append(conditions, s.String())
	}
	text += strings.Join(conditions, ",")
	if r.URL != "" {
		text += " @ " + r.URL
	}
	if r.Marker != "" {
		text += " ; " + r.Marker
	}
	return text
}

// MarshalText returns the normal form.
func (r Requirement) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses a requirement.
func (r *Requirement) UnmarshalText(text []byte) (err error) {
	*r, err = Parse(string(text))
	return err
}

// SatisfiedBy reports whether an installed version certainly satisfies the requirement. It returns
// false if more than the version decides: extras, a URL, or a marker.
func (r Requirement) SatisfiedBy(version string) bool {
	v, err := ParseVersion(version)
	if err != nil || len(r.Extras) > 0 || r.URL != "" || r.Marker != "" {
		return false
	}
	return !slices.ContainsFunc(r.Specifiers, func(s Specifier) bool { return !s.Contains(v) })
}
