package command

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ttyReader reads a terminal. A read that waits ends with Close, so that what is typed afterwards is for whoever reads the terminal next, and no
// goroutine stays behind.
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
		ready := []unix.PollFd{{Fd: int32(k.wake.Fd()), Events: unix.POLLIN}, {Fd: int32(k.fd), Events: unix.POLLIN}} //nolint:gosec // descriptors
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
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // another reader of the same terminal was faster
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

// The way out of a tool that takes Ctrl-C and does nothing with it: Ctrl-] three times within a second. All of them reach the tool as well, so that
// nothing that is typed waits for what may follow it.
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
	times    [escapeCount]time.Time // of the last presses, the oldest first; zero where something else was typed since
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
