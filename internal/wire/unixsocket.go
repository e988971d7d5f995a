package wire

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/internal/linux"
)

// Socket is a connected unix stream socket. Beside bytes it passes fds to the side that accepts
// them, which is the agent. On the other side passed fds end the connection.
type Socket struct {
	file       *os.File
	raw        syscall.RawConn
	acceptFDs  bool
	oob        []byte
	pendingFDs []passedFDs // one for each frame that was not handled yet; used by the reader
}

// passedFDs are the fds of one frame. dropped is set if this process could not take all of them,
// because it has too many open files.
type passedFDs struct {
	files   []*os.File
	dropped bool
}

// NewSocket takes over a nonblocking file that is a socket. acceptFDs accepts passed fds.
func NewSocket(file *os.File, acceptFDs bool) (*Socket, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("take over a socket: %w", err)
	}
	s := &Socket{file: file, raw: raw, acceptFDs: acceptFDs}
	if acceptFDs {
		s.oob = make([]byte, linux.OOBSize(linux.MaxFDs))
	}
	return s, nil
}

// Read implements io.Reader. Passed fds are queued for the frame that they belong to. They were
// sent with its first byte, so the sets are in the order of the frames.
func (s *Socket) Read(p []byte) (n int, err error) {
	var fds []int
	pollErr := s.raw.Read(func(fd uintptr) bool {
		n, fds, err = linux.ReceiveFDs(int(fd), p, s.oob)
		return err != unix.EAGAIN //nolint:errorlint // the bare number
	})
	dropped := s.acceptFDs && errors.Is(err, linux.ErrFDsDropped)
	if dropped {
		err = nil // only the stream of the frame fails
	}
	if len(fds) > 0 || dropped {
		files := make([]*os.File, len(fds))
		for i, fd := range fds {
			files[i] = os.NewFile(uintptr(fd), "passed")
		}
		s.pendingFDs = append(s.pendingFDs, passedFDs{files, dropped})
	}
	switch {
	case pollErr != nil:
		return 0, pollErr
	case errors.Is(err, linux.ErrFDsDropped):
		return 0, protocolError("file descriptors that are not accepted")
	case err != nil:
		return 0, fmt.Errorf("read from the socket: %w", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// nextFDs returns the fds of the frame that is handled now.
func (s *Socket) nextFDs() (passedFDs, error) {
	if len(s.pendingFDs) == 0 {
		return passedFDs{}, protocolError("a frame without its file descriptors")
	}
	next := s.pendingFDs[0]
	s.pendingFDs = s.pendingFDs[1:]
	return next, nil
}

// Write implements io.Writer.
func (s *Socket) Write(p []byte) (int, error) { return s.file.Write(p) }

// writeWithFDs writes a frame and passes files with its first byte. The caller still closes them.
func (s *Socket) writeWithFDs(p []byte, files []*os.File) error {
	n := 0
	err := linux.WithFDs(files, func(fds []int) (err error) {
		pollErr := s.raw.Write(func(fd uintptr) bool {
			n, err = linux.SendFDs(int(fd), p, fds...)
			return err != unix.EAGAIN //nolint:errorlint // the bare number
		})
		return errors.Join(pollErr, err)
	})
	if err != nil {
		return fmt.Errorf("pass file descriptors: %w", err)
	}
	if n < len(p) {
		_, err = s.file.Write(p[n:])
	}
	return err
}

// SetDeadline bounds reads and writes. The zero time removes the bound.
func (s *Socket) SetDeadline(t time.Time) error { return s.file.SetDeadline(t) }

// PeerPID returns the pid of the process that connected, in the pid namespace of this process. It
// is 0 if the process has none there.
func (s *Socket) PeerPID() int {
	pid := 0
	_ = linux.Control(s.file, func(fd int) error { // a closed socket has no peer
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			pid = int(cred.Pid)
		}
		return err
	})
	return pid
}

// Close closes the socket. Mux.Run closes the queued fds.
func (s *Socket) Close() error { return s.file.Close() }

// discard closes the fds of frames that were not handled.
func (s *Socket) discard() {
	for _, passed := range s.pendingFDs {
		closeFiles(passed.files)
	}
	s.pendingFDs = nil
}
