package audit

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// openedFile is a file or directory that the store has open. While it is open, no other one gets
// its inode.
type openedFile struct {
	path     string
	dev, ino uint64
}

// openedFiles are all without which a record is lost: SQLite goes on writing to a file that was
// removed or moved.
type openedFiles []openedFile

func identifyFiles(paths ...string) (openedFiles, error) {
	var all openedFiles
	for _, path := range paths {
		f, err := identify(path)
		if err != nil {
			return nil, fmt.Errorf("stat %s: %w", path, err)
		}
		all = append(all, f)
	}
	return all, nil
}

func identify(path string) (openedFile, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return openedFile{path: path, dev: st.Dev, ino: st.Ino}, err
}

// check returns a *displacedError unless each path still leads to the same file.
func (all openedFiles) check() error {
	for _, f := range all {
		switch now, err := identify(f.path); {
		case errors.Is(err, fs.ErrNotExist):
			return &displacedError{f.path, "was removed or moved"}
		case err != nil:
			return &displacedError{f.path, "cannot be found: " + err.Error()}
		case now != f:
			return &displacedError{f.path, "was replaced"}
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
