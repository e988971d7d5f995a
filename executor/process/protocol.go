package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// maxMessage bounds one message between pool and supervisor. The kernel refuses argv and
// environment above 2 MiB or so anyway.
const maxMessage = 8 << 20

// errMalformed is a message that our own parent or child cannot have sent.
var errMalformed = errors.New("malformed supervisor message")

// Kinds of message. Down: start, signal, stop, cgroup. Up: started, failed, exited.
const (
	msgStart byte = iota + 1
	msgSignal
	msgStop
	msgStarted
	msgFailed
	msgExited
	msgCgroup
)

// maxFDs is how many descriptors a message may carry.
const maxFDs = 4

// headerSize is a kind and a length.
const headerSize = 5

func frame(kind byte, body []byte) []byte {
	b := make([]byte, headerSize, headerSize+len(body))
	b[0] = kind
	binary.LittleEndian.PutUint32(b[1:], uint32(len(body))) //nolint:gosec // bounded by maxMessage
	return append(b, body...)
}

// sendMessage writes one message; the descriptors of the files travel with its first byte. It works
// on blocking and on polled files.
func sendMessage(f *os.File, kind byte, body []byte, files ...*os.File) error {
	b := frame(kind, body)
	if len(files) > 0 {
		n, err := sendFDs(f, b, files)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return nil
	}
	_, err := f.Write(b)
	return err
}

func sendFDs(f *os.File, b []byte, files []*os.File) (n int, err error) {
	err = withDescriptors(files, nil, func(fds []int) error {
		n, err = sendDescriptors(f, b, fds)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sending descriptors: %w", err)
	}
	return n, nil
}

// withDescriptors holds the files open while it calls do.
func withDescriptors(files []*os.File, fds []int, do func(fds []int) error) error {
	if len(files) == 0 {
		return do(fds)
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = withDescriptors(files[1:], append(fds, int(fd)), do) })
	return errors.Join(controlErr, err)
}

func sendDescriptors(f *os.File, b []byte, fds []int) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	rights := syscall.UnixRights(fds...)
	writeErr := raw.Write(func(fd uintptr) bool {
		n, err = syscall.SendmsgN(int(fd), b, rights, nil, syscall.MSG_NOSIGNAL)
		return err != syscall.EAGAIN //nolint:errorlint // SendmsgN gives the bare number
	})
	return n, errors.Join(writeErr, err)
}

// receiveMessage reads one message from a polled file that carries no descriptors.
func receiveMessage(f *os.File) (byte, []byte, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if size > maxMessage {
		return 0, nil, errMalformed
	}
	body := make([]byte, size)
	_, err := io.ReadFull(f, body)
	return head[0], body, err
}

// receiveFDs reads one message and its descriptors from a blocking descriptor. The descriptors are
// close-on-exec.
func receiveFDs(fd int) (byte, []byte, []int, error) {
	var head [headerSize]byte
	oob := make([]byte, syscall.CmsgSpace(4*maxFDs))
	n, oobn, _, _, err := recvmsg(fd, head[:], oob)
	if err != nil {
		return 0, nil, nil, err
	}
	if n == 0 {
		return 0, nil, nil, io.EOF
	}
	fds, err := parseFDs(oob[:oobn])
	if err == nil {
		err = readFull(fd, head[n:])
	}
	if err != nil {
		return 0, nil, fds, err
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if size > maxMessage {
		return 0, nil, fds, errMalformed
	}
	body := make([]byte, size)
	return head[0], body, fds, readFull(fd, body)
}

func recvmsg(fd int, p, oob []byte) (n, oobn, flags int, from syscall.Sockaddr, err error) {
	for {
		n, oobn, flags, from, err = syscall.Recvmsg(fd, p, oob, syscall.MSG_CMSG_CLOEXEC)
		if err != syscall.EINTR {
			return n, oobn, flags, from, err
		}
	}
}

func parseFDs(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parsing descriptors: %w", err)
	}
	var all []int
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			return all, fmt.Errorf("parsing descriptors: %w", err)
		}
		all = append(all, fds...)
	}
	return all, nil
}

func readFull(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := syscall.Read(fd, p)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		p = p[n:]
	}
	return nil
}
