package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray/internal/wire"
)

// sockets returns the daemon's and the agent's end.
func sockets(t testing.TB) (daemon, agent *wire.Socket) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX,
		syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := [2]*wire.Socket{}
	for i, fd := range fds {
		if ends[i], err = wire.NewSocket(os.NewFile(uintptr(fd), "pair"), i == 1); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	return ends[0], ends[1]
}

// onSockets runs both sides, the agent's with accept.
func onSockets(t testing.TB, accept func(*wire.Stream)) *wire.Mux {
	t.Helper()
	a, b := sockets(t)
	daemon := wire.NewMux(a, wire.Config{MaxMessage: 64 << 10, Lease: 10 * time.Second})
	agent := wire.NewMux(b, wire.Config{Accept: accept, MaxMessage: 1 << 20, Lease: 10 * time.Second})
	var wg sync.WaitGroup
	wg.Go(func() { _ = daemon.Run() })
	wg.Go(func() { _ = agent.Run() })
	t.Cleanup(func() {
		daemon.Close()
		wg.Wait()
	})
	return daemon
}

// Each stream gets the fds that were passed with it, among frames of all sizes. Those that Accept
// does not use are closed.
func TestFDsBelongToTheirStream(t *testing.T) {
	m := onSockets(t, func(s *wire.Stream) {
		first, _ := s.Receive()
		name := heard(first)
		if strings.HasPrefix(name, "leave") {
			return
		}
		files := s.Files()
		for _, f := range files {
			_, _ = f.WriteString(name)
			_ = f.Close()
		}
		_ = s.Send(words("done"))
		_, _ = s.Receive()
	})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			name := fmt.Sprintf("%d %s", i, bytes.Repeat([]byte("x"), i*2000))
			if i%4 == 0 {
				name = "leave" + name
			}
			r, w, err := os.Pipe()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = r.Close() }()
			s, err := m.Open(words(name), w, w)
			_ = w.Close()
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			want := name + name
			if i%4 == 0 {
				want = ""
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != want {
				t.Errorf("stream %d: %d bytes of %d, %v", i, len(got), len(want), err)
			}
		})
	}
	wg.Wait()
}

// A container that passes fds to the daemon loses its connection, and they are closed.
func TestFDsToDaemonAreRejected(t *testing.T) {
	a, b := sockets(t)
	m := wire.NewMux(a, wire.Config{MaxMessage: 64 << 10, Lease: 10 * time.Second})
	ended := make(chan error, 1)
	go func() { ended <- m.Run() }()
	hostile := wire.NewMux(b, wire.Config{MaxMessage: 64 << 10, Lease: 10 * time.Second})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	files := make([]*os.File, 200)
	for i := range files {
		files[i] = w
	}
	if _, err := hostile.Open(words(""), files...); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if err := <-ended; !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("got %v", err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("somebody holds what was passed: %d, %v", n, err)
	}
	hostile.Close()
	_ = hostile.Run()
}

// prove runs both sides of the authentication and returns their errors.
func prove(t testing.TB, daemonSecret, agentSecret []byte) (daemon, agent error) {
	t.Helper()
	a, b := sockets(t)
	nonce := func(c byte) []byte { return bytes.Repeat([]byte{c}, wire.SecretSize) }
	done := make(chan error, 1)
	go func() {
		err := wire.AuthenticateAgent(a, daemonSecret, nonce('d'))
		if err == nil {
			err = wire.ConfirmAgent(a)
		}
		_ = a.Close()
		done <- err
	}()
	agent = wire.AuthenticateDaemon(b, agentSecret, nonce('a'))
	_ = b.Close()
	return <-done, agent
}

// The authentication succeeds if both sides have the secret.
func TestAuthentication(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, wire.SecretSize)
	if daemon, agent := prove(t, secret, secret); daemon != nil || agent != nil {
		t.Errorf("got %v and %v", daemon, agent)
	}
	for i := range secret {
		other := bytes.Clone(secret)
		other[i] ^= 1
		if daemon, agent := prove(t, secret, other); daemon == nil ||
			!errors.Is(agent, wire.ErrProtocol) {
			t.Errorf("another secret: %v and %v", daemon, agent)
		}
	}
}

// recorded is a peer that always sends the same and keeps what it receives.
type recorded struct {
	io.Reader
	heard bytes.Buffer
}

func (r *recorded) Write(p []byte) (int, error) { return r.heard.Write(p) }

// The bytes of one authentication do not pass another: replayed, or sent back.
func TestAuthentication_Replay(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, wire.SecretSize)
	nonce := func(c byte) []byte { return bytes.Repeat([]byte{c}, wire.SecretSize) }
	// A whole conversation as the agent had it.
	a, b := sockets(t)
	agent := &recording{ReadWriter: b}
	go func() { _ = errors.Join(wire.AuthenticateAgent(a, secret, nonce('1')), wire.ConfirmAgent(a)) }()
	if err := wire.AuthenticateDaemon(agent, secret, nonce('2')); err != nil {
		t.Fatal(err)
	}
	again := &recorded{Reader: bytes.NewReader(agent.sent.Bytes())}
	if err := wire.AuthenticateAgent(again, secret, nonce('3')); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("an agent's proof replayed: %v", err)
	}
	impostor := &recorded{Reader: bytes.NewReader(agent.came.Bytes())}
	if err := wire.AuthenticateDaemon(impostor, secret, nonce('4')); !errors.Is(err,
		wire.ErrProtocol) {
		t.Errorf("a daemon's proof replayed: %v", err)
	}
	if impostor.heard.Len() > 8+wire.SecretSize {
		t.Error("the agent shows its proof to an impostor")
	}
	// A daemon's own answer, sent back as the proof.
	mirror := &recorded{Reader: io.MultiReader(bytes.NewReader(agent.sent.Bytes()[:8+wire.SecretSize]),
		bytes.NewReader(agent.came.Bytes()[wire.SecretSize:]))}
	if err := wire.AuthenticateAgent(mirror, secret, nonce('1')); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("a proof sent back: %v", err)
	}
}

// recording keeps the bytes of both sides.
type recording struct {
	io.ReadWriter
	sent, came bytes.Buffer
}

func (r *recording) Read(p []byte) (int, error) {
	n, err := r.ReadWriter.Read(p)
	r.came.Write(p[:n])
	return n, err
}

func (r *recording) Write(p []byte) (int, error) {
	r.sent.Write(p)
	return r.ReadWriter.Write(p)
}

// FuzzAuthenticateAgent checks that a peer without the secret fails and receives at most 64 bytes.
func FuzzAuthenticateAgent(f *testing.F) {
	f.Add(append([]byte("DRAYDIAL"), make([]byte, 64)...))
	f.Add([]byte("DRAYWIRE"))
	f.Fuzz(func(t *testing.T, input []byte) {
		peer := &recorded{Reader: bytes.NewReader(input)}
		if err := wire.AuthenticateAgent(peer, []byte("a secret of the daemon's"),
			make([]byte, wire.SecretSize)); err == nil {
			t.Error("it was taken")
		}
		if peer.heard.Len() > 2*wire.SecretSize {
			t.Errorf("it heard %d bytes", peer.heard.Len())
		}
	})
}

// FuzzAuthenticateDaemon checks that the agent sends no MAC to a peer without the secret.
func FuzzAuthenticateDaemon(f *testing.F) {
	f.Add(make([]byte, 65))
	f.Fuzz(func(t *testing.T, input []byte) {
		peer := &recorded{Reader: bytes.NewReader(input)}
		if err := wire.AuthenticateDaemon(peer, []byte("a secret of the daemon's"),
			make([]byte, wire.SecretSize)); err == nil || peer.heard.Len() > 8+wire.SecretSize {
			t.Errorf("it was taken, or heard too much (%d bytes): %v", peer.heard.Len(), err)
		}
	})
}
