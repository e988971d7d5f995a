package agent

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/internal/wire"
)

// fakeConn is the stdio of an agent that this test plays. The agent is the test's own process.
type fakeConn struct{ net.Conn }

func (fakeConn) PID(context.Context) (int, error) { return os.Getpid(), nil }
func (fakeConn) Stderr() string                   { return "" }

// noCgroup is the access to a container whose cgroup is not known.
type noCgroup struct{ Access }

func (noCgroup) CgroupPath(int) (string, error) { return "", errors.New("the cgroup is not known") }

// fakeAgent is what the agent sends. The zero values of hello are replaced by true ones.
type fakeAgent struct {
	hello wire.Hello
	// listen returns the reply to Hello.Listen.
	listen func(t *testing.T, request wire.Listen) wire.Listening
}

// connectTo runs the handshake with a fake agent. agentErr is what the agent met, nil after a
// StdioFallback.
func connectTo(t *testing.T, channel Channel, f fakeAgent) (a *agent, err, agentErr error) {
	t.Helper()
	ours, theirs := net.Pipe()
	defer func() { _ = ours.Close() }()
	fallback := make(chan error, 1)
	go func() { fallback <- f.play(t, theirs) }()
	n := connector{
		Config: Config{Channel: channel, Version: "test"}, c: Container{Access: noCgroup{}},
		log: zap.NewNop(),
	}
	a, err = n.exchangeHello(t.Context(), fakeConn{ours})
	_ = ours.Close()
	return a, err, <-fallback
}

func (f fakeAgent) play(t *testing.T, conn net.Conn) error {
	if f.hello.BootID == "" {
		boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
		f.hello.BootID = strings.TrimSpace(string(boot))
	}
	if f.hello.PID == 0 {
		f.hello.PID = os.Getpid()
	}
	if err := wire.WriteHello(conn, f.hello); err != nil {
		return err
	}
	daemon, err := wire.ReadHello(conn)
	if err != nil || daemon.Listen == nil {
		return err
	}
	reply := f.listen(t, *daemon.Listen)
	if err := wire.WriteListening(conn, reply); err != nil || reply.Reason != "" {
		return err
	}
	_, err = wire.ReadFallback(conn)
	return err
}

// opened returns an fd of this process for a file, as an agent has it.
func opened(t *testing.T, path string) wire.Listening {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return wire.Listening{Reason: "the test failed"}
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return wire.Listening{PID: os.Getpid(), FD: fd}
}

// listening listens on a socket of this process and serves its first peer.
func listening(t *testing.T, serve func(conn *net.UnixConn)) wire.Listening {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Error(err)
		return wire.Listening{Reason: "the test failed"}
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		conn, err := l.AcceptUnix()
		if err == nil {
			serve(conn)
			_ = conn.Close()
		}
	}()
	return opened(t, path)
}

// answer authenticates with a secret, as an agent does.
func answer(secret []byte) func(conn *net.UnixConn) {
	return func(conn *net.UnixConn) {
		_ = wire.AuthenticateDaemon(conn, secret, randomBytes(wire.SecretSize))
	}
}

// An agent whose process is on this machine is connected by its socket (EX-15).
func TestSocket(t *testing.T) {
	a, err, agentErr := connectTo(t, Socket, fakeAgent{
		listen: func(t *testing.T, request wire.Listen) wire.Listening {
			if request.HolderUID != 0 {
				t.Errorf("a process of user %d shall hold the socket", request.HolderUID)
			}
			return listening(t, answer(request.Secret))
		},
	})
	if err != nil || a.channel != Socket || agentErr == nil {
		t.Fatalf("got %+v, %v, the agent %v", a, err, agentErr)
	}
	a.mux.Close()
	_ = a.mux.Run()
}

// An agent that is elsewhere, or that offers anything but a socket on which its own process
// authenticates, is used by stdio and told so. agent.transport socket refuses it. Nothing is sent
// to a socket of another process (EX-15).
func TestSocket_Refused(t *testing.T) {
	engineSocket := "/var/run/docker.sock"
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	fixed := func(l wire.Listening) func(*testing.T, wire.Listen) wire.Listening {
		return func(*testing.T, wire.Listen) wire.Listening { return l }
	}
	file := func(path string) func(*testing.T, wire.Listen) wire.Listening {
		return func(t *testing.T, _ wire.Listen) wire.Listening { return opened(t, path) }
	}
	peer := func(serve func(*net.UnixConn)) func(*testing.T, wire.Listen) wire.Listening {
		return func(t *testing.T, _ wire.Listen) wire.Listening { return listening(t, serve) }
	}
	for name, f := range map[string]fakeAgent{
		"another kernel":        {hello: wire.Hello{BootID: "6d1b1c3e-0000-4000-8000-000000000000"}},
		"another pid namespace": {hello: wire.Hello{PID: 1 << 21}},
		"no directory":          {listen: fixed(wire.Listening{Reason: "read-only file system"})},
		"no such fd":            {listen: fixed(wire.Listening{PID: os.Getpid(), FD: 1 << 20})},
		"a negative fd":         {listen: fixed(wire.Listening{PID: os.Getpid(), FD: -1})},
		"a process elsewhere":   {listen: fixed(wire.Listening{PID: 1, FD: 0})},
		"a regular file":        {listen: file("/proc/self/exe")},
		"a directory":           {listen: file("/")},
		"a device":              {listen: file("/dev/null")},
		"a FIFO":                {listen: file(fifo)},
		"a service of the host": {listen: file(engineSocket)},
		"a silent peer":         {listen: peer(func(c *net.UnixConn) { _, _ = c.Read(make([]byte, 1)) })},
		"a peer that ends":      {listen: peer(func(*net.UnixConn) {})},
		"another protocol": {listen: peer(func(c *net.UnixConn) {
			_, _ = c.Write(bytes.Repeat([]byte("220 smtp ready\r\n"), 100))
		})},
		"a wrong secret": {listen: peer(answer(make([]byte, wire.SecretSize)))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err, agentErr := connectTo(t, AnyChannel, f)
			if err != nil || a.channel != Stdio || agentErr != nil {
				t.Errorf("got %+v, %v, the agent %v", a, err, agentErr)
			}
			if _, err, _ := connectTo(t, Socket, f); !errors.Is(err, errNoSocket) {
				t.Errorf("with agent.transport socket: got %v", err)
			}
		})
	}
}

// A process that listens on behalf of an agent is found only below it.
func TestProcDir_Find(t *testing.T) {
	self, err := openProc(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if found, err := self.find(os.Getpid(), 0); err != nil || found.pid != os.Getpid() {
		t.Errorf("got %+v, %v", found, err)
	}
	if found, err := self.find(os.Getppid(), holderDepth); err == nil {
		t.Errorf("found %+v", found)
	}
}
