package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
)

// ResultsDirs makes a directory for the result files of each call, in a directory of its own that
// tools cannot change, so that no tool can replace the directory of its call. A process that dies
// leaves its directories; the next one that opens ResultsDirs at the same place removes them. It is
// safe for concurrent use.
type ResultsDirs struct {
	path   string
	parent fd // has the lock
	mu     sync.Mutex
	made   uint64 // how many directories were made; the name of each is its number
}

// resultsPrefix starts the names of the directories that hold those of the calls.
const resultsPrefix = ".dray-results-"

// OpenResultsDirs uses the first of the directories in which it may create one.
func OpenResultsDirs(bases ...string) (*ResultsDirs, error) {
	var failures []error
	for _, base := range bases {
		r, err := openResultsDirs(base)
		if err == nil {
			return r, nil
		}
		failures = append(failures, err)
	}
	return nil, fmt.Errorf("no directory for result files: %w", errors.Join(failures...))
}

func openResultsDirs(base string) (*ResultsDirs, error) {
	n, err := linux.Openat(unix.AT_FDCWD, base, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", base, err)
	}
	dir := fd(n)
	defer dir.close()
	dir.removeStaleResults()
	var random [8]byte
	for {
		if _, err := unix.Getrandom(random[:], 0); err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%s%x", resultsPrefix, random)
		if err := unix.Mkdirat(n, name, 0o755); err != nil {
			return nil, fmt.Errorf("make a directory in %s: %w", base, err)
		}
		if parent := dir.lockResults(name); parent != noFD {
			return &ResultsDirs{path: path.Join(base, name), parent: parent},
				unix.Fchmod(int(parent), 0o755)
		}
	}
}

// lockResults opens and locks a directory of this user. It returns noFD if another process has
// locked it, or if it was removed.
func (d fd) lockResults(name string) fd {
	dir, err := d.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return noFD
	}
	var st, now unix.Stat_t
	err = unix.Flock(int(dir), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = errors.Join(linux.Stat(int(dir), &st),
			unix.Fstatat(int(d), name, &now, unix.AT_SYMLINK_NOFOLLOW))
	}
	if err != nil || st.Ino != now.Ino || int(st.Uid) != unix.Geteuid() {
		dir.close()
		return noFD
	}
	return dir
}

// removeStaleResults removes what processes that died have left.
func (d fd) removeStaleResults() {
	names, err := d.names(newNamesBuffer(), maxStale)
	if err != nil {
		return // nothing can be created in it either
	}
	for _, name := range names {
		if !strings.HasPrefix(name, resultsPrefix) {
			continue
		}
		if stale := d.lockResults(name); stale != noFD {
			_ = stale.removeContent()
			_ = unix.Unlinkat(int(d), name, unix.AT_REMOVEDIR)
			stale.close()
		}
	}
}

// maxStale bounds the names that are looked at for directories of processes that died.
const maxStale = 100_000

// Make makes an empty directory of a user with mode 0700, and returns its path.
func (r *ResultsDirs) Make(uid, gid int) (string, error) {
	r.mu.Lock()
	r.made++
	name := strconv.FormatUint(r.made, 10)
	r.mu.Unlock()
	err := unix.Mkdirat(int(r.parent), name, 0o700)
	if err == nil && (uid != unix.Geteuid() || gid != unix.Getegid()) {
		err = unix.Fchownat(int(r.parent), name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			_ = unix.Unlinkat(int(r.parent), name, unix.AT_REMOVEDIR)
		}
	}
	if err != nil {
		return "", fmt.Errorf("make a directory in %s: %w", r.path, err)
	}
	return path.Join(r.path, name), nil
}

// RemoveEmpty removes a directory that Make returned, and reports false if it is not empty.
func (r *ResultsDirs) RemoveEmpty(dir string) bool {
	err := unix.Unlinkat(int(r.parent), path.Base(dir), unix.AT_REMOVEDIR)
	return err == nil || errors.Is(err, unix.ENOENT)
}

// TakeSessionState removes the directory if it is empty, and reports false if it is not. Before it
// removes the session state in it and returns that (SS-01).
func (r *ResultsDirs) TakeSessionState(dir string) (state []byte, empty bool) {
	if r.RemoveEmpty(dir) {
		return nil, true
	}
	d, err := r.parent.open(path.Base(dir), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, false
	}
	state = d.readSessionState()
	_ = unix.Unlinkat(int(d), dray.SessionStateName, 0)
	d.close()
	return state, r.RemoveEmpty(dir)
}

// readSessionState returns the file that the shell of a session left in its directory. The tool can
// put anything there, so only a regular file without other names is read, of the directory's owner:
// a hard link could be a file that the tool cannot read itself.
func (d fd) readSessionState() []byte {
	f, err := d.open(dray.SessionStateName, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(f), dray.SessionStateName)
	defer func() { _ = file.Close() }()
	var own, st unix.Stat_t
	if linux.Stat(int(d), &own) != nil || linux.Stat(int(f), &st) != nil ||
		st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || st.Uid != own.Uid {
		return nil
	}
	state, err := io.ReadAll(io.LimitReader(file, dray.MaxSessionState+1))
	if err != nil || len(state) > dray.MaxSessionState {
		return nil
	}
	return state
}

// Remove removes a directory that Make returned, with its content. It follows no symlinks and
// leaves mounts alone.
func (r *ResultsDirs) Remove(dir string) error { return r.parent.removeDir(path.Base(dir)) }

// Close removes all directories. Nothing may use them any more.
func (r *ResultsDirs) Close() error {
	err := r.parent.removeContent()
	r.parent.close()
	return errors.Join(err, ignoreAbsent(unix.Rmdir(r.path)))
}

func ignoreAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// removeDir removes a directory with its content, or whatever has its name now.
func (d fd) removeDir(name string) error {
	err := unix.Unlinkat(int(d), name, 0)
	if !isDirError(err) {
		return ignoreAbsent(err)
	}
	dir, err := d.openToRemove(name)
	if err == nil {
		err = dir.removeContent()
		dir.close()
	}
	if err == nil {
		err = unix.Unlinkat(int(d), name, unix.AT_REMOVEDIR)
	}
	return ignoreAbsent(err)
}

// isDirError reports whether a name was not removed because it is a directory. POSIX has EPERM.
func isDirError(err error) bool { return errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) }

// removeContent removes everything in a directory, however deep.
func (d fd) removeContent() error {
	var st unix.Stat_t
	if err := linux.Stat(int(d), &st); err != nil {
		return err
	}
	r := remover{
		top: d, dev: st.Dev, buf: newNamesBuffer(), deadline: time.Now().Add(removeTimeout),
	}
	return r.empty(d, maxRemoveDepth)
}

const (
	// maxRemoveDepth bounds the directories that a removal has open.
	maxRemoveDepth = 64
	// removeTimeout bounds a removal: processes of a call that were kept may create files meanwhile.
	removeTimeout = time.Minute
)

// remover removes the content of a directory. What is deeper than maxRemoveDepth it first moves up
// to that directory.
type remover struct {
	top      fd
	dev      uint64
	buf      []byte
	deadline time.Time
	moved    int
}

func (r *remover) empty(dir fd, depth int) error {
	for time.Now().Before(r.deadline) {
		if _, err := unix.Seek(int(dir), 0, io.SeekStart); err != nil {
			return err
		}
		n, err := linux.RetryValue(func() (int, error) { return unix.ReadDirent(int(dir), r.buf) })
		if err != nil {
			return err
		}
		_, _, names := unix.ParseDirent(r.buf[:max(n, 0)], -1, nil)
		if len(names) == 0 {
			return nil
		}
		for _, name := range names {
			err := r.remove(dir, name, depth)
			// EEXIST: the new name is taken; the next round tries another one
			if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EEXIST) {
				return err
			}
		}
	}
	return os.ErrDeadlineExceeded
}

func (r *remover) remove(dir fd, name string, depth int) error {
	err := unix.Unlinkat(int(dir), name, 0)
	if !isDirError(err) {
		return err
	}
	below, err := dir.openToRemove(name)
	if err != nil {
		return err
	}
	defer below.close()
	var st unix.Stat_t
	err = linux.Stat(int(below), &st)
	switch {
	case err != nil:
		return err
	case st.Dev != r.dev:
		return unix.EXDEV // a mount
	case depth == 0:
		r.moved++
		return linux.Rename(int(dir), name, int(r.top), fmt.Sprintf("%s%d", resultsPrefix, r.moved),
			unix.RENAME_NOREPLACE)
	}
	if err := r.empty(below, depth-1); err != nil {
		return err
	}
	return unix.Unlinkat(int(dir), name, unix.AT_REMOVEDIR)
}

// openToRemove opens a directory, whatever mode its owner gave it.
func (d fd) openToRemove(name string) (fd, error) {
	dir, err := d.open(name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return noFD, err
	}
	defer dir.close()
	_ = unix.Chmod("/proc/self/fd/"+strconv.Itoa(int(dir)), 0o700) // only the owner may, or needs to
	return dir.reopen(unix.O_RDONLY | unix.O_DIRECTORY)
}
