package stage

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
)

// commit brings what is staged to its places, all or nothing.
func (p *transaction) commit(ctx context.Context) error {
	if p.stage != nil {
		if err := p.stage.sync(); err != nil {
			return err
		}
	}
	lock, err := lockRoot(ctx, p.root)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(lock) }()
	// What others left is finished first, so that it cannot be finished over this tree later. What
	// cannot be is no reason to refuse this one.
	_, _ = recoverAll(ctx, p.resolver, p.root)
	m := newMoves(p.resolver, p.root, p.stage)
	defer m.close()
	if err := p.plan(ctx, m); err != nil || len(m.list) == 0 {
		return err
	}
	if err := p.stage.commitJournal(ctx, p.items); err != nil {
		return err
	}
	return m.run(context.WithoutCancel(ctx))
}

// plan looks at every place again, now that no other commit can change it, and says what has to be
// moved.
func (p *transaction) plan(ctx context.Context, m *moves) error {
	for _, it := range p.items {
		above, base := split(it.name)
		if err := p.planItem(ctx, m, it, p.names[above], above, base); err != nil {
			return opError("looking at", it.name, err)
		}
	}
	return p.checkCaseCollisions()
}

func (p *transaction) planItem(ctx context.Context, m *moves, it, parent *item, above,
	base string,
) error {
	known := it.found
	it.found = fileState{}
	if parent.found.kind == directory {
		dir, err := m.to.hold(above)
		if err != nil {
			return err
		}
		if it.found, err = p.inspect(ctx, dir, base, &known, p.compare); err != nil {
			return err
		}
	}
	switch {
	case it.folder && it.found.kind == directory:
		return nil
	case it.folder && it.found.kind != absent:
		return syscall.ENOTDIR
	case it.folder:
		if _, err := p.stageFolder(it.name); err != nil { // it was there when the tree came
			return err
		}
	case it.found.kind == directory:
		return syscall.EISDIR
	case it.found.unchanged(it):
		it.staged = false
		return nil
	case !it.staged:
		return dray.Errorf(dray.CodeTransferFailed, "%q %w", it.name, ErrConflict).WithHint("repeat it")
	}
	if parent.found.kind != directory {
		return nil // it comes with the folder that it is in
	}
	m.stage = p.stage
	return m.add(it, above, base)
}

// sync brings what is staged to the disk.
func (s *stagingDir) sync() error {
	if s.synced {
		return nil
	}
	s.synced = true
	return opError("writing", s.name, syncfs(s.dir))
}

// commitJournal writes the journal. When it returns without an error, the tree comes.
func (s *stagingDir) commitJournal(ctx context.Context, items []*item) error {
	if err := s.sync(); err != nil {
		return err
	}
	j := journal{stamp: time.Now()}
	for _, it := range items {
		if it.folder || it.staged {
			j.items = append(j.items, it)
		}
	}
	b, err := j.encode()
	if err != nil {
		return err
	}
	if err := ended(ctx); err != nil {
		return err
	}
	if err := s.writeJournal(b); err != nil {
		return errors.Join(opError("writing the journal in", s.name, err), s.removeJournal())
	}
	return nil
}

func (s *stagingDir) writeJournal(b []byte) error {
	fd, err := openat(s.dir, journalName, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	err = write(fd, b)
	if err == nil {
		err = syscall.Fsync(fd)
	}
	if err := errors.Join(err, syscall.Close(fd)); err != nil {
		return err
	}
	return syscall.Fsync(s.dir)
}

// removeJournal takes the journal away, on the disk too, so that no recovery brings what was given
// up.
func (s *stagingDir) removeJournal() error {
	err := unlink(s.dir, journalName, 0)
	if err == nil || errors.Is(err, syscall.ENOENT) {
		err = syscall.Fsync(s.dir)
	}
	return opError("removing the journal in", s.name, err)
}

// moves are the renames of a commit. All folders that they need are open before the first of them,
// so that nothing is resolved any more.
type moves struct {
	resolver
	stage    *stagingDir
	from, to *dirCache
	list     []*move
}

// move is one rename, from the stage folder to the same name beneath the root.
type move struct {
	*item
	from, to int
	base     string
	// final says that the file system cannot exchange: what was replaced is gone, and the move cannot
	// be taken back.
	final bool
}

func newMoves(w resolver, root int, s *stagingDir) *moves {
	return &moves{resolver: w, stage: s, to: newFolders(w, root, 0)}
}

func (m *moves) close() {
	m.to.close()
	if m.from != nil {
		m.from.close()
	}
}

func (m *moves) add(it *item, above, base string) error {
	if m.from == nil {
		m.from = newFolders(m.resolver, m.stage.made.base, 0)
	}
	from, err := m.from.hold(above)
	if err != nil {
		return err
	}
	to, err := m.to.hold(above)
	if err != nil {
		return err
	}
	m.list = append(m.list, &move{item: it, from: from, to: to, base: base})
	return nil
}

// run moves everything, or takes back what it moved. With the end of the journal it is done.
func (m *moves) run(ctx context.Context) error {
	done, err := m.forth()
	if err == nil {
		err = m.to.verifyUnmoved()
	}
	if err == nil {
		err = opError("writing", ".", syncfs(m.to.base))
	}
	if err != nil {
		return m.back(ctx, done, err)
	}
	// one that stays is finished once more before anything else comes
	_ = unlink(m.stage.dir, journalName, 0)
	return nil
}

func (m *moves) forth() (done int, err error) {
	for i, move := range m.list {
		if err := move.do(m.resolver); err != nil {
			return i, opError("writing", move.name, err)
		}
	}
	return len(m.list), nil
}

// back takes back the first moves after an error. Where that cannot be done the journal stays.
func (m *moves) back(ctx context.Context, done int, cause error) error {
	var err error
	for i := done - 1; i >= 0; i-- {
		err = errors.Join(err, m.list[i].undo(ctx, m.resolver))
	}
	if err == nil {
		err = m.stage.removeJournal()
	}
	if err == nil {
		return cause
	}
	m.stage.keep = true
	return dray.Errorf(dray.CodeOf(cause), "%w: %w", ErrCommitIncomplete, cause).
		WithHint("mend what the message names; the next sync to this root, or the next start, finishes it")
}

// do brings an item to its place. What was there takes the item's place in the stage folder.
func (v *move) do(w resolver) error {
	if v.found.kind == absent {
		return plainly(v.from, v.to, v.base)
	}
	err := rename(v.from, v.to, v.base, renameExchange)
	if unknown(err) {
		v.final = true
		return rename(v.from, v.to, v.base, 0)
	}
	if err != nil {
		return err
	}
	if !isFolder(w, v.from, v.base) {
		return nil
	}
	// Somebody put a folder there at the last moment: it is not ours to take away.
	return errors.Join(syscall.EISDIR, rename(v.from, v.to, v.base, renameExchange))
}

// undo takes an item back, if it is still there.
func (v *move) undo(ctx context.Context, w resolver) error {
	if v.final {
		return ErrCommitIncomplete
	}
	if !v.folder {
		now, err := w.inspect(ctx, v.to, v.base, nil, make([]byte, pieceSize))
		if err != nil || now.kind != regular || now.sum != v.sum {
			return err // what is there now is another's, and newer
		}
	}
	if v.found.kind == absent {
		return plainly(v.to, v.from, v.base)
	}
	return rename(v.to, v.from, v.base, renameExchange)
}

// plainly moves a name to where none is.
func plainly(from, to int, base string) error {
	err := rename(from, to, base, renameNoReplace)
	if unknown(err) {
		return rename(from, to, base, 0)
	}
	return err
}

// unknown says that a file system has no renames of this kind.
func unknown(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS)
}

func isFolder(w resolver, dir int, base string) bool {
	fd, err := w.open(dir, base, oPath)
	if err != nil {
		return false
	}
	defer func() { _ = syscall.Close(fd) }()
	var st syscall.Stat_t
	return syscall.Fstat(fd, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR
}
