package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrUnsupported says that there is no unified hierarchy here, or no group in it that could be
// used.
var ErrUnsupported = errors.New("no group of the unified hierarchy")

// ContainerPath finds the folder of a container's own group by the container's full id and the pid,
// in this program's numbering, of its first process. It fails with ErrUnsupported where the group
// is not that container's beyond doubt.
func ContainerPath(id string, pid int) (string, error) {
	if len(id) < 12 || pid <= 0 {
		return "", fmt.Errorf("finding the group of container %q with pid %d: %w", id, pid,
			ErrUnsupported)
	}
	return find(pid, func(group string) (string, bool) { return containerPrefix(group, id) })
}

// SelfPath finds the folder of this program's own group.
func SelfPath() (string, error) {
	return find(os.Getpid(), func(group string) (string, bool) { return group, true })
}

// find gives the folder of a process's group, or of the one above it that choose names.
func find(pid int, choose func(group string) (string, bool)) (string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("reading the mounts: %w", err)
	}
	list, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", fmt.Errorf("reading the groups of process %d: %w", pid, err)
	}
	root, point, ok := unified(table)
	group, named := unifiedGroup(list)
	if !ok || !named {
		return "", ErrUnsupported
	}
	group, ok = choose(group)
	below, beneath := cutPath(group, root)
	if !ok || !beneath {
		return "", fmt.Errorf("the group %s, where %s of the hierarchy is mounted: %w", group, root,
			ErrUnsupported)
	}
	folder := filepath.Join(point, below)
	return folder, verifyMember(folder, pid)
}

// containerPrefix cuts a group's path behind the element that names the container: docker/ID,
// docker-ID.scope, libpod-ID.scope. The first process may have gone into a group below, as systemd
// does.
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

// unified finds the mount of the unified hierarchy: which part of it, and where (proc(5),
// /proc/pid/mountinfo).
func unified(table []byte) (root, point string, ok bool) {
	for line := range bytes.Lines(table) {
		head, tail, _ := bytes.Cut(line, []byte(" - "))
		fields, kind := strings.Fields(string(head)), strings.Fields(string(tail))
		if len(fields) >= 6 && len(kind) >= 1 && kind[0] == "cgroup2" {
			return unescape(fields[3]), unescape(fields[4]), true
		}
	}
	return "", "", false
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// unifiedGroup finds the line 0:: of /proc/pid/cgroup. A group outside of the reader's cgroup
// namespace reads as "/..", and names nothing.
func unifiedGroup(list []byte) (string, bool) {
	lines := bufio.NewScanner(bytes.NewReader(list))
	for lines.Scan() {
		if group, ok := strings.CutPrefix(lines.Text(), "0::"); ok {
			return group, path.IsAbs(group) && path.Clean(group) == group && !strings.HasPrefix(group, "/..")
		}
	}
	return "", false
}

// cutPath gives what lies below root.
func cutPath(group, root string) (below string, ok bool) {
	if root == "/" {
		return group, true
	}
	below, ok = strings.CutPrefix(group, root)
	return below, ok && (below == "" || below[0] == '/')
}

// verifyMember makes sure that a folder is the group of that process or one above it: the two paths
// may have been read through different namespaces.
func verifyMember(folder string, pid int) error {
	want := strconv.Itoa(pid)
	found := errors.New("found")
	err := filepath.WalkDir(folder, func(dir string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // a group that went meanwhile holds nothing
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
	return fmt.Errorf("process %d is not in %s: %w", pid, folder, ErrUnsupported)
}
