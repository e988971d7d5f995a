package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// killOthers kills the members of a cgroup by pid, except itself, and no other process (EX-09).
func TestKillOthers(t *testing.T) {
	var sleepers [3]*exec.Cmd
	for i := range sleepers {
		sleepers[i] = exec.Command("sleep", "600")
		if err := sleepers[i].Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sleepers[i].Process.Kill(); _ = sleepers[i].Wait() })
	}
	pid := func(i int) string { return strconv.Itoa(sleepers[i].Process.Pid) }
	// cgroup.procs has one pid in a line; 0 is a process outside of this pid namespace
	path := filepath.Join(t.TempDir(), "cgroup.procs")
	if err := os.WriteFile(path, []byte(strings.Join([]string{
		pid(0), strconv.Itoa(os.Getpid()), "0",
		pid(1), "",
	}, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if n := (&cgroupFDs{procs: int(f.Fd())}).killOthers(); n != 2 {
		t.Errorf("killOthers found %d processes, want 2", n)
	}
	for i, want := range []bool{false, false, true} {
		if i < 2 {
			_ = sleepers[i].Wait()
		}
		if stat, ok := statOf(sleepers[i].Process.Pid); (ok && stat.alive()) != want {
			t.Errorf("process %d runs: %v, want %v", i, !want, want)
		}
	}
	if n := (*cgroupFDs)(nil).killOthers(); n != 0 {
		t.Errorf("killOthers found %d processes without a cgroup", n)
	}
}
