package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// PipeSize is what a pipe of much output is asked to hold: writer and reader take turns more rarely
// than with the kernel's 64 KiB. Where the kernel refuses (an unprivileged user with many pipes, a
// lower fs.pipe-max-size), the pipe stays as it is. Pipes of little output are not asked: an
// unprivileged user has room for 64 large ones (fs.pipe-user-pages-soft), and beyond that gets new
// ones of 8 KiB.
const PipeSize = 1 << 20

// enlargeThreshold is how much a stream brings, in bytes, before its pipe is enlarged.
const enlargeThreshold = 256 << 10

// ChildFiles are the tool's ends of its three streams, made by somebody else.
type ChildFiles struct{ Stdin, Stdout, Stderr *os.File }

func (e ChildFiles) files() [3]*os.File { return [3]*os.File{e.Stdin, e.Stdout, e.Stderr} }

// Close closes all that are there.
func (e ChildFiles) Close() {
	for _, f := range e.files() {
		if f != nil {
			_ = f.Close()
		}
	}
}

// prepareForChild makes the ends what a tool expects: blocking, and its user's, so that it can open
// /dev/stdout and its kin by name.
func (e ChildFiles) prepareForChild(user *Credential) error {
	for _, f := range e.files() {
		raw, err := f.SyscallConn()
		if err != nil {
			return fmt.Errorf("preparing a stream: %w", err)
		}
		err = raw.Control(func(fd uintptr) {
			_ = syscall.SetNonblock(int(fd), false)
			if user != nil {
				// without the right to, only such opens fail
				_ = syscall.Fchown(int(fd), int(user.UID), int(user.GID))
			}
		})
		if err != nil {
			return fmt.Errorf("preparing a stream: %w", err)
		}
	}
	return nil
}

// Pipes are the three pipes of a process with both their ends.
type Pipes struct {
	// Child are the tool's ends. They are closed here once the tool has them, or its streams would not
	// end with it.
	Child  ChildFiles
	Stdin  *os.File
	Stdout *Output
	Stderr *Output
}

// NewPipes makes three pipes, our ends polled.
func NewPipes() (*Pipes, error) {
	var in, out, err2 [2]int
	for i, p := range []*[2]int{&in, &out, &err2} {
		if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
			for _, q := range []*[2]int{&in, &out, &err2}[:i] {
				closeAll(q[:])
			}
			return nil, &StartError{Step: StepFork, Err: fmt.Errorf("making pipes: %w", err)}
		}
	}
	return &Pipes{
		Child: ChildFiles{
			os.NewFile(uintptr(in[0]), "stdin"), os.NewFile(uintptr(out[1]), "stdout"),
			os.NewFile(uintptr(err2[1]), "stderr"),
		},
		Stdin:  polled(in[1], "stdin"),
		Stdout: NewOutput(polled(out[0], "stdout")),
		Stderr: NewOutput(polled(err2[0], "stderr")),
	}, nil
}

func polled(fd int, name string) *os.File {
	_ = syscall.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), name)
}

// Finish tells the readers that the process is over, and closes its stdin.
func (p *Pipes) Finish() {
	p.Stdout.Finish()
	p.Stderr.Finish()
	_ = p.Stdin.Close()
}

// Close closes our ends: nothing was started.
func (p *Pipes) Close() {
	_ = p.Stdin.Close()
	_ = p.Stdout.Close()
	_ = p.Stderr.Close()
}

// Output reads a stream of the process. It ends with end of file, or, once the process is over,
// with the last byte that is there: whoever still holds the other end cannot keep the reader
// waiting. At its end it closes the file.
type Output struct {
	file       *os.File
	bytesRead  int // bytes, until it was much
	drainLimit int // of what may still be taken after Finish; set by the first rest
	finished   bool
}

// NewOutput reads a polled file.
func NewOutput(f *os.File) *Output { return &Output{file: f} }

// Finish tells the reader that nothing more is to be waited for. It may be called from another
// goroutine.
func (o *Output) Finish() {
	_ = o.file.SetReadDeadline(time.Now()) // wakes a reader that waits
}

// Close gives the stream up.
func (o *Output) Close() error { return o.file.Close() }

// Read reads what the process wrote.
func (o *Output) Read(p []byte) (int, error) {
	n, err := o.file.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return o.drain(p)
	}
	if err != nil {
		_ = o.file.Close()
		err = endOf(err)
	}
	o.count(n)
	return n, err
}

// count enlarges the pipe of a stream that proves to be a large one.
func (o *Output) count(n int) {
	if o.bytesRead >= enlargeThreshold {
		return
	}
	if o.bytesRead += n; o.bytesRead >= enlargeThreshold {
		GrowPipe(o.file, PipeSize)
	}
}

// drain takes what lies in the pipe, without waiting, and at most as much as a pipe holds: one who
// still has the other end, because the tool handed it on, could write for ever.
func (o *Output) drain(p []byte) (n int, err error) {
	if !o.finished {
		o.finished, o.drainLimit = true, capacity(o.file)
	}
	p = p[:min(len(p), o.drainLimit)]
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
	o.drainLimit -= n
	return n, nil
}

func endOf(err error) error {
	// EIO: nobody holds the terminal any more
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EIO) {
		return io.EOF
	}
	return err
}

// streams are our ends of what a process reads and writes: pipes, a terminal, or neither where the
// caller has them.
type streams struct {
	pipes    *Pipes
	terminal *terminal
	screen   *Output // of the terminal
}

func newStreams(spec Spec) (ChildFiles, streams, error) {
	if spec.Terminal != nil {
		t, err := openTerminal(*spec.Terminal)
		if err != nil {
			return ChildFiles{}, streams{}, err
		}
		return t.ends(), streams{terminal: t, screen: NewOutput(t.master)}, nil
	}
	p, err := NewPipes()
	if err != nil {
		return ChildFiles{}, streams{}, err
	}
	return p.Child, streams{pipes: p}, nil
}

func (s streams) stdin() io.WriteCloser {
	switch {
	case s.pipes != nil:
		return s.pipes.Stdin
	case s.terminal != nil:
		return s.terminal
	default:
		return noStream{}
	}
}

func (s streams) stdout() io.Reader {
	switch {
	case s.pipes != nil:
		return s.pipes.Stdout
	case s.terminal != nil:
		return s.screen
	default:
		return noStream{}
	}
}

func (s streams) stderr() io.Reader {
	if s.pipes != nil {
		return s.pipes.Stderr
	}
	return noStream{}
}

func (s streams) finish() {
	switch {
	case s.pipes != nil:
		s.pipes.Finish()
	case s.terminal != nil:
		s.terminal.finish()
		s.screen.Finish()
	}
}

func (s streams) close() {
	switch {
	case s.pipes != nil:
		s.pipes.Close()
	case s.terminal != nil:
		s.terminal.close()
	}
}
