package devcontainer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/dray-dev/dray/internal/devcontainer/jsonc"
)

// errNotFolder is what a path gives that leads through a file, errNameTooLong one that no file can have.
const (
	errNotFolder   = syscall.ENOTDIR
	errNameTooLong = syscall.ENAMETOOLONG
)

// errNotRegular is a file that is none: a FIFO would make its reader wait, a device can be endless.
var errNotRegular = errors.New("not a regular file")

// maxReadBytes bounds what is read of one file: the largest configuration that is taken.
const maxReadBytes = jsonc.MaxBytes

// readRegular reads a regular file of at most maxReadBytes. It never waits for the writer of a FIFO.
func readRegular(path string) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxReadBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxReadBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxReadBytes)
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
