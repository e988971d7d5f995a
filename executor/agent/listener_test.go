package agent

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dray-dev/dray/internal/wire"
)

// deepDir returns a directory whose path is longer than the address of any socket.
func deepDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// dialRaw connects to a listener through a short path.
func dialRaw(t *testing.T, l *listener) *wire.Socket {
	t.Helper()
	// the test's own directory is too long for an address
	short, err := os.MkdirTemp("/tmp", "dray-door-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	if err := os.Symlink(filepath.Dir(l.path), short+"/d"); err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialUnix("unix", nil,
		&net.UnixAddr{Name: short + "/d/" + filepath.Base(l.path), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	socket, err := socketOf(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return socket
}

func authenticate(s *wire.Socket, secret []byte) error {
	_ = s.SetDeadline(time.Now().Add(10 * time.Second))
	return wire.AuthenticateDaemon(s, secret, randomBytes(wire.SecretSize))
}

// authenticateInBackground returns a channel that receives the result.
func authenticateInBackground(s *wire.Socket, secret []byte) <-chan error {
	done := make(chan error, 1)
	go func() { done <- authenticate(s, secret) }()
	return done
}

func newListener(t *testing.T, dir string) *listener {
	t.Helper()
	l, err := listen(t.Context(), zaptest.NewLogger(t), dir, "/.dray", 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// An agent that knows the secret connects, whatever the length of the path, and the socket is
// removed afterwards (EX-15).
func TestListener(t *testing.T) {
	l := newListener(t, deepDir(t))
	if info, err := os.Lstat(l.path); err != nil || info.Mode().Perm()&0o222 != 0o222 {
		t.Errorf("root of the container, which may be any uid here, cannot connect: %v, %v", info, err)
	}
	done := authenticateInBackground(dialRaw(t, l), l.dial.Secret)
	socket := <-l.authenticated
	if err := wire.ConfirmAgent(socket); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil || socket.PeerPID() != os.Getpid() {
		t.Errorf("got %v from pid %d", err, socket.PeerPID())
	}
	l.close()
	_ = socket.Close()
	if _, err := os.Lstat(l.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket was not removed: %v", err)
	}
}

// Peers that send nothing, nonsense or a wrong secret neither keep the agent out nor delay close.
func TestListener_HostilePeers(t *testing.T) {
	l := newListener(t, t.TempDir())
	closed := false
	defer func() {
		if !closed {
			l.close()
		}
	}()
	for range maxPendingAuth / 2 {
		dialRaw(t, l) // sends nothing
	}
	for _, nonsense := range []string{"x", "DRAYWIRE", strings.Repeat("GET / HTTP/1.1\r\n", 1000)} {
		_, _ = dialRaw(t, l).Write([]byte(nonsense))
	}
	if err := authenticate(dialRaw(t, l), bytes.Repeat([]byte{1}, wire.SecretSize)); err == nil {
		t.Error("a wrong secret was accepted")
	}
	for range 3 * maxPendingAuth {
		dialRaw(t, l)
	}
	done := authenticateInBackground(dialRaw(t, l), l.dial.Secret)
	select {
	case socket := <-l.authenticated:
		_ = wire.ConfirmAgent(socket)
		_ = socket.Close()
	case <-time.After(30 * time.Second):
		t.Fatal("the agent did not connect")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	for range 2 * maxPendingAuth {
		dialRaw(t, l)
	}
	closing := make(chan struct{})
	go func() {
		defer close(closing)
		l.close()
	}()
	closed = true
	select {
	case <-closing:
	case <-time.After(authTimeout):
		t.Error("silent peers delay close")
		<-closing
	}
}

// The socket of a crashed daemon is removed, one in use is not.
func TestRemoveStaleSockets(t *testing.T) {
	dir := t.TempDir()
	stale, used := newListener(t, dir), newListener(t, dir)
	defer stale.close()
	defer used.close()
	past := time.Now().Add(-2 * staleSocketAge)
	if err := os.Chtimes(stale.path, past, past); err != nil {
		t.Fatal(err)
	}
	removeStaleSockets(dir)
	if _, err := os.Lstat(stale.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stale one was not removed: %v", err)
	}
	if _, err := os.Lstat(used.path); err != nil {
		t.Errorf("the one in use was removed: %v", err)
	}
}

// A panic while a peer authenticates, and one in the accept loop, are logged. Other peers are
// served and close returns (EX-18).
func TestListener_PanicIsLogged(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	path := filepath.Join(t.TempDir(), "door")
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{net: socket, log: zap.New(core), path: path, authenticated: make(chan *wire.Socket)}
	close(l.authenticated) // so that sending on it panics, and closing it at the end
	l.serve(t.Context())
	for range 2 {
		if err := authenticate(dialRaw(t, l), l.dial.Secret); err == nil {
			t.Error("the peer was accepted")
		}
	}
	l.close()
	seen := map[string]int{}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); seen["accepting agents on a socket"] == 0 &&
		time.Now().Before(end); <-tick.C {
		clear(seen)
		for _, entry := range logs.All() {
			doing, _ := entry.ContextMap()["doing"].(string)
			seen[doing]++
		}
	}
	if seen["authenticating an agent"] != 2 || seen["accepting agents on a socket"] != 1 {
		t.Errorf("the log has %v", logs.All())
	}
}
