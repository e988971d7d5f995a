package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Locks of the state folder. The kernel lets them go with the process that holds them, however it ended.
const (
	startLock  = "start.lock"  // held while a command starts the daemon
	daemonLock = "daemon.lock" // held by the daemon as long as it lives
)

// errLocked says that another process holds a lock.
var errLocked = errors.New("another process holds the lock")

// lock is an exclusive lock on a file. It belongs to the open file and not to the process (F_OFD_SETLK), so that two in one process exclude each
// other too, and that it can be asked for without being taken.
type lock struct{ file *os.File }

// tryLock takes the lock on a file, which it makes where it is missing, or fails with errLocked at once.
func tryLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a lock: %w", err)
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, wholeFile())
	if err == nil {
		return &lock{file: f}, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("locking %s: %w", path, err)
}

// locked says whether a lock is held, without taking it.
func locked(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening a lock: %w", err)
	}
	defer f.Close()
	asked := wholeFile()
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, asked); err != nil {
		return false, fmt.Errorf("asking for the lock on %s: %w", path, err)
	}
	return asked.Type != unix.F_UNLCK, nil
}

// unlock lets the lock go. The file stays: to remove it would let two processes hold the locks on two files of one name.
func (l *lock) unlock() { _ = l.file.Close() }

func wholeFile() *unix.Flock_t {
	return &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
}
