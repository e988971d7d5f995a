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
	"strconv"
	"strings"
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/stage"
)

// Local are the files beneath one folder, as this process may use them.
type Local struct{ root *os.Root }

// Open opens a folder as a root.
func Open(root string) (*Local, error) {
	// OpenRoot itself would wait for a FIFO's writer
	dir, err := os.OpenFile(root, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
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
	// what a file has on Linux
	d := fileInfo(info.Name(), info.Sys().(*syscall.Stat_t)) //nolint:forcetypeassert,errcheck
	if d.Type == "symlink" {
		d.Target, _ = l.root.Readlink(clean(name)) // a link that went meanwhile has no target
	}
	return d
}

// Open reads a regular file from an offset.
func (l *Local) Open(name string, offset int64) (io.ReadCloser, dray.FileInfo, error) {
	// a FIFO must not hold us
	f, err := l.root.OpenFile(clean(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
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

// regular is a file that was found to be one. Its errors have codes: a file of a failing disk or of
// the kernel's own may open and not be read.
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

// List gives at most limit entries of a folder, by name. To know the first by name, all names are
// read; they alone are kept.
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
func (l *Local) WriteTree(ctx context.Context, tree dray.Tree,
	how dray.WriteTreeOptions,
) (placed []dray.WrittenFile, err error) {
	err = l.withRoot(func(root *os.File) error {
		placed, err = stage.WriteTree(ctx, root, tree, how)
		return err
	})
	return placed, err
}

// Recover finishes or removes what processes that died in the middle of a Place left beneath the
// root, and says how many trees it finished; see [stage.Recover].
func (l *Local) Recover(ctx context.Context) (finished int, err error) {
	err = l.withRoot(func(root *os.File) error {
		finished, err = stage.Recover(ctx, root)
		return err
	})
	return finished, err
}

func (l *Local) withRoot(use func(root *os.File) error) error {
	root, err := l.root.Open(".")
	if err != nil {
		return classify(err)
	}
	defer func() { _ = root.Close() }()
	return use(root)
}

// descriptor is an open file. Tens of thousands of them pass through a collection, each for a few
// reads: an os.File, which the runtime polls and finalizes, would cost more than the file.
type descriptor int

// nowhere is no descriptor.
const nowhere descriptor = -1

// oPath is O_PATH: it opens a name without opening what is there, so that a FIFO waits for nobody
// and a device does nothing. Package syscall has no name for it; the number is that of amd64 and
// arm64.
const oPath = 0x200000

// at opens a single element of a path, never through a link.
func (d descriptor) at(element string, flags int) (descriptor, error) {
	return retried(func() (int, error) {
		return syscall.Openat(int(d), element, flags|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	})
}

// look opens a single element of a path with oPath, and says what it is.
func (d descriptor) look(element string, s *syscall.Stat_t) (descriptor, error) {
	there, err := d.at(element, oPath)
	if err != nil {
		return nowhere, err
	}
	if err := there.stat(s); err != nil {
		there.close()
		return nowhere, err
	}
	return there, nil
}

// reopen opens what a descriptor of oPath names: that very thing, not whatever has its name by now.
func (d descriptor) reopen(flags int) (descriptor, error) {
	return retried(func() (int, error) {
		return syscall.Open("/proc/self/fd/"+strconv.Itoa(int(d)),
			flags|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	})
}

func (d descriptor) stat(s *syscall.Stat_t) error {
	_, err := retried(func() (int, error) { return 0, syscall.Fstat(int(d), s) })
	return err
}

// names reads the names in a folder, in no order. Where there are more than most it fails with
// errTooMany.
func (d descriptor) names(buf []byte, most int) ([]string, error) {
	var names []string
	for {
		n, err := retried(func() (int, error) { return syscall.ReadDirent(int(d), buf) })
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			return names, nil
		}
		if _, _, names = syscall.ParseDirent(buf[:n], -1, names); len(names) > most {
			return nil, errTooMany
		}
	}
}

var errTooMany = errors.New("too many names")

// newNamesBuffer is room for names to be read into.
func newNamesBuffer() []byte { return make([]byte, 32<<10) }

func (d descriptor) read(p []byte) (int, error) {
	n, err := retried(func() (int, error) { return syscall.Read(int(d), p) })
	return int(n), err
}

func (d descriptor) close() {
	if d != nowhere {
		_ = syscall.Close(int(d)) // it was only read
	}
}

// retried repeats what a signal interrupted.
func retried(call func() (int, error)) (descriptor, error) {
	for {
		n, err := call()
		if err == nil {
			return descriptor(n), nil
		}
		if err != syscall.EINTR { //nolint:errorlint // as package syscall gives it
			return nowhere, err
		}
	}
}
