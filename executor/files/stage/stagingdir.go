package stage

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/tree"
	"github.com/dray-dev/dray/internal/linux"
)

// Prefix starts the names of staging directories. No component of a name in a tree may have it.
const Prefix = ".dray-stage-"

// The content of a staging directory.
const (
	treeName    = "tree"
	removedName = "removed" // the removed files, by their position in the journal
	journalName = "journal"
)

// stagingDir is a staging directory that this process has locked.
type stagingDir struct {
	resolver
	root int
	name string
	dir  int // has the lock
	tree *dirCache
	// removed is the directory of removed files, or 0 until it is needed.
	removed int
	// synced is false while something may not be on the disk.
	synced bool
	// keep is true if the directory must stay for a recovery.
	keep bool
}

// stagedDir returns the fd of a directory in the staging directory, from getDir or makeDir. It
// creates the staging directory when it is needed first.
func (t *transaction) stagedDir(name string, from func(*stagingDir, string) (int, error),
) (fd int, err error) {
	if t.staging == nil {
		if t.staging, err = newStagingDir(t.resolver, t.root); err != nil {
			return -1, err
		}
	}
	fd, err = from(t.staging, name)
	return fd, opError("make the directory", name, err)
}

// newStagingDir creates and locks a staging directory. A recovery may remove it before it is
// locked; then newStagingDir creates another one.
func newStagingDir(r resolver, root int) (*stagingDir, error) {
	for {
		name := Prefix + strconv.FormatUint(rand.Uint64(), 36) //nolint:gosec // a name that exists is not used; nothing depends on its secrecy
		err := unix.Mkdirat(root, name, dirMode)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return nil, opError("make the directory", name, err)
		}
		s, err := lockStagingDir(r, root, name)
		switch {
		case err != nil:
			_ = linux.Unlink(root, name, unix.AT_REMOVEDIR)
		case s == nil:
			continue
		default:
			if err = s.initialize(); err == nil {
				return s, nil
			}
			s.close()
		}
		return nil, opError("make the directory", name, err)
	}
}

// lockStagingDir opens and locks a staging directory. It returns nil without an error if another
// process has locked it, or if it was removed.
func lockStagingDir(r resolver, root int, name string) (*stagingDir, error) {
	dir, err := openForLock(r, root, name)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	locked, err := tryLock(dir)
	if locked {
		if same, _ := r.isAt(root, name, dir); same {
			return &stagingDir{resolver: r, root: root, name: name, dir: dir}, nil
		}
	}
	linux.Close(dir)
	return nil, err
}

// tryLock locks an open directory until it is closed, unless another process has locked it.
func tryLock(dir int) (locked bool, err error) {
	err = linux.Retry(func() error { return unix.Flock(dir, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// openForLock opens a directory for reading, whatever mode the umask gave it.
func openForLock(r resolver, at int, name string) (int, error) {
	dir, err := r.openDir(at, name)
	if err != nil {
		return -1, err
	}
	defer linux.Close(dir)
	if err := setOwnerMode(dir); err != nil {
		return -1, err
	}
	return linux.Reopen(dir, unix.O_RDONLY)
}

// setOwnerMode sets the mode of a directory of this user. It uses the fd, because the name could be
// another directory's by now.
func setOwnerMode(dir int) error {
	var st unix.Stat_t
	if err := linux.Stat(dir, &st); err != nil || st.Mode&0o7777 == dirMode ||
		int(st.Uid) != unix.Geteuid() {
		return err
	}
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(dir), dirMode)
}

// initialize removes what the directory inherited from the root, so that its content inherits no
// access list and no group, and creates the directory of the tree.
func (s *stagingDir) initialize() error {
	for _, list := range []string{"system.posix_acl_access", "system.posix_acl_default"} {
		_ = unix.Fremovexattr(s.dir, list) // most directories and many file systems have none
	}
	if err := unix.Fchmod(s.dir, dirMode); err != nil {
		return err
	}
	if err := unix.Mkdirat(s.dir, treeName, dirMode); err != nil {
		return err
	}
	return s.openTree()
}

func (s *stagingDir) openTree() error {
	dir, err := s.openDir(s.dir, treeName)
	if err != nil {
		return err
	}
	s.tree = newDirCache(s.resolver, dir, maxCachedDirs)
	return setOwnerMode(dir)
}

// getDir returns the fd of a directory of the tree, and creates it and its parents if necessary.
func (s *stagingDir) getDir(name string) (int, error) {
	fd, err := s.tree.get(name)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	return s.makeDir(name)
}

func (s *stagingDir) makeDir(name string) (int, error) {
	above, base := split(name)
	parent, err := s.getDir(above)
	if err != nil {
		return -1, err
	}
	if err := unix.Mkdirat(parent, base, dirMode); err != nil {
		return -1, err
	}
	s.synced = false
	fd, err := s.tree.get(name)
	if err != nil {
		return -1, err
	}
	return fd, setOwnerMode(fd)
}

// close unlocks the directory, and removes it unless a recovery needs it. The next recovery removes
// the rest after an error.
func (s *stagingDir) close() {
	if !s.keep {
		s.sweep()
	}
	if s.tree != nil {
		s.tree.close()
		linux.Close(s.tree.base)
	}
	if s.removed > 0 {
		linux.Close(s.removed)
	}
	linux.Close(s.dir)
}

// lockRoot locks the root directory, so that commits beneath it run one after the other. The caller
// closes the fd to unlock it.
func lockRoot(ctx context.Context, root int) (int, error) {
	fd, err := openList(root)
	if err != nil {
		return -1, opError("open", ".", err)
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		locked, err := tryLock(fd)
		if locked {
			return fd, nil
		}
		if err == nil { // a blocking flock would not end with the context
			err = pause(ctx, wait)
		}
		if err != nil {
			linux.Close(fd)
			return -1, opError("lock", ".", err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return dray.Errorf(dray.CodeTransferFailed, "%w: %w", ErrLocked, ended(ctx)).
			WithHint("nothing was written; end that process (lsof shows it), then repeat the write")
	case <-timer.C:
		return nil
	}
}

// maxSweep is the maximum depth of a staging directory. A deeper one was not made by dray.
const maxSweep = tree.MaxName/2 + 2

// sweep removes the staging directory. It removes the journal first, so that a crash in between
// does not leave a commit that looks incomplete.
func (s *stagingDir) sweep() {
	err := linux.Unlink(s.dir, journalName, 0)
	if err != nil && !errors.Is(err, unix.ENOENT) || s.removeContent(s.dir, maxSweep) != nil {
		return
	}
	_ = linux.Unlink(s.root, s.name, unix.AT_REMOVEDIR)
}

// removeContent removes the content of a directory. It follows no symlinks and leaves mounts alone.
func (s *stagingDir) removeContent(dir, depth int) error {
	if depth == 0 {
		return unix.ENAMETOOLONG
	}
	names, err := list(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		err := linux.Unlink(dir, name, 0)
		// POSIX specifies EPERM for a directory
		if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
			err = s.removeDir(dir, name, depth)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

func (s *stagingDir) removeDir(dir int, name string, depth int) error {
	if err := linux.Unlink(dir, name, unix.AT_REMOVEDIR); err == nil {
		return nil
	}
	below, err := s.openDir(dir, name)
	if err != nil {
		return err
	}
	err = s.removeContent(below, depth-1)
	linux.Close(below)
	if err != nil {
		return err
	}
	return linux.Unlink(dir, name, unix.AT_REMOVEDIR)
}

func list(dir int) ([]string, error) {
	fd, err := openList(dir)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer func() { _ = f.Close() }()
	return f.Readdirnames(-1)
}

// openList opens a directory again, to list or lock it.
func openList(dir int) (int, error) {
	return linux.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
}
