package docker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
)

// occupyArg makes this program a tool that connects to the sockets of agents.
const occupyArg = "occupy-sockets"

// occupySockets connects to each socket without a name that a process has open, by the fds in /proc
// that the daemon uses too, as often as it can. It sends nothing, and runs until it is killed.
func occupySockets() error {
	fmt.Println("ready")
	for {
		fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
		if err != nil {
			return err
		}
		var all sync.WaitGroup
		for _, fd := range fds {
			if name, _ := os.Readlink(fd); strings.Contains(name, "/.dray-") {
				all.Go(func() { occupy(fd) })
			}
		}
		all.Wait()
	}
}

// occupy connects to a socket until it is closed.
func occupy(path string) {
	for {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return
		}
		if unix.Connect(fd, &unix.SockaddrUnix{Name: path}) != nil {
			_ = unix.Close(fd)
			return
		}
	}
}

// A tool that is root and connects to the socket of each agent in its container, as often as it
// can, does not make an agent use another channel.
func TestSocketIsOccupied(t *testing.T) {
	e := newEngine(t, docker.TransportAuto)
	box := runContainer(t, e, debian, testBinary(t))
	attack := begin(t, environment(t, e, box, agent.Spec{}), "exec /test/binary "+occupyArg)
	defer func() {
		attack.Stop(0)
		_, _ = attack.Wait()
	}()
	for range 10 {
		again := newEngine(t, docker.TransportAuto) // as another daemon
		env := environment(t, again, box, agent.Spec{})
		if got := env.Capabilities().Container.Channel; got != "socket" {
			t.Fatalf("the agent uses %s", got)
		}
		_ = again.Close()
	}
}

// A tool of another user finds no socket of an agent that it could connect to.
func TestSocketHasNoName(t *testing.T) {
	e := newEngine(t, docker.TransportAuto)
	env := environment(t, e, runContainer(t, e, debian, nil), agent.Spec{User: "vscode"})
	got := run(t, env, dray.ProcessSpec{Argv: []string{
		"sh", "-c",
		"find / -xdev -type s; find /dev /run /tmp -type s; ls /proc/[0-9]*/fd >/dev/null",
	}, Dir: "/"}, "")
	if got.stdout != "" || !strings.Contains(got.stderr, "Permission denied") {
		t.Errorf("got %+v", got)
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
