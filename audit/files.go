package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// openedFile is a file or directory that the store has open. While it is open, no other one gets
// its inode.
type openedFile struct {
	path     string
	dev, ino uint64
	// size is the largest size that was seen of a regular file, which never becomes smaller.
	size *atomic.Int64
}

// openedFiles are all without which a record is lost: SQLite goes on writing to a file that was
// removed or moved.
type openedFiles []openedFile

func identifyFiles(paths ...string) (openedFiles, error) {
	var all openedFiles
	for _, path := range paths {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return nil, fmt.Errorf("stat %s: %w", path, err)
		}
		all = append(all, openedFile{path, st.Dev, st.Ino, new(atomic.Int64)})
	}
	return all, nil
}

// check returns a *displacedError unless each path still leads to the same file, with its contents.
func (all openedFiles) check() error {
	for _, f := range all {
		largest := f.size.Load() // before the file is looked at: another call may see it grow
		var now unix.Stat_t
		switch err := unix.Lstat(f.path, &now); {
		case errors.Is(err, fs.ErrNotExist):
			return &displacedError{f.path, "was removed or moved"}
		case err != nil:
			return &displacedError{f.path, "cannot be found: " + err.Error()}
		case now.Dev != f.dev || now.Ino != f.ino:
			return &displacedError{f.path, "was replaced"}
		case now.Mode&unix.S_IFMT != unix.S_IFREG:
		case now.Size < largest:
			return &displacedError{f.path, "was cut short"}
		default:
			f.size.CompareAndSwap(largest, now.Size) // else another call has seen it later
		}
	}
	return nil
}

// displacedError is returned when a path does not lead to the file that the store has open.
type displacedError struct{ path, what string }

func (e *displacedError) Error() string {
	return fmt.Sprintf("%s %s while the daemon runs", e.path, e.what)
}

func isDisplaced(err error) bool {
	_, ok := errors.AsType[*displacedError](err)
	return ok
}
