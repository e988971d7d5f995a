package stage

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"
)

// sysOpenat2 has one number on all architectures.
const sysOpenat2 = 437

const (
	oPath = 0x200000

	atRemoveDir = 0x200

	renameNoReplace = 1
	renameExchange  = 2

	resolveNoXdev       = 0x01
	resolveNoMagiclinks = 0x02
	resolveNoSymlinks   = 0x04
	resolveBeneath      = 0x08
	resolveFlags        = resolveNoXdev | resolveNoMagiclinks | resolveNoSymlinks | resolveBeneath
)

// hasOpenat2 is false on kernels before 5.6 and where a seccomp filter that does not know the call
// refuses it.
var hasOpenat2 = sync.OnceValue(func() bool {
	fd, err := openat2(-1, "/", oPath|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err == nil {
		_ = syscall.Close(fd)
	}
	return err == nil
})

// retryEINTR repeats a call that a signal interrupted, as file systems in user space let it be.
func retryEINTR(call func() error) error {
	for {
		if err := call(); err != syscall.EINTR { //nolint:errorlint // system calls return plain numbers
			return err
		}
	}
}

func openat2(dir int, name string, flags int, restrict uint64) (fd int, err error) {
	path, err := syscall.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	// flags are not negative
	how := struct{ flags, mode, resolve uint64 }{flags: uint64(flags), resolve: restrict} //nolint:gosec
	err = retryEINTR(func() error {
		r, _, errno := syscall.Syscall6(sysOpenat2, uintptr(dir), uintptr(unsafe.Pointer(path)),
			uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		fd = int(r)
		return number(errno)
	})
	if err != nil {
		return -1, err
	}
	return fd, nil
}

func openat(dir int, name string, flags int, mode uint32) (fd int, err error) {
	err = retryEINTR(func() error {
		fd, err = syscall.Openat(dir, name, flags|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, mode)
		return err
	})
	return fd, err
}

// rename moves a name from folder to folder, both by descriptor.
func rename(from, to int, base string, flags uintptr) error {
	p, err := syscall.BytePtrFromString(base)
	if err != nil {
		return err
	}
	return retryEINTR(func() error {
		_, _, errno := syscall.Syscall6(sysRenameat2, uintptr(from), uintptr(unsafe.Pointer(p)),
			uintptr(to), uintptr(unsafe.Pointer(p)), flags, 0)
		return number(errno)
	})
}

func unlink(dir int, base string, flags uintptr) error {
	p, err := syscall.BytePtrFromString(base)
	if err != nil {
		return err
	}
	return retryEINTR(func() error {
		_, _, errno := syscall.Syscall(syscall.SYS_UNLINKAT, uintptr(dir), uintptr(unsafe.Pointer(p)),
			flags)
		return number(errno)
	})
}

// syncfs writes all that the file system of a descriptor holds in memory.
func syncfs(fd int) error {
	return retryEINTR(func() error {
		_, _, errno := syscall.Syscall(sysSyncfs, uintptr(fd), 0, 0)
		return number(errno)
	})
}

func removeXattr(fd int, name string) error {
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall(sysFremovexattr, uintptr(fd), uintptr(unsafe.Pointer(p)), 0)
	return number(errno)
}

// number keeps a zero from becoming an error that is not nil.
func number(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// resolver opens names beneath a folder. Where the kernel has no openat2 it goes step by step, and
// then a mount of the same file system is found only when something is to be renamed into it.
type resolver struct{ noOpenat2 bool }

func newWalker() resolver { return resolver{noOpenat2: !hasOpenat2()} }

// open opens a name of one or more components, none of which may be a link or on another mount.
// With oPath the last may be a link, which is opened itself. It never waits for a FIFO.
func (w resolver) open(dir int, name string, flags int) (int, error) {
	flags |= syscall.O_CLOEXEC | syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_NOCTTY
	if flags&oPath != 0 {
		flags &^= syscall.O_NONBLOCK | syscall.O_NOCTTY // openat2 refuses what makes no sense
	}
	if w.noOpenat2 {
		return openStepwise(dir, name, flags)
	}
	for tries := 1; ; tries++ {
		fd, err := openat2(dir, name, flags, resolveFlags)
		if tries == maxTries || !errors.Is(err, syscall.EXDEV) && !errors.Is(err, syscall.EAGAIN) {
			return fd, err
		}
	}
}

// maxTries is how often a name is looked up that the kernel finds to be out of bounds: it says so
// too of a file that is moved away in the very moment, as one is that another commit replaces.
const maxTries = 16

// folder opens a folder, for nothing but to be gone through.
func (w resolver) folder(dir int, name string) (int, error) {
	return w.open(dir, name, oPath|syscall.O_DIRECTORY)
}

func openStepwise(dir int, name string, flags int) (int, error) {
	var root syscall.Stat_t
	if err := syscall.Fstat(dir, &root); err != nil {
		return -1, err
	}
	at := dir
	for {
		first, rest, more := strings.Cut(name, "/")
		how := flags
		if more {
			how = oPath | syscall.O_DIRECTORY
		}
		fd, err := openat(at, first, how, 0)
		if at != dir {
			_ = syscall.Close(at)
		}
		if err != nil {
			return -1, err
		}
		var st syscall.Stat_t
		if err := syscall.Fstat(fd, &st); err != nil || st.Dev != root.Dev {
			_ = syscall.Close(fd)
			return -1, syscall.EXDEV
		}
		if !more {
			return fd, nil
		}
		at, name = fd, rest
	}
}

// reopen opens for reading what is held by an O_PATH descriptor, so that what was looked at is what
// is read.
func reopen(fd int) (read int, err error) {
	err = retryEINTR(func() error {
		read, err = syscall.Open("/proc/self/fd/"+strconv.Itoa(fd),
			syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
		return err
	})
	return read, err
}
