package tool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// symlinkGuard holds the names of files in an output against the links that stand on the host
// (PM-12): a tool may have put one into a shared folder that means a file of its container there,
// and any file of the host here. It is used by one goroutine.
type symlinkGuard struct {
	// roots are the host roots of the mappings, opened when the first path needs them; nil is one that
	// the host does not have.
	roots map[string]*os.File
	// links says that the last name of a path may itself be a link, which the output then tells.
	links bool
	// lastChecked is the name that was found to be fine last: a list of findings has many in one file.
	lastChecked string
}

// check says why a name must not be handed on; it lies under root. That holds for the moment: who
// opens the file later has to do that beneath the root, too. A file that is not there yet leads
// nowhere.
func (b *symlinkGuard) check(root, name string) error {
	if name == b.lastChecked {
		return nil
	}
	err := b.resolveOnHost(root, name)
	if err == nil {
		b.lastChecked = name
	}
	return err
}

func (b *symlinkGuard) resolveOnHost(root, name string) error {
	below := strings.TrimLeft(strings.TrimPrefix(name, root), "/")
	if below == "" {
		return nil // it is the root itself, which may be a single file
	}
	dir, err := b.open(root)
	if err != nil {
		return escapesRootError(name, err)
	}
	if dir == nil {
		return nil
	}
	err = b.resolve(dir, below)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil
	case errors.Is(err, unix.EXDEV):
		return dray.Errorf(dray.CodePathInvalid, "a link on the host leads %q out of %q", name, root).
			WithHint("have the tool write a file in place of the link, or a relative link that stays in the folder")
	}
	return escapesRootError(name, err)
}

func escapesRootError(name string, err error) error {
	return dray.Errorf(dray.CodePathInvalid, "what %q is on the host cannot be checked: %w", name,
		err).
		WithHint("let the daemon's user enter the folder")
}

// open gives the root, or nil for one that is not there, as on the machine of a remote engine.
func (b *symlinkGuard) open(root string) (*os.File, error) {
	if dir, ok := b.roots[root]; ok {
		return dir, nil
	}
	dir, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open the root: %w", err)
	}
	if err != nil {
		dir = nil
	}
	if b.roots == nil {
		b.roots = map[string]*os.File{}
	}
	b.roots[root] = dir
	return dir, nil
}

func (b *symlinkGuard) close() {
	for _, dir := range b.roots {
		if dir != nil {
			_ = dir.Close()
		}
	}
	b.roots = nil
}

// resolve follows a name from the root. It fails with EXDEV for one that leads out.
func (b *symlinkGuard) resolve(dir *os.File, name string) error {
	err := b.openat2(dir, name, unix.RESOLVE_BENEATH)
	switch {
	case errors.Is(err, unix.EXDEV) && b.resolvesInside(dir, name):
		return nil
	case errors.Is(err, unix.ENOSYS), errors.Is(err,
		unix.EPERM): // an old kernel, or a sandbox around the daemon
		return b.walk(dir, name)
	}
	return err
}

func (b *symlinkGuard) openat2(dir *os.File, name string, how uint64) error {
	fd, err := b.opened(dir, name, how)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

func (b *symlinkGuard) opened(dir *os.File, name string, how uint64) (fd int, err error) {
	open := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: how | unix.RESOLVE_NO_MAGICLINKS,
	}
	if b.links {
		open.Flags |= unix.O_NOFOLLOW
	}
	const tries = 32 // a rename anywhere makes the kernel unsure of ".." in a link
	for range tries {
		if fd, err = unix.Openat2(int(dir.Fd()), name, &open); !errors.Is(err, unix.EAGAIN) &&
			!errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err
}

// resolvesInside says whether a name that leaves the root on its way, by an absolute link or by
// "..", comes to a file beneath the root all the same.
func (b *symlinkGuard) resolvesInside(dir *os.File, name string) bool {
	fd, err := b.opened(dir, name, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	file, err1 := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	root, err2 := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	return err1 == nil && err2 == nil && (file == root || strings.HasPrefix(file, root+"/"))
}

// walk follows a name folder by folder, without the kernel's help.
func (b *symlinkGuard) walk(dir *os.File, name string) error {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return fmt.Errorf("open the root: %w", err)
	}
	defer func() { _ = root.Close() }()
	look := root.Stat
	if b.links {
		look = root.Lstat
	}
	if _, err = look(name); err == nil || errors.As(err, new(unix.Errno)) {
		return err
	}
	return unix.EXDEV // what os.Root itself refuses
}
