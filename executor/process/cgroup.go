package process

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Cgroup is a group of the unified hierarchy (cgroups(7), version 2) for one supervisor and the
// calls that it serves in turn. The supervisor lives in it, so that a tool is born in it without a
// race and without a cost, and steps out to write KILL. A call that leaves processes without a
// supervisor is ended through it, and its end is proved.
//
// These are files and never the folder: they may be passed into a container, where a folder would
// lead to all of the host's hierarchy.
type Cgroup struct {
	// ProcsFile is the group's cgroup.procs, opened for reading and writing.
	ProcsFile *os.File
	// ParentProcs is the cgroup.procs of the group that the supervisor steps out to, opened for
	// writing.
	ParentProcs *os.File
	// Kill is the group's cgroup.kill, opened for writing.
	Kill *os.File
	// Events is the group's cgroup.events, opened for reading.
	Events *os.File
	// EnvironmentProcs is the cgroup.procs of the environment's own group, opened for writing: what a
	// call may leave running is put there. Nil keeps it in the group.
	EnvironmentProcs *os.File
}

// Close closes the files. The group itself is its maker's.
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

// addProc puts a process into the group. It reports false where it is not in it: there is no group,
// or the kernel refused.
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

// KillAndWait kills all that is in the group and waits until it is empty, at most the patience. It
// gives the pids that are still there, in the reader's pid namespace; proven is false where the
// kernel does not say.
func (c *Cgroup) KillAndWait(patience time.Duration) (survivors []int, proven bool) {
	return c.KillAllAndWait(patience, c.pids)
}

// kernelKillChecks is how often the group is looked at before its members are killed one by one.
const kernelKillChecks = 4

// KillAllAndWait is End for a group with others below it: members gives the pids in all of them.
func (c *Cgroup) KillAllAndWait(patience time.Duration,
	members func() (pids []int, proven bool),
) (survivors []int, proven bool) {
	if _, err := c.Kill.WriteAt([]byte("1"), 0); err != nil {
		return nil, false
	}
	hopeless := time.Now().Add(patience)
	pause := 50 * time.Microsecond
	// The kernel tells of a change at most every 10 ms (kernfs_notify of cgroup.events); looking costs
	// little.
	for looks := 1; ; looks++ {
		populated, err := c.Populated()
		switch {
		case err != nil:
			return nil, false
		case !populated:
			return nil, true
		case time.Now().After(hopeless):
			return members()
		case looks >= kernelKillChecks:
			killEach(members)
		}
		time.Sleep(pause)
		pause = min(2*pause, 10*time.Millisecond)
	}
}

// killEach signals each member by itself, and says how many it found. It reaches those that
// cgroup.kill does not: that signals the first thread of each process, which does nothing where
// that one has ended and others run on, and a signal to the process ends them. A pid is signalled
// only if it is a member's after it was opened, so that it cannot be a stranger's by now.
func killEach(members func() (pids []int, proven bool)) (found int) {
	pids, _ := members()
	opened := make(map[int]int, len(pids))
	for _, pid := range pids {
		if fd, err := pidfdOpen(pid); err == nil {
			opened[pid] = fd
		}
	}
	pids, _ = members()
	for _, pid := range pids {
		if fd, ok := opened[pid]; ok {
			_ = pidfdSignal(fd, syscall.SIGKILL) // one that ended meanwhile needs none
		}
	}
	for _, fd := range opened {
		closeFD(fd)
	}
	return len(opened)
}

// Populated says whether a process that is no zombie is in the group or below it.
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
	if err != nil {
		return nil, false
	}
	return numbers(b), true
}

// moveToEnvironment puts all that is in the group into the environment's own. It reports true when
// the group is empty.
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
		for _, pid := range pids {
			// one that ended meanwhile is no loss
			_, _ = c.EnvironmentProcs.WriteAt(strconv.AppendInt(nil, int64(pid), 10), 0)
		}
	}
	return false
}

// acquireGroup gives a group for a new supervisor: an empty one that is there, else a new one.
func (p *Pool) acquireGroup() *Cgroup {
	p.mu.Lock()
	if n := len(p.groups); n > 0 {
		g := p.groups[n-1]
		p.groups = p.groups[:n-1]
		p.mu.Unlock()
		return g
	}
	p.mu.Unlock()
	if p.config.Cgroup == nil {
		return nil
	}
	return p.config.Cgroup()
}

// emptyGroup takes the group of a supervisor that is gone, and ends what is left in it. Clean says
// that the supervisor proved that nothing is.
func (p *Pool) emptyGroup(g *Cgroup, clean bool) (survivors []int, proven bool) {
	if g == nil {
		return nil, false
	}
	if !clean {
		if survivors, proven = g.KillAndWait(killTimeout); !proven || len(survivors) > 0 {
			g.Close()
			return survivors, proven
		}
	}
	p.recycleGroup(g)
	return nil, true
}

// recycleGroup keeps an empty group for the next supervisor.
func (p *Pool) recycleGroup(g *Cgroup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups = append(p.groups, g)
}

// groupFDs is a supervisor's own group, as descriptors of Cgroup's files. All methods do nothing
// without one.
type groupFDs struct {
	procs, home, ends int // cgroup.procs, that of where to step out to, cgroup.kill
	joined            bool
}

// newGroupFDs takes the descriptors of the group that the pool has put this supervisor in.
func newGroupFDs(fds []int) *groupFDs {
	if len(fds) != 3 {
		closeAll(fds)
		return nil
	}
	return &groupFDs{procs: fds[0], home: fds[1], ends: fds[2], joined: true}
}

// enter goes back into the group after kill. Outside of it no tool may be started: what the pool
// believes of the group would be wrong.
func (g *groupFDs) enter() error {
	if g == nil || g.joined {
		return nil
	}
	if err := put(g.procs, "0"); err != nil {
		return &StartError{Step: StepFork, Err: err}
	}
	g.joined = true
	return nil
}

// release lets go of the group, whoever is in it.
func (g *groupFDs) release() {
	if g != nil {
		closeAll([]int{g.procs, g.home, g.ends})
	}
}

// killOthers ends all that it finds in the group beside this supervisor, one by one, and says how
// many it found. What is forked meanwhile may get away.
func (g *groupFDs) killOthers() (found int) {
	if g == nil {
		return 0
	}
	return killEach(func() ([]int, bool) {
		b, ok := readAll(g.procs)
		self := os.Getpid()
		return slices.DeleteFunc(numbers(b), func(pid int) bool { return pid == self }), ok
	})
}

// kill ends all that is in the group at once, whatever it forks, after stepping out of it: a move
// that may wait for milliseconds, until all processors have taken notice. It reports whether the
// kernel took the order.
func (g *groupFDs) kill() bool {
	if g == nil {
		return false
	}
	if g.joined && put(g.home, "0") == nil {
		g.joined = false
	}
	return !g.joined && put(g.ends, "1") == nil
}

func put(fd int, text string) error {
	_, err := syscall.Pwrite(fd, []byte(text), 0)
	return err
}
