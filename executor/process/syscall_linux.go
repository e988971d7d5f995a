package process

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// What package syscall does not name. The numbers of calls after 424 are the same on every
// architecture.
const (
	prSetChildSubreaper = 36
	sysPidfdSendSignal  = 424
	sysPidfdOpen        = 434
	sysCloseRange       = 436
	closeRangeCloexec   = 4
	pollIn              = 1
	fcntlSetPipeSize    = 1031
	fcntlGetPipeSize    = 1032
)

type pollFD struct {
	fd      int32
	events  int16
	revents int16
}

// poll waits for one of the descriptors; a negative timeout waits for ever. Interruption reads as
// nothing ready.
func poll(fds []pollFD, timeout time.Duration) {
	var ts *syscall.Timespec
	if timeout >= 0 {
		t := syscall.NsecToTimespec(timeout.Nanoseconds())
		ts = &t
	}
	_, _, _ = syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))),
		uintptr(len(fds)), uintptr(unsafe.Pointer(ts)), 0, 0, 0)
}

// capacity is how many bytes a pipe, or a terminal, may hold for its reader.
func capacity(f *os.File) int {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	size := 0
	_ = raw.Control(func(fd uintptr) { // a closed file holds nothing
		n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, fcntlGetPipeSize, 0)
		if size = int(n); errno != 0 {
			size = terminalDrain
		}
	})
	return size
}

// GrowPipe asks for a pipe of so many bytes. A refusal changes nothing, as does asking what is no
// pipe.
func GrowPipe(f *os.File, size int) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // a closed file needs none
		_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, fcntlSetPipeSize, uintptr(size))
	})
}

func becomeSubreaper() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return fmt.Errorf("becoming a subreaper: %w", errno)
	}
	return nil
}

func pidfdOpen(pid int) (int, error) {
	fd, _, errno := syscall.RawSyscall(sysPidfdOpen, uintptr(pid), 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func pidfdSignal(fd int, sig syscall.Signal) error {
	if _, _, errno := syscall.RawSyscall6(sysPidfdSendSignal, uintptr(fd), uintptr(sig), 0, 0, 0,
		0); errno != 0 {
		return errno
	}
	return nil
}

// rawSetgroups changes the supplementary groups of this thread alone.
func rawSetgroups(n int, list *uint32) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(n), uintptr(unsafe.Pointer(list)), 0)
}

// closeOnExecAbove keeps from the tools what whoever started the daemon left open.
func closeOnExecAbove(fd int) {
	first := uintptr(fd)
	if _, _, errno := syscall.RawSyscall(sysCloseRange, first, uintptr(^uint32(0)),
		closeRangeCloexec); errno == 0 {
		return
	}
	var limit syscall.Rlimit // before Linux 5.11
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return
	}
	for i := fd; i < int(min(limit.Max, 1<<16)); i++ {
		syscall.CloseOnExec(i)
	}
}

// resetIgnoredSignals gives every signal that whoever started the daemon left ignored its default
// again: a tool would inherit the ignoring. Make, for one, leaves 32 and 33 so. Package os/signal
// does not reach those.
func resetIgnoredSignals() {
	const lastSignal, sigIgn = 64, 1
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		var now, byDefault [4]uint64 // the kernel's struct sigaction: handler, flags, restorer, mask
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, 0,
			uintptr(unsafe.Pointer(&now)), 8, 0, 0)
		if errno == 0 && now[0] == sigIgn {
			_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&byDefault)),
				0, 8, 0, 0)
		}
	}
}
