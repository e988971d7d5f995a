package unixsock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// maxPath is how long a socket's path may be: sun_path less its end.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

const probeTimeout = 2 * time.Second

// Listen opens the socket at path. A folder that is missing is made, 0700. A socket that nobody
// answers on is replaced; one that a daemon answers on is a conflict. A lock beside the socket,
// path.lock, keeps two daemons that start at once from taking it from each other.
//
// Peers are this process's own user and root: everyone else is hung up on, and refused is told.
// Accepted connections are *Conn.
func Listen(ctx context.Context, path string, refused func(uid uint32)) (*Listener, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("making the socket's folder: %w", err)
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	l, err := open(ctx, path)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return &Listener{UnixListener: l, lock: lock, uid: os.Geteuid(), refused: refused}, nil
}

func checkPath(path string) error {
	if len(path) <= maxPath {
		return nil
	}
	return dray.Errorf(dray.CodeInvalidRequest,
		"the socket's path has %d bytes, and the system takes %d: %s", len(path), maxPath, path).
		WithHint("name a shorter one: set server.socket to %s, or the state folder to a shorter path",
			suggestPath())
}

// suggestPath proposes a path that fits.
func suggestPath() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) &&
		len(dir) < maxPath-len("/dray.sock") {
		return filepath.Join(dir, "dray.sock")
	}
	return fmt.Sprintf("/run/user/%d/dray.sock", os.Geteuid())
}

// lockFile takes the lock for as long as the file stays open. The file itself stays: removing it
// would let two hold "the" lock.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the socket's lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, inUseError(path)
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}

func inUseError(path string) error {
	return dray.Errorf(dray.CodeConflict, "another daemon uses %s", path).
		WithHint("use it, end it, or give this one a state folder of its own: --state DIR")
}

func open(ctx context.Context, path string) (*net.UnixListener, error) {
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: setMode0600}
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listening on %s: it is no unix socket", path), l.Close())
	}
	return u, nil
}

// setMode0600 sets the mode before the name exists: bind gives the name the mode of the socket, so
// there is no moment in which others may connect.
func setMode0600(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
	return errors.Join(err, failed)
}

// removeStale removes a socket that nobody listens on. Whatever else lies there is left alone.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking at the socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return dray.Errorf(dray.CodeConflict, "%s is there and is no socket", path).
			WithHint("move it away, or set server.socket to another path")
	}
	conn, err := (&net.Dialer{Timeout: probeTimeout}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return inUseError(path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing the socket that nobody answers on: %w", err)
	}
	return nil
}

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
