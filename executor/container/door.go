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
	// doorPrefix begins the names of sockets in a container's folder.
	doorPrefix = "door-"
	// provingTime bounds how long one dialer may take to prove that it knows the secret.
	provingTime = 2 * time.Second
	// maxUnproven is how many dialers may be at it. Further ones wait in the kernel, so that they cost nothing here.
	maxUnproven = 16
	// staleDoor is the age of a socket that nobody can be waiting behind any more.
	staleDoor = 10 * connectTimeout
)

// door is a socket in the folder of a container, for the one agent that knows its secret. It is there only while that agent is awaited, and
// under a name of its own, so that whoever is in the container has little to knock at.
type door struct {
	listener *net.UnixListener
	path     string // on this side
	dial     wire.Dial
	give     context.CancelFunc
	guard    func(doing string, work func()) error
	proving  sync.WaitGroup
	proven   chan *wire.Socket // the first that proved itself
}

// openDoor listens in a folder of ours, which the container has at agentMount. The door is closed by close alone.
func (e *Engine) openDoor(ctx context.Context, folder string) (*door, error) {
	sweepDoors(folder)
	dir, err := os.Open(folder)
	if err != nil {
		return nil, fmt.Errorf("opening the container's folder: %w", err)
	}
	defer func() { _ = dir.Close() }()
	name := doorPrefix + strings.ToLower(rand.Text()[:16])
	// The name of a unix socket has 107 bytes, and the state folder may lie deep: the folder's descriptor is short.
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening in the container's folder: %w", err)
	}
	listener.SetUnlinkOnClose(false) // the descriptor in its name is closed by then
	d := &door{
		listener: listener, guard: e.guard, path: filepath.Join(folder, name), proven: make(chan *wire.Socket, 1),
		dial: wire.Dial{Path: agentMount + "/" + name, Secret: randomBytes(wire.SecretSize)},
	}
	d.begin(context.WithoutCancel(ctx))
	// Root in a container may be anybody here, where user namespaces are used. The secret decides, not the mode.
	if err := os.Chmod(d.path, 0o666); err != nil { //nolint:gosec // as said
		d.close()
		return nil, fmt.Errorf("opening the socket to the container: %w", err)
	}
	return d, nil
}

// begin admits agents until close, which waits for the end of it.
func (d *door) begin(ctx context.Context) {
	ctx, d.give = context.WithCancel(ctx)
	go func() {
		_ = d.guard("admitting agents at a socket", func() { d.admit(ctx) }) // no more of them are admitted: the agent says so
	}()
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return b
}

// sweepDoors removes what a daemon that crashed left behind.
func sweepDoors(folder string) {
	doors, _ := filepath.Glob(filepath.Join(folder, doorPrefix+"*")) // the pattern is well-formed
	for _, path := range doors {
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket && time.Since(info.ModTime()) > staleDoor {
			_ = os.Remove(path)
		}
	}
}

// admit takes dialers until the door is closed, or one cannot be taken for want of memory or descriptors.
func (d *door) admit(ctx context.Context) {
	slots := make(chan struct{}, maxUnproven)
	defer close(d.proven)
	defer d.proving.Wait()
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
		d.proving.Go(func() {
			defer func() { <-slots }()
			_ = d.guard("having an agent prove itself", func() { d.prove(ctx, conn) }) // that dialer is let go of
		})
	}
}

// prove hands on a dialer that knows the secret. Every other is let go of without a word.
func (d *door) prove(ctx context.Context, conn *net.UnixConn) {
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
	if err = socket.SetDeadline(time.Now().Add(provingTime)); err == nil {
		err = wire.Await(socket, d.dial.Secret, randomBytes(wire.SecretSize))
	}
	if err == nil {
		err = socket.SetDeadline(time.Time{})
	}
	if err != nil {
		return
	}
	select {
	case d.proven <- socket:
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
func (d *door) close() {
	_ = d.listener.Close()
	d.give()
	_ = os.Remove(d.path)
	for socket := range d.proven {
		_ = socket.Close()
	}
}
