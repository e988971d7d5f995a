package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/linux"
	"github.com/dray-dev/dray/internal/wire"
)

const (
	// connectTimeout bounds the wait for the daemon on the socket.
	connectTimeout = 8 * time.Second
	// authTimeout bounds the authentication of one peer.
	authTimeout = 2 * time.Second
	// maxPeers bounds the number of peers that may try to authenticate, and the kernel's backlog.
	maxPeers = 64
)

// socketDirs are directories in which a socket can be created, also if the container's root file
// system is read-only. Engines mount a tmpfs on the first two.
var socketDirs = []string{"/dev", "/dev/shm", "/run", "/tmp", "/"}

// listener is a unix socket without a name, which is reached only by /proc/PID/fd/N: a tool of
// another user can neither connect to it nor replace it.
type listener struct {
	socket        *os.File
	inode         *os.File // an O_PATH file of the socket
	holder        *process.Process
	authenticated chan *wire.Socket
	peers         sync.WaitGroup
}

// listen opens a socket for the daemon. close must be called.
func (a *agent) listen(request wire.Listen) (*listener, error) {
	socket, inode, err := newSocket()
	if err != nil {
		return nil, err
	}
	l := &listener{socket: socket, inode: inode, authenticated: make(chan *wire.Socket, 1)}
	if request.HolderUID != 0 {
		if err := l.startHolder(a.pool, request.HolderUID); err != nil {
			l.close()
			return nil, err
		}
	}
	l.peers.Go(func() { l.acceptLoop(request) })
	return l, nil
}

// newSocket returns a listening socket and an O_PATH file of it, in the first directory that allows
// it.
func newSocket() (socket, inode *os.File, err error) {
	var errs []error
	for _, dir := range socketDirs {
		if socket, inode, err = newSocketIn(dir); err == nil {
			return socket, inode, nil
		}
		errs = append(errs, err)
	}
	return nil, nil, errors.Join(errs...)
}

func newSocketIn(parent string) (socket, inode *os.File, err error) {
	nonce, err := newNonce()
	if err != nil {
		return nil, nil, err
	}
	dir := parent + "/.dray-" + hex.EncodeToString(nonce[:8])
	if err := os.Mkdir(dir, 0o700); err != nil { // so that nothing else reaches the socket by its name
		return nil, nil, err
	}
	defer func() { _ = os.Remove(dir) }()
	path := dir + "/s"
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("create a socket: %w", err)
	}
	socket = nonblocking(fd, "socket")
	inode, err = bind(fd, path)
	if err != nil {
		_ = socket.Close()
		return nil, nil, fmt.Errorf("listen in %s: %w", parent, err)
	}
	return socket, inode, nil
}

// bind binds a socket to a path, listens on it, and removes the path.
func bind(fd int, path string) (*os.File, error) {
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(path) }()
	if err := unix.Listen(fd, maxPeers); err != nil {
		return nil, err
	}
	pathFD, err := linux.Openat(unix.AT_FDCWD, path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	inode := os.NewFile(uintptr(pathFD), "socket")
	// The daemon may be any user. Who may open the fds of a process that has it may connect.
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", pathFD), 0o666); err != nil {
		_ = inode.Close()
		return nil, err
	}
	return inode, nil
}

// startHolder starts a process of a user that has the socket as its fd 0.
func (l *listener) startHolder(pool *process.Pool, uid int) error {
	r, out, err := os.Pipe() // it writes nothing
	if err != nil {
		return err
	}
	_ = r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	id := uint32(uid) //nolint:gosec // a uid
	l.holder, err = pool.StartWith(ctx, process.Spec{
		Argv: []string{"/proc/self/exe", "hold"}, Dir: "/", User: &process.Credential{UID: id, GID: id},
	}, process.ChildFiles{Stdin: l.inode, Stdout: out, Stderr: out})
	if err != nil {
		return fmt.Errorf("start a process of user %d that holds the socket: %w", uid, err)
	}
	return nil
}

// address returns how the daemon reaches the socket.
func (l *listener) address() wire.Listening {
	if l.holder != nil {
		return wire.Listening{PID: l.holder.Pid, FD: 0}
	}
	return wire.Listening{PID: os.Getpid(), FD: int(l.inode.Fd())}
}

// acceptLoop authenticates peers until close. A tool that is root can connect too: with PrivatePIDs
// it is refused at once and does not count, else maxPeers bounds how often it can try.
func (l *listener) acceptLoop(request wire.Listen) {
	for tried := 0; tried < maxPeers; {
		file, err := l.accept()
		if err != nil {
			return
		}
		socket, err := wire.NewSocket(file, true)
		if err != nil || request.PrivatePIDs && socket.PeerPID() != 0 {
			_ = file.Close()
			continue
		}
		tried++
		l.peers.Go(func() { l.authenticate(socket, request.Secret) })
	}
}

func (l *listener) accept() (*os.File, error) {
	raw, err := l.socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	pollErr := raw.Read(func(listening uintptr) bool {
		fd, err = linux.RetryValue(func() (int, error) {
			fd, _, err := unix.Accept4(int(listening), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return fd, err
		})
		return err != unix.EAGAIN //nolint:errorlint // the bare number
	})
	if err := errors.Join(pollErr, err); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "daemon"), nil
}

// authenticate passes on the daemon and closes the connection of any other peer.
func (l *listener) authenticate(socket *wire.Socket, secret []byte) {
	nonce, err := newNonce()
	if err == nil {
		err = socket.SetDeadline(time.Now().Add(authTimeout))
	}
	if err == nil {
		err = wire.AuthenticateDaemon(socket, secret, nonce)
	}
	if err == nil {
		err = socket.SetDeadline(time.Time{})
	}
	if err == nil {
		select {
		case l.authenticated <- socket:
			return
		default: // the daemon connects once
		}
	}
	_ = socket.Close()
}

var errNoDaemon = fmt.Errorf("the daemon has not connected within %s", connectTimeout)

// wait returns the daemon's connection, or nil if the daemon continues on stdio.
func (l *listener) wait(stdin io.Reader) (*wire.Socket, error) {
	fallback := make(chan error, 1)
	go func() { // ends with stdin
		_, err := wire.ReadFallback(stdin)
		fallback <- err
	}()
	timeout := time.NewTimer(connectTimeout)
	defer timeout.Stop()
	for {
		select {
		case socket := <-l.authenticated:
			return socket, nil
		case err := <-fallback:
			if err == nil {
				return nil, nil //nolint:nilnil // documented
			}
			fallback = nil // a daemon that uses the socket may close stdin at once
		case <-timeout.C:
			return nil, errNoDaemon
		}
	}
}

// close closes the socket, and the connection of a daemon that wait has not returned.
func (l *listener) close() {
	_ = l.socket.Close()
	_ = l.inode.Close()
	if l.holder != nil {
		l.holder.Stop(0)
	}
	go func() { // a silent peer needs up to authTimeout
		l.peers.Wait()
		close(l.authenticated)
		for socket := range l.authenticated {
			_ = socket.Close()
		}
	}()
}
