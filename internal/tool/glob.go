package tool

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/dray-dev/dray"
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
	return &fileSearch{at: p, base: start, git: git || strings.Contains("/"+start.name+"/", "/"+gitFolder+"/")}, nil
}

// walk visits what there is, by names relative to the start, which itself is ".". Folders that a user may not read are noted; one that is
// the start ends the search.
func (s *fileSearch) walk(ctx context.Context, visit func(name string, info dray.FileInfo) error) error {
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
		s.skipped = append(s.skipped, skippedPath{dray.PrintablePath(path.Join(s.base.path, name)), cut(dray.PrintablePath(reason), maxMessage)})
	}
}

func (s *fileSearch) isFolder(info dray.FileInfo) error {
	if info.Type == "directory" {
		return nil
	}
	return &describedError{s.base.wrongTypeError("search", info, "name a folder, or leave out path to search the working folder")}
}
