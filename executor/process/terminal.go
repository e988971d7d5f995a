package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/dray-dev/dray"
)

// What package syscall does not name of ioctl_tty(2); TIOCGPTPEER is there from Linux 4.13 on.
const (
	ioctlUnlock   = 0x40045431 // TIOCSPTLCK
	ioctlNumber   = 0x80045430 // TIOCGPTN
	ioctlPeer     = 0x5441     // TIOCGPTPEER
	ioctlSetSize  = 0x5414     // TIOCSWINSZ
	ioctlGetModes = 0x5401     // TCGETS
)

// terminalDrain is as much as a terminal can hold for its reader, and more: the kernel's buffers
// have 4 and 8 KiB.
const terminalDrain = 64 << 10

// terminal is our end of a terminal.
type terminal struct {
	master *os.File
	slave  *os.File

	mu      sync.Mutex
	midLine bool // something was written, and no line's end after it
	closed  bool
}

// openTerminal makes a terminal where this program sees a devpts.
func openTerminal(size dray.TerminalSize) (*terminal, error) {
	master, err := openMaster()
	if err != nil {
		return nil, &StartError{Step: StepTerminal, Err: err}
	}
	t := &terminal{master: master}
	if t.slave, err = t.openPeer(); err == nil {
		err = t.resize(size)
	}
	if err != nil {
		t.close()
		return nil, &StartError{Step: StepTerminal, Err: err}
	}
	return t, nil
}

// openMaster opens the multiplexer. In a container /dev/ptmx leads to pts/ptmx, and may be missing
// where that is not.
func openMaster() (*os.File, error) {
	const flags = syscall.O_RDWR | syscall.O_NOCTTY | syscall.O_CLOEXEC | syscall.O_NONBLOCK
	var failure error
	for _, path := range []string{"/dev/ptmx", "/dev/pts/ptmx"} {
		fd, err := syscall.Open(path, flags, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), "terminal"), nil
		}
		failure = errors.Join(failure, &os.PathError{Op: "open", Path: path, Err: err})
	}
	return nil, failure
}

// openPeer opens the tool's end. The kernel gives it without a path, so that nothing that is
// mounted over /dev/pts can come between.
func (t *terminal) openPeer() (*os.File, error) {
	const flags = syscall.O_RDWR | syscall.O_NOCTTY | syscall.O_CLOEXEC
	var unlocked int32
	if err := t.ioctl(ioctlUnlock, unsafe.Pointer(&unlocked)); err != nil {
		return nil, fmt.Errorf("unlocking a terminal: %w", err)
	}
	fd, err := t.control(func(fd uintptr) (uintptr, syscall.Errno) {
		peer, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, ioctlPeer, flags)
		return peer, errno
	})
	if err == nil {
		return os.NewFile(fd, "terminal of the tool"), nil
	}
	var number uint32
	if err := t.ioctl(ioctlNumber, unsafe.Pointer(&number)); err != nil {
		return nil, fmt.Errorf("asking for a terminal's number: %w", err)
	}
	return os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), flags, 0)
}

// control makes one system call on the master.
func (t *terminal) control(call func(fd uintptr) (uintptr, syscall.Errno)) (uintptr, error) {
	raw, err := t.master.SyscallConn()
	if err != nil {
		return 0, err
	}
	var result uintptr
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) { result, errno = call(fd) })
	if err == nil && errno != 0 {
		err = errno
	}
	return result, err
}

func (t *terminal) ioctl(request uintptr, arg unsafe.Pointer) error {
	_, err := t.control(func(fd uintptr) (uintptr, syscall.Errno) {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(arg))
		return 0, errno
	})
	return err
}

// resize tells the foreground job of the terminal by SIGWINCH.
func (t *terminal) resize(size dray.TerminalSize) error {
	window := [4]uint16{size.Rows, size.Columns}
	if err := t.ioctl(ioctlSetSize, unsafe.Pointer(&window)); err != nil {
		return fmt.Errorf("setting a terminal's size: %w", err)
	}
	return nil
}

// ends are the terminal three times.
func (t *terminal) ends() ChildFiles { return ChildFiles{t.slave, t.slave, t.slave} }

func (t *terminal) close() {
	_ = t.master.Close()
	if t.slave != nil {
		_ = t.slave.Close()
	}
}

// Write types.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, os.ErrClosed
	}
	n, err := t.master.Write(p)
	if n > 0 {
		t.midLine = !bytes.ContainsRune([]byte("\n\r\x04"), rune(p[n-1]))
	}
	return n, err
}

// finish makes writers fail that wait for a tool that is over.
func (t *terminal) finish() { _ = t.master.SetWriteDeadline(time.Now()) }

// Close types the terminal's end-of-file character, as a person would. The terminal takes it as an
// end of file only at the beginning of a line: after anything else the first one hands over what
// was typed so far, and a second one is the end. Close waits while the tool does not read what was
// typed before, at the longest until the tool is over.
func (t *terminal) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	end, canonical, err := t.endOfFile()
	switch {
	case err != nil || end == 0: // the tool is over, or switched the character off
		return nil
	case canonical && t.midLine:
		_, err = t.master.Write([]byte{end, end})
	default:
		_, err = t.master.Write([]byte{end})
	}
	if errors.Is(err, os.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, syscall.EIO) {
		return nil
	}
	return err
}

// endOfFile asks for the character, as the tool has set it by now.
func (t *terminal) endOfFile() (char byte, canonical bool, err error) {
	const canon = 2 // ICANON
	var modes struct {
		in, out, control, local uint32
		line                    byte
		chars                   [19]byte
	}
	if err := t.ioctl(ioctlGetModes, unsafe.Pointer(&modes)); err != nil {
		return 0, false, err
	}
	return modes.chars[syscall.VEOF], modes.local&canon != 0, nil
}

// noStream is a stream that a process does not have.
type noStream struct{}

func (noStream) Read([]byte) (int, error)  { return 0, io.EOF }
func (noStream) Write([]byte) (int, error) { return 0, os.ErrClosed }
func (noStream) Close() error              { return nil }
