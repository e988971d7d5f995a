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
	state                  byte
	parent, group, threads int
}

// alive reports whether a thread of the process runs. The first one may be a zombie while others
// run.
func (s procStat) alive() bool { return s.state != 'Z' && s.state != 'X' || s.threads > 1 }

// ownChildren returns the children of this process, zombies included.
func ownChildren() []descendant { return childrenOf(os.Getpid(), 0, nil) }

// descendants returns the descendants of this process, and the pids of those that are no zombies.
func descendants() (all []descendant, live []int) {
	all = ownChildren()
	for i := 0; i < len(all); i++ {
		pid := all[i].pid
		if stat, ok := statOf(pid); ok && stat.alive() {
			live = append(live, pid)
			all = childrenOf(pid, stat.threads, all)
		}
	}
	return all, live
}

// signalDescendants sends a signal to all descendants of this process, parents before their
// children, so that a parent cannot fork more of them meanwhile.
func signalDescendants(sig syscall.Signal) { signalTrees(ownChildren(), sig) }

// killTrees kills children of this process and their descendants. It kills the process groups of
// the children first, which no fork escapes: processes that fork and exit have ended before they
// are found one by one. No other group can get such a number meanwhile, because nothing else reaps
// the child.
func killTrees(children []descendant) {
	killed := map[int]bool{unix.Getpgrp(): true, 0: true} // 0 is outside of this pid namespace
	for _, d := range children {
		if stat, ok := statOf(d.pid); ok && !killed[stat.group] {
			killed[stat.group] = true
			_ = unix.Kill(-stat.group, unix.SIGKILL)
		}
	}
	signalTrees(slices.Clone(children), unix.SIGKILL)
}

// signalTrees sends a signal to processes and their descendants. The children are listed before a
// process is signalled: those of a process that has ended are children of another one.
func signalTrees(queue []descendant, sig syscall.Signal) {
	self := os.Getpid()
	for i := 0; i < len(queue); i++ {
		queue = queue[i].signal(sig, self, queue)
	}
}

// signal signals the process that was listed, or none: it opens a pidfd first, and a pid that was
// reused meanwhile has another parent. It appends the children of the process to list, of which
// zombies have none.
func (d descendant) signal(sig syscall.Signal, self int, list []descendant) []descendant {
	fd, err := unix.PidfdOpen(d.pid, 0)
	if err != nil && !errors.Is(err, unix.ENOSYS) {
		return list
	}
	defer linux.Close(fd)
	stat, ok := statOf(d.pid)
	if !ok || !stat.alive() || stat.parent != d.parent && stat.parent != self {
		return list
	}
	list = childrenOf(d.pid, stat.threads, list)
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
	killTrees(children)
	for _, d := range children {
		_, _ = unix.Wait4(d.pid, nil, unix.WNOHANG|unix.WALL, nil) // one that still runs is killed again
	}
}

// childrenOf appends the children of all threads of a process to list (proc(5),
// /proc/pid/task/tid/children). Most processes have one thread, and their directory need not be
// listed; threads is 0 if the number is not known.
func childrenOf(pid, threads int, list []descendant) []descendant {
	id := strconv.Itoa(pid)
	tasks := "/proc/" + id + "/task"
	if threads == 1 {
		return appendChildren(pid, tasks+"/"+id+"/children", list)
	}
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

// statOf reads the state, the parent, the process group and the number of threads of a process:
// fields 3, 4, 5 and 20 of /proc/pid/stat. The name before them may
// contain any character, also ")".
func statOf(pid int) (stat procStat, ok bool) {
	b, err := linux.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, false
	}
	b = bytes.TrimSpace(b[bytes.LastIndexByte(b, ')')+1:])
	numbers := linux.Numbers(b) // from field 4
	if len(numbers) < 17 {
		return procStat{}, false
	}
	return procStat{b[0], numbers[0], numbers[1], numbers[16]}, true
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
