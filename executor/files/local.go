package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/dray-dev/dray"
)

// Local are the files beneath one folder, as this process may use them.
type Local struct{ root *os.Root }

// Open opens a folder as a root.
func Open(root string) (*Local, error) {
	dir, err := os.OpenFile(root, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0) // OpenRoot itself would wait for a FIFO's writer
	if err != nil {
		return nil, fmt.Errorf("opening the root: %w", err)
	}
	defer func() { _ = dir.Close() }()
	r, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return nil, fmt.Errorf("opening the root: %w", err)
	}
	return &Local{root: r}, nil
}

// Close ends the access.
func (l *Local) Close() error { return l.root.Close() }

// Stat describes what a name is, without following a link at its end.
func (l *Local) Stat(name string) (dray.FileInfo, error) {
	info, err := l.root.Lstat(clean(name))
	if err != nil {
		return dray.FileInfo{}, classify(err)
	}
	return l.describe(name, info), nil
}

func (l *Local) describe(name string, info fs.FileInfo) dray.FileInfo {
	d := fileInfo(info.Name(), info.Sys().(*syscall.Stat_t)) //nolint:forcetypeassert,errcheck // what a file has on Linux
	if d.Type == "symlink" {
		d.Target, _ = l.root.Readlink(clean(name)) // a link that went meanwhile has no target
	}
	return d
}

// Open reads a regular file from an offset.
func (l *Local) Open(name string, offset int64) (io.ReadCloser, dray.FileInfo, error) {
	f, err := l.root.OpenFile(clean(name), os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold us
	if err != nil {
		return nil, dray.FileInfo{}, classify(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = dray.Errorf(dray.CodePathInvalid, "%s is a %s, not a regular file", name, l.describe(name, info).Type)
	}
	if err == nil {
		_, err = f.Seek(offset, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, dray.FileInfo{}, classify(err)
	}
	return regular{f}, l.describe(name, info), nil
}

// regular is a file that was found to be one. Its errors have codes: a file of a failing disk or of the kernel's own may open and not be read.
type regular struct{ file *os.File }

func (f regular) Close() error { return classify(f.file.Close()) }

func (f regular) Read(p []byte) (int, error) {
	n, err := f.file.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = classify(err)
	}
	return n, err
}

// Create makes a new file that must not exist. The mode is exact, whatever the umask.
func (l *Local) Create(name string, mode fs.FileMode) (io.WriteCloser, error) {
	f, err := l.root.OpenFile(clean(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode.Perm())
	if err != nil {
		return nil, classify(err)
	}
	if err := f.Chmod(mode.Perm()); err != nil {
		_ = f.Close()
		return nil, classify(err)
	}
	return f, nil
}

// Rename replaces newName by oldName in one step.
func (l *Local) Rename(oldName, newName string) error {
	return classify(l.root.Rename(clean(oldName), clean(newName)))
}

// Remove removes one file or empty folder.
func (l *Local) Remove(name string) error { return classify(l.root.Remove(clean(name))) }

// List gives at most limit entries of a folder, by name. To know the first by name, all names are read; they alone are kept.
func (l *Local) List(name string, limit int) ([]dray.FileInfo, bool, error) {
	dir, err := l.root.OpenFile(clean(name), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, false, classify(err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, false, classify(err)
	}
	slices.Sort(names)
	limit = max(limit, 0)
	more := len(names) > limit
	entries := make([]dray.FileInfo, 0, min(len(names), limit))
	for _, n := range names[:min(len(names), limit)] {
		full := path.Join(clean(name), n)
		if info, err := l.root.Lstat(full); err == nil { // one that went meanwhile is not there
			entries = append(entries, l.describe(full, info))
		}
	}
	return entries, more, nil
}

// clean makes a name relative to the root. ".." stays for os.Root to judge.
func clean(name string) string {
	name = strings.TrimLeft(name, "/")
	if name == "" {
		return "."
	}
	return name
}

// classify gives errors that are not about existence or permission a code of the closed list.
func classify(err error) error {
	var coded *dray.Error
	switch {
	case err == nil, errors.As(err, &coded), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrPermission):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return dray.Errorf(dray.CodeDiskFull, "%w", err)
	default:
		return dray.Errorf(dray.CodePathInvalid, "%w", err)
	}
}
