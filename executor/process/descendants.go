package process

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/internal/linux"
)

// descendant is a process below this one, with the parent under which /proc listed it.
type descendant struct {
	pid, parent int
}

// procStat is a part of /proc/pid/stat.
type procStat struct {
	state           byte
	parent, threads int
}

func (s procStat) alive() bool { return s.state != 'Z' && s.state != 'X' }

// liveDescendants returns the pids of all descendants of this process that are not zombies.
func liveDescendants() (live []int) {
	for _, d := range below(childrenOf(os.Getpid(), nil)) {
		if stat, ok := statOf(d.pid); ok && stat.alive() {
			live = append(live, d.pid)
		}
	}
	return live
}

// signalDescendants sends a signal to all descendants of this process, parents before their
// children, so that a parent cannot fork more of them meanwhile.
func signalDescendants(sig syscall.Signal) { signalTrees(childrenOf(os.Getpid(), nil), sig) }

// signalTrees sends a signal to processes and their descendants. The children are listed before a
// process is signalled: those of a process that has ended are children of another one.
func signalTrees(queue []descendant, sig syscall.Signal) {
	self := os.Getpid()
	for i := 0; i < len(queue); i++ {
		queue = queue[i].signal(sig, self, queue)
	}
}

// signal signals the process that was listed, or none: it opens a pidfd first, and a pid that was
// reused meanwhile has another parent. It appends the children of the process to list.
func (d descendant) signal(sig syscall.Signal, self int, list []descendant) []descendant {
	fd, err := unix.PidfdOpen(d.pid, 0)
	if err != nil && !errors.Is(err, unix.ENOSYS) {
		return list
	}
	defer linux.Close(fd)
	stat, ok := statOf(d.pid)
	if !ok || stat.parent != d.parent && stat.parent != self {
		return list
	}
	list = childrenOfThreads(d.pid, stat.threads, list)
	if fd < 0 {
		_ = unix.Kill(d.pid, sig)
		return list
	}
	_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	return list
}

// killAndReap kills children of this process with their descendants, and waits for those that have
// ended.
func killAndReap(children []descendant) {
	signalTrees(slices.Clone(children), unix.SIGKILL)
	for _, d := range children {
		_, _ = unix.Wait4(d.pid, nil, unix.WNOHANG|unix.WALL, nil) // one that still runs is killed again
	}
}

// below appends all descendants of the processes in queue to it.
func below(queue []descendant) []descendant {
	for i := 0; i < len(queue); i++ {
		queue = childrenOf(queue[i].pid, queue)
	}
	return queue
}

// childrenOfThreads is childrenOf for a process with a known number of threads. Most have one, and
// their directory need not be listed.
func childrenOfThreads(pid, threads int, list []descendant) []descendant {
	if threads != 1 {
		return childrenOf(pid, list)
	}
	id := strconv.Itoa(pid)
	return appendChildren(pid, "/proc/"+id+"/task/"+id+"/children", list)
}

// childrenOf appends the children of all threads of a process to list (proc(5),
// /proc/pid/task/tid/children).
func childrenOf(pid int, list []descendant) []descendant {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	dir, err := os.Open(tasks)
	if err != nil {
		return list
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1) // a process that has ended has no children
	for _, tid := range names {
		list = appendChildren(pid, tasks+"/"+tid+"/children", list)
	}
	return list
}

func appendChildren(pid int, path string, list []descendant) []descendant {
	b, err := linux.ReadFile(path)
	if err != nil {
		return list
	}
	for _, child := range linux.Numbers(b) {
		list = append(list, descendant{pid: child, parent: pid})
	}
	return list
}

// statOf reads the state, the parent and the number of threads of a process: fields 3, 4 and 20 of
// /proc/pid/stat. The name before them may contain any character, also ")".
func statOf(pid int) (stat procStat, ok bool) {
	b, err := linux.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
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

func pidsOf(list []descendant) []int {
	pids := make([]int, len(list))
	for i, d := range list {
		pids[i] = d.pid
	}
	return pids
}

// childrenAreListed reports whether the kernel lists the children of a process: it has
// CONFIG_PROC_CHILDREN, and /proc is mounted.
func childrenAreListed() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
}

// canHideProcesses reports whether a process below this one can have CAP_SYS_ADMIN. It can mount
// something over /proc or a directory in it, where this program looks for processes. Only wait4(2)
// proves then that none is left.
func canHideProcesses() bool {
	has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_ADMIN, 0, 0, 0)
	return err != nil || has != 0
}
