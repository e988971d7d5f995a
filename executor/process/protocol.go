package process

import (
	"encoding/binary"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/internal/linux"
)

// maxMessage bounds one message between pool and supervisor, in bytes. The kernel refuses an argv
// and environment of more than about 2 MiB anyway.
const maxMessage = 8 << 20

// errMalformed is returned for a message that the other side of the socket cannot have sent.
var errMalformed = errors.New("malformed supervisor message")

// Kinds of message. To the supervisor: start, signal, stop, cgroup. To the pool: started, failed,
// exited.
const (
	msgStart byte = iota + 1
	msgSignal
	msgStop
	msgStarted
	msgFailed
	msgExited
	msgCgroup
)

// headerSize is the size of a kind and a length, in bytes.
const headerSize = 5

func frame(kind byte, body []byte) []byte {
	b := make([]byte, headerSize, headerSize+len(body))
	b[0] = kind
	binary.LittleEndian.PutUint32(b[1:], uint32(len(body))) //nolint:gosec // at most maxMessage
	return append(b, body...)
}

// receiveMessage reads one message without fds.
func receiveMessage(r io.Reader) (kind byte, body []byte, err error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if size > maxMessage {
		return 0, nil, errMalformed
	}
	body = make([]byte, size)
	_, err = io.ReadFull(r, body)
	return head[0], body, err
}

// poolConn is the supervisor's end of the socket, a blocking fd. It is buffered, so that most
// messages take one system call.
type poolConn struct {
	fd  int
	buf []byte // received and not yet read
	mem [4 << 10]byte
	oob []byte
	fds []int // passed with bytes in buf, or with the message that is being read
}

func newPoolConn(fd int) *poolConn {
	return &poolConn{fd: fd, oob: make([]byte, linux.OOBSize(maxPassed))}
}

// maxPassed is the highest number of fds that come with one message.
const maxPassed = 4

func (c *poolConn) Read(p []byte) (int, error) {
	if len(c.buf) == 0 {
		n, fds, err := linux.ReceiveFDs(c.fd, c.mem[:], c.oob)
		c.fds = append(c.fds, fds...)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, io.EOF
		}
		c.buf = c.mem[:n]
	}
	n := copy(p, c.buf)
	c.buf = c.buf[n:]
	return n, nil
}

// receive reads one message. Only start and cgroup messages have fds; the caller closes them, also
// if receive fails.
func (c *poolConn) receive() (kind byte, body []byte, fds []int, err error) {
	kind, body, err = receiveMessage(c)
	if err != nil || kind == msgStart || kind == msgCgroup {
		fds, c.fds = c.fds, nil
	}
	return kind, body, fds, err
}

func (c *poolConn) send(kind byte, body []byte) error {
	b := frame(kind, body)
	for len(b) > 0 {
		n, err := linux.SendFDs(c.fd, b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// hasMessage reports whether receive would not block.
func (c *poolConn) hasMessage() bool {
	if len(c.buf) > 0 {
		return true
	}
	fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}} //nolint:gosec // fds are small
	linux.Poll(fds, 0)
	return fds[0].Revents != 0
}
