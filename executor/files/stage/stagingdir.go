package stage

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Prefix begins the names of stage folders. No tree may have such a name anywhere.
const Prefix = ".dray-stage-"

// What a stage folder holds.
const (
	treeName    = "tree"
	journalName = "journal"
)

// stagingDir is a stage folder that this process holds.
type stagingDir struct {
	resolver
	root int
	name string
	dir  int // of the folder itself; the lock is on it
	made *dirCache
	// synced is false while something may not be on the disk, kept is true when the folder has to stay
	// for a recovery.
	synced, keep bool
}

// begin makes the stage folder when there is something to put into it.
func (p *transaction) begin() (err error) {
	if p.stage == nil {
		p.stage, err = newStagingDir(p.resolver, p.root)
	}
	return err
}

// stageFolder gives a folder in the stage folder's tree, and makes it if it is not there.
func (p *transaction) stageFolder(name string) (int, error) {
	if err := p.begin(); err != nil {
		return -1, err
	}
	fd, err := p.stage.folder(name)
	return fd, opError("making the folder", name, err)
}

// makeFolder makes one that must not be there: a file system that folds case could take it for
// another of the tree.
func (p *transaction) makeFolder(name string) error {
	if err := p.begin(); err != nil {
		return err
	}
	_, err := p.stage.make(name)
	return opError("making the folder", name, err)
}

// newStagingDir makes a stage folder and locks it. A recovery may see it before it is locked, and
// remove it; then another is made.
func newStagingDir(w resolver, root int) (*stagingDir, error) {
	for {
		// a name that is taken is not used; nothing depends on its being secret
		name := Prefix + strconv.FormatUint(rand.Uint64(), 36) //nolint:gosec
		err := syscall.Mkdirat(root, name, folderMode)
		if errors.Is(err, syscall.EEXIST) {
			continue
		}
		if err != nil {
			return nil, opError("making the folder", name, err)
		}
		s, err := lockStagingDir(w, root, name)
		if err == nil && s == nil {
			continue
		}
		if err == nil {
			err = s.initialize()
		}
		if err != nil {
			_ = unlink(root, name, atRemoveDir)
			return nil, opError("making the folder", name, err)
		}
		return s, nil
	}
}

// lockStagingDir opens and locks a stage folder. It gives nil without an error if another holds it,
// or it is gone.
func lockStagingDir(w resolver, root int, name string) (*stagingDir, error) {
	dir, err := openFolder(w, root, name)
	if errors.Is(err, syscall.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = retryEINTR(func() error { return syscall.Flock(dir, syscall.LOCK_EX|syscall.LOCK_NB) })
	if err == nil {
		if now, err := w.folder(root, name); err == nil {
			same := sameFile(dir, now)
			_ = syscall.Close(now)
			if same {
				return &stagingDir{resolver: w, root: root, name: name, dir: dir}, nil
			}
		}
	}
	_ = syscall.Close(dir)
	if err == nil || errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, err
}

// openFolder opens a folder so that it can be read and locked, whatever the umask made of its mode.
func openFolder(w resolver, at int, name string) (int, error) {
	held, err := w.folder(at, name)
	if err != nil {
		return -1, err
	}
	defer func() { _ = syscall.Close(held) }()
	if err := setOwnerMode(held); err != nil {
		return -1, err
	}
	return reopen(held)
}

// setOwnerMode gives a folder of ours its mode, if it does not have it. It goes by the descriptor:
// a name could be another's by now.
func setOwnerMode(held int) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(held, &st); err != nil || st.Mode&0o7777 == folderMode ||
		int(st.Uid) != syscall.Geteuid() {
		return err
	}
	return syscall.Chmod("/proc/self/fd/"+strconv.Itoa(held), folderMode)
}

// initialize takes from the folder what the root handed down to it, so that nothing in it inherits
// an access list or a group, and makes its tree.
func (s *stagingDir) initialize() error {
	for _, list := range []string{"system.posix_acl_access", "system.posix_acl_default"} {
		_ = removeXattr(s.dir, list) // most folders have none, and many file systems know none
	}
	if err := syscall.Fchmod(s.dir, folderMode); err != nil {
		return err
	}
	if err := syscall.Mkdirat(s.dir, treeName, folderMode); err != nil {
		return err
	}
	return s.openTree()
}

func (s *stagingDir) openTree() error {
	tree, err := s.resolver.folder(s.dir, treeName)
	if err != nil {
		return err
	}
	if err := setOwnerMode(tree); err != nil {
		_ = syscall.Close(tree)
		return err
	}
	s.made = newFolders(s.resolver, tree, maxCachedDirs)
	return nil
}

// folder gives a folder of the tree, and makes it with all that it lies in.
func (s *stagingDir) folder(name string) (int, error) {
	fd, err := s.made.get(name)
	if !errors.Is(err, syscall.ENOENT) {
		return fd, err
	}
	return s.make(name)
}

func (s *stagingDir) make(name string) (int, error) {
	above, base := split(name)
	parent, err := s.folder(above)
	if err != nil {
		return -1, err
	}
	if err := syscall.Mkdirat(parent, base, folderMode); err != nil {
		return -1, err
	}
	s.synced = false
	fd, err := s.made.get(name)
	if err != nil {
		return -1, err
	}
	return fd, setOwnerMode(fd)
}

// close lets the folder go, and removes it unless a recovery needs it. What cannot be removed now
// is the next recovery's.
func (s *stagingDir) close() {
	if !s.keep {
		_ = s.sweep()
	}
	if s.made != nil {
		s.made.close()
		_ = syscall.Close(s.made.base)
	}
	_ = syscall.Close(s.dir)
}

// lockRoot takes the lock that commits beneath a root have one after the other. It is a lock on the
// root folder itself; closing lets go.
func lockRoot(ctx context.Context, root int) (int, error) {
	fd, err := openat(root, ".", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return -1, opError("opening", ".", err)
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := retryEINTR(func() error { return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) })
		if err == nil {
			return fd, nil
		}
		if errors.Is(err, syscall.EWOULDBLOCK) {
			// the kernel's own queue could not be left when the context ends
			if err = pause(ctx, wait); err != nil {
				err = locked(err)
			}
		}
		if err != nil {
			_ = syscall.Close(fd)
			return -1, opError("locking", ".", err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ended(ctx)
	case <-timer.C:
		return nil
	}
}

// maxSweep is how deep a stage folder is swept; what is deeper is not ours.
const maxSweep = maxName/2 + 2

// sweep removes the stage folder, the journal first: what is left by a crash in between must not
// look as if it were to be finished.
func (s *stagingDir) sweep() error {
	err := unlink(s.dir, journalName, 0)
	if errors.Is(err, syscall.ENOENT) {
		err = nil
	}
	if err == nil {
		err = s.empty(s.dir, maxSweep)
	}
	if err == nil {
		err = unlink(s.root, s.name, atRemoveDir)
	}
	return opError("removing", s.name, err)
}

// empty removes all that a folder holds. It follows nothing and leaves mounts alone.
func (s *stagingDir) empty(dir, depth int) error {
	if depth == 0 {
		return syscall.ENAMETOOLONG
	}
	names, err := list(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		err := unlink(dir, name, 0)
		// EPERM is what POSIX says for a folder
		if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EPERM) {
			err = s.removeFolder(dir, name, depth)
		}
		if err != nil && !errors.Is(err, syscall.ENOENT) {
			return err
		}
	}
	return nil
}

func (s *stagingDir) removeFolder(dir int, name string, depth int) error {
	if err := unlink(dir, name, atRemoveDir); err == nil {
		return nil
	}
	below, err := s.resolver.folder(dir, name)
	if err != nil {
		return err
	}
	err = s.empty(below, depth-1)
	_ = syscall.Close(below)
	if err != nil {
		return err
	}
	return unlink(dir, name, atRemoveDir)
}

// list gives the names in a folder.
func list(dir int) ([]string, error) {
	fd, err := openat(dir, ".", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer func() { _ = f.Close() }()
	return f.Readdirnames(-1)
}
