package process

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/internal/linux"
)

// NewPermit returns an eventfd that allows one start. The supervisor takes it immediately before it
// executes the program. A daemon that takes it first prevents the start, also if the supervisor is
// stopped or slow at this moment. It is nonblocking.
func NewPermit() (*os.File, error) {
	fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, &StartError{Step: StepFork, Err: fmt.Errorf("create a start permit: %w", err)}
	}
	return os.NewFile(uintptr(fd), "permit"), nil
}

// TakePermit reports whether the caller has taken the permit. Only one caller ever gets it.
func TakePermit(permit *os.File) bool {
	taken := false
	_ = linux.Control(permit, func(fd int) error { // a closed permit cannot be taken
		taken = takePermit(fd)
		return nil
	})
	return taken
}

func takePermit(fd int) bool {
	var count [8]byte
	n, err := linux.RetryValue(func() (int, error) { return unix.Read(fd, count[:]) })
	return err == nil && n == len(count) && binary.NativeEndian.Uint64(count[:]) > 0
}

// permitTaken reports whether the permit was taken, and does not take it.
func permitTaken(permit *os.File) bool {
	fds := []unix.PollFd{{Events: unix.POLLIN}}
	_ = linux.Control(permit, func(fd int) error { // one that was closed counts as taken
		fds[0].Fd = int32(fd) //nolint:gosec // fds are small
		linux.Poll(fds, 0)
		return nil
	})
	return fds[0].Revents&unix.POLLIN == 0
}
