package stage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
)

// commit renames what is staged to its destinations, all or nothing.
func (t *transaction) commit(ctx context.Context) error {
	if t.staging != nil {
		if err := t.staging.sync(); err != nil {
			return err
		}
	}
	lock, err := t.lock(ctx)
	if err != nil {
		return err
	}
	defer linux.Close(lock)
	// Older commits are completed first, so that they cannot overwrite this tree later. One that
	// cannot be completed does not prevent this one.
	_, _ = recoverAll(ctx, t.resolver, t.root, t.how)
	set := newRenameSet(t.resolver, t.root)
	defer set.close()
	if err := t.plan(ctx, set); err != nil || len(set.list)+len(set.emptied) == 0 {
		return err
	}
	if t.how.BeforeCommit != nil {
		if err := t.how.BeforeCommit(t.manifest()); err != nil {
			return err
		}
	}
	if err := t.staging.commitJournal(ctx, t.journal()); err != nil {
		return err
	}
	return set.run()
}

// maxCommitWait bounds the wait of a commit with expectations for the lock of its root: the call
// whose changes it writes has ended, so no timeout of a call ends it.
const maxCommitWait = 30 * time.Second

func (t *transaction) lock(ctx context.Context) (int, error) {
	if t.strict() {
		wait, cancel := context.WithTimeout(ctx, maxCommitWait)
		defer cancel()
		ctx = wait
	}
	return lockRoot(ctx, t.root)
}

// plan inspects every destination again, now that the root is locked, and adds the renames to set.
func (t *transaction) plan(ctx context.Context, set *renameSet) error {
	for _, it := range t.items {
		if err := t.planItem(ctx, set, it); err != nil {
			return opError("inspect", it.name, t.asConflict(it.name, err))
		}
	}
	if err := t.planRemovals(ctx, set); err != nil {
		return err
	}
	set.staging, set.strict = t.staging, t.strict()
	if set.strict {
		// what can conflict comes first, so that new files are seldom rolled back
		slices.SortStableFunc(set.list, func(a, b step) int { return cmp.Compare(a.rank(), b.rank()) })
	}
	return t.checkNames(set.to)
}

func (t *transaction) planItem(ctx context.Context, set *renameSet, it *item) error {
	above, base := split(it.name)
	parentExists := t.byName[above].existing.kind == directory
	known := it.existing
	it.existing = fileState{}
	if parentExists {
		dir, err := set.to.get(above)
		if err != nil {
			return err
		}
		if it.existing, err = t.inspect(ctx, dir, base, &known, t.compare); err != nil {
			return err
		}
	}
	if err := t.checkExpected(it); err != nil {
		return err
	}
	switch exists := it.existing.kind; {
	case it.dir && exists == directory:
		return nil
	case it.dir && exists != absent && !t.isReplaced(it.name, regular):
		return unix.ENOTDIR
	case it.dir:
		if _, err := t.stagedDir(it.name, (*stagingDir).
			getDir); err != nil { // it existed when the tree was received
			return err
		}
	case exists == directory && !t.isReplaced(it.name, directory):
		return unix.EISDIR
	case it.existing.unchanged(it):
		it.staged = false
		return nil
	case !it.staged && t.strict():
		return conflict(it.name, "it had the content that was to be written")
	case !it.staged:
		return dray.Errorf(dray.CodeTransferFailed, "%q %w", it.name, ErrConflict).
			WithHint("repeat the write")
	}
	if !parentExists {
		return nil // it is renamed with its directory
	}
	return set.add(t, it, above, base)
}

// sync writes the staged files to the disk.
func (s *stagingDir) sync() error {
	if s.synced {
		return nil
	}
	s.synced = true
	return opError("sync", s.name, syncfs(s.dir))
}

func syncfs(fd int) error {
	return linux.Retry(func() error { return unix.Syncfs(fd) })
}

func fsync(fd int) error {
	return linux.Retry(func() error { return unix.Fsync(fd) })
}

// commitJournal writes the journal. If it succeeds, the tree will be written.
func (s *stagingDir) commitJournal(ctx context.Context, j journal) error {
	if err := s.sync(); err != nil {
		return err
	}
	b, err := j.encode()
	if err != nil {
		return err
	}
	if err := ended(ctx); err != nil {
		return err
	}
	if err := s.writeJournal(b); err != nil {
		return errors.Join(opError("write the journal in", s.name, err), s.removeJournal())
	}
	return nil
}

func (s *stagingDir) writeJournal(b []byte) error {
	fd, err := createFile(s.dir, journalName, fileMode)
	if err != nil {
		return err
	}
	err = write(fd, b)
	if err == nil {
		err = fsync(fd)
	}
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return err
	}
	return fsync(s.dir)
}

// removeJournal removes the journal, on the disk too, so that no recovery completes a rolled back
// commit.
func (s *stagingDir) removeJournal() error {
	err := linux.Unlink(s.dir, journalName, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		err = fsync(s.dir)
	}
	return opError("remove the journal in", s.name, err)
}

// renameSet has the renames of a commit. All directories that they need are open before the first
// one, so that no name is resolved during the commit.
type renameSet struct {
	resolver
	staging  *stagingDir
	from, to *dirCache
	list     []step
	emptied  []*emptiedDir
	// strict is set if names have expectations.
	strict bool
}

// step is one rename of a commit.
type step interface {
	label() string // the name of the file
	rank() int     // orders the steps of a commit with expectations
	do(r resolver) error
	verify(r resolver) error // fails if do has moved something unexpected away
	undo(r resolver) error
}

// renameOp is one rename, from the staging directory to the same name beneath the root.
type renameOp struct {
	*item
	from, to int
	base     string
	// strict is set if want must be at the destination; buf is for comparing it.
	strict  bool
	want    expectation
	buf     []byte
	renamed unix.Stat_t // the file that was renamed
	// irreversible is set if the file system cannot exchange names: the replaced file is lost, and
	// the rename cannot be undone.
	irreversible bool
}

func newRenameSet(r resolver, root int) *renameSet {
	return &renameSet{resolver: r, to: newDirCache(r, root, 0)}
}

func (s *renameSet) close() {
	s.to.close()
	if s.from != nil {
		s.from.close()
	}
}

func (s *renameSet) add(t *transaction, it *item, above, base string) error {
	if s.from == nil {
		s.from = newDirCache(s.resolver, t.staging.tree.base, 0)
	}
	from, err := s.from.get(above)
	if err != nil {
		return err
	}
	to, err := s.to.get(above)
	if err != nil {
		return err
	}
	s.list = append(s.list, &renameOp{
		item: it, from: from, to: to, base: base,
		strict: t.strict(), want: t.expected[it.name], buf: t.compare,
	})
	return nil
}

// run applies all renames, or rolls them back. Removing the journal completes the commit.
func (s *renameSet) run() error {
	done, err := s.apply()
	if err == nil {
		err = s.verify()
	}
	if err == nil {
		err = opError("sync", ".", syncfs(s.to.base))
	}
	if err != nil {
		return s.rollBack(done, err)
	}
	if s.removeEmptied() {
		// after an error, the next commit or recovery removes the directories again
		s.staging.keep = syncfs(s.to.base) != nil
	}
	if s.staging.keep {
		return nil
	}
	// a journal that remains is completed once more before the next commit
	_ = linux.Unlink(s.staging.dir, journalName, 0)
	return nil
}

func (s *renameSet) apply() (done int, err error) {
	for i, op := range s.list {
		if err := op.do(s.resolver); err != nil {
			return i, opError("write", op.label(), err)
		}
		if err := op.verify(s.resolver); err != nil {
			return i + 1, opError("write", op.label(), err)
		}
	}
	return len(s.list), nil
}

// verify fails if directories were moved since the plan, or if something was created in one that is
// removed.
func (s *renameSet) verify() error {
	replaced := map[string]bool{}
	for _, d := range s.emptied {
		replaced[d.name] = d.replaced
	}
	err := s.to.verifyUnmoved(replaced)
	if err != nil && s.strict {
		return dray.Errorf(dray.CodeConflict, "%w", err).WithHint(conflictHint)
	}
	if err == nil {
		err = s.checkEmptied()
	}
	return err
}

// rollBack undoes the first renames after an error. If that fails, the journal stays.
func (s *renameSet) rollBack(done int, cause error) error {
	err := s.undo(done)
	if err == nil {
		err = s.staging.removeJournal()
	}
	if err == nil {
		return cause
	}
	s.staging.keep = true
	return dray.Errorf(dray.CodeOf(cause), "%w: %w", ErrCommitIncomplete, cause).
		WithHint("fix the reported cause; the next sync, or the next start, completes it")
}

// undo undoes the first renames, the last one first.
func (s *renameSet) undo(done int) (err error) {
	for i := done - 1; i >= 0; i-- {
		err = errors.Join(err, s.list[i].undo(s.resolver))
	}
	return err
}

func (op *renameOp) label() string { return op.name }

func (op *renameOp) rank() int {
	if op.existing.kind == absent {
		return 2
	}
	return 1
}

// do renames an item to its destination. A replaced file takes the item's place in the staging
// directory.
func (op *renameOp) do(r resolver) error {
	if err := r.stat(op.from, op.base, &op.renamed); err != nil {
		return err
	}
	switch {
	case op.strict && op.existing.kind == absent:
		return strictRenameError(op.name, rename(op.from, op.to, op.base, unix.RENAME_NOREPLACE))
	case op.strict:
		return strictRenameError(op.name, rename(op.from, op.to, op.base, unix.RENAME_EXCHANGE))
	case op.existing.kind == absent:
		return renameIfAbsent(op.from, op.to, op.base)
	}
	err := rename(op.from, op.to, op.base, unix.RENAME_EXCHANGE)
	if isUnsupported(err) {
		op.irreversible = true
		return rename(op.from, op.to, op.base, 0)
	}
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := r.stat(op.from, op.base, &st); err != nil || !isDir(&st) {
		return nil //nolint:nilerr // the exchange succeeded, and what it replaced is gone
	}
	// A directory was created there after the plan. It must not be removed.
	return errors.Join(unix.EISDIR, rename(op.from, op.to, op.base, unix.RENAME_EXCHANGE))
}

// verify compares what was replaced with what was expected.
func (op *renameOp) verify(r resolver) error {
	if !op.strict || op.existing.kind == absent {
		return nil
	}
	if err := r.verifyAside(op.name, op.from, op.base, op.want, op.buf); err != nil {
		return err
	}
	if op.want.kind != directory {
		return nil
	}
	var now unix.Stat_t
	if err := r.stat(op.from, op.base, &now); err != nil || isSame(&now, &op.existing.stat) {
		return err
	}
	return conflict(op.name, "the directory was replaced")
}

// undo renames an item back, unless another file is at its destination by now. The content of a
// file does not tell: a disk that fails may have lost it.
func (op *renameOp) undo(r resolver) error {
	if op.irreversible {
		return ErrCommitIncomplete
	}
	if !op.dir || op.strict {
		ours, err := op.isAt(r, op.to)
		if err != nil || !ours {
			return err
		}
	}
	if op.existing.kind == absent {
		err := renameIfAbsent(op.to, op.from, op.base)
		if err == nil && op.strict && op.isForeign(r) {
			err = rename(op.from, op.to, op.base, unix.RENAME_NOREPLACE)
		}
		return err
	}
	err := rename(op.to, op.from, op.base, unix.RENAME_EXCHANGE)
	if err == nil && op.strict && op.isForeign(r) {
		err = rename(op.to, op.from, op.base, unix.RENAME_EXCHANGE)
	}
	return err
}

// isAt reports whether what was renamed has its name in a directory.
func (op *renameOp) isAt(r resolver, dir int) (bool, error) {
	var now unix.Stat_t
	err := r.stat(dir, op.base, &now)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil && isSame(&now, &op.renamed), err
}

// isForeign reports whether what was just renamed back was written by another process while it was
// at the destination. A write changes the time, a failing disk only the content.
func (op *renameOp) isForeign(r resolver) bool {
	var now unix.Stat_t
	if err := r.stat(op.from, op.base, &now); err != nil || !isSame(&now, &op.renamed) {
		return true
	}
	return !op.dir && (now.Mtim != op.renamed.Mtim || now.Size != op.renamed.Size ||
		r.checkNoWriter(op.name, op.from, op.base) != nil)
}

func rename(from, to int, base string, flags uint) error {
	return linux.Rename(from, base, to, base, flags)
}

// renameIfAbsent fails with EEXIST if the destination exists, where the file system supports that.
func renameIfAbsent(from, to int, base string) error {
	err := rename(from, to, base, unix.RENAME_NOREPLACE)
	if isUnsupported(err) {
		return rename(from, to, base, 0)
	}
	return err
}

// isUnsupported reports whether a file system does not support the flags of a rename.
func isUnsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS)
}
