package container

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

// deepFolder is longer than any socket's address.
func deepFolder(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// dialRaw dials a door from here, through a short name.
func dialRaw(t *testing.T, d *agentListener) *wire.Socket {
	t.Helper()
	// the test's own folder is too long for an address
	short, err := os.MkdirTemp("/tmp", "dray-door-") //nolint:usetesting
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	if err := os.Symlink(filepath.Dir(d.path), short+"/d"); err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialUnix("unix", nil,
		&net.UnixAddr{Name: short + "/d/" + filepath.Base(d.path), Net: "unix"})
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

// testDoors is as much of an engine as doors need.
func testDoors(t *testing.T) *Engine {
	t.Helper()
	return &Engine{log: zaptest.NewLogger(t)}
}

// EX-15: a socket in a folder with however long a path; who knows the secret is let in, and nothing
// of the door is left.
func TestDoor(t *testing.T) {
	d, err := testDoors(t).listenForAgent(t.Context(), deepFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(d.path); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("the container's root may be anybody: %v, %v", info, err)
	}
	agent, done := dialRaw(t, d), make(chan error, 1)
	go func() { done <- authenticate(agent, d.dial.Secret) }()
	socket := <-d.authenticated
	if err := wire.ConfirmAgent(socket); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil || socket.PeerPID() != os.Getpid() {
		t.Errorf("got %v from %d", err, socket.PeerPID())
	}
	d.close()
	_ = socket.Close()
	if _, err := os.Lstat(d.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// Dialers that say nothing, nonsense, or a proof of another secret are let go of; the agent gets in
// all the same, and the door can be closed while they stand there.
func TestDoorUnderSiege(t *testing.T) {
	d, err := testDoors(t).listenForAgent(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			d.close()
		}
	}()
	for range maxPendingAuth / 2 {
		dialRaw(t, d) // and says nothing
	}
	for _, nonsense := range []string{"x", "DRAYWIRE", strings.Repeat("GET / HTTP/1.1\r\n", 1000)} {
		s := dialRaw(t, d)
		_, _ = s.Write([]byte(nonsense))
	}
	if err := authenticate(dialRaw(t, d), bytes.Repeat([]byte{1}, wire.SecretSize)); err == nil {
		t.Error("another secret is taken")
	}
	for range 3 * maxPendingAuth {
		dialRaw(t, d)
	}
	agent, done := dialRaw(t, d), make(chan error, 1)
	go func() { done <- authenticate(agent, d.dial.Secret) }()
	select {
	case socket := <-d.authenticated:
		_ = wire.ConfirmAgent(socket)
		_ = socket.Close()
	case <-time.After(30 * time.Second):
		t.Fatal("the agent does not get in")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	for range 2 * maxPendingAuth {
		dialRaw(t, d)
	}
	closing := make(chan struct{})
	go func() {
		defer close(closing)
		d.close()
	}()
	closed = true
	select {
	case <-closing:
	case <-time.After(authTimeout):
		t.Error("the silent keep the door from being closed")
		<-closing
	}
}

// What a daemon that crashed left in a folder goes; the door of another agent stays.
func TestDoorsAreSwept(t *testing.T) {
	folder := t.TempDir()
	old, err := testDoors(t).listenForAgent(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	defer old.close()
	other, err := testDoors(t).listenForAgent(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	past := time.Now().Add(-2 * staleSocketAge)
	if err := os.Chtimes(old.path, past, past); err != nil {
		t.Fatal(err)
	}
	removeStaleSockets(folder)
	if _, err := os.Lstat(old.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an old one stays: %v", err)
	}
	if _, err := os.Lstat(other.path); err != nil {
		t.Errorf("one that is in use goes: %v", err)
	}
}

// EX-18: a panic while an agent proves itself, and one in the admitting, are logged and end nothing
// but themselves. That dialer is let go of, others are heard, and the door closes.
func TestDefectAtTheDoor(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	path := filepath.Join(t.TempDir(), "door")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	d := &agentListener{listener: listener, path: path, guard: (&Engine{log: zap.New(core)}).
		recoverPanics, authenticated: make(chan *wire.Socket)}
	// so that to hand on whoever proved itself panics, and the end of the admitting too
	close(d.authenticated)
	d.begin(t.Context())
	for range 2 {
		if err := authenticate(dialRaw(t, d), d.dial.Secret); err == nil {
			t.Error("it was welcomed")
		}
	}
	d.close()
	seen := map[string]int{}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); seen["admitting agents at a socket"] == 0 &&
		time.Now().Before(end); <-tick.C {
		clear(seen)
		for _, entry := range logs.All() {
			doing, _ := entry.ContextMap()["doing"].(string)
			seen[doing]++
		}
	}
	if seen["having an agent prove itself"] != 2 || seen["admitting agents at a socket"] != 1 {
		t.Errorf("the log has %v", logs.All())
	}
}
