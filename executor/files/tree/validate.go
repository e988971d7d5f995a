package tree

import (
	"math"
	"strings"

	"github.com/dray-dev/dray"
)

// validator checks the entries of a tree.
type validator struct {
	limits  dray.TreeLimits
	partial map[string]dray.PartialFile
	strict  bool            // only requested names are allowed
	sources map[string]bool // true after its entry
	seen    map[string]entryState
}

// entryState is an entry, or the implied parent of one in a tree with any names.
type entryState struct {
	dir, implied bool
	inner        int // depth of its content
}

// newValidator returns a validator for a request. Without sources all names are allowed.
func newValidator(sources []string, what dray.ReadTreeOptions) validator {
	v := validator{
		limits: what.Limits, partial: what.Partial, strict: sources != nil,
		sources: map[string]bool{}, seen: map[string]entryState{},
	}
	for _, s := range sources {
		v.sources[s] = false
	}
	return v
}

// admit checks the name of an entry. Refused entries count as well, so that their number is
// limited.
func (v *validator) admit(name string, letter byte) error {
	if err := CheckName(name); err != nil {
		return protocolError("%w", err)
	}
	if _, twice := v.seen[name]; twice {
		return protocolError("%.200q is repeated, or follows its content", name)
	}
	depth, inner, err := v.depth(name)
	if err != nil {
		return err
	}
	if limit := v.limits.MaxFiles; limit > 0 && len(v.seen) >= limit {
		return LimitError("there are more than %d files and directories", limit)
	}
	if limit := v.limits.MaxDepth; limit > 0 && depth > limit && letter != recordRefused {
		return LimitError("%.200q is deeper than %d directories", name, limit)
	}
	v.seen[name] = entryState{dir: letter == recordDir, inner: inner}
	return nil
}

// depth returns the depth of an entry below its source, and that of its content. It fails for an
// entry that is not a source and whose directory is not in the tree.
func (v *validator) depth(name string) (depth, inner int, err error) {
	if _, ok := v.sources[name]; ok {
		v.sources[name] = true
		return 0, 0, nil
	}
	dir, below := parent(name)
	if _, all := v.sources["."]; all && !below {
		return 0, 1, nil
	}
	above, seen := v.seen[dir]
	switch {
	case below && seen && above.dir && !above.implied:
		return above.inner, above.inner + 1, nil
	case v.strict:
		return 0, 0, protocolError("%.200q was not requested, or its directory is missing", name)
	default:
		return 0, 0, v.addParents(name)
	}
}

// addParents adds the parents of a name without a source: they are implied directories.
func (v *validator) addParents(name string) error {
	for dir, below := parent(name); below; dir, below = parent(dir) {
		if above, seen := v.seen[dir]; seen && !above.implied {
			return protocolError("%.200q is not in a directory of the tree", name)
		}
		v.seen[dir] = entryState{dir: true, implied: true}
	}
	return nil
}

// checkFile checks the fields of a file; declared is the total size of the files before it.
func (v *validator) checkFile(e *dray.TreeEntry, declared int64) error {
	partial := v.partial[e.Name]
	switch {
	case strings.ContainsFunc(e.Version, func(c rune) bool { return c <= ' ' || c > '~' }):
		return protocolError("the version of %.200q is not printable", e.Name)
	case e.Offset > e.Size || e.Offset > 0 && (e.Offset != partial.Bytes || e.Version != partial.Version):
		return protocolError("%.200q starts at byte %d, which was not requested", e.Name, e.Offset)
	case declared > math.MaxInt64-e.Size:
		return protocolError("the total size of the files overflows")
	case v.limits.MaxFile > 0 && e.Size > v.limits.MaxFile:
		return LimitError("%.200q has %d bytes (maximum %d)", e.Name, e.Size, v.limits.MaxFile)
	case v.limits.MaxTotal > 0 && declared+e.Size > v.limits.MaxTotal:
		return LimitError("the files have more than %d bytes in total", v.limits.MaxTotal)
	}
	return nil
}

// missing returns a source without an entry.
func (v *validator) missing() (string, bool) {
	for source, seen := range v.sources {
		if !seen && source != "." {
			return source, true
		}
	}
	return "", false
}

// LimitError returns a limit_exceeded error with its hint.
func LimitError(format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeLimitExceeded, format, args...).
		WithHint("%s", Hint(dray.CodeLimitExceeded))
}
