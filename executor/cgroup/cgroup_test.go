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

// headlessMark makes this binary a process whose first thread has ended while others run on.
const headlessMark = "DRAY_TEST_HEADLESS"

// the first thread is the main goroutine's only if it is held from here on
func init() { //nolint:gochecknoinits
	if os.Getenv(headlessMark) != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(headlessMark) != "" {
		_, _ = io.ReadFull(os.Stdin, make([]byte, 1))
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0) // of this thread; the runtime has others
	}
	goleak.VerifyTestMain(m)
}

// EX-09: cgroup.kill signals the first thread of a process, and one whose first thread has ended
// would run on.
func TestEndHeadless(t *testing.T) {
	tree := open(t, newFolder(t))
	group, err := tree.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	for range 5 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), headlessMark+"=1")
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
		headless(t, cmd.Process.Pid)
		if survivors, proven := tree.KillAndWait(10 * time.Second); !proven || len(survivors) != 0 {
			t.Errorf("survivors %v, proven %v", survivors, proven)
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait()
	}
}

// headless waits until the kernel shows a process as a zombie that still has threads.
func headless(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, rest, _ := strings.Cut(string(b), ") "); err == nil && strings.HasPrefix(rest, "Z") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is not headless: %s, %v", pid, b, err)
		}
	}
}

// newFolder makes a group of the test's own, where a container's would be.
func newFolder(t *testing.T) string {
	t.Helper()
	self, err := cgroup.SelfPath()
	if err != nil {
		t.Skipf("no unified hierarchy here: %v", err)
	}
	dir, err := os.MkdirTemp(self, "draytest-") //nolint:usetesting // t.TempDir makes folders of files
	if err != nil {
		t.Skipf("groups cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Errorf("something was left in the group: %v", err)
		}
	})
	return dir
}

func open(t *testing.T, folder string) *cgroup.Manager {
	t.Helper()
	tree, err := cgroup.NewManager(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
	return tree
}

// sleeper starts a shell with children in a group, and gives its pid.
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

// EX-09: what is in a tree ends with it, whatever it did to get away, and the end is proved.
func TestEnd(t *testing.T) {
	folder := newFolder(t)
	tree := open(t, folder)
	for range 5 {
		group, err := tree.NewGroup()
		if err != nil {
			t.Fatal(err)
		}
		other, err := tree.NewGroup()
		if err != nil {
			t.Fatal(err)
		}
		cmd, beside := sleeper(t, group.ProcsFile), sleeper(t, other.ProcsFile)
		if survivors, proven := group.KillAndWait(5 * time.Second); !proven || len(survivors) != 0 {
			t.Errorf("the group: survivors %v, proven %v", survivors, proven)
		}
		if populated, err := other.Populated(); err != nil || !populated {
			t.Errorf("the group beside it: %v, %v", populated, err)
		}
		if survivors, proven := tree.KillAndWait(5 * time.Second); !proven || len(survivors) != 0 {
			t.Errorf("the tree: survivors %v, proven %v", survivors, proven)
		}
		group.Close()
		other.Close()
		_, _ = cmd.Process.Wait()
		_, _ = beside.Process.Wait()
	}
}

// A process that was adopted takes what it starts into the tree.
func TestAdopt(t *testing.T) {
	folder := newFolder(t)
	tree := open(t, folder)
	cmd := exec.Command("/bin/sh", "-c", "read go; setsid sleep 600")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := tree.AddProc(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	_, _ = in.Write([]byte("\n"))
	if survivors, proven := tree.KillAndWait(5 * time.Second); !proven || len(survivors) != 0 {
		t.Errorf("survivors %v, proven %v", survivors, proven)
	}
	_ = cmd.Wait()
}

// What an owner that crashed left is ended by the next; what belongs to one that lives is not
// touched.
func TestSweep(t *testing.T) {
	folder := newFolder(t)
	tree := open(t, folder)
	group, err := tree.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	cmd := sleeper(t, group.ProcsFile)
	orphaned := filepath.Join(folder, "dray-orphaned")
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
	stray := sleeper(t, procs)
	cgroup.RemoveStale(folder)
	if _, err := os.Stat(orphaned); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree of an owner that is gone is still there: %v", err)
	}
	_, _ = stray.Process.Wait()
	if populated, err := group.Populated(); err != nil || !populated {
		t.Errorf("the tree of an owner that lives: populated %v, %v", populated, err)
	}
	tree.KillAndWait(5 * time.Second)
	_, _ = cmd.Process.Wait()
}

// A container's group is found by its full id and its first process, and no other is taken for it.
func TestOfContainer(t *testing.T) {
	folder := newFolder(t)
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, name := range []string{id, "docker-" + id + ".scope", id + "/init.scope"} {
		t.Run(name[:10], func(t *testing.T) {
			dir := filepath.Join(folder, name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = os.Remove(dir)
				_ = os.Remove(filepath.Dir(dir))
				_ = os.Mkdir(folder, 0o755)
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
				t.Errorf("a process that is not in it: %v", err)
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
