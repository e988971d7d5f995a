package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/stage"
	"github.com/dray-dev/dray/internal/linux"
)

// Local accesses the files beneath a directory as the user of this process. It implements
// dray.Files and is safe for concurrent use.
type Local struct{ root *os.Root }

// Open opens a directory as a root.
func Open(root string) (*Local, error) {
	// OpenRoot alone would block on a FIFO
	dir, err := os.OpenFile(root, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	var opened *os.Root
	if err == nil {
		defer func() { _ = dir.Close() }()
		opened, err = os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	}
	if err != nil {
		return nil, fmt.Errorf("open the root: %w", err)
	}
	return &Local{root: opened}, nil
}

// Close closes the root.
func (l *Local) Close() error { return l.root.Close() }

// RealPath returns the absolute path of the root, without symlinks, wherever it is by now.
func (l *Local) RealPath() (path string, err error) {
	err = l.withRoot(func(root *os.File) error {
		path, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", root.Fd()))
		return err
	})
	return path, err
}

// Stat describes a file. It does not follow a symlink.
func (l *Local) Stat(name string) (dray.FileInfo, error) {
	info, err := l.root.Lstat(clean(name))
	if err != nil {
		return dray.FileInfo{}, classify(err)
	}
	return l.describe(name, info), nil
}

func (l *Local) describe(name string, info fs.FileInfo) dray.FileInfo {
	d := dray.FileInfo{
		Name: info.Name(), Type: "other", Size: info.Size(), Mode: info.Mode().Perm(),
		Modified: info.ModTime().UTC(),
	}
	switch info.Mode().Type() {
	case 0:
		d.Type = "file"
	case fs.ModeDir:
		d.Type = "directory"
	case fs.ModeSymlink:
		d.Type = "symlink"
		d.Target, _ = l.root.Readlink(clean(name)) // empty if the symlink was removed meanwhile
	}
	return d
}

// Open opens a regular file for reading from an offset.
func (l *Local) Open(name string, offset int64) (io.ReadCloser, dray.FileInfo, error) {
	f, err := l.root.OpenFile(clean(name), os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not block
	if err != nil {
		return nil, dray.FileInfo{}, classify(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = dray.Errorf(dray.CodePathInvalid, "%s is a %s, not a regular file", name,
			l.describe(name, info).Type)
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

// regular is a regular file whose errors have codes.
type regular struct{ file *os.File }

func (f regular) Close() error { return classify(f.file.Close()) }

func (f regular) Read(p []byte) (int, error) {
	n, err := f.file.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = classify(err)
	}
	return n, err
}

// Create creates a file that must not exist, with exactly that mode, whatever the umask.
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

// Rename replaces newName with oldName in one step.
func (l *Local) Rename(oldName, newName string) error {
	return classify(l.root.Rename(clean(oldName), clean(newName)))
}

// Remove removes a file or an empty directory.
func (l *Local) Remove(name string) error { return classify(l.root.Remove(clean(name))) }

// List returns at most limit entries of a directory in the order of their names, and reports
// whether there are more.
func (l *Local) List(name string, limit int) ([]dray.FileInfo, bool, error) {
	dir, err := l.openDir(name)
	if err != nil {
		return nil, false, classify(err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, false, classify(err)
	}
	slices.Sort(names)
	count := min(len(names), max(limit, 0))
	entries := make([]dray.FileInfo, 0, count)
	for _, n := range names[:count] {
		full := path.Join(clean(name), n)
		if info, err := l.root.Lstat(full); err == nil { // a removed file is omitted
			entries = append(entries, l.describe(full, info))
		}
	}
	return entries, len(names) > count, nil
}

func (l *Local) openDir(name string) (*os.File, error) {
	return l.root.OpenFile(clean(name), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_DIRECTORY, 0)
}

// clean returns a name relative to the root. os.Root handles "..".
func clean(name string) string {
	name = strings.TrimLeft(name, "/")
	if name == "" {
		return "."
	}
	return name
}

// classify adds a code to errors that are not about existence or permission.
func classify(err error) error {
	var coded *dray.Error
	switch {
	case err == nil, errors.As(err, &coded), errors.Is(err, fs.ErrNotExist),
		errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrPermission):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return dray.Errorf(dray.CodeDiskFull, "%w", err)
	default:
		return dray.Errorf(dray.CodePathInvalid, "%w", err)
	}
}

// WriteTree writes a tree beneath the root, all of it or nothing; see [stage.WriteTree]. It does
// not close the tree.
func (l *Local) WriteTree(ctx context.Context, tree dray.Tree, how dray.WriteTreeOptions,
) (written []dray.WrittenFile, err error) {
	err = l.withRoot(func(root *os.File) error {
		written, err = stage.WriteTree(ctx, root, tree, how)
		return err
	})
	return written, err
}

// Recover completes or removes what processes that died during WriteTree left beneath the root, and
// returns how many writes it completed; see [stage.Recover].
func (l *Local) Recover(ctx context.Context, how dray.WriteTreeOptions) (completed int, err error) {
	err = l.withRoot(func(root *os.File) error {
		completed, err = stage.Recover(ctx, root, how)
		return err
	})
	return completed, err
}

func (l *Local) withRoot(use func(root *os.File) error) error {
	root, err := l.openDir(".")
	if err != nil {
		return classify(err)
	}
	defer func() { _ = root.Close() }()
	return use(root)
}

// fd is an open file. ReadTree and Walk open tens of thousands of them for a few reads each; an
// os.File, which the runtime polls and finalizes, would cost more than the file.
type fd int

const noFD fd = -1

// open opens one component of a path, never through a symlink.
func (d fd) open(component string, flags int) (fd, error) {
	n, err := linux.Openat(int(d), component, flags|unix.O_NOFOLLOW, 0)
	return fd(n), err
}

// openFD opens a directory for reading its names.
func (l *Local) openFD(name string) (fd, error) {
	dir, err := l.openDir(name)
	if err != nil {
		return noFD, err
	}
	defer func() { _ = dir.Close() }()
	return fd(dir.Fd()).openDir()
}

// openDir opens the directory itself again, for reading its names.
func (d fd) openDir() (fd, error) { return d.open(".", unix.O_RDONLY|unix.O_DIRECTORY) }

// inspect opens one component of a path with O_PATH, which neither blocks on a FIFO nor affects a
// device, and describes it.
func (d fd) inspect(component string, st *unix.Stat_t) (fd, error) {
	f, err := d.open(component, unix.O_PATH)
	if err != nil {
		return noFD, err
	}
	if err := linux.Stat(int(f), st); err != nil {
		f.close()
		return noFD, err
	}
	return f, nil
}

// reopen opens the file that an O_PATH fd refers to, not whatever has its name by now.
func (d fd) reopen(flags int) (fd, error) {
	n, err := linux.Reopen(int(d), flags)
	return fd(n), err
}

func (d fd) read(p []byte) (int, error) {
	return linux.RetryValue(func() (int, error) { return unix.Read(int(d), p) })
}

func (d fd) close() { linux.Close(int(d)) }

var errTooMany = errors.New("too many names")

// newNamesBuffer returns a buffer for names.
func newNamesBuffer() []byte { return make([]byte, 32<<10) }

// names returns the sorted names in a directory. It fails with errTooMany if there are more than
// limit.
func (d fd) names(buf []byte, limit int) ([]string, error) {
	var names []string
	for {
		n, err := linux.RetryValue(func() (int, error) { return unix.ReadDirent(int(d), buf) })
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			slices.Sort(names)
			return names, nil
		}
		if _, _, names = unix.ParseDirent(buf[:n], -1, names); len(names) > limit {
			return nil, errTooMany
		}
	}
}
