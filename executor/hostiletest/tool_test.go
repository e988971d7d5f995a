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

// tool is one copy of the hostile program. A call has it for itself, so that what runs this very
// file is what the call left.
type tool struct {
	name string
	file os.FileInfo
}

// toolCopies is a folder of such copies.
type toolCopies struct {
	dir     string
	stock   chan tool
	made    atomic.Int64
	mu      sync.Mutex
	retired []tool
}

// keeperName is one more copy, which no call has: a container without another program keeps it as
// its first process.
const keeperName = "keeper"

func newToolCopies(t *testing.T, copies int) *toolCopies {
	t.Helper()
	a := &toolCopies{dir: t.TempDir(), stock: make(chan tool, copies)}
	a.make(t, keeperName)
	for range copies {
		a.add(t)
	}
	return a
}

// add puts one more copy into the stock.
func (a *toolCopies) add(t testing.TB) {
	a.stock <- a.make(t,
		fmt.Sprintf("hostile%d", a.made.Add(1)))
}

func (a *toolCopies) make(t testing.TB, name string) tool {
	program, err := hostile()
	path := filepath.Join(a.dir, name)
	if err == nil {
		syscall.ForkLock.RLock() // a file that a new child still has open for writing cannot be run
		err = os.WriteFile(path, program, 0o755)
		syscall.ForkLock.RUnlock()
	}
	info, statErr := os.Stat(path)
	if err = errors.Join(err, statErr); err != nil {
		t.Fatal(err)
	}
	return tool{name, info}
}

// retire takes a copy out of use for which a start was given up: it may begin to run yet, and its
// end is nobody's to tell.
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
		eventually(t, 10*time.Second, style+": nothing is left of a start that was given up",
			func() bool { return len(tl.processes()) == 0 })
		left += len(tl.processes())
		if err := os.Remove(filepath.Join(a.dir, tl.name)); err != nil {
			t.Error(err)
		}
	}
	a.retired = nil
	return left
}

// processes are the pids, in this machine's numbers, of all that run the tool and are more than
// zombies.
func (tl tool) processes() []int {
	var found []int
	for _, pid := range parsePIDs("/proc") {
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
	for _, tid := range parsePIDs(process + "/task") {
		if info, err := os.Stat(fmt.Sprintf("%s/task/%d/exe", process, tid)); err == nil &&
			os.SameFile(info, tl.file) {
			return true
		}
	}
	return false
}

// parsePIDs are the names in a folder of /proc that are pids.
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
