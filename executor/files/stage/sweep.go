package stage

import (
	"errors"
	"os"
	"syscall"
)

// maxSweep is how deep a stage folder is swept; what is deeper is not ours.
const maxSweep = maxName/2 + 2

// sweep removes the stage folder, the journal first: what is left by a crash in between must not look as if it were to be finished.
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
		if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EPERM) { // EPERM is what POSIX says for a folder
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
