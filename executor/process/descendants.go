package process

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"
)

// descendant is a process below this one, with the parent that /proc named for it.
type descendant struct {
	pid, parent int
}

// liveDescendants gives the pids of all that descend from this process and are not zombies.
func liveDescendants() []int {
	var live []int
	for _, d := range descendants() {
		if state, _, ok := stateOf(d.pid); ok && state != 'Z' && state != 'X' {
			live = append(live, d.pid)
		}
	}
	return live
}

// signalDescendants sends a signal to all that descend from this process. A parent comes before its children, so that it cannot make
// more of them while they are signalled.
func signalDescendants(sig syscall.Signal) {
	self := os.Getpid()
	for _, d := range descendants() {
		d.signal(sig, self)
	}
}

// signal reaches the process that was seen, or none: the descriptor is opened first, and a pid that was given to a stranger meanwhile
// has another parent.
func (d descendant) signal(sig syscall.Signal, self int) {
	fd, err := pidfdOpen(d.pid)
	if errors.Is(err, syscall.ENOSYS) {
		_ = syscall.Kill(d.pid, sig)
		return
	}
	if err != nil {
		return
	}
	defer closeFD(fd)
	if _, parent, ok := stateOf(d.pid); ok && (parent == d.parent || parent == self) {
		_ = pidfdSignal(fd, sig)
	}
}

func descendants() []descendant { return below(childrenOf(os.Getpid(), nil)) }

// below gives the processes of a list and all that descend from them.
func below(queue []descendant) []descendant {
	for i := 0; i < len(queue); i++ {
		queue = childrenOf(queue[i].pid, queue)
	}
	return queue
}

// childrenOf appends the children of every thread of a process (proc(5), /proc/pid/task/tid/children).
func childrenOf(pid int, list []descendant) []descendant {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	dir, err := os.Open(tasks)
	if err != nil {
		return list
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1) // a process that ends meanwhile has no children any more
	for _, tid := range names {
		b, err := os.ReadFile(tasks + "/" + tid + "/children")
		if err != nil {
			continue
		}
		for _, child := range numbers(b) {
			list = append(list, descendant{pid: child, parent: pid})
		}
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

// stateOf reads the state letter and the parent of a process. The name before them may hold anything, closing parentheses too.
func stateOf(pid int) (state byte, parent int, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, false
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent, err == nil
}
