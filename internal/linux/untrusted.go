package linux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// UntrustedDir is the absolute path of a directory with untrusted content, such as a workspace. Its
// methods look at files for which that content gives a path, in the directory or outside of it.
//
// They open nothing for reading before they know what it is: a regular file, or a directory to
// list. To open a FIFO or a terminal can block, and to open or read a device can change its state.
// They look up no name outside of the mount of the directory, which its user chose, and of disk
// file systems, see diskTypes. Files of /proc and /sys are regular too and act as devices do, an
// automount directory makes the kernel mount what a path names, and a FUSE or network server can
// block a reader for as long as it likes.
//
// Each method returns when ctx is done, and after untrustedTimeout, even if the kernel does not
// return: see await. Names must be absolute. Errors are *fs.PathError.
type UntrustedDir string

// Errors of UntrustedDir.
var (
	// ErrNotRegular is returned for a file that is neither regular nor a directory, or not the one
	// of them that is required.
	ErrNotRegular = errors.New("not a regular file")
	// ErrFileSystem is returned for a path that leads to a file system that is not opened.
	ErrFileSystem = errors.New("neither a disk file system nor that of the directory")
	// ErrTooLarge is returned for a file or a directory above the limit of the caller.
	ErrTooLarge = errors.New("file too large")
)

// StatDir describes the directory itself, as os.Stat does: its user chose it.
func (d UntrustedDir) StatDir(ctx context.Context) (fs.FileInfo, error) {
	return await(ctx, d, string(d), func() (fs.FileInfo, error) { return os.Stat(string(d)) })
}

// Stat describes a file, as os.Stat does.
func (d UntrustedDir) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	return d.stat(ctx, name, followAll)
}

// Lstat describes a file and does not follow a symlink in its last segment.
func (d UntrustedDir) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	return d.stat(ctx, name, keepLast)
}

func (d UntrustedDir) stat(ctx context.Context, name string, links symlinks) (fs.FileInfo, error) {
	return await(ctx, d, name, func() (fs.FileInfo, error) {
		fd, err := d.lookup(name, links)
		if err != nil {
			return nil, err
		}
		f := os.NewFile(uintptr(fd), name)
		defer func() { _ = f.Close() }()
		return f.Stat()
	})
}

// StatAll describes files as Stat does, in one step. The result has a zero Stat_t, whose mode has
// no type, for each file that cannot be described. It fails only if the wait ends early.
func (d UntrustedDir) StatAll(ctx context.Context, names []string) ([]unix.Stat_t, error) {
	return await(ctx, d, string(d), func() ([]unix.Stat_t, error) {
		list := make([]unix.Stat_t, len(names))
		for i, name := range names {
			if fd, err := d.lookup(name, followAll); err == nil {
				if Stat(fd, &list[i]) != nil {
					list[i] = unix.Stat_t{}
				}
				Close(fd)
			}
		}
		return list, nil
	})
}

// ReadFile returns the content of a regular file of at most limit bytes.
func (d UntrustedDir) ReadFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	return d.readFile(ctx, name, limit, followAll)
}

// ReadOwnFile is ReadFile for a file of the directory itself: it fails with ELOOP if a segment of
// its path below the directory is a symlink.
func (d UntrustedDir) ReadOwnFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	return d.readFile(ctx, name, limit, refuseAll)
}

func (d UntrustedDir) readFile(ctx context.Context, name string, limit int64, links symlinks,
) ([]byte, error) {
	return await(ctx, d, name, func() ([]byte, error) {
		f, err := d.open(name, links, fs.FileMode.IsRegular, unix.O_RDONLY)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		if info, err := f.Stat(); err != nil || info.Size() > limit {
			return nil, cmp.Or(err, tooLarge(name, limit, "bytes")) // a sparse file is read slowly too
		}
		data, err := io.ReadAll(io.LimitReader(f, limit+1))
		if err == nil && int64(len(data)) > limit {
			err = tooLarge(name, limit, "bytes")
		}
		return data, err
	})
}

// ReadDir returns the entries of a directory of at most limit entries, sorted by name. Only their
// names and types may be used.
func (d UntrustedDir) ReadDir(ctx context.Context, name string, limit int) ([]fs.DirEntry, error) {
	return await(ctx, d, name, func() ([]fs.DirEntry, error) {
		f, err := d.open(name, followAll, fs.FileMode.IsDir, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		list, err := f.ReadDir(limit + 1)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(list) > limit {
			return nil, tooLarge(name, int64(limit), "entries")
		}
		slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		return list, nil
	})
}

// Readlink returns the target of a symlink.
func (d UntrustedDir) Readlink(ctx context.Context, name string) (string, error) {
	return await(ctx, d, name, func() (string, error) {
		fd, err := d.lookup(name, keepLast)
		if err != nil {
			return "", err
		}
		defer Close(fd)
		target, err := readlink(fd)
		return target, pathError("readlink", name, err)
	})
}

// RealPath returns a path without symlinks, as filepath.EvalSymlinks does.
func (d UntrustedDir) RealPath(ctx context.Context, name string) (string, error) {
	return await(ctx, d, name, func() (string, error) {
		fd, err := d.lookup(name, followAll)
		if err != nil {
			return "", err
		}
		defer Close(fd)
		return os.Readlink(procPath(fd))
	})
}

// open opens a file for reading whose mode is accepted. It fails with ErrNotRegular for others.
func (d UntrustedDir) open(name string, links symlinks, accept func(fs.FileMode) bool, flags int,
) (*os.File, error) {
	fd, err := d.lookup(name, links)
	if err != nil {
		return nil, err
	}
	found := os.NewFile(uintptr(fd), name)
	defer func() { _ = found.Close() }()
	info, err := found.Stat()
	if err != nil {
		return nil, err
	}
	if !accept(info.Mode()) {
		return nil, pathError("open", name, ErrNotRegular)
	}
	opened, err := Reopen(fd, flags) // a lease on the file does not block it
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return os.NewFile(uintptr(opened), name), nil
}

// lookup returns an O_PATH fd of a file.
func (d UntrustedDir) lookup(name string, links symlinks) (int, error) {
	fd, err := lookupUntrusted(string(d), name, links)
	return fd, pathError("open", name, err)
}

// pathError adds the operation and the path to an error other than nil.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func tooLarge(name string, limit int64, unit string) error {
	return pathError("read", name, fmt.Errorf("%w: more than %d %s", ErrTooLarge, limit, unit))
}

// IsAbsent reports whether an error says that a path does not exist.
func IsAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}
