package tree

import (
	"math"
	"strings"

	"github.com/dray-dev/dray"
)

// validator are what the entries of a tree keep to.
type validator struct {
	limits  dray.TreeLimits
	held    map[string]dray.PartialFile
	strict  bool            // only what was asked for may come
	sources map[string]bool // true once something was said of it
	seen    map[string]entryState
}

// entryState is a name that came, or in a tree of whatever names a folder that one lies in.
type entryState struct {
	folder, implied bool
	inner           int // the depth of what lies in it
}

// newRules makes the rules for what was asked for; without sources anything may come.
func newRules(sources []string, what dray.ReadTreeOptions) validator {
	r := validator{
		limits: what.Limits, held: what.Partial, strict: sources != nil,
		sources: map[string]bool{}, seen: map[string]entryState{},
	}
	for _, s := range sources {
		r.sources[s] = false
	}
	return r
}

// admit takes one more entry by its name. Refused ones count, or a stream of them had no end.
func (r *validator) admit(name string, letter byte) error {
	if err := CheckName(name); err != nil {
		return protocolError("%w", err)
	}
	if _, twice := r.seen[name]; twice {
		return protocolError("%.200q comes twice, or after what lies in it", name)
	}
	depth, inner, err := r.depth(name)
	if err != nil {
		return err
	}
	if limit := r.limits.MaxFiles; limit > 0 && len(r.seen) >= limit {
		return exceeded("there are more than %d files and folders", limit)
	}
	if limit := r.limits.MaxDepth; limit > 0 && depth > limit && letter != recordRefused {
		return exceeded("%.200q lies deeper than %d folders", name, limit)
	}
	r.seen[name] = entryState{folder: letter == recordFolder, inner: inner}
	return nil
}

// depth says how many folders an entry lies in below its source, and what lies in the entry. It
// refuses one that may not come: it is no source, and the folder that it lies in did not come.
func (r *validator) depth(name string) (depth, inner int, err error) {
	if _, asked := r.sources[name]; asked {
		r.sources[name] = true
		return 0, 0, nil
	}
	folder, below := parent(name)
	if _, all := r.sources["."]; all && !below {
		return 0, 1, nil
	}
	above, came := r.seen[folder]
	switch {
	case below && came && above.folder && !above.implied:
		return above.inner, above.inner + 1, nil
	case r.strict:
		return 0, 0, protocolError("%.200q was not asked for, or the folder that it lies in did not come",
			name)
	default:
		return 0, 0, r.addParents(name)
	}
}

// addParents takes the folders above a name that has no source: whoever writes the tree makes them,
// and nothing else may come in their places.
func (r *validator) addParents(name string) error {
	for folder, below := parent(name); below; folder, below = parent(folder) {
		if above, came := r.seen[folder]; came && !above.implied {
			return protocolError("%.200q lies in what is no folder, or in one that did not come", name)
		}
		r.seen[folder] = entryState{folder: true, implied: true}
	}
	return nil
}

// checkFile checks what a file says of itself; declared is what those before it said that they
// hold.
func (r *validator) checkFile(e *dray.TreeEntry, declared int64) error {
	held := r.held[e.Name]
	switch {
	case strings.ContainsFunc(e.Version, func(c rune) bool { return c <= ' ' || c > '~' }):
		return protocolError("the version of %.200q is no word", e.Name)
	case e.Offset > e.Size || e.Offset > 0 && (e.Offset != held.Bytes || e.Version != held.Version):
		return protocolError("%.200q begins at byte %d, which was not asked for", e.Name, e.Offset)
	case declared > math.MaxInt64-e.Size:
		return protocolError("the files are larger than a file system can hold")
	case r.limits.MaxFile > 0 && e.Size > r.limits.MaxFile:
		return exceeded("%.200q has %d bytes, more than %d", e.Name, e.Size, r.limits.MaxFile)
	case r.limits.MaxTotal > 0 && declared+e.Size > r.limits.MaxTotal:
		return exceeded("the files have more than %d bytes in all", r.limits.MaxTotal)
	}
	return nil
}

// missing gives a source that nothing was said of.
func (r *validator) missing() (string, bool) {
	for source, told := range r.sources {
		if !told && source != "." {
			return source, true
		}
	}
	return "", false
}

func exceeded(format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeLimitExceeded, format, args...).
		WithHint("%s", Hint(dray.CodeLimitExceeded))
}
