package tool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python"
)

// pythonFiles selects the files of the working directory that code sees (PY-10).
type pythonFiles struct {
	// Include has patterns of the files that are staged; empty means all. Exclude has those of the
	// names that are not.
	Include []string `json:"include"`
	Exclude []string `json:"exclude"`
}

// notStagedByDefault are names of directories with many files that are seldom needed: of version
// control, of installed packages, and caches. A pattern of include that has one as a segment stages
// it.
var notStagedByDefault = []string{
	".git", ".hg", ".jj", ".sl", ".svn", "node_modules", ".venv", ".tox", ".nox", "__pycache__",
	".mypy_cache", ".pytest_cache", ".ruff_cache",
}

// check returns the violations of the patterns.
func (f *pythonFiles) check() []dray.Detail {
	if f == nil {
		return nil
	}
	var found []dray.Detail
	for i, list := range [][]string{f.Include, f.Exclude} {
		for at, pattern := range list {
			if _, err := newGlob(pattern); err != nil {
				pointer := fmt.Sprintf("/input/files/%s/%d", [2]string{"include", "exclude"}[i], at)
				found = append(found, violation(pointer, err.Error())...)
			}
		}
	}
	return found
}

// skip returns what python.Workspace.Skip is. The patterns are valid.
func (f *pythonFiles) skip() func(name string, dir bool) bool {
	if f == nil {
		f = &pythonFiles{}
	}
	include, exclude := globs(f.Include), globs(f.Exclude)
	byDefault := slices.DeleteFunc(slices.Clone(notStagedByDefault), func(name string) bool {
		return slices.ContainsFunc(include, func(g *glob) bool { return g.hasLiteral(name) })
	})
	return func(name string, dir bool) bool {
		for segment := range strings.SplitSeq(name, "/") {
			if slices.Contains(byDefault, segment) {
				return true
			}
		}
		kind := "file"
		if dir {
			kind = "directory"
		}
		matches := func(g *glob) bool { return g.matches(name, kind) }
		if slices.ContainsFunc(exclude, matches) {
			return true
		}
		return len(include) > 0 && !slices.ContainsFunc(include, func(g *glob) bool {
			return g.matches(name, kind) || dir && g.mayContainMatch(name)
		})
	}
}

func globs(patterns []string) []*glob {
	list := make([]*glob, 0, len(patterns))
	for _, pattern := range patterns {
		if g, err := newGlob(pattern); err == nil {
			list = append(list, g)
		}
	}
	return list
}

// workspace returns where the code of a call finds its files. The files are those of the host
// beneath host.roots, and what is never written there is refused (SY-08).
func (c *pythonCall) workspace(transfer Transfer, options PythonOptions) python.Workspace {
	ws := python.Workspace{
		Open: func(ctx context.Context, dir string) (python.Directory, error) {
			files, err := c.Environment.Files(ctx, dir)
			if err != nil {
				return nil, err
			}
			opened, err := boundedByRoots(files, dir)
			if err != nil {
				_ = files.Close()
			}
			return opened, err
		},
		Skip: c.in.Files.skip(),
	}
	if transfer != nil {
		ws.CheckChange = transfer.CheckHostChange
	}
	if options.RecordFiles != nil {
		ws.BeforeCommit = func(ctx context.Context, planned []dray.FileChange) error {
			return options.RecordFiles(ctx, c.Invocation.ID, planned)
		}
	}
	return ws
}

// rootedFiles are files that say whether they are beneath host.roots.
type rootedFiles interface {
	python.Directory
	OutsideRoots() error
}

// boundedByRoots returns files if they say that they are beneath host.roots. It fails with denied
// for all others.
func boundedByRoots(files dray.Files, dir string) (python.Directory, error) {
	rooted, ok := files.(rootedFiles)
	if !ok {
		return nil, dray.Errorf(dray.CodeDenied, "nothing may be read in %s: it is not known to be "+
			"beneath host.roots", dir).WithHint("use a working directory of the host beneath host.roots")
	}
	if err := rooted.OutsideRoots(); err != nil {
		return nil, err
	}
	return rooted, nil
}
