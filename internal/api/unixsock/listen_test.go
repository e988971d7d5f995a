package unixsock_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/api/unixsock"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("DRAY_TEST_DIAL"); path != "" {
		dial(path)
	}
	goleak.VerifyTestMain(m)
}

// dial connects to the socket as another user and prints what it reads.
func dial(path string) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		fmt.Print("refused: ", err)
		os.Exit(0)
	}
	b, err := io.ReadAll(conn)
	fmt.Printf("read %q %v", b, err)
	os.Exit(0)
}

func listen(t *testing.T, path string) *unixsock.Listener {
	t.Helper()
	l, err := unixsock.Listen(t.Context(), path, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// The socket has mode 0600, its directory 0700, and the peer's uid is known (SE-01).
func TestListen(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "state", "dray.sock")
	l := listen(t, path)
	for name, want := range map[string]fs.FileMode{
		path:               fs.ModeSocket | 0o600,
		filepath.Dir(path): fs.ModeDir | 0o700, path + ".lock": 0o600,
	} {
		if info, err := os.Lstat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if c, ok := conn.(*unixsock.Conn); !ok || c.Principal() != fmt.Sprintf("uid:%d", os.Geteuid()) {
		t.Errorf("the peer is %v", conn)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket was not removed")
	}
}

// The connection of another user is closed, also if the mode of the socket allows it.
func TestAcceptClosesConnectionOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir := t.TempDir()
	for at := dir; at != "/"; at = filepath.Dir(at) {
		if info, err := os.Stat(at); err == nil && info.Mode().Perm()&0o055 != 0o055 {
			if err := os.Chmod(at, info.Mode().Perm()|0o055); err != nil {
				t.Fatal(err)
			}
		}
	}
	program := filepath.Join(dir, "other")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	refused := make(chan uint32, 1)
	path := filepath.Join(dir, "dray.sock")
	l, err := unixsock.Listen(t.Context(), path, nil, func(uid uint32) { refused <- uid })
	if err != nil {
		t.Fatal(err)
	}
	dialAsOther := func() string {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = []string{"DRAY_TEST_DIAL=" + path}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4242, Gid: 4242}}
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return string(out)
	}
	if got := dialAsOther(); !strings.Contains(got, "permission denied") {
		t.Errorf("another user connected despite mode 0600: %s", got)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		if conn, err := l.Accept(); err == nil {
			conn.Close()
			t.Error("another user was accepted")
		}
	})
	if got := dialAsOther(); got != `read "" <nil>` {
		t.Errorf("the other user got %s", got)
	}
	if uid := <-refused; uid != 4242 {
		t.Errorf("refused uid %d, want 4242", uid)
	}
	_ = l.Close()
	accepting.Wait()
}

func TestListenReplacesStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dray.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	listen(t, path)
}

func TestListenFailsIfSocketIsInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dray.sock")
	first := listen(t, path)
	for name, prepare := range map[string]func(){
		"locked":       func() {},
		"without lock": func() { _ = os.Remove(path + ".lock") },
	} {
		prepare()
		_, err := unixsock.Listen(t.Context(), path, nil, nil)
		if dray.CodeOf(err) != dray.CodeConflict ||
			dray.AsError(err).Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	accepted := make(chan error, 1)
	go func() {
		conn, err := first.Accept() // of the probe
		if err == nil {
			conn.Close()
		}
		accepted <- err
	}()
	if err := <-accepted; err != nil {
		t.Error(err)
	}
}

// Of several daemons that start at the same time, one gets the socket and keeps it.
func TestListen_Concurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dray.sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	var starting sync.WaitGroup
	got := make(chan *unixsock.Listener, 16)
	for range 16 {
		starting.Go(func() {
			if l, err := unixsock.Listen(context.Background(), path, nil, nil); err == nil {
				got <- l
			}
		})
	}
	starting.Wait()
	close(got)
	var all []*unixsock.Listener
	for l := range got {
		all = append(all, l)
	}
	if len(all) != 1 {
		t.Fatalf("%d daemons listen, want 1", len(all))
	}
	defer all[0].Close()
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestListenKeepsOtherFiles(t *testing.T) {
	for _, kind := range []string{"file", "directory", "symlink"} {
		path := filepath.Join(t.TempDir(), "dray.sock")
		switch kind {
		case "file":
			_ = os.WriteFile(path, []byte("precious"), 0o600)
		case "directory":
			_ = os.Mkdir(path, 0o700)
		case "symlink":
			_ = os.Symlink("/nowhere", path)
		}
		if _, err := unixsock.Listen(t.Context(), path, nil, nil); dray.CodeOf(err) != dray.CodeConflict {
			t.Errorf("%s: %v", kind, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestListen_LongPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("d", 100), "s")
	_, err := unixsock.Listen(t.Context(), path, nil, nil)
	e := dray.AsError(err)
	if e == nil || !strings.Contains(e.Message, "107") || !strings.Contains(e.Message, path) ||
		!strings.Contains(e.Hint, "/dray.sock") {
		t.Errorf("%v: %+v", err, e)
	}
	if _, err := os.Lstat(filepath.Dir(path)); err == nil {
		t.Error("the directory was created")
	}
}
