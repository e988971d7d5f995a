package process

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/internal/linux"
)

// Cgroup is a cgroup v2 (cgroups(7)) for one supervisor and the calls that it serves. The
// supervisor lives in it, so that its tools start in it, and leaves it to write cgroup.kill. The
// pool kills through it what a call leaves without a supervisor, which proves the end.
//
// It consists of files and never of a directory, because it may be passed into a container, where a
// directory would give access to the whole hierarchy of the host.
type Cgroup struct {
	// ProcsFile is cgroup.procs, open for reading and writing.
	ProcsFile *os.File
	// ParentProcs is the cgroup.procs that the supervisor moves to when it leaves, open for writing.
	ParentProcs *os.File
	// Kill is cgroup.kill, open for writing.
	Kill *os.File
	// Events is cgroup.events, open for reading.
	Events *os.File
	// EnvironmentProcs is the cgroup.procs of the environment's own cgroup, open for writing. Kept
	// leftover processes are moved there. If it is nil they stay in the cgroup.
	EnvironmentProcs *os.File
}

// Close closes the files. It does not remove the cgroup. A nil Cgroup has none.
func (c *Cgroup) Close() {
	if c == nil {
		return
	}
	for _, f := range []*os.File{c.ProcsFile, c.ParentProcs, c.Kill, c.Events, c.EnvironmentProcs} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// addProc moves a process into the cgroup. It reports false if c is nil, or if the kernel refuses;
// then it closes the files.
func (c *Cgroup) addProc(pid int) bool {
	if c == nil {
		return false
	}
	if _, err := c.ProcsFile.WriteAt(strconv.AppendInt(nil, int64(pid), 10), 0); err != nil {
		c.Close()
		return false
	}
	return true
}

// KillAndWait kills all processes in the cgroup and blocks until it is empty, or until the number
// of its members has not changed for timeout. It returns the pids that are still there, in the
// reader's pid namespace. proven is false if they are not known.
func (c *Cgroup) KillAndWait(timeout time.Duration) (survivors []int, proven bool) {
	return c.KillAllAndWait(timeout, c.pids)
}

// kernelKillChecks is the number of checks for an empty cgroup before its members are killed one by
// one.
const kernelKillChecks = 4

// KillAllAndWait is KillAndWait for a cgroup with others below it. members returns the pids in all
// of them.
func (c *Cgroup) KillAllAndWait(timeout time.Duration,
	members func() (pids []int, proven bool),
) (survivors []int, proven bool) {
	if _, err := c.Kill.WriteAt([]byte("1"), 0); err != nil {
		return nil, false
	}
	begun, changed, last := time.Now(), time.Now(), 0
	interval := 50 * time.Microsecond
	// Polling is faster than waiting for cgroup.events to change, which the kernel signals at most
	// every 10 ms (kernfs_notify).
	for checks := 1; ; checks++ {
		populated, err := c.Populated()
		switch {
		case err != nil:
			return nil, false
		case !populated:
			return nil, true
		case time.Since(changed) > timeout, time.Since(begun) > timeout+maxKillTimeout:
			return members()
		case checks >= kernelKillChecks:
			if n := killEach(members); n != last {
				last, changed = n, time.Now()
			}
		}
		time.Sleep(interval)
		interval = min(2*interval, 10*time.Millisecond)
	}
}

// killEach kills each member by its pid, and returns how many it found. It ends processes whose
// first thread has exited while others run: cgroup.kill signals the first thread only, which does
// nothing. A pid is signalled only if it is still a member's when its pidfd is open.
func killEach(members func() (pids []int, proven bool)) (found int) {
	pids, _ := members()
	opened := make(map[int]int, len(pids))
	for _, pid := range pids {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			opened[pid] = fd
		}
	}
	pids, _ = members()
	for _, pid := range pids {
		if fd, ok := opened[pid]; ok {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // it may have ended
		}
	}
	for _, fd := range opened {
		linux.Close(fd)
	}
	return len(opened)
}

// Populated reports whether the cgroup or one below it has a process that is not a zombie.
func (c *Cgroup) Populated() (bool, error) {
	var b [256]byte
	n, err := c.Events.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return false, err
	}
	return !bytes.Contains(b[:n], []byte("populated 0")), nil
}

func (c *Cgroup) pids() (pids []int, proven bool) {
	b, err := io.ReadAll(io.NewSectionReader(c.ProcsFile, 0, 1<<20))
	return linux.Numbers(b), err == nil
}

// moveToEnvironment moves all processes to the environment's cgroup. It reports whether the cgroup
// is empty then.
func (c *Cgroup) moveToEnvironment() bool {
	if c.EnvironmentProcs == nil {
		return false
	}
	for range 100 { // they may fork meanwhile
		pids, _ := c.pids()
		if len(pids) == 0 {
			populated, err := c.Populated()
			return err == nil && !populated
		}
		for _, pid := range pids { // a write fails for a process that has ended
			_, _ = c.EnvironmentProcs.WriteAt(strconv.AppendInt(nil, int64(pid), 10), 0)
		}
	}
	return false
}

// cgroupPool keeps the empty cgroups of supervisors that have exited.
type cgroupPool struct {
	create func() *Cgroup
	mu     sync.Mutex
	empty  []*Cgroup
}

func (p *cgroupPool) get() *Cgroup {
	p.mu.Lock()
	if n := len(p.empty); n > 0 {
		c := p.empty[n-1]
		p.empty = p.empty[:n-1]
		p.mu.Unlock()
		return c
	}
	p.mu.Unlock()
	if p.create == nil {
		return nil
	}
	return p.create()
}

func (p *cgroupPool) put(c *Cgroup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.empty = append(p.empty, c)
}

// killAndPut kills what is left in the cgroup of a supervisor that has exited, unless clean, and
// keeps the cgroup if it is empty. proven reports whether survivors are known.
func (p *cgroupPool) killAndPut(c *Cgroup, clean bool) (survivors []int, proven bool) {
	if c == nil {
		return nil, false
	}
	if !clean {
		if survivors, proven = c.KillAndWait(killTimeout); !proven || len(survivors) > 0 {
			c.Close()
			return survivors, proven
		}
	}
	p.put(c)
	return nil, true
}

func (p *cgroupPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.empty {
		c.Close()
	}
	p.empty = nil
}

// cgroupFDs is a supervisor's own cgroup: fds of Cgroup.ProcsFile, ParentProcs and Kill. The
// methods of a nil cgroupFDs do nothing.
type cgroupFDs struct {
	procs, parent, killer int
	joined                bool
}

// newCgroupFDs takes the fds of the cgroup that the pool has moved this supervisor to.
func newCgroupFDs(fds []int) *cgroupFDs {
	if len(fds) != 3 {
		linux.CloseAll(fds)
		return nil
	}
	return &cgroupFDs{procs: fds[0], parent: fds[1], killer: fds[2], joined: true}
}

// enter moves the supervisor back into its cgroup after kill. A tool must not be started outside:
// the pool takes an empty cgroup as a proof.
func (g *cgroupFDs) enter() error {
	if g == nil || g.joined {
		return nil
	}
	err := writeFD(g.procs, "0")
	g.joined = err == nil
	return err
}

func (g *cgroupFDs) release() {
	if g != nil {
		linux.CloseAll([]int{g.procs, g.parent, g.killer})
	}
}

// killOthers kills the members beside this supervisor one by one, and returns how many it found.
// What they fork meanwhile may escape.
func (g *cgroupFDs) killOthers() (found int) {
	if g == nil {
		return 0
	}
	return killEach(func() ([]int, bool) {
		b, err := linux.ReadAll(g.procs)
		self := os.Getpid()
		others := slices.DeleteFunc(linux.Numbers(b), func(pid int) bool { return pid == self })
		return others, err == nil
	})
}

// kill kills all members at once, whatever they fork. The supervisor leaves the cgroup before,
// which may take milliseconds, until all processors have noticed.
func (g *cgroupFDs) kill() {
	if g == nil {
		return
	}
	if g.joined && writeFD(g.parent, "0") == nil {
		g.joined = false
	}
	if !g.joined {
		_ = writeFD(g.killer, "1")
	}
}

func writeFD(fd int, text string) error {
	_, err := unix.Pwrite(fd, []byte(text), 0)
	return err
}
