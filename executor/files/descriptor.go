package files

import (
	"errors"
	"strconv"
	"syscall"
)

// descriptor is an open file. Tens of thousands of them pass through a collection, each for a few reads: an os.File, which the runtime
// polls and finalizes, would cost more than the file.
type descriptor int

// nowhere is no descriptor.
const nowhere descriptor = -1

// oPath is O_PATH: it opens a name without opening what is there, so that a FIFO waits for nobody and a device does nothing. Package
// syscall has no name for it; the number is that of amd64 and arm64.
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
		return syscall.Open("/proc/self/fd/"+strconv.Itoa(int(d)), flags|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	})
}

func (d descriptor) stat(s *syscall.Stat_t) error {
	_, err := retried(func() (int, error) { return 0, syscall.Fstat(int(d), s) })
	return err
}

// names reads the names in a folder, in no order. Where there are more than most it fails with errTooMany.
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
