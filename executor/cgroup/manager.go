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
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/linux"
)

// Files of a cgroup.
const (
	procs  = "cgroup.procs"
	events = "cgroup.events"
	kill   = "cgroup.kill"
)

// dirPrefix starts the names of Managers' cgroups.
const dirPrefix = "dray-"

// idLength is the length of what follows the prefix, in the alphabet of rand.Text.
const idLength = 16

// Manager is a cgroup for all processes that one owner starts in a container, with a cgroup for
// each supervisor below it. It is safe for concurrent use.
type Manager struct {
	dir  string
	lock *os.File
	self *process.Cgroup // of dir; its ParentProcs is that of the cgroup above

	mu     sync.Mutex
	next   int
	closed bool
}

// NewManager creates a cgroup below parent, after RemoveStale. It fails if this program is not
// root, if the hierarchy is mounted read-only, or if the kernel has no cgroup.kill (before Linux
// 5.14).
func NewManager(parent string) (*Manager, error) {
	RemoveStale(parent)
	dir := filepath.Join(parent, dirPrefix+strings.ToLower(rand.Text()[:idLength]))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create a cgroup: %w", err)
	}
	m := &Manager{dir: dir}
	err := m.open(parent)
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *Manager) open(parent string) (err error) {
	if m.lock, err = lock(m.dir); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(m.dir, "home"), 0o700); err != nil {
		return fmt.Errorf("create a cgroup: %w", err)
	}
	m.self, err = openGroup(m.dir, filepath.Join(parent, procs))
	return err
}

// lock locks a Manager's cgroup until the file is closed, at the latest when its owner exits.
func lock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open a cgroup: %w", err)
	}
	err = linux.Control(f, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock a cgroup: %w", err)
	}
	return f, nil
}

// NewGroup creates a cgroup for one supervisor. The caller closes it. Close of the Manager removes
// it.
func (m *Manager) NewGroup() (*process.Cgroup, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("create a cgroup: %w", fs.ErrClosed)
	}
	m.next++
	dir := filepath.Join(m.dir, strconv.Itoa(m.next))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create a cgroup: %w", err)
	}
	g, err := openGroup(dir, filepath.Join(m.dir, "home", procs))
	if err != nil {
		_ = os.Remove(dir)
		return nil, err
	}
	above := filepath.Join(filepath.Dir(m.dir), procs)
	if g.EnvironmentProcs, err = os.OpenFile(above, os.O_WRONLY, 0); err != nil {
		g.Close()
		return nil, fmt.Errorf("open the cgroup above: %w", err)
	}
	return g, nil
}

// openGroup opens the files of the cgroup dir, and parentProcs.
func openGroup(dir, parentProcs string) (*process.Cgroup, error) {
	g := &process.Cgroup{}
	for _, f := range []struct {
		file **os.File
		path string
		flag int
	}{
		{&g.ProcsFile, filepath.Join(dir, procs), os.O_RDWR},
		{&g.ParentProcs, parentProcs, os.O_WRONLY},
		{&g.Kill, filepath.Join(dir, kill), os.O_WRONLY},
		{&g.Events, filepath.Join(dir, events), os.O_RDONLY},
	} {
		opened, err := os.OpenFile(f.path, f.flag, 0)
		if err != nil {
			g.Close()
			return nil, fmt.Errorf("open a cgroup: %w", err)
		}
		*f.file = opened
	}
	return g, nil
}

// AddProc moves a process to home. Processes that it starts later are below the Manager's cgroup
// too; those that it started before are not.
func (m *Manager) AddProc(pid int) error {
	home := filepath.Join(m.dir, "home", procs)
	if err := os.WriteFile(home, []byte(strconv.Itoa(pid)), 0); err != nil {
		return fmt.Errorf("move process %d to a cgroup: %w", pid, err)
	}
	return nil
}

// KillAndWait kills all processes and blocks until none is left, at most for timeout. It returns as
// process.Cgroup.KillAndWait does.
func (m *Manager) KillAndWait(timeout time.Duration) (survivors []int, proven bool) {
	return m.self.KillAllAndWait(timeout, m.pids)
}

func (m *Manager) pids() (pids []int, proven bool) { return pidsBelow(m.dir) }

// pidsBelow returns the pids in a cgroup and in all below it.
func pidsBelow(dir string) (pids []int, proven bool) {
	err := filepath.WalkDir(dir, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, procs))
		pids = append(pids, linux.Numbers(b)...)
		return err
	})
	slices.Sort(pids)
	return pids, err == nil && len(pids) > 0
}

// Close removes the cgroups that are empty. It ends no process: see KillAndWait.
func (m *Manager) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	return m.close()
}

func (m *Manager) close() error {
	err := remove(m.dir)
	if m.self != nil {
		m.self.Close()
	}
	if m.lock != nil {
		_ = m.lock.Close()
	}
	return err
}

// Release moves processes to the cgroup above, so that KillAndWait does not end them. pids are in
// the pid namespace of the processes. Release ignores pids that are not in the Manager's cgroup,
// because they come from a container.
func (m *Manager) Release(pids []int) error {
	members, _ := m.pids()
	for _, pid := range members {
		if !slices.Contains(pids, nsPID(pid)) {
			continue
		}
		if _, err := m.self.ParentProcs.WriteAt(strconv.AppendInt(nil, int64(pid), 10), 0); err != nil {
			return fmt.Errorf("move process %d to its environment's cgroup: %w", pid, err)
		}
	}
	return nil
}

// nsPID returns the pid of a process in its own pid namespace; 0 if it has ended.
func nsPID(pid int) int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		if numbers, ok := strings.CutPrefix(lines.Text(), "NSpid:"); ok {
			fields := strings.Fields(numbers)
			own, _ := strconv.Atoi(fields[len(fields)-1]) // 0 if it is not a number
			return own
		}
	}
	return 0
}

// staleKillTimeout bounds the wait for the processes of one owner to end.
const staleKillTimeout = 2 * time.Second

// RemoveStale kills what Managers whose owner has exited left below parent, and removes their
// cgroups. Cgroups whose owner runs are locked.
func RemoveStale(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*")) // the pattern is well-formed
	for _, dir := range dirs {
		owner, err := lock(dir)
		if err != nil {
			continue
		}
		killStale(dir)
		_ = owner.Close()
	}
}

// RemoveAllStale is RemoveStale for every cgroup of this machine. It does nothing if this program
// is not root.
func RemoveAllStale() {
	if os.Geteuid() != 0 {
		return
	}
	mount, ok := unifiedMount()
	if !ok {
		return
	}
	parents := map[string]bool{}
	_ = filepath.WalkDir(mount.Point, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return nil //nolint:nilerr // a cgroup that was removed
		case isManagerDir(path):
			parents[filepath.Dir(path)] = true
			return fs.SkipDir
		}
		return nil
	})
	for parent := range parents {
		RemoveStale(parent)
	}
}

// isManagerDir reports whether a directory is certainly a Manager's: services may have a cgroup
// whose name begins in the same way.
func isManagerDir(path string) bool {
	id, ok := strings.CutPrefix(filepath.Base(path), dirPrefix)
	if !ok || len(id) != idLength || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return false
	}
	info, err := os.Stat(filepath.Join(path, "home"))
	return err == nil && info.IsDir()
}

// killStale kills what is left in a Manager's cgroup. Kept leftover processes are not in it.
func killStale(dir string) {
	groups, err := openGroup(dir, filepath.Join(dir, procs))
	if err != nil {
		return
	}
	defer groups.Close()
	groups.KillAllAndWait(staleKillTimeout, func() ([]int, bool) { return pidsBelow(dir) })
	_ = remove(dir) // it fails while a process is blocked in the kernel
}

// remove removes a cgroup with those below it, the deepest first: the kernel removes only empty
// ones.
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
		return fmt.Errorf("remove cgroups: %w", errors.Join(failures...))
	}
	return nil
}

// rmdir is os.Remove without the attempt to unlink.
func rmdir(dir string) error {
	if err := unix.Rmdir(dir); err != nil {
		return &os.PathError{Op: "rmdir", Path: strings.TrimSuffix(dir, "/"), Err: err}
	}
	return nil
}
