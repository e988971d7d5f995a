package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
)

// removal is a file or directory that the commit removes. Its position in the journal is its name
// in the directory of removed files.
type removal struct {
	name string
	want expectation
	pos  int
}

// planRemovals compares what is to be removed and adds the renames of files, and the directories,
// to set.
func (t *transaction) planRemovals(ctx context.Context, set *renameSet) error {
	for _, r := range t.removals {
		if err := t.planRemoval(ctx, set, r); err != nil {
			return opError("inspect", r.name, t.asConflict(r.name, err))
		}
	}
	return nil
}

func (t *transaction) planRemoval(ctx context.Context, set *renameSet, r *removal) error {
	written := cmp.Or(t.byName[r.name], t.done[r.name])
	if written != nil && r.want.kind == regular {
		return nil // the rename of the new directory exchanges it
	}
	above, base := split(r.name)
	if !t.recovering {
		// something must be there for the journal
		if _, err := t.stagedDir("", (*stagingDir).getDir); err != nil {
			return err
		}
	}
	dir, err := set.to.get(above)
	if t.recovering && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)) {
		return nil // removed with its directory
	}
	if err != nil {
		return err
	}
	if t.recovering && r.want.kind == regular {
		moved, err := t.wasMoved(r, dir, base) //nolint:contextcheck // it compares as the commit does
		if moved || err != nil {
			return err
		}
	}
	existing, err := t.inspect(ctx, dir, base, nil, t.compare)
	if err != nil || t.recovering && existing.kind == absent {
		return err
	}
	if r.want.kind == directory {
		return t.planRemovedDir(set, r, written, &existing)
	}
	if err := r.want.check(r.name, &existing); err != nil {
		return err
	}
	aside, err := t.staging.removedDir()
	if err != nil {
		return err
	}
	set.list = append(set.list, &removeOp{
		removal: r, from: dir, base: base, aside: aside, buf: t.compare,
	})
	return nil
}

// planRemovedDir adds a directory that is removed when it is empty. A recovery leaves one that is
// not what was expected: the files in it were compared, one by one.
func (t *transaction) planRemovedDir(set *renameSet, r *removal, written *item, is *fileState,
) error {
	if err := r.want.check(r.name, is); err != nil {
		if t.recovering {
			return nil
		}
		return err
	}
	fd, err := set.to.get(r.name)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := linux.Stat(fd, &st); err != nil {
		return err
	}
	if !isSame(&st, &is.stat) || written != nil && !isSame(&st, &written.existing.stat) {
		return conflict(r.name, "the directory was replaced")
	}
	if !t.recovering {
		if err := t.checkListed(r.name, fd); err != nil {
			return err
		}
	}
	d := &emptiedDir{removal: r, fd: fd, replaced: written != nil}
	set.emptied = append(set.emptied, d)
	return nil
}

// checkListed fails if a directory that is to be removed has an entry that is not.
func (t *transaction) checkListed(dir string, fd int) error {
	names, err := list(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if full := dir + "/" + name; t.removed[full] == nil {
			return conflict(full, "it is in a directory that is removed, and was not expected")
		}
	}
	return nil
}

// wasMoved reports whether a removed file is in the staging directory already. If it is not what
// was expected there, wasMoved gives it back, and fails.
func (t *transaction) wasMoved(r *removal, dir int, base string) (bool, error) {
	aside, err := t.staging.removedDir()
	if err != nil {
		return false, err
	}
	op := &removeOp{removal: r, from: dir, base: base, aside: aside, buf: t.compare}
	var st unix.Stat_t
	if err := t.stat(aside, op.asideName(), &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		return false, err
	}
	if err := op.verify(t.resolver); err != nil {
		return true, errors.Join(err, op.undo(t.resolver))
	}
	return true, nil
}

// removeOp moves a removed file to the staging directory.
type removeOp struct {
	*removal
	from  int
	base  string
	aside int // the directory of removed files
	buf   []byte
}

func (op *removeOp) label() string     { return op.name }
func (op *removeOp) rank() int         { return 0 }
func (op *removeOp) asideName() string { return fmt.Sprint(op.pos) }

func (op *removeOp) do(resolver) error {
	err := linux.Rename(op.from, op.base, op.aside, op.asideName(), unix.RENAME_NOREPLACE)
	return strictRenameError(op.name, err)
}

func (op *removeOp) verify(r resolver) error {
	return r.verifyAside(op.name, op.aside, op.asideName(), op.want, op.buf)
}

// undo moves the file back. If another process has made a new one meanwhile, that stays.
func (op *removeOp) undo(resolver) error {
	err := linux.Rename(op.aside, op.asideName(), op.from, op.base, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// strictRenameError returns the error of a rename that must not replace anything unexpected.
func strictRenameError(name string, err error) error {
	if err == nil {
		return nil
	}
	if isUnsupported(err) {
		return dray.Errorf(dray.CodeUnsupported,
			"remove or compare %q: the file system cannot exchange names: %w", name, err).
			WithHint("use a directory on a local file system")
	}
	return conflictOf(name, err)
}

// emptiedDir is a directory that is removed when the commit has removed all its entries.
type emptiedDir struct {
	*removal
	fd int
	// replaced is set if a file takes its place. Then it is in the staging directory afterwards.
	replaced bool
}

// checkEmptied fails if a directory that is to be removed has entries other than directories that
// are removed as well.
func (s *renameSet) checkEmptied() error {
	removed := map[string]bool{}
	for _, d := range s.emptied {
		removed[d.name] = true
	}
	for _, d := range s.emptied {
		names, err := list(d.fd)
		if err != nil {
			return opError("read", d.name, err)
		}
		for _, name := range names {
			if full := d.name + "/" + name; !removed[full] {
				return conflict(full, "it was created in a directory that is removed")
			}
		}
	}
	return nil
}

// removeEmptied removes the emptied directories, those inside others first. One in which something
// was created since checkEmptied stays. It reports whether there were any.
func (s *renameSet) removeEmptied() bool {
	slices.SortFunc(s.emptied, func(a, b *emptiedDir) int { return strings.Compare(b.name, a.name) })
	for _, d := range s.emptied {
		above, base := split(d.name)
		if d.replaced {
			continue
		}
		if parent, err := s.to.get(above); err == nil {
			_ = linux.Unlink(parent, base, unix.AT_REMOVEDIR)
		}
	}
	return len(s.emptied) > 0
}

// removedDir returns the fd of the directory of removed files, and creates it if necessary.
func (s *stagingDir) removedDir() (int, error) {
	if s.removed > 0 {
		return s.removed, nil
	}
	fd, err := s.openDir(s.dir, removedName)
	if errors.Is(err, unix.ENOENT) {
		if err := unix.Mkdirat(s.dir, removedName, dirMode); err != nil {
			return -1, opError("make the directory", s.name, err)
		}
		s.synced = false
		fd, err = s.openDir(s.dir, removedName)
	}
	if err == nil {
		err = setOwnerMode(fd)
	}
	if err != nil {
		linux.Close(fd)
		return -1, opError("open", s.name, err)
	}
	s.removed = fd
	return fd, nil
}
