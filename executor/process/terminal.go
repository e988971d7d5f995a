package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
)

// terminalDrain is more than a terminal can hold for its reader, in bytes: the kernel's buffers
// have 4 and 8 KiB.
const terminalDrain = 64 << 10

// terminal is our end of a terminal.
type terminal struct {
	master *os.File
	slave  *os.File

	mu      sync.Mutex
	midLine bool // the last write did not end a line
	closed  bool
}

// openTerminal creates a terminal in the devpts of this program's mount namespace.
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

// openMaster opens the multiplexer. In a container /dev/ptmx is usually a symlink to pts/ptmx, and
// may be missing.
func openMaster() (*os.File, error) {
	var failure error
	for _, path := range []string{"/dev/ptmx", "/dev/pts/ptmx"} {
		fd, err := linux.Openat(unix.AT_FDCWD, path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), "terminal"), nil
		}
		failure = errors.Join(failure, &os.PathError{Op: "open", Path: path, Err: err})
	}
	return nil, failure
}

// openPeer opens the tool's end. TIOCGPTPEER (Linux 4.13) needs no path, so that a mount over
// /dev/pts has no effect.
func (t *terminal) openPeer() (file *os.File, err error) {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	err = linux.Control(t.master, func(master int) error {
		if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
			return fmt.Errorf("unlock a terminal: %w", err)
		}
		peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
		if errno == 0 {
			file = os.NewFile(peer, "terminal of the tool")
			return nil
		}
		number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
		if err != nil {
			return fmt.Errorf("read a terminal's number: %w", err)
		}
		file, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), flags, 0)
		return err
	})
	return file, err
}

// resize sets the size. The kernel sends SIGWINCH to the terminal's foreground job.
func (t *terminal) resize(size dray.TerminalSize) error {
	window := &unix.Winsize{Row: size.Rows, Col: size.Columns}
	err := linux.Control(t.master, func(master int) error {
		return unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, window)
	})
	if err != nil {
		return fmt.Errorf("set a terminal's size: %w", err)
	}
	return nil
}

func (t *terminal) close() {
	_ = t.master.Close()
	if t.slave != nil {
		_ = t.slave.Close()
	}
}

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

// Close writes the terminal's end-of-file character. The terminal treats it as end of file at the
// start of a line only: in the middle of a line the first one passes on what was written, and the
// second one is the end of file. Close blocks until the tool has read what was written before, or
// has ended.
func (t *terminal) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	end, canonical, err := t.endOfFile()
	if err != nil || end == 0 { // the tool has ended, or has disabled the character
		return nil
	}
	text := []byte{end}
	if canonical && t.midLine {
		text = append(text, end)
	}
	_, err = t.master.Write(text)
	if errors.Is(err, os.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, unix.EIO) {
		return nil
	}
	return err
}

// endOfFile returns the character as the tool has set it.
func (t *terminal) endOfFile() (char byte, canonical bool, err error) {
	err = linux.Control(t.master, func(master int) error {
		modes, err := unix.IoctlGetTermios(master, unix.TCGETS)
		if err == nil {
			char, canonical = modes.Cc[unix.VEOF], modes.Lflag&unix.ICANON != 0
		}
		return err
	})
	return char, canonical, err
}

// noStream is a stream that the process does not have.
type noStream struct{}

func (noStream) Read([]byte) (int, error)  { return 0, io.EOF }
func (noStream) Write([]byte) (int, error) { return 0, os.ErrClosed }
func (noStream) Close() error              { return nil }
