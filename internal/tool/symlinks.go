package tool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/linux"
)

// SymlinkGuard checks host paths that dray returns for paths of a container against the symlinks on
// the host (PM-12). A tool may have created a symlink in a shared directory that points to a file
// of its container, and on the host to any file. It must be closed, and not be used concurrently.
type SymlinkGuard struct {
	// roots are the host roots of the mappings, opened on first use. Nil is a root that the host does
	// not have.
	roots map[string]*os.File
	// links means that the last segment of a path may be a symlink, which the output describes.
	links bool
	// lastChecked is the last valid name: a list of findings has many in one file.
	lastChecked string
}

// Check returns an error if name, which lies under root, leads out of it. The result holds for this
// moment: a program that opens the file later must do so beneath the root too. A file that does not
// exist is valid. The error is path_invalid.
func (g *SymlinkGuard) Check(ctx context.Context, root, name string) error {
	if name == g.lastChecked {
		return nil
	}
	below := strings.TrimLeft(strings.TrimPrefix(name, root), "/")
	if below == "" {
		return nil // the root itself, which may be a single file
	}
	dir, err := g.open(root)
	if err != nil {
		return uncheckedError(name, err)
	}
	if dir == nil {
		return nil
	}
	err = g.resolve(ctx, dir, below)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		g.lastChecked = name
		return nil
	case errors.Is(err, unix.EXDEV):
		return dray.Errorf(dray.CodePathInvalid, "a symlink on the host leads %q out of %q", name, root).
			WithHint("have the tool write a file instead of the symlink, or a relative symlink that " +
				"stays in the directory")
	default:
		return uncheckedError(name, err)
	}
}

func uncheckedError(name string, err error) error {
	return dray.Errorf(dray.CodePathInvalid, "check %q on the host: %w", name, err).
		WithHint("give the daemon's user access to the directory")
}

// open returns the root, or nil if it does not exist, as with a remote engine.
func (g *SymlinkGuard) open(root string) (*os.File, error) {
	if dir, ok := g.roots[root]; ok {
		return dir, nil
	}
	dir, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0) // nil with an error
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open the root: %w", err)
	}
	if g.roots == nil {
		g.roots = map[string]*os.File{}
	}
	g.roots[root] = dir
	return dir, nil
}

// Close closes the roots.
func (g *SymlinkGuard) Close() {
	for _, dir := range g.roots {
		_ = dir.Close() // of nil it only returns an error
	}
	g.roots = nil
}

// resolve resolves a name beneath the root. It fails with EXDEV if the name leads out.
func (g *SymlinkGuard) resolve(ctx context.Context, dir *os.File, name string) error {
	fd, err := g.openat2(dir, name, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_XDEV)
	switch {
	case err == nil:
		return unix.Close(fd)
	case errors.Is(err, unix.EXDEV):
		return g.follow(ctx, dir.Name(), name)
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		return g.walk(dir, name) // an old kernel, or a sandbox around the daemon
	}
	return err
}

func (g *SymlinkGuard) openat2(dir *os.File, name string, how uint64) (fd int, err error) {
	flags := unix.O_PATH | unix.O_CLOEXEC
	if g.links {
		flags |= unix.O_NOFOLLOW
	}
	return linux.Openat2(int(dir.Fd()), name, flags, how|unix.RESOLVE_NO_MAGICLINKS)
}

// follow resolves a name that leaves the root on its way, by an absolute symlink or by "..", or
// that leads to another mount, which may be that of a server that does not respond. It fails with
// EXDEV if the name does not end at a file beneath the root.
func (g *SymlinkGuard) follow(ctx context.Context, root, name string) error {
	if g.links && path.Base(name) != ".." {
		name = path.Dir(name)
	}
	dir := linux.UntrustedDir(root)
	file, err := dir.RealPath(ctx, root+"/"+name)
	if err != nil && !linux.IsAbsent(err) {
		return err
	}
	top, topErr := dir.RealPath(ctx, root)
	if err != nil || topErr != nil || !lexical.Contains(top, file) {
		return unix.EXDEV
	}
	return nil
}

// walk resolves a name directory by directory, without openat2.
func (g *SymlinkGuard) walk(dir *os.File, name string) error {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return fmt.Errorf("open the root: %w", err)
	}
	defer func() { _ = root.Close() }()
	look := root.Stat
	if g.links {
		look = root.Lstat
	}
	if _, err = look(name); err == nil || errors.As(err, new(unix.Errno)) {
		return err
	}
	return unix.EXDEV // what os.Root itself refuses
}
