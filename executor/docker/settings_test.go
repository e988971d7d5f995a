package docker_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/moby/api/types/container"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/internal/enginetest"
)

// Containers with restrictions pass the suite too (EX-07, EX-09, EX-10).
func TestContract_Restricted(t *testing.T) {
	for name, change := range map[string]containerChange{
		"no capabilities": func(_ *container.Config, h *container.HostConfig) {
			h.CapDrop = []string{"ALL"}
		},
		"no new privileges": func(_ *container.Config, h *container.HostConfig) {
			h.SecurityOpt = []string{"no-new-privileges"}
		},
		"a limit of processes": func(_ *container.Config, h *container.HostConfig) {
			h.PidsLimit = new(int64(2000))
		},
		"read-only file system": func(_ *container.Config, h *container.HostConfig) {
			h.ReadonlyRootfs, h.Tmpfs = true, map[string]string{"/tmp": ""}
		},
		"a user of its own": func(c *container.Config, _ *container.HostConfig) { c.User = "vscode" },
	} {
		t.Run(name, func(t *testing.T) {
			caps := contract(t, newEngine(t, docker.TransportAuto), change, inBrief).Capabilities()
			if caps.Container.Transport != "agent" {
				t.Errorf("no agent was placed: %q", caps.Warnings)
			}
		})
	}
}

// The engine gives containers a user namespace, so their root is an unprivileged user on the host.
func TestContract_UserNamespace(t *testing.T) {
	t.Setenv("DOCKER_HOST", enginetest.Start(t,
		enginetest.Options{RemapUsers: true, Images: []string{debian}}).Host())
	if caps := contract(t, newEngine(t, docker.TransportAuto), nil, inBrief).
		Capabilities(); caps.Container.Transport != "agent" {
		t.Errorf("no agent was placed: %q", caps.Warnings)
	}
}

// The daemon reaches the engine by TCP, or without root.
func TestContract_RemoteOrUnprivileged(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{TCP: true, Group: group, Images: []string{debian}})
	t.Run("over TCP", func(t *testing.T) { contractOverTCP(t, e) })
	t.Run("link cut", func(t *testing.T) { linkCut(t, e) })
	t.Run("link stalled", func(t *testing.T) { linkStalled(t, e) })
	t.Run("without root", func(t *testing.T) { contractWithoutRoot(t, e) })
}

// contractOverTCP uses an engine of this kernel that is not reached by a unix socket.
func contractOverTCP(t *testing.T, own *enginetest.Engine) {
	t.Setenv("DOCKER_HOST", "tcp://"+own.TCP())
	e := newEngine(t, docker.TransportAuto)
	if c := contract(t, e, nil, inBrief).Capabilities().Container; c.Transport != "agent" ||
		c.Channel != "socket" {
		t.Errorf("by %s %s", c.Transport, c.Channel)
	}
}

// A user that is neither root nor the tools' user, and a group that may use the engine's socket.
const uid, group = 4711, 4712

// contractWithoutRoot runs the suite as a user that may only use the engine's socket, by its group.
func contractWithoutRoot(t *testing.T, e *enginetest.Engine) {
	//nolint:usetesting // only root can enter the directories of t.TempDir
	home, err := os.MkdirTemp("", "dray-unprivileged-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.Chown(home, uid, group); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run=^TestContract$",
		"-test.skip=/^engine$")
	cmd.Dir, cmd.Stdout, cmd.Stderr = home, &out, &out
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+e.Host(), "HOME="+home, "TMPDIR="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
		Uid: uid, Gid: uid,
		Groups: []uint32{group},
	}}
	err = cmd.Run()
	said := out.String()
	if err != nil {
		t.Fatalf("as user %d: %v\n%s", uid, err, failuresIn(said))
	}
	for _, transport := range []string{"socket", "stdio"} {
		if strings.Contains(said, "--- SKIP") ||
			!strings.Contains(said, "--- PASS: TestContract/"+transport+"/StopEndsEscapees/") {
			t.Fatalf("as user %d a test of %s was skipped:\n%.4000s", uid, transport, said)
		}
	}
}

// failuresIn returns the output of the failed tests of a verbose run, or its end if no test is
// named.
func failuresIn(said string) string {
	var now string
	var failed []string
	lines := map[string][]string{} // by test
	for line := range strings.Lines(said) {
		words := strings.Fields(line)
		switch {
		case len(words) == 3 && words[0] == "===":
			now = words[2]
		case len(words) >= 3 && words[0] == "---":
			if words[1] == "FAIL:" {
				failed = append(failed, words[2])
			}
		default:
			lines[now] = append(lines[now], line)
		}
	}
	var all strings.Builder
	for _, name := range failed {
		all.WriteString("--- FAIL: " + name + "\n" + strings.Join(lines[name], ""))
	}
	if all.Len() == 0 {
		all.WriteString(said[max(0, len(said)-4000):])
	}
	return all.String()
}

func TestFailuresIn(t *testing.T) {
	run := "=== RUN   TestA\n=== RUN   TestA/good\n    a.go:1: noise\n=== RUN   TestA/bad\n    " +
		"a.go:2: the reason\n=== NAME  TestA/good\n    a.go:3: noise\n" +
		"--- FAIL: TestA (0.00s)\n    --- PASS: TestA/good (0.00s)\n    --- FAIL: TestA/bad " +
		"(0.00s)\nFAIL\n"
	if got := failuresIn(run); got != "--- FAIL: TestA\n--- FAIL: TestA/bad\n    a.go:2: the "+
		"reason\n" {
		t.Errorf("got %q", got)
	}
	if got := failuresIn("PASS\ngoleak: something is left\n"); got != "PASS\ngoleak: something is "+
		"left\n" {
		t.Errorf("got %q", got)
	}
}

// If root in the container cannot change users, the kill is best effort, with a warning. A process
// that became another user is reported by its pid (EX-09).
func TestStop_BestEffort(t *testing.T) {
	e := newEngine(t, docker.TransportAuto)
	c := runContainer(t, e, debian,
		func(_ *container.Config, h *container.HostConfig) { h.CapDrop = []string{"ALL"} })
	root := environment(t, newEngine(t, docker.TransportEngine), c, agent.Spec{})
	run(t, root, dray.ProcessSpec{Argv: []string{
		"sh", "-c",
		"cp /usr/bin/setpriv /tmp/become && chmod 4755 /tmp/become",
	}, Dir: "/"}, "")
	env := environment(t, e, c, agent.Spec{User: "vscode"})
	if caps := env.Capabilities(); !caps.BestEffortKill ||
		!strings.Contains(strings.Join(caps.Warnings, " "), "best effort") {
		t.Errorf("no warning: %+v", caps)
	}
	p := begin(t, env, `/tmp/become --reuid 0 --keep-groups sh -c 'echo ready; exec sleep 600' & wait`)
	p.Stop(0)
	exit, err := p.Wait()
	if err != nil || !exit.Survivors.Proven || len(exit.Survivors.PIDs) != 1 ||
		!strings.Contains(commands(t, c.ID), "sleep 600") {
		t.Errorf("got %+v, %v; running: %s", exit, err, commands(t, c.ID))
	}
}
