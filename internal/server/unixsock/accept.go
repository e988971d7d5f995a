package unixsock

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Listener accepts the connections of one user and of root.
type Listener struct {
	*net.UnixListener
	lock    *os.File
	uid     int
	refused func(uid uint32)
}

// Conn is a connection whose peer is known.
type Conn struct {
	*net.UnixConn
	uid uint32
}

// Principal names the peer: uid:N.
func (c *Conn) Principal() string { return fmt.Sprintf("uid:%d", c.uid) }

// Accept waits for the next connection of somebody who may connect.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := peer(conn)
		if err == nil && (int(uid) == l.uid || uid == 0) {
			return &Conn{UnixConn: conn, uid: uid}, nil
		}
		_ = conn.Close()
		if err == nil && l.refused != nil {
			l.refused(uid)
		}
	}
}

// Close stops listening, removes the socket and gives the path free.
func (l *Listener) Close() error {
	return errors.Join(l.UnixListener.Close(), l.lock.Close())
}

// peer asks the kernel for the uid that the other side had when it connected.
func peer(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	return cred.Uid, nil
}
