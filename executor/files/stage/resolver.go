package stage

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/internal/linux"
)

const resolveFlags = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS |
	unix.RESOLVE_NO_MAGICLINKS

// resolver opens names beneath a directory. Without openat2 it opens one component after the other,
// and finds a bind mount of the same file system only when a rename into it fails.
type resolver struct{ noOpenat2 bool }

func newResolver() resolver { return resolver{noOpenat2: !linux.HasOpenat2()} }

// open opens a name of one or more components, none of which may be a symlink or a mount point.
// With O_PATH the last one may be a symlink, which is opened itself. It never blocks on a FIFO.
func (r resolver) open(dir int, name string, flags int) (int, error) {
	flags |= unix.O_NOFOLLOW
	if flags&unix.O_PATH == 0 { // openat2 refuses the two with O_PATH
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	if r.noOpenat2 {
		return openStepwise(dir, name, flags)
	}
	return linux.Openat2(dir, name, flags, resolveFlags)
}

// openDir opens a directory as a base for other names.
func (r resolver) openDir(dir int, name string) (int, error) {
	return r.open(dir, name, unix.O_PATH|unix.O_DIRECTORY)
}

func openStepwise(dir int, name string, flags int) (int, error) {
	var root, st unix.Stat_t
	if err := linux.Stat(dir, &root); err != nil {
		return -1, err
	}
	at := dir
	for {
		first, rest, more := strings.Cut(name, "/")
		how := flags
		if more {
			how = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW
		}
		fd, err := linux.Openat(at, first, how, 0)
		if at != dir {
			linux.Close(at)
		}
		if err != nil {
			return -1, err
		}
		if err := linux.Stat(fd, &st); err != nil || st.Dev != root.Dev {
			linux.Close(fd)
			return -1, unix.EXDEV
		}
		if !more {
			return fd, nil
		}
		at, name = fd, rest
	}
}

// stat describes the file with a name. It follows no symlink.
func (r resolver) stat(dir int, name string, st *unix.Stat_t) error {
	fd, err := r.open(dir, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer linux.Close(fd)
	return linux.Stat(fd, st)
}

// isAt reports whether a directory is still the one with that name.
func (r resolver) isAt(parent int, base string, dir int) (bool, error) {
	var one, two unix.Stat_t
	err := errors.Join(linux.Stat(dir, &one), r.stat(parent, base, &two))
	return isSame(&one, &two), err
}

func isSame(a, b *unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

func isDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

type kind int

const (
	absent kind = iota
	regular
	directory
	other // a symlink, device, FIFO or socket: replaced, never opened
)

type digest [sha256.Size]byte

// fileState describes the file with a name.
type fileState struct {
	kind kind
	stat unix.Stat_t
	sum  digest // of a regular file
}

// unchanged reports whether the file is what it would be replaced by. A file with another owner or
// another hard link is not: its content could change through that.
func (f *fileState) unchanged(it *item) bool {
	return f.kind == regular && f.stat.Size == it.size && f.sum == it.sum &&
		f.stat.Mode&0o7777 == it.mode && f.stat.Nlink == 1 && int(f.stat.Uid) == unix.Geteuid()
}

// sameAs reports whether a file was not modified between two inspections.
func (f *fileState) sameAs(g *fileState) bool {
	a, b := &f.stat, &g.stat
	return f.kind == g.kind && a.Dev == b.Dev && a.Ino == b.Ino && a.Size == b.Size &&
		a.Mode == b.Mode && a.Nlink == b.Nlink && a.Uid == b.Uid &&
		a.Mtim == b.Mtim && a.Ctim == b.Ctim
}

// inspect describes the file with a name. It takes the digest from known if that is the same,
// unmodified file; otherwise it reads the file.
func (r resolver) inspect(ctx context.Context, dir int, base string, known *fileState, buf []byte,
) (f fileState, err error) {
	fd, err := r.open(dir, base, unix.O_PATH)
	if errors.Is(err, unix.ENOENT) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	defer linux.Close(fd)
	if err := linux.Stat(fd, &f.stat); err != nil {
		return fileState{}, err
	}
	switch f.stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		f.kind = regular
	case unix.S_IFDIR:
		f.kind = directory
	default:
		f.kind = other
	}
	switch {
	case f.kind != regular:
	case known != nil && f.sameAs(known):
		f.sum = known.sum
	default:
		f.sum, err = digestOf(ctx, fd, buf)
	}
	return f, err
}

// digestOf reads the file that an O_PATH fd refers to.
func digestOf(ctx context.Context, fd int, buf []byte) (sum digest, err error) {
	file, err := linux.Reopen(fd, unix.O_RDONLY)
	if err != nil {
		return sum, err
	}
	defer linux.Close(file)
	h := sha256.New()
	for {
		n, err := linux.RetryValue(func() (int, error) { return unix.Read(file, buf) })
		if err != nil {
			return sum, err
		}
		if n == 0 {
			return digest(h.Sum(nil)), nil
		}
		_, _ = h.Write(buf[:n])
		if err := ended(ctx); err != nil {
			return sum, err
		}
	}
}

// maxCachedDirs is how many directories stay open while contents arrive. Trees come directory by
// directory, so few are in use at a time.
const maxCachedDirs = 128

// dirCache has open directories beneath a base directory, by name. With maxOpen the fd of a
// directory is valid until the next get. Without it the fd is valid until close, and each directory
// is opened from its parent, so that all of them are one hierarchy.
type dirCache struct {
	resolver
	base    int
	open    map[string]int
	maxOpen int
}

func newDirCache(r resolver, base, maxOpen int) *dirCache {
	return &dirCache{resolver: r, base: base, open: map[string]int{}, maxOpen: maxOpen}
}

// get returns the fd of a directory. The empty name is the base.
func (c *dirCache) get(name string) (int, error) {
	if name == "" {
		return c.base, nil
	}
	if fd, ok := c.open[name]; ok {
		return fd, nil
	}
	dir, rest := c.base, name
	if c.maxOpen == 0 {
		above, base := split(name)
		parent, err := c.get(above)
		if err != nil {
			return -1, err
		}
		dir, rest = parent, base
	} else if len(c.open) >= c.maxOpen {
		c.close()
	}
	fd, err := c.openDir(dir, rest)
	if err != nil {
		return -1, err
	}
	c.open[name] = fd
	return fd, nil
}

// verifyUnmoved fails if a held directory is not at its name any more, except those that the commit
// itself has replaced.
func (c *dirCache) verifyUnmoved(replaced map[string]bool) error {
	for name, fd := range c.open {
		if replaced[name] {
			continue
		}
		above, base := split(name)
		parent, err := c.get(above)
		if err != nil {
			return opError("open the directory", above, err)
		}
		same, err := c.isAt(parent, base, fd)
		if err != nil {
			return opError("open the directory", name, err)
		}
		if !same {
			return invalid(name, "was replaced during the commit")
		}
	}
	return nil
}

func (c *dirCache) close() {
	for name, fd := range c.open {
		linux.Close(fd)
		delete(c.open, name)
	}
}

// split returns the directory of a name, empty for the root's own files, and the base name.
func split(name string) (dir, base string) {
	i := strings.LastIndexByte(name, '/')
	return name[:max(i, 0)], name[i+1:]
}
