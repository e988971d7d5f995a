package torture_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// tool is one copy of the hostile program. A call has it for itself, so that what runs this very file is what the call left.
type tool struct {
	name string
	file os.FileInfo
}

// armoury is a folder of such copies.
type armoury struct {
	dir   string
	stock chan tool
}

// keeperName is one more copy, which no call has: a container without another program keeps it as its first process.
const keeperName = "keeper"

func newArmoury(t *testing.T, copies int) *armoury {
	t.Helper()
	program, err := hostile()
	if err != nil {
		t.Fatal(err)
	}
	a := &armoury{dir: t.TempDir(), stock: make(chan tool, copies)}
	if err := os.WriteFile(filepath.Join(a.dir, keeperName), program, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range copies {
		tl := tool{name: fmt.Sprintf("hostile%d", i)}
		path := filepath.Join(a.dir, tl.name)
		if err := os.WriteFile(path, program, 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if tl.file, err = os.Stat(path); err != nil {
			t.Fatal(err)
		}
		a.stock <- tl
	}
	return a
}

// processes are the pids, in this machine's numbers, of all that run the tool and are more than zombies.
func (tl tool) processes() []int {
	var found []int
	for _, pid := range numbers("/proc") {
		if tl.runs(fmt.Sprintf("/proc/%d", pid)) {
			found = append(found, pid)
		}
	}
	return found
}

// kill ends them, group by group, so that what forks does not get away.
func (tl tool) kill() {
	for range 100 {
		left := tl.processes()
		for _, pid := range left {
			if group, err := syscall.Getpgid(pid); err == nil && group > 1 && group != syscall.Getpgrp() {
				_ = syscall.Kill(-group, syscall.SIGKILL)
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(left) == 0 {
			return
		}
	}
}

// runs looks at every thread: the first of a process may have ended before the others.
func (tl tool) runs(process string) bool {
	if info, err := os.Stat(process + "/exe"); err == nil {
		return os.SameFile(info, tl.file)
	}
	for _, tid := range numbers(process + "/task") {
		if info, err := os.Stat(fmt.Sprintf("%s/task/%d/exe", process, tid)); err == nil && os.SameFile(info, tl.file) {
			return true
		}
	}
	return false
}

// numbers are the names in a folder of /proc that are pids.
func numbers(dir string) []int {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	names, _ := f.Readdirnames(-1)
	list := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			list = append(list, n)
		}
	}
	return list
}
