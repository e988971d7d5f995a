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

// isTerminal says whether a reader or writer of ours is a terminal. Anything that is no file is
// none.
func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// columns is the width of the terminal, 80 where it does not say.
func columns(w io.Writer) int {
	return int(sizeOf(w).Columns)
}

// callerStdin gives what a tool may read of our stdin, nil if that is nothing: where it is
// /dev/null, and where it is a terminal that belongs to another job, since reading it would stop
// us.
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

// inForeground says whether a terminal is our job's. One that is not our controlling terminal is
// nobody's job's.
func inForeground(f *os.File) bool {
	owner, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || owner == unix.Getpgrp()
}

// makeRaw has a terminal pass every byte as it is, in both directions: what cfmakeraw(3) does. It
// gives the modes that were.
func makeRaw(f *os.File) (*unix.Termios, error) {
	modes, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	raw := *modes
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	return modes, unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, &raw)
}

// sizeOf gives the size of the first terminal among readers and writers of ours, 80x24 where none
// says it.
func sizeOf(candidates ...any) dray.TerminalSize {
	for _, v := range candidates {
		f, ok := v.(*os.File)
		if !ok {
			continue
		}
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 &&
			size.Row > 0 {
			return dray.TerminalSize{Columns: size.Col, Rows: size.Row}
		}
	}
	return dray.TerminalSize{Columns: 80, Rows: 24}
}

// ttyReader reads a terminal. A read that waits ends with Close, so that what is typed afterwards
// is for whoever reads the terminal next, and no goroutine stays behind.
type ttyReader struct {
	fd           int
	wake, waking *os.File
	once         sync.Once
}

func newKeyboard(f *os.File) (*ttyReader, error) {
	wake, waking, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &ttyReader{fd: int(f.Fd()), wake: wake, waking: waking}, nil
}

var errKeyboardClosed = errors.New("the terminal is no longer read")

// Read waits for what is typed. A terminal that is gone is an end of file.
func (k *ttyReader) Read(p []byte) (int, error) {
	for {
		// descriptors
		ready := []unix.PollFd{{Fd: int32(k.wake.Fd()), Events: unix.POLLIN}, {Fd: int32(k.fd), Events: unix.POLLIN}} //nolint:gosec
		if _, err := unix.Poll(ready, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return 0, os.NewSyscallError("poll", err)
		}
		if ready[0].Revents != 0 {
			return 0, errKeyboardClosed
		}
		if ready[1].Revents == 0 {
			continue
		}
		n, err := unix.Read(k.fd, p)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err,
			unix.EAGAIN): // another reader of the same terminal was faster
		case err != nil && !errors.Is(err, unix.EIO):
			return 0, os.NewSyscallError("read", err)
		case n <= 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Close wakes the reader. It may be called more than once.
func (k *ttyReader) Close() error {
	k.once.Do(func() { _ = k.waking.Close() }) // which makes the other end readable
	return nil
}

// free gives the descriptors back, once nobody reads any more.
func (k *ttyReader) free() { _ = k.wake.Close() }

// The way out of a tool that takes Ctrl-C and does nothing with it: Ctrl-] three times within a
// second. All of them reach the tool as well, so that nothing that is typed waits for what may
// follow it.
const (
	escapeKey   = 0x1d
	escapeCount = 3
	escapeTime  = time.Second
)

// escapeDetector watches for it in what is read.
type escapeDetector struct {
	r        io.Reader
	now      func() time.Time
	onEscape func()
	// of the last presses, the oldest first; zero where something else was typed since
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
		if !e.times[0].IsZero() && now.Sub(e.times[0]) <= escapeTime {
			e.times = [escapeCount]time.Time{}
			e.onEscape()
		}
	}
	return n, err
}
