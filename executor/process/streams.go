package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// streams are the three pipes of a process: our ends polled, theirs blocking, as a program expects them.
type streams struct {
	stdin          *os.File
	stdout, stderr *output
	theirs         [3]int
}

func newStreams(user *Credential) (*streams, error) {
	var in, out, err2 [2]int
	for i, p := range []*[2]int{&in, &out, &err2} {
		if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
			for _, q := range []*[2]int{&in, &out, &err2}[:i] {
				closeAll(q[:])
			}
			return nil, &StartError{Step: StepFork, Err: fmt.Errorf("making pipes: %w", err)}
		}
	}
	s := &streams{theirs: [3]int{in[0], out[1], err2[1]}}
	if user != nil {
		for _, fd := range s.theirs { // so that the tool can open /dev/stdout and its kin by name
			_ = syscall.Fchown(fd, int(user.UID), int(user.GID)) // without the right to, only such opens fail
		}
	}
	s.stdin = polled(in[1], "stdin")
	s.stdout = &output{file: polled(out[0], "stdout")}
	s.stderr = &output{file: polled(err2[0], "stderr")}
	return s, nil
}

func polled(fd int, name string) *os.File {
	_ = syscall.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), name)
}

func (s *streams) closeTheirs() { closeAll(s.theirs[:]) }

func (s *streams) closeOurs() {
	_ = s.stdin.Close()
	_ = s.stdout.file.Close()
	_ = s.stderr.file.Close()
}

// output reads a stream of the process. It ends with end of file, or, once the process is over, with the last byte that is there:
// whoever still holds the other end cannot keep the reader waiting.
type output struct {
	file *os.File
	left int // of what may still be taken after finish; set by the first rest
	over bool
}

// finish tells the reader that nothing more is to be waited for.
func (o *output) finish() {
	_ = o.file.SetReadDeadline(time.Now()) // wakes a reader that waits
}

func (o *output) Read(p []byte) (int, error) {
	n, err := o.file.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return o.rest(p)
	}
	if err != nil {
		_ = o.file.Close()
		err = endOf(err)
	}
	return n, err
}

// rest takes what lies in the pipe, without waiting, and at most as much as a pipe holds: one who still has the other end, because the
// tool handed it on, could write for ever.
func (o *output) rest(p []byte) (n int, err error) {
	if !o.over {
		o.over, o.left = true, pipeSize(o.file)
	}
	p = p[:min(len(p), o.left)]
	_ = o.file.SetReadDeadline(time.Time{})
	defer func() { _ = o.file.SetReadDeadline(time.Now()) }()
	raw, err := o.file.SyscallConn()
	if err != nil {
		return 0, io.EOF
	}
	readErr := raw.Read(func(fd uintptr) bool {
		for {
			n, err = syscall.Read(int(fd), p)
			if err != syscall.EINTR { //nolint:errorlint // Read gives the bare number
				return true
			}
		}
	})
	if readErr != nil || err != nil || n <= 0 {
		_ = o.file.Close()
		return 0, io.EOF
	}
	o.left -= n
	return n, nil
}

func endOf(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return io.EOF
	}
	return err
}
