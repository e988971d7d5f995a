package linux

import (
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Openat opens name, which may have several components, in the directory dir.
func Openat(dir int, name string, flags int, mode uint32) (int, error) {
	return RetryValue(func() (int, error) {
		return unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
	})
}

// maxOpenat2Tries bounds how often Openat2 repeats a lookup that a concurrent rename disturbed.
const maxOpenat2Tries = 16

// Openat2 opens name in the directory dir with the restrictions of resolve (unix.RESOLVE_*). The
// kernel fails with EAGAIN or EXDEV when a component is renamed during the lookup, even if the name
// never left the directory. Openat2 therefore repeats such a lookup up to 16 times.
func Openat2(dir int, name string, flags int, resolve uint64) (fd int, err error) {
	for range maxOpenat2Tries {
		fd, err = openat2(dir, name, flags, resolve)
		if err != unix.EAGAIN && err != unix.EXDEV { //nolint:errorlint // the bare number
			break
		}
	}
	return fd, err
}

// openat2 is Openat2 without repetition.
func openat2(dir int, name string, flags int, resolve uint64) (fd int, err error) {
	//nolint:gosec // flags are not negative
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: resolve}
	return RetryValue(func() (int, error) { return unix.Openat2(dir, name, &how) })
}

// HasOpenat2 reports whether openat2(2) works here. It is missing before Linux 5.6, and seccomp
// filters that do not know it refuse it.
var HasOpenat2 = sync.OnceValue(func() bool {
	fd, err := Openat2(unix.AT_FDCWD, "/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
})

// Reopen opens the file that the O_PATH fd refers to, not whatever has its name by now. It never
// blocks on a FIFO.
func Reopen(fd, flags int) (int, error) {
	return Openat(unix.AT_FDCWD, procPath(fd),
		flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}

// procPath returns a path that leads to the file of an fd.
func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// Rename moves a name from one directory to another, with flags of renameat2(2).
func Rename(fromDir int, from string, toDir int, to string, flags uint) error {
	return Retry(func() error { return unix.Renameat2(fromDir, from, toDir, to, flags) })
}

// Unlink removes a name from a directory. With unix.AT_REMOVEDIR it removes an empty directory.
func Unlink(dir int, name string, flags int) error {
	return Retry(func() error { return unix.Unlinkat(dir, name, flags) })
}

// Stat describes the file that fd refers to.
func Stat(fd int, st *unix.Stat_t) error {
	return Retry(func() error { return unix.Fstat(fd, st) })
}

// Close closes fd, if it is not negative. It is for fds without unwritten data: it ignores errors.
func Close(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// CloseAll closes fds and sets each to -1, so that a second call does nothing.
func CloseAll(fds []int) {
	for i, fd := range fds {
		Close(fd)
		fds[i] = -1
	}
}
