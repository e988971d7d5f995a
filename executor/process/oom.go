package process

import (
	"bytes"
	"os"
	"path"
	"strings"
	"syscall"
)

// oomCounter is the kernel's own count of the processes that it killed for want of memory, in the
// memory group that this program is in: oom_kill in memory.oom_control (version 1) or memory.events
// (version 2, which counts the groups below too).
type oomCounter struct{ fd int }

// openOOMCounter finds the group through /proc/self/cgroup and the mounts: inside a container the
// mount's root is the container's group.
func openOOMCounter() oomCounter {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return oomCounter{-1}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return oomCounter{-1}
	}
	for _, name := range oomFiles(string(groups), string(mounts)) {
		if fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
			return oomCounter{fd}
		}
	}
	return oomCounter{-1}
}

// read gives the count, and 0 where there is none: then it never rises.
func (c oomCounter) read() int {
	if c.fd < 0 {
		return 0
	}
	var b [512]byte
	n, err := syscall.Pread(c.fd, b[:], 0)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b[:n]) {
		if count, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			if n := numbers(count); len(n) == 1 {
				return n[0]
			}
		}
	}
	return 0
}

// oomFiles are the files that may hold the count, the surest first. In version 2 only groups that
// memory is accounted to have one, so the groups above are candidates too.
func oomFiles(groups, mounts string) (files []string) {
	for line := range strings.Lines(groups) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch controllers, group := ","+fields[1]+",", fields[2]; {
		case strings.Contains(controllers, ",memory,"):
			if point, below, ok := mountOf(mounts, "cgroup", "memory", group); ok {
				files = append([]string{path.Join(point, below, "memory.oom_control")}, files...)
			}
		case fields[1] == "":
			point, below, ok := mountOf(mounts, "cgroup2", "", group)
			for ; ok; below = path.Dir(below) {
				files = append(files, path.Join(point, below, "memory.events"))
				if below == "/" {
					break
				}
			}
		}
	}
	return files
}

// mountOf finds where a group is seen: the mount point of its hierarchy, and the path below it,
// which begins with a slash.
func mountOf(mounts, kind, option, group string) (point, below string, ok bool) {
	for line := range strings.Lines(mounts) {
		head, tail, _ := strings.Cut(line, " - ")
		fields, super := strings.Fields(head), strings.Fields(tail)
		if len(fields) < 5 || len(super) < 3 || super[0] != kind {
			continue
		}
		if option != "" && !strings.Contains(","+super[2]+",", ","+option+",") {
			continue
		}
		if below, ok := strings.CutPrefix(group, strings.TrimSuffix(fields[3], "/")); ok {
			return fields[4], path.Clean("/" + below), true
		}
	}
	return "", "", false
}
