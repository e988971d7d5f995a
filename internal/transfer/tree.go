package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"time"

	"github.com/dray-dev/dray"
)

// entry is an entry with its source, and its path relative to that.
type entry struct {
	dray.TreeEntry
	source  source
	relPath string
}

// openFilesFunc opens the files beneath a directory of one side.
type openFilesFunc func(ctx context.Context, root string) (dray.Files, error)

// concatTree reads the trees of several groups one after the other.
type concatTree struct {
	ctx    context.Context //nolint:containedctx // as in resumableTree
	open   openFilesFunc
	limits dray.TreeLimits
	groups []sourceGroup

	current sourceGroup
	tree    dray.Tree
	failed  []entry // refused sources of a group that could not be opened
}

// Next returns the next entry of any group.
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
			if err := t.openNext(); err != nil {
				return entry{}, err
			}
			continue
		}
		e, err := t.tree.Next()
		if isEOF(err) {
			_ = t.Close()
			continue
		}
		if err != nil {
			return entry{}, err
		}
		s, relPath, ok := t.current.of(e.Name)
		if !ok {
			return entry{}, dray.Errorf(dray.CodeTransferFailed, "%s was not requested", quote(e.Name))
		}
		return entry{e, s, relPath}, nil
	}
}

func (t *concatTree) openNext() error {
	t.current, t.groups = t.groups[0], t.groups[1:]
	what := dray.ReadTreeOptions{Names: t.current.names(), Limits: t.limits}
	tree, err := newResumableTree(t.ctx, func(partial map[string]dray.PartialFile) (dray.Tree, error) {
		what.Partial = partial
		return t.readTree(what)
	})
	root := quote(t.current.root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.failGroup(dray.Errorf(dray.CodeNotFound, "%s does not exist", root))
	case errors.Is(err, fs.ErrPermission):
		t.failGroup(dray.Errorf(dray.CodeDenied, "the user that tools run as may not open %s", root))
	case err != nil:
		return err
	default:
		t.tree = tree
	}
	return nil
}

func (t *concatTree) failGroup(why *dray.Error) {
	for _, s := range t.current.sources {
		e := dray.TreeEntry{Name: s.name, Refused: why}
		t.failed = append(t.failed, entry{TreeEntry: e, source: s, relPath: "."})
	}
}

// readTree opens the directory of the group and reads its tree, which closes both.
func (t *concatTree) readTree(what dray.ReadTreeOptions) (dray.Tree, error) {
	files, err := t.open(t.ctx, t.current.root)
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

// ownedTree is a tree that closes its files.
type ownedTree struct {
	dray.Tree
	files dray.Files
}

func (t *ownedTree) Close() error { return errors.Join(t.Tree.Close(), t.files.Close()) }

func (t *concatTree) Read(p []byte) (int, error) {
	if t.tree == nil {
		return 0, io.EOF
	}
	return t.tree.Read(p)
}

func (t *concatTree) Close() error {
	if t.tree == nil {
		return nil
	}
	err := t.tree.Close()
	t.tree = nil
	return err
}

// isEOF reports the end of a tree or file. A wrapped io.EOF is the end of something else, such as
// the agent.
func isEOF(err error) bool { return err == io.EOF } //nolint:errorlint // for that reason

// filteredTree is the tree to write: the entries of the sources with their target names, without
// those that are refused. It enforces the limits.
type filteredTree struct {
	job  *syncJob
	tree *concatTree

	from  map[string]string // source paths of the files, by target name
	names map[string]bool   // of all entries
	last  string            // displayed path of the last entry
	ended bool
}

// Next returns the next entry to write. If a refusal ends the sync, it reads all entries first, so
// that the report has all refusals.
func (t *filteredTree) Next() (dray.TreeEntry, error) {
	for {
		e, err := t.tree.Next()
		switch {
		case isEOF(err):
			t.ended = true
			if t.job.endSync() {
				return dray.TreeEntry{}, dray.Errorf(dray.CodeSyncRefused, "%w", errHasRefusals)
			}
			return dray.TreeEntry{}, io.EOF
		case err != nil:
			return dray.TreeEntry{}, err
		}
		from, display, target := e.source.at(e.relPath)
		if err := t.job.checkLimits(e, display); err != nil {
			return dray.TreeEntry{}, err
		}
		why := e.Refused
		if why == nil {
			why = t.job.checkTarget(target, e.Type == "directory")
		}
		if why != nil {
			t.job.refuseInTree(e, display, why)
			continue
		}
		if t.job.endSync() || target == "." {
			continue
		}
		return t.accept(e, from, display, target)
	}
}

func (t *filteredTree) accept(e entry, from, display, target string) (dray.TreeEntry, error) {
	if t.names[target] {
		return dray.TreeEntry{}, dray.Errorf(dray.CodeTransferFailed, "%s would be written twice",
			quote(target))
	}
	t.names[target] = true
	if e.Type == "file" {
		if err := t.job.addToManifest(from, target); err != nil {
			return dray.TreeEntry{}, err
		}
		t.from[target] = from
		t.job.recordCopied(e.source)
	}
	t.last, e.Name = display, target
	return e.TreeEntry, nil
}

func (t *filteredTree) Read(p []byte) (int, error) {
	n, err := t.tree.Read(p)
	t.job.progress(0, int64(n))
	return n, err
}

func (t *filteredTree) Close() error { return t.tree.Close() }

// maxAttemptsPerTree is how often a tree is opened at most.
const maxAttemptsPerTree = 3

// openTreeFunc opens a tree without the data that the caller has already.
type openTreeFunc func(partial map[string]dray.PartialFile) (dray.Tree, error)

// resumableTree is a tree that is opened again when it is interrupted, and continued at the same
// byte. A file that has changed ends it with transfer_failed, because the data would be of two
// versions.
type resumableTree struct {
	ctx          context.Context //nolint:containedctx // the methods of a tree have no context
	open         openTreeFunc
	tree         dray.Tree // nil after a failed attempt to open it
	attemptsLeft int

	seen map[string]dray.PartialFile // all entries, with the bytes that were read
	last string
	size int64 // of the last entry
	// repeated is the number of entries that the current tree repeated, of before ones.
	repeated, before int
}

func newResumableTree(ctx context.Context, open openTreeFunc) (*resumableTree, error) {
	r := &resumableTree{
		ctx: ctx, open: open, attemptsLeft: maxAttemptsPerTree, seen: map[string]dray.PartialFile{},
	}
	err := r.reopen()
	if err != nil {
		err = r.reopenAfter(err)
	}
	return r, err
}

// reopen opens the tree without the data that was read.
func (r *resumableTree) reopen() error {
	r.attemptsLeft--
	if r.tree != nil {
		_ = r.tree.Close() // it has failed
		r.tree = nil
	}
	partial := maps.Clone(r.seen)
	maps.DeleteFunc(partial, func(_ string, p dray.PartialFile) bool { return p.Version == "" })
	tree, err := r.open(partial)
	if err != nil {
		return err
	}
	r.tree, r.repeated, r.before = tree, 0, len(r.seen)
	return nil
}

// reopenDelay is the time between the first failure and the next attempt; it is four times that
// after the second one. By then the failure is known everywhere, and a new agent can have started.
const reopenDelay = 250 * time.Millisecond

// reopenAfter opens the tree again after an error. It returns the error if that is not possible.
func (r *resumableTree) reopenAfter(err error) error {
	for r.retry(err) {
		if err = r.reopen(); err == nil {
			return nil
		}
	}
	return err
}

// retry reports whether the tree may be opened again after an error, and waits until it should be.
func (r *resumableTree) retry(err error) bool {
	code := dray.CodeOf(err)
	lost := code == dray.CodeAgentLost || code == dray.CodeTransferFailed &&
		!errors.Is(err, errFileChanged)
	if !lost || r.attemptsLeft <= 0 {
		return false
	}
	wait := time.NewTimer(reopenDelay << (2 * (maxAttemptsPerTree - 1 - r.attemptsLeft)))
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-r.ctx.Done():
		return false
	}
}

func interrupted() error {
	return dray.Errorf(dray.CodeTransferFailed, "the transfer was interrupted")
}

// Next returns the next new entry.
func (r *resumableTree) Next() (dray.TreeEntry, error) {
	// the last file counts as read, even if it was skipped
	if p, ok := r.seen[r.last]; ok && p.Version != "" {
		r.seen[r.last] = dray.PartialFile{Version: p.Version, Bytes: r.size}
	}
	for {
		var e dray.TreeEntry
		err := interrupted()
		if r.tree != nil {
			e, err = r.tree.Next()
		}
		switch {
		case isEOF(err) && r.repeated < r.before:
			return dray.TreeEntry{}, changed("a file was removed")
		case isEOF(err):
			return dray.TreeEntry{}, io.EOF
		case err != nil:
			if err := r.reopenAfter(err); err != nil {
				return dray.TreeEntry{}, err
			}
			continue
		}
		if old, ok := r.seen[e.Name]; ok {
			if err := r.checkRepeated(e, old); err != nil {
				return dray.TreeEntry{}, err
			}
			continue
		}
		r.last, r.size = e.Name, e.Size
		r.seen[e.Name] = dray.PartialFile{Version: e.Version}
		return e, nil
	}
}

func (r *resumableTree) checkRepeated(e dray.TreeEntry, old dray.PartialFile) error {
	r.repeated++
	if e.Version != old.Version {
		return changed("%s has other content", quote(e.Name))
	}
	return nil
}

// Read reads the current file, from as many trees as necessary.
func (r *resumableTree) Read(p []byte) (int, error) {
	for {
		if r.tree == nil {
			return 0, interrupted()
		}
		n, err := r.tree.Read(p)
		old := r.seen[r.last]
		r.seen[r.last] = dray.PartialFile{Version: old.Version, Bytes: old.Bytes + int64(n)}
		if err == nil || isEOF(err) {
			return n, err
		}
		if n > 0 {
			return n, nil // the next Read gets the error
		}
		if err := r.seekToOffset(err); err != nil {
			return 0, err
		}
	}
}

// seekToOffset opens the tree again and reads it to the current byte.
func (r *resumableTree) seekToOffset(err error) error {
	for {
		if err := r.reopenAfter(err); err != nil {
			return err
		}
		if err = r.find(); err == nil || errors.Is(err, errFileChanged) {
			return err
		}
	}
}

func (r *resumableTree) find() error {
	for {
		e, err := r.tree.Next()
		if isEOF(err) {
			return changed("%s was removed", quote(r.last))
		}
		if err != nil {
			return err
		}
		old, ok := r.seen[e.Name]
		if !ok {
			return changed("%s was added", quote(e.Name))
		}
		if err := r.checkRepeated(e, old); err != nil {
			return err
		}
		if e.Name != r.last {
			continue
		}
		if e.Offset != old.Bytes || e.Size != r.size {
			return changed("%s has another length", quote(e.Name))
		}
		return nil
	}
}

func (r *resumableTree) Close() error {
	if r.tree == nil {
		return nil
	}
	return r.tree.Close()
}

var errFileChanged = errors.New("the files changed while they were copied")

func changed(format string, args ...any) error {
	return dray.Errorf(dray.CodeTransferFailed, "%w: "+format,
		append([]any{errFileChanged}, args...)...).
		WithHint("repeat the sync when no program writes there")
}
