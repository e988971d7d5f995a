package agent

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray/internal/linux"
	"github.com/dray-dev/dray/internal/logging"
	"github.com/dray-dev/dray/internal/wire"
)

const (
	// socketPrefix begins the names of sockets in a container's directory.
	socketPrefix = "door-"
	// authTimeout bounds the authentication of one peer.
	authTimeout = 2 * time.Second
	// maxPendingAuth is the number of strangers that may authenticate at once. Another one ends the
	// oldest.
	maxPendingAuth = 16
	// staleSocketAge is an age at which no daemon listens on a socket any more.
	staleSocketAge = 10 * connectTimeout
)

// listener is a unix socket in the directory of a container, for the one agent that knows its
// secret. It exists only while that agent connects.
type listener struct {
	net           *net.UnixListener
	log           *zap.Logger
	path          string // on this machine
	agentPID      int    // as the engine reports it; 0 if it does not
	dial          wire.DialTarget
	cancel        context.CancelFunc
	handshakes    sync.WaitGroup
	authenticated chan *wire.Socket // the first agent that authenticated; closed at the end
}

// listen opens a socket in dir, which the container has mounted at inside, for the agent with the
// pid agentPID. close must be called.
func listen(ctx context.Context, log *zap.Logger, dir, inside string, agentPID int,
) (*listener, error) {
	removeStaleSockets(dir)
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the agent's directory: %w", err)
	}
	defer func() { _ = d.Close() }()
	name := socketPrefix + strings.ToLower(rand.Text()[:16])
	// The path of a unix socket is limited to 107 bytes. The path of the open fd is short.
	socket, err := bind(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
	if err != nil {
		return nil, fmt.Errorf("listen in the agent's directory: %w", err)
	}
	l := &listener{
		net: socket, log: log, path: filepath.Join(dir, name), agentPID: agentPID,
		authenticated: make(chan *wire.Socket, 1),
		dial: wire.DialTarget{
			Path: inside + "/" + name, Secret: randomBytes(wire.SecretSize),
		},
	}
	l.serve(context.WithoutCancel(ctx))
	return l, nil
}

// bind listens on a socket that every user can connect to: with user namespaces any uid may be root
// in the container. The secret protects the socket. It has its mode from the start, because a tool
// with CAP_SYS_ADMIN can replace it by a symlink to a file of this machine at any time.
func bind(path string) (socket *net.UnixListener, err error) {
	err = linux.WithoutUmask(func() (err error) {
		socket, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		return err
	})
	if err == nil {
		socket.SetUnlinkOnClose(false) // the fd in its name is closed by then
	}
	return socket, err
}

// serve accepts peers until close.
func (l *listener) serve(ctx context.Context) {
	ctx, l.cancel = context.WithCancel(ctx)
	go func() { // close waits for it
		_ = logging.RecoverPanics(l.log, "accepting agents on a socket", func() { l.acceptLoop(ctx) })
	}()
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// removeStaleSockets removes the sockets of daemons that crashed.
func removeStaleSockets(dir string) {
	paths, _ := filepath.Glob(filepath.Join(dir, socketPrefix+"*")) // an odd dir matches nothing
	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket &&
			time.Since(info.ModTime()) > staleSocketAge {
			_ = os.Remove(path)
		}
	}
}

// acceptLoop accepts peers until the listener is closed or accept fails. Tools can connect too, and
// cannot delay the agent, which is known by its pid. Where its pid is not known, a stranger that is
// silent makes room for the next one.
func (l *listener) acceptLoop(ctx context.Context) {
	defer close(l.authenticated)
	defer l.handshakes.Wait()
	strangers := make(chan context.CancelFunc, maxPendingAuth)
	for {
		conn, err := l.net.AcceptUnix()
		if err != nil {
			return
		}
		socket, err := socketOf(conn)
		if err != nil {
			continue
		}
		peer, cancel := context.WithCancel(ctx)
		if l.agentPID == 0 || socket.PeerPID() != l.agentPID {
			if len(strangers) == maxPendingAuth {
				(<-strangers)()
			}
			strangers <- cancel
		}
		l.handshakes.Go(func() {
			defer cancel()
			_ = logging.RecoverPanics(l.log, "authenticating an agent",
				func() { l.authenticate(peer, socket) })
		})
	}
}

// authenticate passes on a peer that knows the secret and closes the connection of any other.
func (l *listener) authenticate(ctx context.Context, socket *wire.Socket) {
	passed := false
	defer func() {
		if !passed {
			_ = socket.Close()
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	err := socket.SetDeadline(time.Now().Add(authTimeout))
	if err == nil {
		err = wire.AuthenticateAgent(socket, l.dial.Secret, randomBytes(wire.SecretSize))
	}
	if err == nil {
		err = socket.SetDeadline(time.Time{})
	}
	if err != nil {
		return
	}
	select {
	case l.authenticated <- socket:
		passed = true
	default: // the secret can be used once
	}
}

func socketOf(conn *net.UnixConn) (*wire.Socket, error) {
	file, err := conn.File()
	_ = conn.Close() // file has a fd of its own
	if err != nil {
		return nil, err
	}
	return wire.NewSocket(file, false)
}

// close removes the socket, waits for the handshakes, and closes the connection of an agent that
// authenticated and was not received.
func (l *listener) close() {
	_ = l.net.Close()
	l.cancel()
	_ = os.Remove(l.path)
	for socket := range l.authenticated {
		_ = socket.Close()
	}
}
