package container

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

	"github.com/dray-dev/dray/internal/wire"
)

const (
	// socketPrefix begins the names of sockets in a container's folder.
	socketPrefix = "door-"
	// authTimeout bounds how long one dialer may take to prove that it knows the secret.
	authTimeout = 2 * time.Second
	// maxPendingAuth is how many dialers may be at it. Further ones wait in the kernel, so that they
	// cost nothing here.
	maxPendingAuth = 16
	// staleSocketAge is the age of a socket that nobody can be waiting behind any more.
	staleSocketAge = 10 * connectTimeout
)

// agentListener is a socket in the folder of a container, for the one agent that knows its secret.
// It is there only while that agent is awaited, and under a name of its own, so that whoever is in
// the container has little to knock at.
type agentListener struct {
	listener      *net.UnixListener
	path          string // on this side
	dial          wire.DialTarget
	cancel        context.CancelFunc
	guard         func(doing string, work func()) error
	handshakes    sync.WaitGroup
	authenticated chan *wire.Socket // the first that proved itself
}

// listenForAgent listens in a folder of ours, which the container has at agentMountPath. The door
// is closed by close alone.
func (e *Engine) listenForAgent(ctx context.Context, folder string) (*agentListener, error) {
	removeStaleSockets(folder)
	dir, err := os.Open(folder)
	if err != nil {
		return nil, fmt.Errorf("opening the container's folder: %w", err)
	}
	defer func() { _ = dir.Close() }()
	name := socketPrefix + strings.ToLower(rand.Text()[:16])
	// The name of a unix socket has 107 bytes, and the state folder may lie deep: the folder's
	// descriptor is short.
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening in the container's folder: %w", err)
	}
	listener.SetUnlinkOnClose(false) // the descriptor in its name is closed by then
	d := &agentListener{
		listener: listener, guard: e.recoverPanics, path: filepath.Join(folder,
			name), authenticated: make(chan *wire.Socket, 1),
		dial: wire.DialTarget{Path: agentMountPath + "/" + name, Secret: randomBytes(wire.SecretSize)},
	}
	d.begin(context.WithoutCancel(ctx))
	// Root in a container may be anybody here, where user namespaces are used. The secret decides, not
	// the mode.
	if err := os.Chmod(d.path, 0o666); err != nil { //nolint:gosec // as said
		d.close()
		return nil, fmt.Errorf("opening the socket to the container: %w", err)
	}
	return d, nil
}

// begin admits agents until close, which waits for the end of it.
func (d *agentListener) begin(ctx context.Context) {
	ctx, d.cancel = context.WithCancel(ctx)
	go func() {
		// no more of them are admitted: the agent says so
		_ = d.guard("admitting agents at a socket", func() { d.acceptLoop(ctx) })
	}()
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return b
}

// removeStaleSockets removes what a daemon that crashed left behind.
func removeStaleSockets(folder string) {
	doors, _ := filepath.Glob(filepath.Join(folder, socketPrefix+"*")) // the pattern is well-formed
	for _, path := range doors {
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket &&
			time.Since(info.ModTime()) > staleSocketAge {
			_ = os.Remove(path)
		}
	}
}

// acceptLoop takes dialers until the door is closed, or one cannot be taken for want of memory or
// descriptors.
func (d *agentListener) acceptLoop(ctx context.Context) {
	slots := make(chan struct{}, maxPendingAuth)
	defer close(d.authenticated)
	defer d.handshakes.Wait()
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := d.listener.AcceptUnix()
		if err != nil {
			return
		}
		d.handshakes.Go(func() {
			defer func() { <-slots }()
			// that dialer is let go of
			_ = d.guard("having an agent prove itself", func() { d.authenticate(ctx, conn) })
		})
	}
}

// authenticate hands on a dialer that knows the secret. Every other is let go of without a word.
func (d *agentListener) authenticate(ctx context.Context, conn *net.UnixConn) {
	socket, err := socketOf(conn)
	if err != nil {
		return
	}
	handed := false
	defer func() {
		if !handed {
			_ = socket.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer stop()
	if err = socket.SetDeadline(time.Now().Add(authTimeout)); err == nil {
		err = wire.AuthenticateAgent(socket, d.dial.Secret, randomBytes(wire.SecretSize))
	}
	if err == nil {
		err = socket.SetDeadline(time.Time{})
	}
	if err != nil {
		return
	}
	select {
	case d.authenticated <- socket:
		handed = true
	default: // the secret is of one use
	}
}

func socketOf(conn *net.UnixConn) (*wire.Socket, error) {
	file, err := conn.File()
	_ = conn.Close() // the file is a descriptor of its own
	if err != nil {
		return nil, err
	}
	return wire.NewSocket(file, false)
}

// close takes the socket away. Whoever proved itself and was not awaited is let go of.
func (d *agentListener) close() {
	_ = d.listener.Close()
	d.cancel()
	_ = os.Remove(d.path)
	for socket := range d.authenticated {
		_ = socket.Close()
	}
}
