package docker_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
)

// Arguments that make this program a tool which attacks the sockets in its agent's directory.
const (
	swapArg   = "swap-sockets"   // for symlinks; needs CAP_SYS_ADMIN
	occupyArg = "occupy-sockets" // by connections
)

// attackSockets attacks each socket that appears in /.dray until it is killed.
func attackSockets(arg, target string) error {
	attack := occupy
	if arg == swapArg {
		if err := unix.Mount("", "/.dray", "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("remount: %w", err)
		}
		attack = func(path string) {
			_ = os.Symlink(target, "/.dray/link")
			_ = os.Rename("/.dray/link", path)
		}
	}
	dir, err := os.Open("/.dray")
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		_, _ = dir.Seek(0, io.SeekStart)
		names, _ := dir.Readdirnames(-1)
		for _, name := range names {
			if strings.HasPrefix(name, "door-") {
				attack("/.dray/" + name)
			}
		}
	}
}

// occupy connects to a socket as often as it can, and sends nothing, while the socket exists.
func occupy(path string) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			var conns []net.Conn
			for {
				conn, err := net.DialTimeout("unix", path, time.Second)
				if errors.Is(err, fs.ErrNotExist) {
					break
				}
				if err == nil {
					conns = append(conns, conn)
				}
			}
			for _, c := range conns {
				_ = c.Close()
			}
		})
	}
	all.Wait()
}

// startAttack runs attackSockets in a container with dray's directory until the test ends, and
// returns a function that connects to the agent there as another daemon does.
func startAttack(t *testing.T, arg, target string) (connect func() dray.Environment) {
	t.Helper()
	runDir := t.TempDir()
	e := newEngineWith(t, docker.Options{Transport: docker.TransportAuto, RunDir: runDir})
	box := runContainer(t, e, debian, all(placed(t, e), testBinary(t),
		func(_ *container.Config, h *container.HostConfig) {
			h.CapAdd = append(h.CapAdd, "SYS_ADMIN")
		}))
	attack, err := environment(t, e, box, agent.Spec{}).Start(t.Context(),
		dray.ProcessSpec{Argv: []string{"/test/binary", arg, target}, Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		attack.Stop(0)
		_, _ = attack.Wait()
	})
	if line, err := bufio.NewReader(attack.Output(dray.Stdout)).ReadString('\n'); line != "ready\n" {
		text, _ := io.ReadAll(attack.Output(dray.Stderr))
		t.Fatalf("the tool printed %q, %v: %s", line, err, text)
	}
	return func() dray.Environment {
		again := newEngineWith(t, docker.Options{Transport: docker.TransportAuto, RunDir: runDir})
		defer func() { _ = again.Close() }()
		return environment(t, again, box, agent.Spec{})
	}
}

// A tool with CAP_SYS_ADMIN that replaces the agent's socket by a symlink changes no file of the
// host.
func TestSocketIsSwappedForASymlink(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("of the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	connect := startAttack(t, swapArg, secret)
	for range 50 {
		connect()
		if info, err := os.Stat(secret); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("the mode of a file on the host became %s, %v", info.Mode(), err)
		}
	}
}

// A tool that is root and connects to every socket of its agent, as often as it can, does not make
// the agent use another channel. A tool of another user cannot list the sockets.
func TestSocketIsOccupied(t *testing.T) {
	connect := startAttack(t, occupyArg, "")
	for range 10 {
		if got := connect().Capabilities().Container.Channel; got != "socket" {
			t.Fatalf("the agent uses %s", got)
		}
	}
	e := newEngine(t, docker.TransportAuto)
	env := environment(t, e, runContainer(t, e, debian, placed(t, e)), agent.Spec{User: "vscode"})
	got := run(t, env, dray.ProcessSpec{Argv: []string{"ls", "/.dray"}, Dir: "/"}, "")
	if !strings.Contains(got.stderr, "Permission denied") {
		t.Errorf("another user lists the agent's directory: %+v", got)
	}
}

// testBinary mounts this program into a container at /test/binary.
func testBinary(t *testing.T) containerChange {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return func(_ *container.Config, h *container.HostConfig) {
		h.Binds = append(h.Binds, self+":/test/binary:ro")
	}
}
