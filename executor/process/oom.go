package process

import (
	"bytes"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/internal/linux"
)

// oomCounter is the fd of a file with the number of processes that the kernel killed because the
// memory of this program's cgroup ran out: oom_kill in memory.oom_control (cgroup v1) or in
// memory.events (cgroup v2, which includes the cgroups below). It is -1 if there is none.
type oomCounter struct{ fd int }

// openOOMCounter finds the file by /proc/self/cgroup and the mounts.
func openOOMCounter() oomCounter {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return oomCounter{-1}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return oomCounter{-1}
	}
	for _, name := range oomFiles(string(groups), mounts) {
		if fd, err := linux.Openat(unix.AT_FDCWD, name, unix.O_RDONLY, 0); err == nil {
			return oomCounter{fd}
		}
	}
	return oomCounter{-1}
}

// read returns the count. Without a file it is always 0.
func (c oomCounter) read() int {
	if c.fd < 0 {
		return 0
	}
	b, err := linux.ReadAll(c.fd)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if count, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			if n := linux.Numbers(count); len(n) == 1 {
				return n[0]
			}
		}
	}
	return 0
}

// oomFiles returns the files that may have the count, the most specific first. In cgroup v2 only
// cgroups whose memory is accounted have one, so those above are included.
func oomFiles(groups string, mounts []byte) (files []string) {
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

// mountOf returns the mount point of the hierarchy in which a cgroup is visible, and its path below
// that, which starts with a slash. The mount must have the option, unless that is empty.
func mountOf(mounts []byte, fsType, option, group string) (point, below string, ok bool) {
	for m := range linux.Mounts(mounts) {
		if m.FSType != fsType || option != "" && !slices.Contains(m.Options, option) {
			continue
		}
		if below, ok := strings.CutPrefix(group, strings.TrimSuffix(m.Root, "/")); ok {
			return m.Point, path.Clean("/" + below), true
		}
	}
	return "", "", false
}
