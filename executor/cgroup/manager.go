package cgroup

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dray-dev/dray/executor/process"
)

// The kernel's names of the files of a group.
const (
	procs  = "cgroup.procs"
	events = "cgroup.events"
	kill   = "cgroup.kill"
)

// dirPrefix begins the names of trees.
const dirPrefix = "dray-"

// Manager is the group of all that one owner started beneath one group, with a group for each
// supervisor in it. Its methods may be used from several goroutines.
type Manager struct {
	dir  string
	lock *os.File
	self *process.Cgroup // the tree itself; its Home is the group that the tree was made in

	mu     sync.Mutex
	next   int
	closed bool
}

// NewManager makes a tree in the folder of a group, after ending what owners that are gone left
// there. It fails where this program may not: it is not root, the hierarchy is mounted read-only,
// the kernel has no cgroup.kill (before Linux 5.14).
func NewManager(folder string) (*Manager, error) {
	RemoveStale(folder)
	dir := filepath.Join(folder, dirPrefix+strings.ToLower(rand.Text()[:16]))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a tree of groups: %w", err)
	}
	t := &Manager{dir: dir}
	err := t.open(folder)
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *Manager) open(folder string) (err error) {
	if t.lock, err = lock(t.dir); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(t.dir, "home"), 0o700); err != nil {
		return fmt.Errorf("making the home of supervisors: %w", err)
	}
	t.self, err = openGroup(t.dir, filepath.Join(folder, procs))
	return err
}

// lock marks a tree as its owner's for as long as the owner lives.
func lock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("opening a tree of groups: %w", err)
	}
	raw, err := f.SyscallConn()
	if err == nil {
		var lockErr error
		err = raw.Control(func(fd uintptr) { lockErr = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB) })
		err = errors.Join(err, lockErr)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking a tree of groups: %w", err)
	}
	return f, nil
}

// NewGroup makes a group for one supervisor. Whoever gets it closes it; the group goes with the
// tree.
func (t *Manager) NewGroup() (*process.Cgroup, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("making a group: %w", fs.ErrClosed)
	}
	t.next++
	dir := filepath.Join(t.dir, strconv.Itoa(t.next))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a group: %w", err)
	}
	g, err := openGroup(dir, filepath.Join(t.dir, "home", procs))
	if err != nil {
		_ = os.Remove(dir)
		return nil, err
	}
	if g.EnvironmentProcs, err = os.OpenFile(filepath.Join(filepath.Dir(t.dir), procs), os.O_WRONLY,
		0); err != nil {
		g.Close()
		return nil, fmt.Errorf("opening the group above: %w", err)
	}
	return g, nil
}

func openGroup(dir, home string) (*process.Cgroup, error) {
	g := &process.Cgroup{}
	for _, f := range []struct {
		file **os.File
		path string
		flag int
	}{
		{&g.ProcsFile, filepath.Join(dir, procs), os.O_RDWR},
		{&g.ParentProcs, home, os.O_WRONLY},
		{&g.Kill, filepath.Join(dir, kill), os.O_WRONLY},
		{&g.Events, filepath.Join(dir, events), os.O_RDONLY},
	} {
		opened, err := os.OpenFile(f.path, f.flag, 0)
		if err != nil {
			g.Close()
			return nil, fmt.Errorf("opening a group: %w", err)
		}
		*f.file = opened
	}
	return g, nil
}

// AddProc takes a process with all its threads into the tree's home. What it starts from then on is
// in the tree too; what it started before is not.
func (t *Manager) AddProc(pid int) error {
	if err := os.WriteFile(filepath.Join(t.dir, "home", procs), []byte(strconv.Itoa(pid)),
		0); err != nil {
		return fmt.Errorf("taking process %d into a group: %w", pid, err)
	}
	return nil
}

// KillAndWait kills all that is in the tree and waits until it is empty, at most the patience: see
// process.Cgroup.End.
func (t *Manager) KillAndWait(patience time.Duration) (survivors []int, proven bool) {
	return t.self.KillAllAndWait(patience, t.pids)
}

func (t *Manager) pids() (pids []int, proven bool) { return pidsBelow(t.dir) }

// pidsBelow are those of a group and of all below it.
func pidsBelow(dir string) (pids []int, proven bool) {
	err := filepath.WalkDir(dir, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, procs))
		for field := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
		return err
	})
	slices.Sort(pids)
	return pids, err == nil && len(pids) > 0
}

// Close gives the tree up and removes what is empty of it. Processes that are in it run on: End
// ends them.
func (t *Manager) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	return t.close()
}

func (t *Manager) close() error {
	err := remove(t.dir)
	if t.self != nil {
		t.self.Close()
	}
	if t.lock != nil {
		_ = t.lock.Close()
	}
	return err
}

// Release gives processes back to the group that the tree was made in, so that the tree's end is
// not theirs. They are named by their numbers in their own pid namespace. Those that are not in the
// tree are passed over: whoever names them may not be trusted.
func (t *Manager) Release(pids []int) error {
	members, _ := t.pids()
	for _, pid := range members {
		if !slices.Contains(pids, nsPID(pid)) {
			continue
		}
		if _, err := t.self.ParentProcs.WriteAt(strconv.AppendInt(nil, int64(pid), 10), 0); err != nil {
			return fmt.Errorf("giving process %d back to its environment: %w", pid, err)
		}
	}
	return nil
}

// nsPID is what a process is called in its own pid namespace; 0 for one that is gone.
func nsPID(pid int) int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		if numbers, ok := strings.CutPrefix(lines.Text(), "NSpid:"); ok {
			fields := strings.Fields(numbers)
			own, _ := strconv.Atoi(fields[len(fields)-1]) // 0 where it is no number
			return own
		}
	}
	return 0
}

// staleKillTimeout bounds how long what is left of one owner may take to end.
const staleKillTimeout = 2 * time.Second

// RemoveStale ends what owners that are gone left in the folder of a group, and removes their
// trees. The trees of those that live are locked, in whichever pid namespace they are, and not
// touched.
func RemoveStale(folder string) {
	trees, _ := filepath.Glob(filepath.Join(folder, dirPrefix+"*")) // the pattern is well-formed
	for _, dir := range trees {
		owner, err := lock(dir)
		if err != nil {
			continue
		}
		killStale(dir)
		_ = owner.Close()
	}
}

// killStale ends what is left in a tree, but for what calls were told to keep.
func killStale(dir string) {
	groups, err := openGroup(dir, filepath.Join(dir, procs))
	if err != nil {
		return
	}
	defer groups.Close()
	groups.KillAllAndWait(staleKillTimeout, func() ([]int, bool) { return pidsBelow(dir) })
	_ = remove(dir) // what is stuck in the kernel is tried again next time
}

// remove removes a group with those below it, the deepest first: the kernel takes one only when it
// is empty.
func remove(dir string) error {
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	var failures []error
	for _, d := range slices.Backward(dirs) {
		if err := rmdir(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	if len(failures) > 0 {
		return fmt.Errorf("removing groups: %w", errors.Join(failures...))
	}
	return nil
}

// rmdir is not os.Remove, which would try to unlink first.
func rmdir(dir string) error {
	if err := syscall.Rmdir(dir); err != nil {
		return &os.PathError{Op: "rmdir", Path: strings.TrimSuffix(dir, "/"), Err: err}
	}
	return nil
}
