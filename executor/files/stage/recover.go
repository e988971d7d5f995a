package stage

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
)

// maxRecoverWait is how long a recovery waits for the lock of its root. Commits hold it for moments; who can open the folder, such as a tool in a
// container that shows it, can hold it for ever, and must not keep a daemon from starting.
const maxRecoverWait = 5 * time.Second

// Recover puts a root in order after processes that died beneath it: a stage folder with a whole journal is finished, the others are removed,
// and those that somebody holds, or that are not this user's alone, are left. It gives how many were finished. What cannot be
// finished stays, and is told in the error, whatever else was done.
func Recover(ctx context.Context, root *os.File) (finished int, err error) {
	defer runtime.KeepAlive(root)
	fd := int(root.Fd())
	wait, cancel := context.WithTimeout(ctx, maxRecoverWait)
	lock, err := lockRoot(wait, fd)
	cancel()
	if errors.Is(err, ErrLocked) && ctx.Err() == nil {
		err = dray.Errorf(dray.CodeTransferFailed, "%w", ErrLocked).WithHint("end that process (lsof shows it); the next sync to this root puts it in order")
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = syscall.Close(lock) }()
	return recoverAll(ctx, newWalker(), fd)
}

// recoverAll is Recover under the root's lock.
func recoverAll(ctx context.Context, w resolver, root int) (finished int, err error) {
	left, err := abandoned(w, root)
	for _, a := range left {
		did, failed := a.resolve(ctx)
		if did {
			finished++
		}
		err = errors.Join(err, failed)
	}
	return finished, err
}

// staleDir is a stage folder that nobody held, and its journal, if it has a whole one.
type staleDir struct {
	*stagingDir
	journal *journal
}

// abandoned gives the stage folders that nobody holds, the oldest commit first.
func abandoned(w resolver, root int) ([]staleDir, error) {
	names, err := list(root)
	if err != nil {
		return nil, opError("reading", ".", err)
	}
	var left []staleDir
	for _, name := range names {
		if !strings.HasPrefix(name, Prefix) || !isPrivateDir(w, root, name) {
			continue
		}
		s, err := lockStagingDir(w, root, name)
		if err != nil || s == nil {
			continue // in use, or gone
		}
		left = append(left, staleDir{s, s.readJournal()})
	}
	slices.SortStableFunc(left, func(a, b staleDir) int {
		if a.journal == nil || b.journal == nil {
			return cmp.Compare(boolean(a.journal != nil), boolean(b.journal != nil))
		}
		return a.journal.stamp.Compare(b.journal.stamp)
	})
	return left, nil
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// isPrivateDir says that a name is a folder that this user alone may have put something into.
func isPrivateDir(w resolver, root int, name string) bool {
	fd, err := w.folder(root, name)
	if err != nil {
		return false
	}
	defer func() { _ = syscall.Close(fd) }()
	var st syscall.Stat_t
	return syscall.Fstat(fd, &st) == nil && int(st.Uid) == syscall.Geteuid() && st.Mode&0o077 == 0
}

// readJournal gives the journal, or nil if there is no whole one.
func (s *stagingDir) readJournal() *journal {
	fd, err := s.open(s.dir, journalName, syscall.O_RDONLY)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), journalName)
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxJournal {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxJournal))
	if err != nil {
		return nil
	}
	j, err := decodeJournal(b)
	if err != nil {
		return nil
	}
	return &j
}

// resolve finishes or removes a stage folder.
func (l staleDir) resolve(ctx context.Context) (finished bool, err error) {
	defer l.close()
	if l.journal == nil {
		return false, nil
	}
	l.keep = true
	if err := l.finish(ctx); err != nil {
		return false, err
	}
	l.keep = false
	return true, nil
}

// finish does what is still to be done of a journal. It may have been begun, and that may have been recovered in part.
func (l staleDir) finish(ctx context.Context) error {
	if err := l.openTree(); err != nil {
		return opError("opening", l.name, err)
	}
	p := &transaction{resolver: l.resolver, root: l.root, stage: l.stagingDir, destDirs: newFolders(l.resolver, l.root, maxCachedDirs), compare: make([]byte, pieceSize)}
	defer p.destDirs.close()
	p.names = map[string]*item{"": {folder: true, found: fileState{kind: directory}}}
	for _, it := range l.journal.items {
		if err := p.resumeItem(ctx, it); err != nil {
			return opError("looking for", it.name, err)
		}
	}
	m := newMoves(l.resolver, l.root, l.stagingDir)
	defer m.close()
	if err := p.plan(ctx, m); err != nil {
		return err
	}
	if _, err := m.forth(); err != nil {
		return err
	}
	return opError("writing", ".", syncfs(l.root))
}

// resumeItem takes up an item that still lies in the stage folder as it was staged. One that is not there was moved, and what replaced it there
// is what it had replaced. A folder that the destination had and has no more took with it what should come into it.
func (p *transaction) resumeItem(ctx context.Context, it *item) error {
	above, base := split(it.name)
	if it.folder && p.names[it.name] != nil || p.names[above] == nil {
		return nil
	}
	if it.folder && it.found.kind == directory {
		there, err := p.statDir(it.name)
		if err == nil && there == directory {
			p.names[it.name] = it
		}
		return err
	}
	dir, err := p.stage.made.get(above)
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := p.inspect(ctx, dir, base, nil, p.compare)
	if err != nil {
		return err
	}
	if it.folder && now.kind == directory || !it.folder && now.kind == regular && now.sum == it.sum && now.stat.Size == it.size {
		it.staged = true
		p.names[it.name], p.items = it, append(p.items, it)
	}
	return nil
}
