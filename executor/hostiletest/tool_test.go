package hostiletest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// tool is one copy of the hostile program. Each call has its own, so that processes of this file
// belong to the call.
type tool struct {
	name string
	file os.FileInfo
}

// toolCopies is a directory of copies.
type toolCopies struct {
	dir     string
	stock   chan tool
	made    atomic.Int64
	mu      sync.Mutex
	retired []tool
}

// idleCopy is one more copy, which no call uses. It is the first process of containers without
// another program.
const idleCopy = "idle"

func newToolCopies(t *testing.T, copies int) *toolCopies {
	t.Helper()
	a := &toolCopies{dir: t.TempDir(), stock: make(chan tool, copies)}
	a.make(t, idleCopy)
	for range copies {
		a.add(t)
	}
	return a
}

// add adds a copy to the stock.
func (a *toolCopies) add(t testing.TB) {
	a.stock <- a.make(t,
		fmt.Sprintf("hostile%d", a.made.Add(1)))
}

func (a *toolCopies) make(t testing.TB, name string) tool {
	program, err := hostile()
	path := filepath.Join(a.dir, name)
	if err == nil {
		syscall.ForkLock.RLock() // a file that a new child has open for writing cannot be executed
		err = os.WriteFile(path, program, 0o755)
		syscall.ForkLock.RUnlock()
	}
	info, statErr := os.Stat(path)
	if err = errors.Join(err, statErr); err != nil {
		t.Fatal(err)
	}
	return tool{name, info}
}

// retire reenvs a copy whose start was abandoned: it may still start, and no result reports its
// end.
func (a *toolCopies) retire(t testing.TB, tl tool) {
	a.mu.Lock()
	a.retired = append(a.retired, tl)
	a.mu.Unlock()
	a.add(t)
}

// noneRuns fails the test if a retired copy still runs, removes the retired copies, and returns the
// number of processes that run one.
func (a *toolCopies) noneRuns(t testing.TB, style string) (left int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, tl := range a.retired {
		eventually(t, 10*time.Second, style+": no process of an abandoned start is left",
			func() bool { return len(tl.processes()) == 0 })
		left += len(tl.processes())
		if err := os.Remove(filepath.Join(a.dir, tl.name)); err != nil {
			t.Error(err)
		}
	}
	a.retired = nil
	return left
}

// processes returns the pids, in the host's pid namespace, of all processes that run the copy and
// are not zombies.
func (tl tool) processes() []int {
	var found []int
	for _, pid := range parsePIDs("/proc") {
		if tl.runs(fmt.Sprintf("/proc/%d", pid)) {
			found = append(found, pid)
		}
	}
	return found
}

// kill kills them by process group, so that those that fork do not escape.
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

// runs checks every thread: the first one of a process may have exited before the others.
func (tl tool) runs(process string) bool {
	if info, err := os.Stat(process + "/exe"); err == nil {
		return os.SameFile(info, tl.file)
	}
	for _, tid := range parsePIDs(process + "/task") {
		if info, err := os.Stat(fmt.Sprintf("%s/task/%d/exe", process, tid)); err == nil &&
			os.SameFile(info, tl.file) {
			return true
		}
	}
	return false
}

// parsePIDs returns the names in a directory of /proc that are pids.
func parsePIDs(dir string) []int {
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
