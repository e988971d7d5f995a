package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/internal/linux"
	"github.com/dray-dev/dray/internal/logging"
	"github.com/dray-dev/dray/internal/wire"
)

const (
	// socketTimeout bounds connecting to the socket of an agent and authenticating there.
	socketTimeout = 4 * time.Second
	// holderDepth is the number of generations from an agent to the process that holds its socket,
	// which runs under a supervisor.
	holderDepth = 2
)

// procDir is a process of this machine, by its directory in /proc. The directory never becomes that
// of a later process with the same pid.
type procDir struct {
	pid  int
	file *os.File
}

func openProc(pid int) (procDir, error) {
	path := "/proc/" + strconv.Itoa(pid)
	fd, err := linux.Openat(unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return procDir{}, fmt.Errorf("open %s: %w", path, err)
	}
	return procDir{pid, os.NewFile(uintptr(fd), path)}, nil
}

func (p procDir) close() { _ = p.file.Close() }

func (p procDir) open(name string, flags int) (*os.File, error) {
	fd, err := linux.Openat(int(p.file.Fd()), name, flags, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s/%s: %w", p.file.Name(), name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// pids returns the pids of the process in each pid namespace, from this one to its own.
func (p procDir) pids() ([]int, error) {
	status, err := p.open("status", unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = status.Close() }()
	text, err := linux.ReadAll(int(status.Fd()))
	if err != nil {
		return nil, err
	}
	list := linux.Numbers(linux.Field(text, "NSpid:"))
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no pids of namespaces", p.file.Name())
	}
	return list, nil
}

// hasPID reports whether inner is the pid of the process in its own pid namespace.
func (p procDir) hasPID(inner int) bool {
	pids, err := p.pids()
	return err == nil && pids[len(pids)-1] == inner
}

// mayOpenFDs reports whether this process may open the fds of p.
func (p procDir) mayOpenFDs() bool {
	dir, err := p.open("fd", unix.O_RDONLY|unix.O_DIRECTORY)
	if err == nil {
		_ = dir.Close()
	}
	return err == nil
}

// find returns p or a descendant of it, at most depth generations below, whose pid in its own pid
// namespace is inner. It closes p unless it returns it.
func (p procDir) find(inner, depth int) (procDir, error) {
	if p.hasPID(inner) {
		return p, nil
	}
	defer p.close()
	if depth > 0 {
		for _, pid := range childrenOf(p.pid) {
			child, err := openProc(pid)
			if err != nil {
				continue // it has exited
			}
			if found, err := child.find(inner, depth-1); err == nil {
				return found, nil
			}
		}
	}
	return procDir{}, fmt.Errorf("process %d is not below process %d", inner, p.pid)
}

func childrenOf(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is valid
	for _, list := range lists {
		text, _ := linux.ReadFile(list) // the thread may have exited
		pids = append(pids, linux.Numbers(text)...)
	}
	return pids
}

var errOtherKernel = errors.New("the container runs on another kernel")

// findAgent returns the process of an agent, if it is on this machine.
func findAgent(ctx context.Context, conn Conn, hello wire.Hello) (procDir, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return procDir{}, fmt.Errorf("read the id of this boot: %w", err)
	}
	if hello.BootID == "" || strings.TrimSpace(string(boot)) != hello.BootID {
		return procDir{}, errOtherKernel
	}
	pid, err := conn.PID(ctx)
	if err != nil {
		return procDir{}, fmt.Errorf("get the agent's pid: %w", err)
	}
	p, err := openProc(pid)
	if err != nil {
		return procDir{}, err
	}
	if !p.hasPID(hello.PID) {
		p.close()
		return procDir{}, fmt.Errorf("process %d is not the agent: it is in another pid namespace", pid)
	}
	return p, nil
}

// socketRequest returns what the hello for an agent asks for.
func (p procDir) socketRequest() *wire.Listen {
	l := &wire.Listen{Secret: randomBytes(wire.SecretSize)}
	pids, err := p.pids()
	l.PrivatePIDs = err == nil && len(pids) > 1
	if !p.mayOpenFDs() {
		l.HolderUID = os.Geteuid()
	}
	return l
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// dialSocket connects to the socket of agent p and authenticates the agent. It closes p.
func (n connector) dialSocket(ctx context.Context, p procDir, l wire.Listening, secret []byte,
) (*wire.Socket, error) {
	if l.Reason != "" {
		p.close()
		return nil, errors.New(truncateMessages([]string{l.Reason})[0])
	}
	ctx, cancel := context.WithTimeout(ctx, socketTimeout)
	defer cancel()
	socket, err := n.connectUntilDone(ctx, p, l)
	if err != nil {
		return nil, err
	}
	return authenticate(ctx, socket, secret)
}

// connectUntilDone is connect, and returns when ctx is done even if the kernel does not: the agent
// chooses the file, and it may be on a file system that blocks.
func (n connector) connectUntilDone(ctx context.Context, p procDir, l wire.Listening,
) (*wire.Socket, error) {
	type result struct {
		socket *wire.Socket
		err    error
	}
	results := make(chan result)
	go func() {
		var r result
		if err := logging.RecoverPanics(n.log, "connecting to the socket of an agent",
			func() { r.socket, r.err = connect(p, l) }); err != nil {
			r.err = err
		}
		select {
		case results <- r:
		case <-ctx.Done():
			if r.socket != nil {
				_ = r.socket.Close()
			}
		}
	}()
	select {
	case r := <-results:
		return r.socket, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to the agent's socket: %w", context.Cause(ctx))
	}
}

// connect connects to the socket of agent p by the fd of the process that holds it, because the
// socket has no name. Nothing in the container can replace it there, and only processes of its
// owner can reach it. It closes p.
func connect(p procDir, l wire.Listening) (*wire.Socket, error) {
	holder, err := p.find(l.PID, holderDepth)
	if err != nil {
		return nil, err
	}
	defer holder.close()
	inode, err := holder.open("fd/"+strconv.Itoa(l.FD), unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer func() { _ = inode.Close() }()
	socket, err := connectInode(inode)
	if err != nil {
		return nil, fmt.Errorf("connect to the agent's socket: %w", err)
	}
	// the agent may have named another socket of the container
	if peer := socket.PeerPID(); peer != p.pid {
		_ = socket.Close()
		return nil, fmt.Errorf("the socket is of process %d, not of the agent, process %d", peer, p.pid)
	}
	return socket, nil
}

// connectInode connects to a listening unix socket by an O_PATH file of it.
func connectInode(inode *os.File) (*wire.Socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	timeout := unix.NsecToTimeval(socketTimeout.Nanoseconds()) // the agent's backlog may be full
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout)
	if err == nil {
		path := fmt.Sprintf("/proc/self/fd/%d", inode.Fd())
		err = linux.Retry(func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) })
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		linux.Close(fd)
		return nil, err
	}
	return wire.NewSocket(os.NewFile(uintptr(fd), "agent"), false)
}

// authenticate returns the socket if its peer knows the secret, and else closes it.
func authenticate(ctx context.Context, socket *wire.Socket, secret []byte) (*wire.Socket, error) {
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	err := wire.AuthenticateAgent(socket, secret, randomBytes(wire.SecretSize))
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("authenticate the agent: %w", err)
	}
	return socket, nil
}
