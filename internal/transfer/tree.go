package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"

	"github.com/dray-dev/dray"
)

// entry is an entry with the source that it belongs to, and the way from there to it.
type entry struct {
	dray.TreeEntry
	source  source
	relPath string
}

// openFilesFunc opens the files beneath a folder of one side.
type openFilesFunc func(ctx context.Context, root string) (dray.Files, error)

// concatTree are the trees of several groups, one after the other. The next one is opened when the
// one before it is at its end, so that one access to files is open at a time.
type concatTree struct {
	ctx    context.Context //nolint:containedctx // as in resuming
	open   openFilesFunc
	limits dray.TreeLimits
	groups []sourceGroup

	now    sourceGroup
	tree   dray.Tree
	failed []entry // of a group whose folder is not there: its sources, refused
}

// Next goes to the next entry of any group.
func (t *concatTree) Next() (entry, error) {
	for {
		if len(t.failed) > 0 {
			e := t.failed[0]
			t.failed = t.failed[1:]
			return e, nil
		}
		if t.tree == nil {
			if len(t.groups) == 0 {
				return entry{}, io.EOF
			}
			if err := t.begin(); err != nil {
				return entry{}, err
			}
			continue
		}
		e, err := t.tree.Next()
		if atEnd(err) {
			_ = t.Close()
			continue
		}
		if err != nil {
			return entry{}, err
		}
		return t.located(e)
	}
}

// begin opens the next group.
func (t *concatTree) begin() error {
	t.now, t.groups = t.groups[0], t.groups[1:]
	what := dray.ReadTreeOptions{Names: t.now.names(), Limits: t.limits}
	tree, err := newResuming(t.ctx, func(held map[string]dray.PartialFile) (dray.Tree, error) {
		what.Partial = held
		return t.collect(what)
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.failGroup(dray.Errorf(dray.CodeNotFound, "%s does not exist", quote(t.now.root)))
	case errors.Is(err, fs.ErrPermission):
		t.failGroup(dray.Errorf(dray.CodeDenied, "the user that tools run as may not open %s",
			quote(t.now.root)))
	case err != nil:
		return err
	default:
		t.tree = tree
	}
	return nil
}

func (t *concatTree) failGroup(why *dray.Error) {
	for _, s := range t.now.sources {
		t.failed = append(t.failed, entry{
			TreeEntry: dray.TreeEntry{Name: s.name, Refused: why},
			source:    s, relPath: ".",
		})
	}
}

// collect opens the group's folder and collects from it; the tree closes both.
func (t *concatTree) collect(what dray.ReadTreeOptions) (dray.Tree, error) {
	files, err := t.open(t.ctx, t.now.root)
	if err != nil {
		return nil, err
	}
	tree, err := files.ReadTree(t.ctx, what)
	if err != nil {
		_ = files.Close()
		return nil, err
	}
	return &ownedTree{tree, files}, nil
}

// ownedTree is a tree that is alone in using the files that it comes from.
type ownedTree struct {
	dray.Tree
	files dray.Files
}

// Close closes both.
func (c *ownedTree) Close() error { return errors.Join(c.Tree.Close(), c.files.Close()) }

func (t *concatTree) located(e dray.TreeEntry) (entry, error) {
	s, rest, ok := t.now.of(e.Name)
	if !ok {
		return entry{}, dray.Errorf(dray.CodeTransferFailed, "%s came, and nobody asked for it",
			quote(e.Name))
	}
	return entry{e, s, rest}, nil
}

// Read reads the current file.
func (t *concatTree) Read(p []byte) (int, error) {
	if t.tree == nil {
		return 0, io.EOF
	}
	return t.tree.Read(p)
}

// Close closes the tree that is open.
func (t *concatTree) Close() error {
	if t.tree == nil {
		return nil
	}
	err := t.tree.Close()
	t.tree = nil
	return err
}

// atEnd says that an error is the end of a tree or a file. One that wraps it is the end of
// something else, such as the agent's.
func atEnd(err error) bool { return err == io.EOF } //nolint:errorlint // for that reason

// depth counts the folders that an entry lies in below its source.
func depth(rest string) (folders int) {
	for rest != "." && rest != "" {
		rest = path.Dir(rest)
		folders++
	}
	return max(folders-1, 0)
}

// filteredTree is the tree that is placed: what the sources hold, under the names at the
// destination, without what is refused. It keeps to the limits by itself, whoever it comes from.
type filteredTree struct {
	job  *syncJob
	tree *concatTree

	// by the name at the destination, what a file is called where it comes from
	from  map[string]string
	names map[string]bool // that came
	last  string          // the name that came last
	ended bool
}

func newSelection(j *syncJob, tree *concatTree) *filteredTree {
	return &filteredTree{job: j, tree: tree, from: map[string]string{}, names: map[string]bool{}}
}

// errHasRefusals ends a tree in which something is refused.
var errHasRefusals = errors.New("something is refused")

// Next goes to the next entry that may be written. Where a refusal ends the sync, all that is
// refused is looked for first, so that the caller hears of it at once.
func (t *filteredTree) Next() (dray.TreeEntry, error) {
	for {
		e, err := t.tree.Next()
		switch {
		case atEnd(err):
			t.ended = true
			if t.job.endsByRefusal() {
				return dray.TreeEntry{}, dray.Errorf(dray.CodeSyncRefused, "%w", errHasRefusals)
			}
			return dray.TreeEntry{}, io.EOF
		case err != nil:
			return dray.TreeEntry{}, err
		}
		from, shown, lands := e.source.at(e.relPath)
		if err := t.job.weigh(e, shown); err != nil {
			return dray.TreeEntry{}, err
		}
		if why := t.refusal(e, lands); why != nil {
			t.job.refuseEntry(e.source, shown, why)
			continue
		}
		if t.job.endsByRefusal() || lands == "." {
			continue
		}
		if t.names[lands] {
			return dray.TreeEntry{}, dray.Errorf(dray.CodeTransferFailed, "%s would be written twice",
				quote(lands))
		}
		t.names[lands] = true
		if e.Type == "file" {
			t.from[lands] = from
			t.job.recordTaken(e.source)
		}
		t.last = shown
		e.Name = lands
		return e.TreeEntry, nil
	}
}

// weigh holds an entry against the limits, which are those of the whole sync.
func (j *syncJob) weigh(e entry, shown string) error {
	limits := j.s.cfg.Limits
	if e.Refused == nil {
		j.bytes += e.Size
	}
	switch {
	case limits.MaxFiles > 0 && j.done.Files >= limits.MaxFiles:
		return limitError("sandbox.max_files", "there are more than %d files and folders",
			limits.MaxFiles)
	case limits.MaxTotal > 0 && j.bytes > limits.MaxTotal:
		return limitError("sandbox.max_total", "the files have more than %d bytes in all",
			limits.MaxTotal)
	case e.Refused == nil && limits.MaxFile > 0 && e.Size > limits.MaxFile:
		return limitError("sandbox.max_file", "%s has %d bytes, more than %d", quote(shown), e.Size,
			limits.MaxFile)
	case e.Refused == nil && limits.MaxDepth > 0 && depth(e.relPath) > limits.MaxDepth:
		return limitError("sandbox.max_depth", "%s lies deeper than %d folders", quote(shown),
			limits.MaxDepth)
	}
	j.progress(1, 0)
	return nil
}

// refusal says why an entry is not written; nil if it is.
func (t *filteredTree) refusal(e entry, lands string) *dray.Error {
	if e.Refused != nil {
		return e.Refused
	}
	return t.job.mayWrite(lands, e.Type == "directory")
}

// Read reads the current file.
func (t *filteredTree) Read(p []byte) (int, error) {
	n, err := t.tree.Read(p)
	t.job.progress(0, int64(n))
	return n, err
}

// Close closes what is open.
func (t *filteredTree) Close() error { return t.tree.Close() }

func limitError(key, format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeLimitExceeded, format, args...).
		WithHint("move less at once, or raise %s in the configuration", key)
}

// isUnder says that a path is one of some folders, or lies in one.
func isUnder(p string, folders map[string]bool) bool {
	for at := p; ; at = path.Dir(at) {
		if folders[at] {
			return true
		}
		if at == "/" || at == "." {
			return false
		}
	}
}
