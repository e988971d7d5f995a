package tool

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Bounds of a glob: its length in bytes, and the plain patterns that its braces stand for. Each of those is tried in turn.
const (
	maxGlob         = 1000
	maxAlternatives = 1000
)

// glob is a checked pattern for names relative to where a search begins.
type glob struct {
	pattern string
	// dirsOnly says that the pattern ends with a slash, so that it means folders alone.
	dirsOnly bool
	// base is the folder that all names which match lie beneath; "" where it is not known.
	base string
	// segments are those of a pattern whose segments match those of a name one by one; nil where they do not.
	segments []string
}

// newGlob checks a pattern. Its errors are sentences about "it".
func newGlob(pattern string) (*glob, error) {
	switch {
	case len(pattern) > maxGlob:
		return nil, fmt.Errorf("it has more than %d bytes", maxGlob)
	case path.IsAbs(pattern):
		return nil, errors.New("it is absolute: give the folder as path, and a pattern for names in there")
	case strings.ContainsRune(pattern, 0) || slices.Contains(strings.Split(pattern, "/"), ".."):
		return nil, errors.New(`it holds NUL or ".."`)
	case !doublestar.ValidatePattern(pattern):
		return nil, errors.New("it is malformed: [ and { have to be closed, and \\ has to stand before something")
	case countBraceExpansions(pattern) > maxAlternatives:
		return nil, fmt.Errorf("its braces stand for more than %d patterns", maxAlternatives)
	}
	for strings.HasPrefix(pattern, "./") {
		pattern = strings.TrimLeft(pattern[2:], "/")
	}
	g := &glob{pattern: strings.TrimRight(pattern, "/"), dirsOnly: strings.HasSuffix(pattern, "/")}
	if g.pattern == "" || g.pattern == "." {
		return nil, errors.New("it matches nothing: ** matches all, * what lies in the folder itself")
	}
	if !strings.Contains(g.pattern, `\`) {
		g.base, _ = doublestar.SplitPattern(g.pattern)
		if g.base == "." {
			g.base = ""
		}
	}
	if !strings.ContainsAny(g.pattern, `{[\`) && !strings.Contains(g.pattern, "**") {
		g.segments = strings.Split(g.pattern, "/")
	}
	return g, nil
}

// matches says whether a name relative to the beginning is meant.
func (g *glob) matches(name, kind string) bool {
	return (!g.dirsOnly || kind == "directory") && doublestar.MatchUnvalidated(g.pattern, name)
}

// matchesFile is matches for a filter of files: one without a slash is about the last part of the name.
func (g *glob) matchesFile(name string) bool {
	if !strings.Contains(g.pattern, "/") {
		name = path.Base(name)
	}
	return g.matches(name, "file")
}

// mayContainMatch says whether something below a folder could match.
func (g *glob) mayContainMatch(folder string) bool {
	if g.base != "" && !within(folder, g.base) && !within(g.base, folder) {
		return false
	}
	if g.segments == nil {
		return true
	}
	depth := strings.Count(folder, "/") + 1
	return depth < len(g.segments) && doublestar.MatchUnvalidated(strings.Join(g.segments[:depth], "/"), folder)
}

// hasLiteral says whether a segment of the pattern is that very name.
func (g *glob) hasLiteral(segment string) bool {
	return slices.Contains(strings.Split(g.pattern, "/"), segment)
}

func within(name, folder string) bool {
	rest, ok := strings.CutPrefix(name, folder)
	return ok && (rest == "" || rest[0] == '/')
}

// countBraceExpansions counts the patterns without braces that a well-formed pattern stands for, up to a little more than maxAlternatives.
func countBraceExpansions(pattern string) int {
	count, _ := expand(pattern, 0, false)
	return count
}

// expand counts from one position on, within braces up to the one that closes them.
func expand(pattern string, at int, braces bool) (count, end int) {
	sum, product := 0, 1
	class := false
	for ; at < len(pattern); at++ {
		switch c := pattern[at]; {
		case c == '\\':
			at++
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case c == '{':
			inner, end := expand(pattern, at+1, true)
			product, at = min(product*inner, maxAlternatives+1), end
		case c == ',' && braces:
			sum, product = min(sum+product, maxAlternatives+1), 1
		case c == '}' && braces:
			return sum + product, at
		}
	}
	return product, at
}
