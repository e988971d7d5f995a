package linux

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// MaxFDs is the highest number of fds that one message may carry here.
const MaxFDs = 16

// ErrFDsDropped is returned by ReceiveFDs if the sender passed more fds than there was space for.
// The kernel has closed the ones that did not fit.
var ErrFDsDropped = errors.New("more file descriptors were passed than can be received")

// OOBSize returns the size in bytes of a buffer for the control message with n fds.
func OOBSize(n int) int { return unix.CmsgSpace(4 * n) }

// SendFDs sends data on a unix stream socket and passes fds with the first byte. It returns the
// number of bytes sent, and EAGAIN if the socket is nonblocking and full.
func SendFDs(socket int, data []byte, fds ...int) (int, error) {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	return RetryValue(func() (int, error) {
		return unix.SendmsgN(socket, data, oob, nil, unix.MSG_NOSIGNAL)
	})
}

// ReceiveFDs reads from a unix stream socket into data, and returns the fds that were passed with
// these bytes. oob is the space for the control message (see OOBSize); without it no fds are
// received. It returns 0 bytes at the end of the stream, EAGAIN if the socket is nonblocking and
// empty, and ErrFDsDropped together with the bytes and fds that were received.
func ReceiveFDs(socket int, data, oob []byte) (n int, fds []int, err error) {
	var oobn, flags int
	for {
		n, oobn, flags, _, err = unix.Recvmsg(socket, data, oob, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR { //nolint:errorlint // the bare number
			break
		}
	}
	if err != nil {
		return 0, nil, err
	}
	if oobn > 0 {
		fds, err = parseFDs(oob[:oobn])
	}
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = ErrFDsDropped
	}
	return n, fds, err
}

func parseFDs(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		some, parseErr := unix.ParseUnixRights(&messages[i])
		fds, err = append(fds, some...), errors.Join(err, parseErr)
	}
	if err != nil {
		err = fmt.Errorf("parse control message: %w", err)
	}
	return fds, err
}

// WithFDs calls use with the fds of files, which stay open until use returns. Unlike File.Fd it
// leaves nonblocking files nonblocking. It fails if a file is closed.
func WithFDs(files []*os.File, use func(fds []int) error) error {
	return withFDs(files, make([]int, 0, len(files)), use)
}

func withFDs(files []*os.File, fds []int, use func(fds []int) error) error {
	if len(files) == 0 {
		return use(fds)
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) {
		err = withFDs(files[1:], append(fds, int(fd)), use)
	})
	return errors.Join(controlErr, err)
}

// Control calls use with the fd of f. It returns the error of use, or fails if f is closed.
func Control(f *os.File, use func(fd int) error) error {
	return WithFDs([]*os.File{f}, func(fds []int) error { return use(fds[0]) })
}
