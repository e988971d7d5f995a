package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// Bounds of a search. The schemas state maxPaths and maxSkipped.
const (
	maxPaths = 1000
	// maxResult is the maximum size of the results in JSON, in bytes. A container chooses the names.
	maxResult  = 1 << 20
	maxSkipped = 50
	// maxVisited is the maximum number of files and directories that a search visits.
	maxVisited = 1_000_000
)

type globOutput struct {
	Paths     []string      `json:"paths"`
	Truncated bool          `json:"truncated"`
	Skipped   []skippedPath `json:"skipped,omitzero"`
}

type skippedPath struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

type globInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

func checkGlobInput(in globInput) []dray.Detail {
	if _, err := newGlob(in.Pattern); err != nil {
		return violation("/input/pattern", err.Error())
	}
	return nil
}

func globFiles(ctx context.Context, at fileScope, in globInput) (any, error) {
	pattern, err := newGlob(in.Pattern)
	if err != nil {
		return nil, dray.Errorf(dray.CodeInvalidInput, "parse the pattern: %w", err)
	}
	s, err := at.search(in.Path, pattern.hasLiteral(gitDir))
	if err != nil {
		return nil, err
	}
	s.mayDescend = pattern.mayContainMatch
	out := globOutput{Paths: []string{}}
	var wrongType error
	err = s.walk(ctx, func(name string, info dray.FileInfo) error {
		if name == "." {
			if info.Type != "directory" {
				wrongType = s.base.wrongTypeError("search", info,
					"set path to a directory, or omit it to search the working directory")
			}
			return nil
		}
		if pattern.matches(name, info.Type) {
			found := dray.PrintablePath(path.Join(s.base.path, name))
			if len(out.Paths) == maxPaths || !s.fits(found) {
				s.truncated = true
				return fs.SkipAll
			}
			out.Paths = append(out.Paths, found)
		}
		if info.Type == "directory" && !pattern.mayContainMatch(name) {
			return fs.SkipDir
		}
		return nil
	})
	out.Truncated, out.Skipped = s.truncated, s.skipped
	return out, cmp.Or(err, wrongType)
}

// gitDir is skipped by searches that do not name it.
const gitDir = ".git"

// fileSearch is one walk of the files beneath a directory.
type fileSearch struct {
	at   fileScope
	base target
	git  bool // search .git too
	// mayDescend reports whether the entries of a directory matter. Nil means yes.
	mayDescend func(name string) bool
	visited    int
	skipped    []skippedPath
	truncated  bool
	size       int // of the results in JSON
}

// fits reports whether the results may have another entry with these texts, and counts it.
func (s *fileSearch) fits(texts ...string) bool {
	for _, text := range texts {
		s.size += lexical.JSONSize(text)
	}
	return s.size <= maxResult
}

// search returns a search that starts at the given path, which is relative to the working
// directory.
func (p fileScope) search(given string, git bool) (*fileSearch, error) {
	start, err := p.locate(given)
	if err != nil {
		return nil, err
	}
	git = git || slices.Contains(strings.Split(start.name, "/"), gitDir)
	return &fileSearch{at: p, base: start, git: git}, nil
}

// walk visits all entries by their names relative to the start, which itself is ".". An unreadable
// directory is skipped, but ends the search if it is the start.
func (s *fileSearch) walk(ctx context.Context, visit func(string, dray.FileInfo) error) error {
	err := s.at.files.Walk(ctx, s.base.name, func(full string, info dray.FileInfo) error {
		name, _ := lexical.Rel(s.base.name, full)
		if s.visited++; s.visited > maxVisited {
			s.truncated = true
			return fs.SkipAll
		}
		if name != "." && path.Base(name) == gitDir && info.Type == "directory" && !s.git {
			return fs.SkipDir
		}
		if info.Refused != nil {
			if name == "." {
				return info.Refused
			}
			if s.mayDescend == nil || s.mayDescend(name) {
				s.skip(name, info.Refused.Message)
			}
		}
		return visit(name, info)
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return s.base.wrapError("search", err)
	}
}

func (s *fileSearch) skip(name, reason string) {
	p := skippedPath{
		dray.PrintablePath(path.Join(s.base.path, name)),
		lexical.Truncate(dray.PrintablePath(reason), maxMessage),
	}
	if len(s.skipped) < maxSkipped && s.fits(p.Path, p.Reason) {
		s.skipped = append(s.skipped, p)
	}
}

// Bounds of a glob: its length in bytes, and the number of patterns that its braces expand to,
// since each of them is matched separately.
const (
	maxGlob         = 1000
	maxAlternatives = 1000
)

// glob is a valid pattern for names relative to the start of a search.
type glob struct {
	pattern string
	// dirsOnly is set for a pattern that ends with a slash and matches directories only.
	dirsOnly bool
	// base is the directory that contains every match. It is empty if it is not known.
	base string
	// segments are set if the segments of the pattern match those of a name one by one.
	segments []string
}

// newGlob checks a pattern. The errors are phrases about the pattern, without a subject.
func newGlob(pattern string) (*glob, error) {
	switch {
	case len(pattern) > maxGlob:
		return nil, fmt.Errorf("has more than %d bytes", maxGlob)
	case path.IsAbs(pattern):
		return nil, errors.New("is absolute: set path to the directory, and match names beneath it")
	case strings.ContainsRune(pattern, 0) || slices.Contains(strings.Split(pattern, "/"), ".."):
		return nil, errors.New(`contains NUL or ".."`)
	case !doublestar.ValidatePattern(pattern):
		return nil, errors.New("is malformed: close every [ and {, and put a character after every \\")
	case countBraceExpansions(pattern) > maxAlternatives:
		return nil, fmt.Errorf("its braces expand to more than %d patterns", maxAlternatives)
	}
	for strings.HasPrefix(pattern, "./") {
		pattern = strings.TrimLeft(pattern[2:], "/")
	}
	g := &glob{pattern: strings.TrimRight(pattern, "/"), dirsOnly: strings.HasSuffix(pattern, "/")}
	if g.pattern == "" || g.pattern == "." {
		return nil, errors.New("matches nothing: use ** for all files, * for those directly in path")
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

// matches reports whether a name relative to the start matches.
func (g *glob) matches(name, kind string) bool {
	return (!g.dirsOnly || kind == "directory") && doublestar.MatchUnvalidated(g.pattern, name)
}

// matchesFile is matches for a filter of files: a pattern without a slash matches the last segment
// of the name.
func (g *glob) matchesFile(name string) bool {
	if !strings.Contains(g.pattern, "/") {
		name = path.Base(name)
	}
	return g.matches(name, "file")
}

// mayContainMatch reports whether an entry beneath a directory could match.
func (g *glob) mayContainMatch(dir string) bool {
	if g.base != "" && !lexical.Contains(g.base, dir) && !lexical.Contains(dir, g.base) {
		return false
	}
	if g.segments == nil {
		return true
	}
	depth := strings.Count(dir, "/") + 1
	return depth < len(g.segments) &&
		doublestar.MatchUnvalidated(strings.Join(g.segments[:depth], "/"), dir)
}

func (g *glob) hasLiteral(segment string) bool {
	return slices.Contains(strings.Split(g.pattern, "/"), segment)
}

// countBraceExpansions returns the number of patterns that the braces of a valid pattern expand to,
// up to slightly more than maxAlternatives.
func countBraceExpansions(pattern string) int {
	count, _ := expand(pattern, 0, false)
	return count
}

// expand counts from a position on, within braces up to the closing brace.
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
