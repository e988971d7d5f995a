package linux

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxSymlinks is the number of symlinks that a path may lead through, as in the kernel.
const maxSymlinks = 40

// symlinks is how a lookup treats the symlinks below the directory.
type symlinks int

const (
	followAll symlinks = iota
	keepLast           // the last segment is not followed
	refuseAll          // the lookup fails with ELOOP
)

// lookupUntrusted returns an O_PATH fd of a file for UntrustedDir. Most files are on the mount of
// dir, which the kernel verifies in one step. Other paths are resolved segment by segment.
func lookupUntrusted(dir, name string, links symlinks) (int, error) {
	if !filepath.IsAbs(name) {
		return -1, fs.ErrInvalid
	}
	own, err := Openat(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	defer Close(own)
	base, rest := commonDir(dir, name)
	if base == dir {
		flags, resolve := unix.O_PATH, uint64(unix.RESOLVE_NO_XDEV|unix.RESOLVE_NO_MAGICLINKS)
		if links == keepLast {
			flags |= unix.O_NOFOLLOW
		}
		if links == refuseAll {
			resolve |= unix.RESOLVE_NO_SYMLINKS
		}
		fd, err := openat2(own, cmp.Or(rest, "."), flags, resolve)
		switch err {
		//nolint:errorlint // the bare number; the last two without openat2
		case unix.EXDEV, unix.EAGAIN, unix.ENOSYS, unix.EPERM:
		default:
			return fd, err
		}
	}
	mount, err := mountID(own)
	if err != nil {
		return -1, err
	}
	w := walk{dir: dir, mount: mount, at: -1, symlinks: links}
	defer w.enter(-1)
	return w.resolve(name)
}

// commonDir splits path at the longest directory that it has in common with dir. rest is relative
// to that, and empty for the directory itself.
func commonDir(dir, path string) (base, rest string) {
	dir, path = strings.TrimSuffix(dir, "/"), strings.TrimRight(path, "/")
	i := 0
	for j := range len(path) + 1 {
		if j > len(dir) || j < len(path) && j < len(dir) && path[j] != dir[j] {
			break
		}
		if (j == len(path) || path[j] == '/') && (j == len(dir) || dir[j] == '/') {
			i = j
		}
	}
	return cmp.Or(path[:i], "/"), strings.TrimLeft(path[i:], "/")
}

// walk resolves a path segment by segment.
type walk struct {
	dir   string
	mount int // the id of the mount of dir
	at    int // the O_PATH fd of the current directory, or -1
	links int // symlinks followed

	symlinks symlinks
}

// enter closes the current directory and replaces it.
func (w *walk) enter(fd int) {
	Close(w.at)
	w.at = fd
}

// resolve returns an O_PATH fd of the file with an absolute path.
func (w *walk) resolve(path string) (int, error) {
	for {
		rest, err := w.root(path)
		if err != nil {
			return -1, err
		}
		segment, rest, _ := strings.Cut(rest, "/")
		rest = strings.TrimLeft(rest, "/")
		fd, err := Openat(w.at, cmp.Or(segment, "."), unix.O_PATH|unix.O_NOFOLLOW, 0)
		if err != nil {
			return -1, err
		}
		isLink, err := w.inspect(fd)
		switch {
		case err != nil:
			Close(fd)
			return -1, err
		case isLink && w.symlinks == refuseAll:
			Close(fd)
			return -1, unix.ELOOP
		case isLink && (w.symlinks == followAll || rest != ""):
			path, err = w.follow(fd)
			Close(fd)
			if err != nil {
				return -1, err
			}
			path += "/" + rest
		case rest == "":
			return fd, nil
		default:
			w.enter(fd)
			path = rest
		}
	}
}

// root enters the directory at which an absolute path begins, and returns the rest of the path. It
// is the longest one in common with w.dir, which every use of w.dir passes through. A relative path
// begins at the current directory.
func (w *walk) root(path string) (rest string, err error) {
	if !strings.HasPrefix(path, "/") {
		return path, nil
	}
	base, rest := commonDir(w.dir, path)
	fd, err := Openat(unix.AT_FDCWD, base, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	w.enter(fd)
	_, err = w.inspect(fd)
	return rest, err
}

// inspect reports whether the file of an O_PATH fd is a symlink. It fails with ErrFileSystem if the
// file system is not accepted. It first compares mounts, because fstat(2) and statfs(2) ask the
// server of a network file system.
func (w *walk) inspect(fd int) (isLink bool, err error) {
	id, err := mountID(fd)
	if err != nil {
		return false, err
	}
	if id != w.mount {
		fsType, err := mountType(id)
		if err == nil && !diskTypes[fsType] {
			err = fmt.Errorf("%w: %s", ErrFileSystem, fsType)
		}
		if err != nil {
			return false, err
		}
	}
	var st unix.Stat_t
	err = Stat(fd, &st)
	return st.Mode&unix.S_IFMT == unix.S_IFLNK, err
}

// follow returns the target of the symlink fd, and counts it.
func (w *walk) follow(fd int) (string, error) {
	if w.links++; w.links > maxSymlinks {
		return "", unix.ELOOP
	}
	return readlink(fd)
}

// readlink returns the target of the symlink that the O_PATH fd refers to.
func readlink(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := RetryValue(func() (int, error) { return unix.Readlinkat(fd, "", buf) })
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// diskTypes are the file systems whose regular files can be opened and read without waiting for
// anybody, whatever their content is.
var diskTypes = map[string]bool{
	"bcachefs": true, "btrfs": true, "ecryptfs": true, "erofs": true, "exfat": true, "ext2": true,
	"ext3": true, "ext4": true, "f2fs": true, "hfsplus": true, "iso9660": true, "jfs": true,
	"nilfs2": true, "ntfs3": true, "overlay": true, "ramfs": true, "reiserfs": true, "rootfs": true,
	"squashfs": true, "tmpfs": true, "udf": true, "vfat": true, "xfs": true, "zfs": true,
}

// mountID returns the id of the mount that an fd was opened on.
func mountID(fd int) (int, error) {
	text, err := ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(Field(text, "mnt_id:")))
}

// mountType returns the type of the file system of a mount.
func mountType(id int) (string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for m := range Mounts(table) {
		if m.ID == id {
			return m.FSType, nil
		}
	}
	return "", fmt.Errorf("mount %d: %w", id, fs.ErrNotExist)
}
