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
	// What others left is finished first, so that it cannot be finished over this tree later. What cannot be is no reason to refuse this one.
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

// plan looks at every place again, now that no other commit can change it, and says what has to be moved.
func (p *transaction) plan(ctx context.Context, m *moves) error {
	for _, it := range p.items {
		above, base := split(it.name)
		if err := p.planItem(ctx, m, it, p.names[above], above, base); err != nil {
			return opError("looking at", it.name, err)
		}
	}
	return p.checkCaseCollisions()
}

func (p *transaction) planItem(ctx context.Context, m *moves, it, parent *item, above, base string) error {
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

// removeJournal takes the journal away, on the disk too, so that no recovery brings what was given up.
func (s *stagingDir) removeJournal() error {
	err := unlink(s.dir, journalName, 0)
	if err == nil || errors.Is(err, syscall.ENOENT) {
		err = syscall.Fsync(s.dir)
	}
	return opError("removing the journal in", s.name, err)
}
