package wire

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// maxFDs is how many descriptors may travel with one frame.
const maxFDs = 16

// Socket is a unix stream socket as a connection. Beside frames it carries descriptors, in one
// direction: towards the side that takes them, which is the agent. The other side lets the kernel
// close whatever is passed to it, and ends the connection for it.
type Socket struct {
	file       *os.File
	raw        syscall.RawConn
	acceptFDs  bool
	oob        []byte
	pendingFDs [][]*os.File // sets of descriptors whose frame was not handled yet; the reader's alone
}

// NewSocket takes over a polled file that is a socket. Takes says that descriptors are accepted.
func NewSocket(file *os.File, takes bool) (*Socket, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("taking over a socket: %w", err)
	}
	s := &Socket{file: file, raw: raw, acceptFDs: takes}
	if takes {
		s.oob = make([]byte, syscall.CmsgSpace(4*maxFDs))
	}
	return s, nil
}

// Read reads bytes. Descriptors that came with them wait for the frame that they belong to, and
// were sent with its first byte, so that the order of sets is that of frames.
func (s *Socket) Read(p []byte) (n int, err error) {
	var oobn, flags int
	pollErr := s.raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, err = syscall.Recvmsg(int(fd), p, s.oob, syscall.MSG_CMSG_CLOEXEC)
			if !errors.Is(err, syscall.EINTR) {
				return !errors.Is(err, syscall.EAGAIN)
			}
		}
	})
	switch {
	case pollErr != nil:
		return 0, pollErr
	case err != nil:
		return 0, fmt.Errorf("reading the socket: %w", err)
	}
	if err := s.queueFDs(s.oob[:oobn], flags); err != nil {
		return 0, err
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// queueFDs keeps what came, or refuses it. Without room for them the kernel has closed descriptors
// already, and says so.
func (s *Socket) queueFDs(oob []byte, flags int) error {
	files, err := parseRights(oob)
	switch {
	case err != nil || flags&syscall.MSG_CTRUNC != 0:
		closeFiles(files)
		return protocolError("descriptors that nobody asked for")
	case len(files) > 0:
		s.pendingFDs = append(s.pendingFDs, files)
	}
	return nil
}

func parseRights(oob []byte) (files []*os.File, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := syscall.ParseSocketControlMessage(oob)
	for i := range messages {
		fds, parseErr := syscall.ParseUnixRights(&messages[i])
		err = errors.Join(err, parseErr)
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, err
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// nextFDs gives the descriptors of the frame that is handled now.
func (s *Socket) nextFDs() ([]*os.File, error) {
	if len(s.pendingFDs) == 0 {
		return nil, protocolError("a frame without the descriptors that belong to it")
	}
	files := s.pendingFDs[0]
	s.pendingFDs = s.pendingFDs[1:]
	return files, nil
}

// Write writes bytes.
func (s *Socket) Write(p []byte) (int, error) { return s.file.Write(p) }

// writeWithFDs writes a frame whose first byte carries descriptors. The files stay the caller's.
func (s *Socket) writeWithFDs(p []byte, files []*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		raw, err := f.SyscallConn() // not Fd, which would make the file blocking
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds[i] = int(fd) })
		}
		if err != nil {
			return fmt.Errorf("passing a descriptor: %w", err)
		}
	}
	rights := syscall.UnixRights(fds...)
	var n int
	var err error
	pollErr := s.raw.Write(func(fd uintptr) bool {
		for {
			n, err = syscall.SendmsgN(int(fd), p, rights, nil, syscall.MSG_NOSIGNAL)
			if !errors.Is(err, syscall.EINTR) {
				return !errors.Is(err, syscall.EAGAIN)
			}
		}
	})
	if err := errors.Join(pollErr, err); err != nil {
		return fmt.Errorf("passing descriptors: %w", err)
	}
	if n < len(p) {
		_, err = s.file.Write(p[n:])
	}
	return err
}

// SetDeadline bounds reads and writes; the zero time takes the bound away.
func (s *Socket) SetDeadline(t time.Time) error { return s.file.SetDeadline(t) }

// PeerPID is the process that connected, in this process's numbering; 0 where it has no number
// here.
func (s *Socket) PeerPID() int {
	pid := 0
	_ = s.raw.Control(func(fd uintptr) { // a closed socket has no peer
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET,
			syscall.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// Close closes the socket. Descriptors that nobody took are closed by the reader when it ends: see
// Mux.
func (s *Socket) Close() error { return s.file.Close() }

// discard closes the descriptors whose frames never came.
func (s *Socket) discard() {
	for _, files := range s.pendingFDs {
		closeFiles(files)
	}
	s.pendingFDs = nil
}
