package cgroup

import (
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

// Manager is the group of all that one owner started beneath one group, with a group for each supervisor in it. Its methods may be used from
// several goroutines.
type Manager struct {
	dir  string
	lock *os.File
	self *process.Cgroup // the tree itself; its Home is the group that the tree was made in

	mu     sync.Mutex
	next   int
	closed bool
}

// NewManager makes a tree in the folder of a group, after ending what owners that are gone left there. It fails where this program may not: it
// is not root, the hierarchy is mounted read-only, the kernel has no cgroup.kill (before Linux 5.14).
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

// NewGroup makes a group for one supervisor. Whoever gets it closes it; the group goes with the tree.
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
	if g.EnvironmentProcs, err = os.OpenFile(filepath.Join(filepath.Dir(t.dir), procs), os.O_WRONLY, 0); err != nil {
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

// AddProc takes a process with all its threads into the tree's home. What it starts from then on is in the tree too; what it started before
// is not.
func (t *Manager) AddProc(pid int) error {
	if err := os.WriteFile(filepath.Join(t.dir, "home", procs), []byte(strconv.Itoa(pid)), 0); err != nil {
		return fmt.Errorf("taking process %d into a group: %w", pid, err)
	}
	return nil
}

// KillAndWait kills all that is in the tree and waits until it is empty, at most the patience: see process.Cgroup.End.
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

// Close gives the tree up and removes what is empty of it. Processes that are in it run on: End ends them.
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
