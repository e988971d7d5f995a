package cgroup_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray/executor/cgroup"
)

// threadExitMark makes this binary exit its first thread while the others run.
const threadExitMark = "DRAY_TEST_HEADLESS"

func init() { //nolint:gochecknoinits // keeps the main goroutine on the first thread
	if os.Getenv(threadExitMark) != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(threadExitMark) != "" {
		_, _ = io.ReadFull(os.Stdin, make([]byte, 1))
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0) // of this thread; the runtime has others
	}
	goleak.VerifyTestMain(m)
}

// KillAndWait ends processes whose first thread has exited, which cgroup.kill does not (EX-09).
func TestKillAndWait_LeaderThreadExit(t *testing.T) {
	manager := open(t, newCgroup(t))
	group, err := manager.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	for range 5 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), threadExitMark+"=1")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := group.ProcsFile.WriteString(strconv.Itoa(cmd.Process.Pid)); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
		waitLeaderZombie(t, cmd.Process.Pid)
		if survivors, proven := manager.KillAndWait(10 * time.Second); !proven || len(survivors) != 0 {
			t.Errorf("survivors %v, proven %v", survivors, proven)
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait()
	}
}

// waitLeaderZombie waits until the kernel reports a process as a zombie while its threads run.
func waitLeaderZombie(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, rest, _ := strings.Cut(string(b), ") "); err == nil && strings.HasPrefix(rest, "Z") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the first thread of process %d has not exited: %s, %v", pid, b, err)
		}
	}
}

// newCgroup creates a cgroup in the place of a container's.
func newCgroup(t *testing.T) string {
	t.Helper()
	self, err := cgroup.SelfPath()
	if err != nil {
		t.Skipf("no cgroup v2 here: %v", err)
	}
	dir, err := os.MkdirTemp(self, "draytest-") //nolint:usetesting // t.TempDir is not in the hierarchy
	if err != nil {
		t.Skipf("cgroups cannot be created here: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Errorf("the cgroup is not empty: %v", err)
		}
	})
	return dir
}

func open(t *testing.T, parent string) *cgroup.Manager {
	t.Helper()
	manager, err := cgroup.NewManager(parent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := manager.Close(); err != nil {
			t.Error(err)
		}
	})
	return manager
}

// sleeper starts a shell with children in a cgroup.
func sleeper(t *testing.T, procs *os.File) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c",
		"read go; setsid sleep 600 & setsid setsid sleep 600 & echo ready; wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := procs.WriteString(strconv.Itoa(cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	_, _ = in.Write([]byte("\n"))
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// KillAndWait ends all processes below a cgroup, whatever they did to escape (EX-09).
func TestKillAndWait(t *testing.T) {
	parent := newCgroup(t)
	manager := open(t, parent)
	for range 5 {
		group, err := manager.NewGroup()
		if err != nil {
			t.Fatal(err)
		}
		other, err := manager.NewGroup()
		if err != nil {
			t.Fatal(err)
		}
		cmd, beside := sleeper(t, group.ProcsFile), sleeper(t, other.ProcsFile)
		if survivors, proven := group.KillAndWait(5 * time.Second); !proven || len(survivors) != 0 {
			t.Errorf("the cgroup: survivors %v, proven %v", survivors, proven)
		}
		if populated, err := other.Populated(); err != nil || !populated {
			t.Errorf("the other cgroup: populated %v, %v", populated, err)
		}
		if survivors, proven := manager.KillAndWait(5 * time.Second); !proven || len(survivors) != 0 {
			t.Errorf("the manager: survivors %v, proven %v", survivors, proven)
		}
		group.Close()
		other.Close()
		_, _ = cmd.Process.Wait()
		_, _ = beside.Process.Wait()
	}
}

// Processes that a process starts after AddProc are below the manager's cgroup.
func TestAddProc(t *testing.T) {
	parent := newCgroup(t)
	manager := open(t, parent)
	cmd := exec.Command("/bin/sh", "-c", "read go; setsid sleep 600")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := manager.AddProc(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	_, _ = in.Write([]byte("\n"))
	if survivors, proven := manager.KillAndWait(5 * time.Second); !proven || len(survivors) != 0 {
		t.Errorf("survivors %v, proven %v", survivors, proven)
	}
	_ = cmd.Wait()
}

// RemoveStale kills what an owner that has exited left, and nothing else.
func TestRemoveStale(t *testing.T) {
	parent := newCgroup(t)
	manager := open(t, parent)
	group, err := manager.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	cmd := sleeper(t, group.ProcsFile)
	orphaned := filepath.Join(parent, "dray-orphaned")
	for _, dir := range []string{orphaned, orphaned + "/1", orphaned + "/home"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	procs, err := os.OpenFile(orphaned+"/1/cgroup.procs", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = procs.Close() }()
	orphan := sleeper(t, procs)
	cgroup.RemoveStale(parent)
	if _, err := os.Stat(orphaned); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cgroup of an owner that has exited: %v", err)
	}
	_, _ = orphan.Process.Wait()
	if populated, err := group.Populated(); err != nil || !populated {
		t.Errorf("the cgroup of an owner that runs: populated %v, %v", populated, err)
	}
	manager.KillAndWait(5 * time.Second)
	_, _ = cmd.Process.Wait()
}

// A container's cgroup is found by its full id and its first process, and no other one is returned.
func TestContainerPath(t *testing.T) {
	parent := newCgroup(t)
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, name := range []string{id, "docker-" + id + ".scope", id + "/init.scope"} {
		t.Run(name[:10], func(t *testing.T) {
			dir := filepath.Join(parent, name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = os.Remove(dir)
				_ = os.Remove(filepath.Dir(dir))
				_ = os.Mkdir(parent, 0o755)
			}()
			procs, err := os.OpenFile(dir+"/cgroup.procs", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = procs.Close() }()
			first := exec.Command("/bin/sleep", "600")
			if err := first.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = first.Process.Kill()
				_ = first.Wait()
			}()
			pid := first.Process.Pid
			if _, err := cgroup.ContainerPath(id, pid); !errors.Is(err, cgroup.ErrUnsupported) {
				t.Errorf("a process outside: %v", err)
			}
			if _, err := procs.WriteString(strconv.Itoa(pid)); err != nil {
				t.Fatal(err)
			}
			want := strings.TrimSuffix(dir, "/init.scope")
			if got, err := cgroup.ContainerPath(id, pid); err != nil || got != want {
				t.Errorf("got %s, %v; want %s", got, err, want)
			}
			for _, other := range []string{id[:63] + "0", id[:12], "f" + id[1:]} {
				if got, err := cgroup.ContainerPath(other, pid); !errors.Is(err, cgroup.ErrUnsupported) {
					t.Errorf("%s: got %s, %v", other, got, err)
				}
			}
		})
	}
}
