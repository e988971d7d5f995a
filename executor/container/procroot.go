package container

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/executor/cgroup"
)

// procRoot is the file system as a process in a container sees it, through that process's own root
// folder.
type procRoot struct {
	process, root *os.File // O_PATH
	bound         uint64   // the capabilities that nothing in the container can go beyond
	mounts        []mountPoint
}

// openProcRoot opens the view of a process of a container. It fails unless the process is that
// container's, and in our own user namespace: in another, its users are not ours. What is opened is
// of one process for sure: its folder in /proc names no other that gets its number later, and it is
// still there after all the rest was found.
func openProcRoot(c Container, pid int) (*procRoot, error) {
	process, err := openAt(nil, "/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, fmt.Errorf("opening the agent's process: %w", err)
	}
	v := &procRoot{process: process}
	if err := v.openDirs(c, pid); err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

func (v *procRoot) openDirs(c Container, pid int) (err error) {
	if v.root, err = openAt(v.process, "root", unix.O_PATH|unix.O_DIRECTORY); err != nil {
		return fmt.Errorf("opening the container's root folder: %w", err)
	}
	if _, err := cgroup.ContainerPath(c.ID, pid); err != nil {
		return err
	}
	var theirs, ours unix.Stat_t
	if err := errors.Join(unix.Fstatat(int(v.process.Fd()), "ns/user", &theirs, 0),
		unix.Stat("/proc/self/ns/user", &ours)); err != nil {
		return fmt.Errorf("looking at the container's user namespace: %w", err)
	}
	if theirs.Dev != ours.Dev || theirs.Ino != ours.Ino {
		return errors.New("the container has a user namespace of its own")
	}
	table, err := v.readProcFile("mountinfo")
	if err != nil {
		return err
	}
	v.mounts = mountPoints(table)
	status, err := v.readProcFile("status")
	if err != nil {
		return err
	}
	v.bound, err = capabilities(status, "CapBnd")
	return err
}

func (v *procRoot) close() {
	closeFile(v.process)
	closeFile(v.root)
}

// maxProcFile bounds a file of /proc.
const maxProcFile = 4 << 20

// readProcFile reads a file of the process's folder in /proc; it fails once the process is gone.
func (v *procRoot) readProcFile(name string) ([]byte, error) {
	f, err := openAt(v.process, name, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("reading %s of the agent's process: %w", name, err)
	}
	defer closeFile(f)
	return io.ReadAll(io.LimitReader(f, maxProcFile))
}

// open opens a path as a process with this root would, links and all, except those that the kernel
// makes up.
func (v *procRoot) open(name string, flags int) (*os.File, error) {
	// flags are not negative
	how := &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NONBLOCK), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS} //nolint:gosec
	for {
		fd, err := unix.Openat2(int(v.root.Fd()), name, how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case !errors.Is(err, unix.EINTR) &&
			!errors.Is(err, unix.EAGAIN): // the latter where something was renamed meanwhile
			return nil, fmt.Errorf("opening %s in the container: %w", name, err)
		}
	}
}

func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	at := unix.AT_FDCWD
	if dir != nil {
		at = int(dir.Fd())
	}
	fd, err := unix.Openat(at, name, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// mountPoint is where something is mounted in the container.
type mountPoint struct{ path, kind string }

// plainFSTypes are file systems of the kernel that hold files and nothing else. Others may be a
// program's (FUSE), which could make a reader wait for ever, may be far away, or are views into the
// kernel, where a container may look at less than we.
var plainFSTypes = []string{
	"overlay", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs",
	"tmpfs", "ramfs",
}

// mountPoints reads a mountinfo (proc(5)).
func mountPoints(table []byte) (list []mountPoint) {
	lines := bufio.NewScanner(bytes.NewReader(table))
	lines.Buffer(nil, maxProcFile)
	for lines.Scan() {
		head, tail, _ := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(head), strings.Fields(tail)
		if len(fields) >= 5 && len(kind) >= 1 {
			list = append(list, mountPoint{unescape(fields[4]), kind[0]})
		}
	}
	return list
}

var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func unescape(s string) string { return escapes.Replace(s) }

// requirePlainFS fails unless all that may be come to beneath a folder of the view lies on plain
// file systems.
func (v *procRoot) requirePlainFS(root *os.File, names []string) error {
	folder, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(root.Fd())))
	if err != nil {
		return fmt.Errorf("finding where a folder lies in the container: %w", err)
	}
	if !path.IsAbs(folder) {
		return fmt.Errorf("the folder %q lies nowhere in the container", folder)
	}
	for _, name := range names {
		if kind, ok := v.fsTypeAt(path.Join(folder, name)); !ok {
			return fmt.Errorf("%q lies on a file system %q, or has one beneath", name, kind)
		}
	}
	return nil
}

// fsTypeAt says whether what lies at a path and beneath is plain, and else what it is.
func (v *procRoot) fsTypeAt(name string) (kind string, ok bool) {
	holds := mountPoint{}
	for _, m := range v.mounts {
		plain := slices.Contains(plainFSTypes, m.kind)
		switch {
		case within(name, m.path) &&
			len(m.path) >= len(holds.path): // the last of several at one place hides the others
			holds = m
		case within(m.path, name) && !plain:
			return m.kind, false
		}
	}
	return holds.kind, slices.Contains(plainFSTypes, holds.kind)
}

// within says whether a path is a folder or lies in it.
func within(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, strings.TrimSuffix(folder, "/")+"/")
}
