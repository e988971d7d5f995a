package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
)

// PipeSize is the capacity in bytes that is requested for the pipe of a stream with much output, so
// that writer and reader alternate less often than with the kernel's 64 KiB. The kernel may refuse
// it to an unprivileged user (fs.pipe-max-size). Other pipes keep their size, because such a user
// gets new pipes of 8 KiB once he has 64 large ones (fs.pipe-user-pages-soft).
const PipeSize = 1 << 20

// enlargeThreshold is the number of bytes after which a pipe is enlarged.
const enlargeThreshold = 256 << 10

// ChildFiles are the tool's ends of its three streams.
type ChildFiles struct{ Stdin, Stdout, Stderr *os.File }

func (e ChildFiles) files() []*os.File { return []*os.File{e.Stdin, e.Stdout, e.Stderr} }

// Close closes the files that are not nil.
func (e ChildFiles) Close() {
	for _, f := range e.files() {
		if f != nil {
			_ = f.Close()
		}
	}
}

// prepareForChild makes the files blocking and gives them to the tool's user, so that the tool can
// open /dev/stdout and similar names.
func (e ChildFiles) prepareForChild(user *Credential) error {
	for _, f := range e.files() {
		err := linux.Control(f, func(fd int) error {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0)
			if user != nil { // without the capability only such opens fail
				_ = unix.Fchown(fd, int(user.UID), int(user.GID))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("prepare a stream: %w", err)
		}
	}
	return nil
}

// Pipes are the three pipes of a process with both their ends.
type Pipes struct {
	// Child are the tool's ends. The caller must close them once the tool has them, so that the
	// streams end with the tool.
	Child  ChildFiles
	Stdin  *os.File
	Stdout *Output
	Stderr *Output
}

// NewPipes creates three pipes. Our ends are nonblocking.
func NewPipes() (*Pipes, error) {
	var pipes [3][2]int // stdin, stdout, stderr
	for i := range pipes {
		if err := unix.Pipe2(pipes[i][:], unix.O_CLOEXEC); err != nil {
			for _, p := range pipes[:i] {
				linux.CloseAll(p[:])
			}
			return nil, &StartError{Step: StepFork, Err: fmt.Errorf("create pipes: %w", err)}
		}
	}
	in, out, errOut := pipes[0], pipes[1], pipes[2]
	return &Pipes{
		Child: ChildFiles{
			Stdin:  os.NewFile(uintptr(in[0]), "stdin"),
			Stdout: os.NewFile(uintptr(out[1]), "stdout"),
			Stderr: os.NewFile(uintptr(errOut[1]), "stderr"),
		},
		Stdin:  nonblockingFile(in[1], "stdin"),
		Stdout: NewOutput(nonblockingFile(out[0], "stdout")),
		Stderr: NewOutput(nonblockingFile(errOut[0], "stderr")),
	}, nil
}

// nonblockingFile takes over the fd of a pipe.
func nonblockingFile(fd int, name string) *os.File {
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK) // a pipe has no other flag
	return os.NewFile(uintptr(fd), name)
}

// Finish ends the outputs after the bytes that are in the pipes, and closes stdin. The process must
// have ended.
func (p *Pipes) Finish() {
	p.Stdout.Finish()
	p.Stderr.Finish()
	_ = p.Stdin.Close()
}

// Close closes our ends. No process was started.
func (p *Pipes) Close() {
	_ = p.Stdin.Close()
	_ = p.Stdout.Close()
	_ = p.Stderr.Close()
}

// Output reads a stream of the process. It ends at end of file or, after Finish, with the last byte
// in the pipe: a process that still has the other end does not delay the reader. It closes the file
// at the end.
type Output struct {
	file       *os.File
	bytesRead  int // up to enlargeThreshold
	drainLimit int // bytes that may still be read after Finish; set by the first drain
	finished   bool
}

// NewOutput returns an Output that reads a nonblocking file.
func NewOutput(f *os.File) *Output { return &Output{file: f} }

// Finish makes the reader return what is in the pipe and then end of file. It may be called
// concurrently with Read.
func (o *Output) Finish() {
	_ = o.file.SetReadDeadline(time.Now()) // wakes a blocked reader
}

// Close closes the file.
func (o *Output) Close() error { return o.file.Close() }

// Read implements io.Reader.
func (o *Output) Read(p []byte) (int, error) {
	n, err := readTerminal(func() (int, error) { return o.file.Read(p) })
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

// count enlarges the pipe after enlargeThreshold bytes.
func (o *Output) count(n int) {
	if o.bytesRead >= enlargeThreshold {
		return
	}
	if o.bytesRead += n; o.bytesRead >= enlargeThreshold {
		GrowPipe(o.file, PipeSize)
	}
}

// drain reads what is in the pipe without blocking, at most one capacity in total: a process that
// still has the other end could write forever.
func (o *Output) drain(p []byte) (n int, err error) {
	if !o.finished {
		o.finished, o.drainLimit = true, capacity(o.file)
	}
	p = p[:min(len(p), o.drainLimit)]
	_ = o.file.SetReadDeadline(time.Time{})
	defer func() { _ = o.file.SetReadDeadline(time.Now()) }()
	err = linux.Control(o.file, func(fd int) (err error) {
		n, err = readTerminal(func() (int, error) {
			return linux.RetryValue(func() (int, error) { return unix.Read(fd, p) })
		})
		return err
	})
	if err != nil || n <= 0 {
		_ = o.file.Close()
		return 0, io.EOF
	}
	o.drainLimit -= n
	return n, nil
}

// readTerminal calls read, and once more if it fails with EIO, the end of a terminal. The kernel
// first looks for output and then whether the last process has closed the terminal. A process that
// writes and exits between both ends the first read although there is output. The second read
// returns it: nothing is written after the close.
func readTerminal(read func() (int, error)) (int, error) {
	n, err := read()
	if errors.Is(err, unix.EIO) {
		n, err = read()
	}
	return n, err
}

func endOf(err error) error {
	// EIO: no process has the terminal any more
	if errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EIO) {
		return io.EOF
	}
	return err
}

// capacity returns the number of bytes that a pipe or terminal may hold for its reader.
func capacity(f *os.File) int {
	size := 0
	_ = linux.Control(f, func(fd int) (err error) { // a closed file holds nothing
		if size, err = unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err != nil {
			size = terminalDrain
		}
		return nil
	})
	return size
}

// GrowPipe requests a capacity of size bytes for a pipe. It does nothing if the kernel refuses, or
// if f is not a pipe.
func GrowPipe(f *os.File, size int) {
	_ = linux.Control(f, func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, size)
		return err
	})
}

// streams are our ends of the streams of a process.
type streams struct {
	stdin          io.WriteCloser
	stdout, stderr io.Reader
	terminal       *terminal // nil for none
	finish         func()    // after the end of the process: ends the outputs and closes stdin
	close          func()    // no process was started
}

// noStreams are the streams of a process whose caller has them.
func noStreams() streams {
	return streams{
		stdin: noStream{}, stdout: noStream{}, stderr: noStream{}, finish: func() {}, close: func() {},
	}
}

func newStreams(spec Spec) (ChildFiles, streams, error) {
	if spec.Terminal != nil {
		return newTerminalStreams(*spec.Terminal)
	}
	p, err := NewPipes()
	if err != nil {
		return ChildFiles{}, streams{}, err
	}
	return p.Child, streams{
		stdin: p.Stdin, stdout: p.Stdout, stderr: p.Stderr, finish: p.Finish, close: p.Close,
	}, nil
}

func newTerminalStreams(size dray.TerminalSize) (ChildFiles, streams, error) {
	t, err := openTerminal(size)
	if err != nil {
		return ChildFiles{}, streams{}, err
	}
	screen := NewOutput(t.master)
	finish := func() {
		_ = t.master.SetWriteDeadline(time.Now()) // blocked writers fail
		screen.Finish()
	}
	return ChildFiles{Stdin: t.slave, Stdout: t.slave, Stderr: t.slave}, streams{
		stdin: t, stdout: screen, stderr: noStream{}, terminal: t, finish: finish, close: t.close,
	}, nil
}
