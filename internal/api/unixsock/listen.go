// Package unixsock listens on a unix socket of one user, or of a list of users: with mode 0600 from
// its creation, with the uid of every peer from the kernel, and without replacing the socket of a
// running daemon.
package unixsock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// maxPath is the maximum length of the path of a socket: sun_path without the final NUL.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

// probeTimeout bounds the connection attempt that tells a stale socket from one in use.
const probeTimeout = 2 * time.Second

// Listen opens the socket at path and creates a missing directory with mode 0700. It replaces a
// stale socket and fails with conflict if a daemon listens on it. The lock file path.lock
// serializes daemons that start at the same time. If systemd has passed the socket to this process
// (sd_listen_fds), Listen uses that, and fails with conflict if it is another one.
//
// Only the user of this process, root and the uids in users may connect. The connection of another
// user is closed before anything is read, and reported to refused. With users the socket gets the
// mode 0666, and its directory must allow them to enter. Accepted connections are *Conn.
func Listen(ctx context.Context, path string, users []uint32, refused func(uid uint32)) (*Listener,
	error,
) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of the socket: %w", err)
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	l, err := inherited(path)
	fromManager := l != nil
	if err == nil && !fromManager {
		l, err = open(ctx, path)
	}
	if err == nil && len(users) > 0 {
		if err = share(path); err != nil {
			_ = l.Close()
		}
	}
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	allowed := append([]uint32{uint32(os.Geteuid()), 0}, users...) //nolint:gosec // a uid
	return &Listener{
		UnixListener: l, Inherited: fromManager, lock: lock, allowed: allowed, refused: refused,
	}, nil
}

// share lets all users connect, of whom Accept refuses most.
func share(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&0o001 == 0 {
		return dray.Errorf(dray.CodeInvalidRequest, "the users of server.users cannot enter %s, which "+
			"has mode %04o", dir, info.Mode().Perm()).
			WithHint("run `chmod o+x %s`, or set server.socket to a path in another directory", dir)
	}
	return errors.Join(err, os.Chmod(path, 0o666)) //nolint:gosec // Accept checks the peer's uid
}

func checkPath(path string) error {
	if len(path) <= maxPath {
		return nil
	}
	return dray.Errorf(dray.CodeInvalidRequest,
		"the socket path has %d bytes, the maximum is %d: %s", len(path), maxPath, path).
		WithHint("set server.socket to a shorter path such as %s, or use a state directory with a "+
			"shorter path",
			suggestPath())
}

// suggestPath returns a path that is short enough.
func suggestPath() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) &&
		len(dir) < maxPath-len("/dray.sock") {
		return filepath.Join(dir, "dray.sock")
	}
	return fmt.Sprintf("/run/user/%d/dray.sock", os.Geteuid())
}

// lockFile locks a file while it is open. The file is never removed: another daemon could lock a
// new file of the same name.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the socket: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, inUseError(path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

func inUseError(path string) error {
	return dray.Errorf(dray.CodeConflict, "another daemon uses %s", path).
		WithHint("use that daemon, stop it, or choose another state directory with --state DIR")
}

func open(ctx context.Context, path string) (*net.UnixListener, error) {
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: setMode0600}
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listen on %s: not a unix socket", path), l.Close())
	}
	return u, nil
}

// setMode0600 sets the mode of the socket before bind, which gives it to the file, so that there is
// no time in which others may connect.
func setMode0600(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
	return errors.Join(err, failed)
}

// removeStale removes a socket without a listener. It does not remove anything else.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("stat the socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return dray.Errorf(dray.CodeConflict, "%s exists and is not a socket", path).
			WithHint("move it, or set server.socket to another path")
	}
	conn, err := (&net.Dialer{Timeout: probeTimeout}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return inUseError(path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the stale socket: %w", err)
	}
	return nil
}

// Listener accepts the connections of its users.
type Listener struct {
	*net.UnixListener
	// Inherited means that the service manager owns the socket: it exists before and after this
	// process, and Close does not remove it.
	Inherited bool

	lock    *os.File
	allowed []uint32 // uids
	refused func(uid uint32)
}

// Conn is a connection with the uid of its peer.
type Conn struct {
	*net.UnixConn
	uid uint32
	pid int
}

// Principal returns uid:N for the uid N of the peer.
func (c *Conn) Principal() string { return fmt.Sprintf("uid:%d", c.uid) }

// PID returns the process that connected, 0 if it is in another pid namespace. Meanwhile it may
// have ended, and another process may have its pid.
func (c *Conn) PID() int { return c.pid }

// Accept blocks until an allowed peer connects.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		who, err := peer(conn)
		if err == nil && slices.Contains(l.allowed, who.Uid) {
			return &Conn{UnixConn: conn, uid: who.Uid, pid: int(who.Pid)}, nil
		}
		_ = conn.Close()
		if err == nil && l.refused != nil {
			l.refused(who.Uid)
		}
	}
}

// Close closes and removes the socket and releases its lock.
func (l *Listener) Close() error {
	return errors.Join(l.UnixListener.Close(), l.lock.Close())
}

// peer returns uid and pid of the peer at the time it connected.
func peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, failed
}
