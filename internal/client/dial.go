package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// ErrNoDaemon says that no daemon answers on the socket. Nothing was sent.
var ErrNoDaemon = errors.New("no daemon answers")

// dialer connects to the socket, and starts the daemon if it may and must.
type dialer struct {
	socket string
	start  func(context.Context) error
}

// dial is http.Transport's DialContext. Starting belongs here, and not before the first request: between a check and a request an idle daemon
// may end, and a connection that was refused is the one failure after which a repeat can never run a call twice.
func (d *dialer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := connect(ctx, d.socket)
	if !errors.Is(err, ErrNoDaemon) || d.start == nil {
		return conn, err
	}
	if err := d.start(ctx); err != nil {
		return nil, err
	}
	return connect(ctx, d.socket)
}

// IsListening says whether a daemon accepts connections on the socket.
func IsListening(ctx context.Context, socket string) bool {
	conn, err := connect(ctx, socket)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func connect(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialUnix(ctx, "unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w on %s", ErrNoDaemon, socket)
	case err != nil:
		return nil, err
	}
	if err := checkPeer(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// checkPeer refuses a daemon of another user, root aside: a call carries the caller's environment, and a socket in a shared folder may be anyone's.
func checkPeer(conn *net.UnixConn) error {
	cred, err := peer(conn)
	if err != nil {
		return fmt.Errorf("asking who listens: %w", err)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return dray.Errorf(dray.CodeUnauthorized, "the daemon on this socket belongs to user %d", cred.Uid).
			WithHint("use a state folder of your own: --state DIR")
	}
	return nil
}

// peer asks the kernel who listens.
func peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}

// peerPID is the process that listens on a socket, 0 where that is not known.
func peerPID(socket string) int {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return 0
	}
	defer conn.Close()
	cred, err := peer(conn)
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}
