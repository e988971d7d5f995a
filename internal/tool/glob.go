package tool

import (
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

// Bounds of a search. The schemas tell maxPaths and maxSkipped to callers.
const (
	maxPaths   = 1000
	maxSkipped = 50
	// maxVisited is how many files and folders a search looks at.
	maxVisited = 1_000_000
)

type globOutput struct {
	Paths     []string      `json:"paths"`
	Truncated bool          `json:"truncated"`
	Skipped   []skippedPath `json:"skipped,omitzero"`
}

// skippedPath is something that a search could not look into.
type skippedPath struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

type globInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

// refuseGlob asks for a pattern that is one, before anything starts.
func refuseGlob(in globInput) []dray.Detail {
	if _, err := newGlob(in.Pattern); err != nil {
		return []dray.Detail{{Pointer: "/input/pattern", Message: err.Error()}}
	}
	return nil
}

func globFiles(ctx context.Context, at fileScope, in globInput) (any, error) {
	pattern, err := newGlob(in.Pattern)
	if err != nil {
		return nil, dray.Errorf(dray.CodeInvalidInput, "the pattern: %w", err)
	}
	s, err := at.search(in.Path, pattern.hasLiteral(gitFolder))
	if err != nil {
		return nil, err
	}
	s.mayDescend = pattern.mayContainMatch
	out := globOutput{Paths: []string{}}
	err = s.walk(ctx, func(name string, info dray.FileInfo) error {
		if name == "." {
			return s.isFolder(info)
		}
		if pattern.matches(name, info.Type) {
			if len(out.Paths) == maxPaths {
				s.truncated = true
				return fs.SkipAll
			}
			out.Paths = append(out.Paths, dray.PrintablePath(path.Join(s.base.path, name)))
		}
		if info.Type == "directory" && !pattern.mayContainMatch(name) {
			return fs.SkipDir
		}
		return nil
	})
	out.Truncated, out.Skipped = s.truncated, s.skipped
	return out, err
}

// gitFolder is where git keeps what nobody looks for. A search passes over it unless it is named.
const gitFolder = ".git"

// fileSearch is one walk through the files beneath a folder.
type fileSearch struct {
	at   fileScope
	base target
	git  bool // go into .git too
	// mayDescend says whether what a folder holds matters at all; nil is yes.
	mayDescend func(name string) bool
	visited    int
	skipped    []skippedPath
	truncated  bool
}

// search begins at what a caller's path means: without one, at the working folder.
func (p fileScope) search(given string, git bool) (*fileSearch, error) {
	start, err := p.locate(given)
	if err != nil {
		return nil, err
	}
	return &fileSearch{at: p, base: start, git: git ||
		strings.Contains("/"+start.name+"/", "/"+gitFolder+"/")}, nil
}

// walk visits what there is, by names relative to the start, which itself is ".". Folders that a
// user may not read are noted; one that is the start ends the search.
func (s *fileSearch) walk(ctx context.Context,
	visit func(name string, info dray.FileInfo) error,
) error {
	err := s.at.files.Walk(ctx, s.base.name, func(full string, info dray.FileInfo) error {
		name := s.relative(full)
		if s.visited++; s.visited > maxVisited {
			s.truncated = true
			return fs.SkipAll
		}
		if name != "." && path.Base(name) == gitFolder && info.Type == "directory" && !s.git {
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
		if own := new(describedError); errors.As(err, &own) {
			return own.error
		}
		return s.base.wrapError("search", err)
	}
}

// describedError is one that says already what it is about.
type describedError struct{ error }

func (s *fileSearch) relative(full string) string {
	if full == s.base.name {
		return "."
	}
	if s.base.name == "." {
		return full
	}
	return strings.TrimPrefix(full, s.base.name+"/")
}

func (s *fileSearch) skip(name, reason string) {
	if len(s.skipped) < maxSkipped {
		s.skipped = append(s.skipped, skippedPath{
			dray.PrintablePath(path.Join(s.base.path, name)),
			lexical.Truncate(dray.PrintablePath(reason), maxMessage),
		})
	}
}

func (s *fileSearch) isFolder(info dray.FileInfo) error {
	if info.Type == "directory" {
		return nil
	}
	return &describedError{s.base.wrongTypeError("search", info,
		"name a folder, or leave out path to search the working folder")}
}

// Bounds of a glob: its length in bytes, and the plain patterns that its braces stand for. Each of
// those is tried in turn.
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
	// segments are those of a pattern whose segments match those of a name one by one; nil where they
	// do not.
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

// matchesFile is matches for a filter of files: one without a slash is about the last part of the
// name.
func (g *glob) matchesFile(name string) bool {
	if !strings.Contains(g.pattern, "/") {
		name = path.Base(name)
	}
	return g.matches(name, "file")
}

// mayContainMatch says whether something below a folder could match.
func (g *glob) mayContainMatch(folder string) bool {
	if g.base != "" && !lexical.Contains(g.base, folder) && !lexical.Contains(folder, g.base) {
		return false
	}
	if g.segments == nil {
		return true
	}
	depth := strings.Count(folder, "/") + 1
	return depth < len(g.segments) && doublestar.MatchUnvalidated(strings.Join(g.segments[:depth],
		"/"), folder)
}

// hasLiteral says whether a segment of the pattern is that very name.
func (g *glob) hasLiteral(segment string) bool {
	return slices.Contains(strings.Split(g.pattern, "/"), segment)
}

// countBraceExpansions counts the patterns without braces that a well-formed pattern stands for, up
// to a little more than maxAlternatives.
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
