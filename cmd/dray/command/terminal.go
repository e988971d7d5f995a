package command

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// isTerminal reports whether v is a file that is a terminal.
func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// columns returns the width of a terminal, by default 80.
func columns(w io.Writer) int { return int(sizeOf(w).Columns) }

// callerStdin returns our stdin, or nil if the tool gets none: if it is closed, is /dev/null, or is
// a terminal in whose background we run, where a read would stop us.
func callerStdin(in io.Reader) io.Reader {
	f, ok := in.(*os.File)
	if !ok {
		return in
	}
	fd := int(f.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil // closed
	}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3) {
		return nil
	}
	if isTerminal(f) && !inForeground(f) {
		return nil
	}
	return f
}

// inForeground reports whether we are in the foreground of a terminal, or it is not our controlling
// terminal.
func inForeground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// makeRaw sets a terminal to raw mode like cfmakeraw(3), and returns its previous modes.
func makeRaw(f *os.File) (*unix.Termios, error) {
	modes, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	raw := *modes
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP |
		unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	return modes, unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, &raw)
}

// sizeOf returns the size of the first terminal among the candidates, by default 80x24.
func sizeOf(candidates ...any) dray.TerminalSize {
	for _, v := range candidates {
		f, ok := v.(*os.File)
		if !ok {
			continue
		}
		size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
		if err == nil && size.Col > 0 && size.Row > 0 {
			return dray.TerminalSize{Columns: size.Col, Rows: size.Row}
		}
	}
	return dray.TerminalSize{Columns: 80, Rows: 24}
}

// ttyReader reads a terminal. Close ends a blocked read, so that later input goes to the next
// reader of the terminal and no goroutine is left.
type ttyReader struct {
	fd           int
	wake, waking *os.File
	once         sync.Once
}

func newTTYReader(f *os.File) (*ttyReader, error) {
	wake, waking, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &ttyReader{fd: int(f.Fd()), wake: wake, waking: waking}, nil
}

var errReaderClosed = errors.New("the terminal reader is closed")

// Read blocks until there is input. A terminal that was closed is an end of file.
func (k *ttyReader) Read(p []byte) (int, error) {
	for {
		ready := []unix.PollFd{
			{Fd: int32(k.wake.Fd()), Events: unix.POLLIN}, //nolint:gosec // an fd fits
			{Fd: int32(k.fd), Events: unix.POLLIN},        //nolint:gosec // an fd fits
		}
		if _, err := unix.Poll(ready, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return 0, os.NewSyscallError("poll", err)
		}
		if ready[0].Revents != 0 {
			return 0, errReaderClosed
		}
		if ready[1].Revents == 0 {
			continue
		}
		n, err := unix.Read(k.fd, p)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // another reader was faster
		case err != nil && !errors.Is(err, unix.EIO):
			return 0, os.NewSyscallError("read", err)
		case n <= 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Close ends a blocked Read. It may be called more than once.
func (k *ttyReader) Close() error {
	k.once.Do(func() { _ = k.waking.Close() }) // makes wake readable
	return nil
}

// free closes the pipe. It must not be called during a Read.
func (k *ttyReader) free() { _ = k.wake.Close() }

// The escape sequence, Ctrl-] three times within a second, cancels a tool that ignores Ctrl-C. The
// tool receives these bytes too, so that no input is delayed.
const (
	escapeKey      = 0x1d
	escapeCount    = 3
	escapeInterval = time.Second
)

// escapeDetector calls onEscape when the escape sequence is read from r.
type escapeDetector struct {
	r        io.Reader
	now      func() time.Time
	onEscape func()
	// times of the last presses, oldest first; zero if another key was typed since
	times [escapeCount]time.Time
}

func (e *escapeDetector) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	now := e.now()
	for _, c := range p[:n] {
		if c != escapeKey {
			e.times = [escapeCount]time.Time{}
			continue
		}
		copy(e.times[:], e.times[1:])
		e.times[escapeCount-1] = now
		if !e.times[0].IsZero() && now.Sub(e.times[0]) <= escapeInterval {
			e.times = [escapeCount]time.Time{}
			e.onEscape()
		}
	}
	return n, err
}
