package devcontainer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// errNotFolder is what a path gives that leads through a file, errNameTooLong one that no file can have.
const (
	errNotFolder   = syscall.ENOTDIR
	errNameTooLong = syscall.ENAMETOOLONG
)

// errNotRegular is a file that is none: a FIFO would make its reader wait, a device can be endless.
var errNotRegular = errors.New("not a regular file")

// readRegular reads a regular file of at most limit bytes. It never waits for the writer of a FIFO.
func readRegular(path string, limit int64) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, nil
}

// openRegular opens a file without waiting and makes sure that it is a regular one, decided on the open file.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", path, errNotRegular)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
