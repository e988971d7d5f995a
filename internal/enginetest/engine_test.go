package enginetest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func small() Options { return Options{Images: []string{"dray-test/busybox:latest"}} }

func TestLife(t *testing.T) {
	opts := small()
	opts.LiveRestore, opts.TCP = true, true
	var e *Engine
	var id string
	t.Run("engine", func(t *testing.T) {
		e = Start(t, opts)
		id = e.Docker(t, "run", "-d", "--init", "--network", "none", "dray-test/busybox:latest", "sleep",
			"100000")
		started := e.Docker(t, "inspect", "-f", "{{.State.StartedAt}}", id)
		e.Restart(t)
		e.Kill(t)
		if e.ping(t.Context()) == nil {
			t.Error("it responds though it was killed")
		}
		e.StartAgain(t)
		if now := e.Docker(t, "inspect", "-f", "{{.State.Running}} {{.State.StartedAt}}",
			id); now != "true "+started {
			t.Errorf("the container did not keep running: got %s, want start %s", now, started)
		}
		if out, err := exec.Command("docker", "-H", "tcp://"+e.TCP(), "ps", "-q", "--no-trunc").
			Output(); err != nil || strings.TrimSpace(string(out)) != id {
			t.Errorf("over TCP: %q, %v", out, err)
		}
		if out, err := exec.Command("docker", "ps", "-aq", "--no-trunc").Output(); err != nil ||
			strings.Contains(string(out), id) {
			t.Errorf("the machine's own engine has %q, %v", out, err)
		}
		e.Kill(t) // so that the cleanup has to remove everything
	})
	checkRemoved(t, e, id)
}

// checkRemoved fails the test if something of an engine is left.
func checkRemoved(t *testing.T, e *Engine, id string) {
	t.Helper()
	if e == nil {
		t.SkipNow() // Start has logged why
	}
	if _, err := os.Lstat(e.dir); err == nil {
		t.Error("the directory is left")
	}
	if left := processesOf(e.dir); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if left := groupsOf([]string{id}); len(left) > 0 {
		t.Errorf("cgroups are left: %v", left)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), e.dir) {
		t.Errorf("mounts are left: %v", err)
	}
	if _, err := os.Lstat("/sys/class/net/" + bridgeOf(e.dir)); err == nil {
		t.Error("the bridge is left")
	}
}

func TestRemappedUsers(t *testing.T) {
	opts := small()
	opts.RemapUsers = true
	e := Start(t, opts)
	got := e.Docker(t, "run", "--rm", "--network", "none", "dray-test/busybox:latest", "cat",
		"/proc/self/uid_map")
	if f := strings.Fields(got); len(f) != 3 || f[0] != "0" || f[1] != "100000" {
		t.Errorf("got %q", got)
	}
	if text, err := os.ReadFile("/etc/subuid"); err == nil &&
		strings.Contains(string(text), "nobody:100000") {
		t.Error("the machine's own ranges were changed")
	}
}

// Podman's containers outlive a restart and a kill of its service, and nothing of it is left.
func TestLife_Podman(t *testing.T) {
	opts := small()
	opts.Podman = true
	var e *Engine
	var id string
	t.Run("engine", func(t *testing.T) {
		e = Start(t, opts)
		id = e.Docker(t, "run", "-d", "--network", "none", "dray-test/busybox:latest", "sleep", "100000")
		e.Restart(t)
		e.Kill(t)
		e.StartAgain(t)
		if got := e.Docker(t, "inspect", "-f", "{{.State.Running}}", id); got != "true" {
			t.Errorf("the container runs: %s", got)
		}
		e.Kill(t)
	})
	checkRemoved(t, e, id)
}

// Start removes the leftovers of killed test binaries, and no directory of a running one.
func TestSweep(t *testing.T) {
	requireHost(t, small().programs()...)
	made, err := os.MkdirTemp("", prefix) //nolint:usetesting // sweep looks for this name
	if err != nil {
		t.Fatal(err)
	}
	locked := &Engine{dir: made}
	if err := locked.lockDir(); err != nil {
		t.Fatal(err)
	}
	sweep(t)
	if _, err := os.Stat(made); err != nil {
		t.Errorf("a locked directory was removed: %v", err)
	}
	_ = locked.lock.Close() // as the kernel does for a killed process
	sweep(t)
	if _, err := os.Stat(made); err == nil {
		t.Error("an unlocked directory is left")
	}
}
