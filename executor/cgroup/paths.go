package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/internal/linux"
)

// ErrUnsupported is returned if there is no cgroup v2 that can be used.
var ErrUnsupported = errors.New("no cgroup v2")

// ContainerPath returns the directory of a container's own cgroup. id is the container's full id,
// pid the pid of its first process in this program's pid namespace. It fails with ErrUnsupported
// unless the cgroup is certainly that container's.
func ContainerPath(id string, pid int) (string, error) {
	if len(id) < 12 || pid <= 0 {
		return "", fmt.Errorf("find the cgroup of container %q, pid %d: %w", id, pid, ErrUnsupported)
	}
	return find(pid, func(group string) (string, bool) { return containerPrefix(group, id) })
}

// SelfPath returns the directory of this program's own cgroup.
func SelfPath() (string, error) {
	return find(os.Getpid(), func(group string) (string, bool) { return group, true })
}

// find returns the directory of the cgroup that choose returns for the cgroup of a process.
func find(pid int, choose func(group string) (string, bool)) (string, error) {
	list, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", fmt.Errorf("read the cgroup of process %d: %w", pid, err)
	}
	mount, mounted := unifiedMount()
	group, named := unifiedGroup(list)
	if !mounted || !named {
		return "", ErrUnsupported
	}
	group, ok := choose(group)
	below, beneath := cutPath(group, mount.Root)
	if !ok || !beneath {
		return "", fmt.Errorf("cgroup %s, with %s mounted: %w", group, mount.Root, ErrUnsupported)
	}
	dir := filepath.Join(mount.Point, below)
	return dir, verifyMember(dir, pid)
}

// unifiedMount returns the mount of the cgroup v2 hierarchy.
func unifiedMount() (mount linux.Mount, ok bool) {
	table, _ := os.ReadFile("/proc/self/mountinfo") // without /proc there is none
	for m := range linux.Mounts(table) {
		if m.FSType == "cgroup2" {
			return m, true
		}
	}
	return linux.Mount{}, false
}

// containerPrefix returns the path of a cgroup up to the element that names the container:
// docker/ID, docker-ID.scope, libpod-ID.scope. The first process may be in a cgroup below it, as
// systemd is.
func containerPrefix(group, id string) (string, bool) {
	elements := strings.Split(group, "/")
	i := slices.IndexFunc(elements, func(e string) bool {
		return e == id || strings.HasSuffix(e, "-"+id+".scope")
	})
	if i < 0 {
		return "", false
	}
	return strings.Join(elements[:i+1], "/"), true
}

// unifiedGroup returns the path in the line 0:: of /proc/pid/cgroup. It reports false for a cgroup
// outside of the reader's cgroup namespace, which starts with "/..".
func unifiedGroup(list []byte) (string, bool) {
	group := string(linux.Field(list, "0::"))
	return group, path.IsAbs(group) && path.Clean(group) == group && !strings.HasPrefix(group, "/..")
}

// cutPath returns the part of group below root.
func cutPath(group, root string) (below string, ok bool) {
	if root == "/" {
		return group, true
	}
	below, ok = strings.CutPrefix(group, root)
	return below, ok && (below == "" || below[0] == '/')
}

// leaveCaps are capabilities with which a process can write to any cgroup (capabilities(7)): it can
// mount the hierarchy, or change the kernel.
const leaveCaps = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_MODULE | 1<<unix.CAP_SYS_RAWIO

// CanLeave reports whether processes that a process starts can leave their cgroup: by a capability
// in its bounding set, or by a writable mount of the hierarchy. An empty cgroup proves nothing
// about them. pid is in this program's pid namespace.
func CanLeave(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return true
	}
	table, err := os.ReadFile(dir + "/mountinfo")
	if err != nil {
		return true
	}
	for m := range linux.Mounts(table) {
		if m.FSType == "cgroup2" && !m.ReadOnly {
			return true
		}
	}
	return boundingSet(status)&leaveCaps != 0
}

// boundingSet returns the capabilities in the line CapBnd: of /proc/pid/status, all if there is
// none.
func boundingSet(status []byte) uint64 {
	caps, err := strconv.ParseUint(string(linux.Field(status, "CapBnd:")), 16, 64)
	if err != nil {
		return math.MaxUint64
	}
	return caps
}

// verifyMember fails unless dir is the cgroup of a process or one above it: the mounts and the path
// of the cgroup may be of different namespaces.
func verifyMember(root string, pid int) error {
	want := strconv.Itoa(pid)
	found := errors.New("found")
	err := filepath.WalkDir(root, func(dir string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // a cgroup that was removed has no process
		}
		b, err := os.ReadFile(filepath.Join(dir, procs))
		if err == nil && slices.Contains(strings.Fields(string(b)), want) {
			return found
		}
		return nil
	})
	if errors.Is(err, found) {
		return nil
	}
	return fmt.Errorf("process %d is not in %s: %w", pid, root, ErrUnsupported)
}
