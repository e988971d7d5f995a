package client

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/dray-dev/dray"
)

// Any user may listen in a shared directory. The caller's variables must not be sent there.
func TestClientRefusesTheSocketOfAnotherUser(t *testing.T) {
	if socket := os.Getenv("DRAY_TEST_LISTEN"); socket != "" {
		listenAndWait(socket)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	dir := t.TempDir()
	for _, open := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(open, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(dir, "s")
	listenAs(t, 65534, socket)
	_, err := New(socket, nil).Tools(t.Context(), "")
	if dray.CodeOf(err) != dray.CodeUnauthorized {
		t.Errorf("got %v", err)
	}
}

// listenAs runs this test program as another user until the end of the test.
func listenAs(t *testing.T, uid uint32, socket string) {
	t.Helper()
	program := filepath.Join(filepath.Dir(socket), "listen")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run", "^TestClientRefusesTheSocketOfAnotherUser$")
	cmd.Env = []string{"DRAY_TEST_LISTEN=" + socket}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the other user's program printed %q: %v", line, err)
	}
}

// listenAndWait is run as the other user.
func listenAndWait(socket string) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		panic(err)
	}
	fmt.Println("listening")
	for {
		conn, err := l.Accept()
		if err != nil {
			panic(err)
		}
		_ = conn.Close()
	}
}
