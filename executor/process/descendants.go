package process

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// descendant is a process below this one, with the parent that /proc named for it.
type descendant struct {
	pid, parent int
}

// procStat is what /proc/pid/stat says of a process.
type procStat struct {
	state           byte
	parent, threads int
}

func (s procStat) alive() bool { return s.state != 'Z' && s.state != 'X' }

// liveDescendants gives the pids of all that descend from this process and are not zombies.
func liveDescendants() (live []int) {
	for _, d := range below(childrenOf(os.Getpid(), nil)) {
		if stat, ok := statOf(d.pid); ok && stat.alive() {
			live = append(live, d.pid)
		}
	}
	return live
}

// signalDescendants sends a signal to all that descend from this process. A parent comes before its
// children, so that it cannot make more of them while they are signalled; it is asked for them
// before, because those of a process that has ended are found only by looking again.
func signalDescendants(sig syscall.Signal) {
	self := os.Getpid()
	queue := childrenOf(self, nil)
	for i := 0; i < len(queue); i++ {
		queue = queue[i].signal(sig, self, queue)
	}
}

// signal reaches the process that was seen, or none: the descriptor is opened first, and a pid that
// was given to a stranger meanwhile has another parent. Its children are appended to the list.
func (d descendant) signal(sig syscall.Signal, self int, list []descendant) []descendant {
	fd, err := pidfdOpen(d.pid)
	if err != nil && !errors.Is(err, syscall.ENOSYS) {
		return list
	}
	defer closeFD(fd)
	stat, ok := statOf(d.pid)
	if !ok || stat.parent != d.parent && stat.parent != self {
		return list
	}
	list = childrenOfThreads(d.pid, stat.threads, list)
	if fd < 0 {
		_ = syscall.Kill(d.pid, sig)
		return list
	}
	_ = pidfdSignal(fd, sig)
	return list
}

// below gives the processes of a list and all that descend from them.
func below(queue []descendant) []descendant {
	for i := 0; i < len(queue); i++ {
		queue = childrenOf(queue[i].pid, queue)
	}
	return queue
}

// childrenOfThreads is childrenOf for a process whose number of threads is known: most have one,
// and no folder needs to be listed.
func childrenOfThreads(pid, threads int, list []descendant) []descendant {
	if threads != 1 {
		return childrenOf(pid, list)
	}
	id := strconv.Itoa(pid)
	return appendChildren(pid, "/proc/"+id+"/task/"+id+"/children", list)
}

// childrenOf appends the children of every thread of a process (proc(5),
// /proc/pid/task/tid/children).
func childrenOf(pid int, list []descendant) []descendant {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	dir, err := os.Open(tasks)
	if err != nil {
		return list
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1) // a process that ends meanwhile has no children any more
	for _, tid := range names {
		list = appendChildren(pid, tasks+"/"+tid+"/children", list)
	}
	return list
}

func appendChildren(pid int, path string, list []descendant) []descendant {
	b, ok := readProc(path)
	if !ok {
		return list
	}
	for _, child := range numbers(b) {
		list = append(list, descendant{pid: child, parent: pid})
	}
	return list
}

// numbers are those that stand in a text between spaces.
func numbers(text []byte) (list []int) {
	for field := range bytes.FieldsSeq(text) {
		if n, err := strconv.Atoi(string(field)); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// statOf reads the state letter, the parent and the number of threads of a process: fields 3, 4 and
// 20 of /proc/pid/stat. The name before them may hold anything, closing parentheses too.
func statOf(pid int) (stat procStat, ok bool) {
	b, ok := readProc("/proc/" + strconv.Itoa(pid) + "/stat")
	if !ok {
		return procStat{}, false
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 18 {
		return procStat{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	threads, err2 := strconv.Atoi(string(fields[17]))
	return procStat{state: fields[0][0], parent: parent, threads: threads}, err == nil && err2 == nil
}

// readProc reads a file of /proc in three system calls where it is short. It is read while
// something is being killed, by the hundred.
func readProc(path string) ([]byte, bool) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer closeFD(fd)
	return readAll(fd)
}

// readAll reads a file that the kernel makes up, from its beginning.
func readAll(fd int) ([]byte, bool) {
	b := make([]byte, 0, 1024)
	for {
		n, err := syscall.Pread(fd, b[len(b):cap(b)], int64(len(b)))
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil || n < 0:
			return nil, false
		}
		b = b[:len(b)+n]
		if n == 0 || len(b) < cap(b) { // a short read is the end: the kernel fills what it can
			return b, true
		}
		b = append(b, 0)[:len(b)]
	}
}

// reapOrphans ends what supervisors that were killed left behind. It is all the children of this
// program that are no supervisors, with what is below them: a pool that is not alone here cannot
// tell them from other children, and so proves nothing. Survivors are those that did not go within
// the patience.
func (p *Pool) reapOrphans() (survivors []int, proven bool) {
	if !p.config.Subreaper || !childrenAreListed() {
		return nil, false
	}
	hopeless := time.Now().Add(killTimeout)
	pause := 200 * time.Microsecond
	// the kernel may pass over a child while others end: nobody has to be there twice
	for seen := 0; seen < 2; {
		strays := p.orphans()
		if len(strays) == 0 {
			seen++
			continue
		}
		seen = 0
		if time.Now().After(hopeless) {
			return pidsOf(strays), true
		}
		killOrphans(strays)
		time.Sleep(pause)
		pause = min(pause*2, 50*time.Millisecond)
	}
	return nil, true
}

// orphans are the children that no supervisor is. While they are listed, none is born.
func (p *Pool) orphans() []descendant {
	p.spawnMu.Lock()
	defer p.spawnMu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	var strays []descendant
	for _, d := range childrenOf(os.Getpid(), nil) {
		if _, known := p.pids[d.pid]; !known {
			strays = append(strays, d)
		}
	}
	return strays
}

// killOrphans kills them with all that is below them, and collects those that have ended.
func killOrphans(strays []descendant) {
	self := os.Getpid()
	queue := slices.Clone(strays)
	for i := 0; i < len(queue); i++ {
		queue = queue[i].signal(syscall.SIGKILL, self, queue)
	}
	for _, d := range strays {
		// one that runs on is looked at again
		_, _ = syscall.Wait4(d.pid, nil, syscall.WNOHANG|syscall.WALL, nil)
	}
}

func pidsOf(list []descendant) []int {
	pids := make([]int, len(list))
	for i, d := range list {
		pids[i] = d.pid
	}
	return pids
}

// childrenAreListed says whether the kernel tells a process's children at all
// (CONFIG_PROC_CHILDREN, and a /proc that is mounted).
func childrenAreListed() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
}
