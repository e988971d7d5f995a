package container

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/devcontainer"
)

const mountinfo = `600 500 0:50 / / rw,relatime master:200 - overlay overlay rw,lowerdir=/x
601 600 0:51 / /proc rw,nosuid - proc proc rw
602 600 0:52 / /dev rw,nosuid - tmpfs tmpfs rw,mode=755
603 602 0:53 / /dev/pts rw - devpts devpts rw
604 600 8:1 /home/me/app /workspaces/my\040app rw,relatime - ext4 /dev/sda1 rw
605 604 0:60 / /workspaces/my\040app/remote rw - fuse.sshfs me@far:/ rw
606 600 0:61 / /mnt/far rw - nfs4 far:/ rw
607 606 0:62 / /mnt/far/near rw - tmpfs tmpfs rw
608 600 0:63 / /hidden rw - tmpfs tmpfs rw
609 608 0:64 / /hidden rw - fuse.x x rw
`

// Only what lies on plain file systems, with nothing else mounted beneath, is read by the daemon
// itself.
func TestPlainAt(t *testing.T) {
	v := &procRoot{mounts: mountPoints([]byte(mountinfo))}
	for name, want := range map[string]bool{
		"/": false, "/tmp/x": true, "/tmp": true, "/proc": false, "/proc/1/root": false, "/process": true, "/dev": false, "/dev/shm": true,
		"/workspaces/my app": false, "/workspaces/my app/src": true, "/workspaces/my app/remote": false, "/workspaces/my app/remote/f": false,
		"/workspaces/my app/remotely": true, "/workspaces": false, "/mnt": false, "/mnt/far/f": false, "/mnt/far/near/f": true, "/hidden/f": false,
	} {
		if kind, ok := v.fsTypeAt(name); ok != want {
			t.Errorf("%s: got %v, because of %q", name, ok, kind)
		}
	}
	if _, ok := (&procRoot{}).fsTypeAt("/tmp"); ok {
		t.Error("a container without mounts has plain files")
	}
}

func TestParseRights(t *testing.T) {
	const status = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t8 9 10 \nCapInh:\t0000000000000000\nCapEff:\t00000000a80425fb\n"
	r, err := parseRights([]byte(status))
	if err != nil || r.uid != 4 || r.gid != 8 || !slices.Equal(r.groups, []uint32{8, 9, 10}) ||
		r.caps != 0xa80425fb {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, bad := range []string{
		"", "Uid:\t1\nGid:\t1\t1\t1\t1\nGroups:\nCapEff:\t0\n", "Uid:\t-1\t1\t1\t1\nGid:\t1\t1\t1\t1\nGroups:\nCapEff:\t0\n",
		"Uid:\t1\t1\t1\t4294967296\nGid:\t1\t1\t1\t1\nGroups:\nCapEff:\t0\n", "Uid:\t1\t1\t1\t1\nGid:\t1\t1\t1\t1\nGroups:\nCapEff:\tx\n",
	} {
		if r, err := parseRights([]byte(bad)); err == nil {
			t.Errorf("%q: got %+v", bad, r)
		}
	}
}

// A container whose /proc is of its own making says nothing of what its processes may do, and a
// file that has no place is on no plain file system.
func TestForgedProc(t *testing.T) {
	forged := t.TempDir()
	if err := os.MkdirAll(forged+"/proc/7", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(forged+"/proc/7/status",
		[]byte("Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t\nCapEff:\tffffffffffffffff\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(forged)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	v := &procRoot{root: root, bound: 1<<41 - 1, mounts: []mountPoint{{"/", "ext4"}}}
	if r, err := v.credentialsOf(7); err == nil || strings.Contains(err.Error(), "%!") {
		t.Errorf("got %+v, %v", r, err)
	}
	nowhere, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = nowhere.Close(), other.Close() }()
	if err := v.requirePlainFS(nowhere, []string{"x"}); err == nil ||
		strings.Contains(err.Error(), "%!") {
		t.Errorf("got %v", err)
	}
}

// A process that is no container's, or another container's, gives no view of one: not even where
// the daemon might open its root folder.
func TestLookIntoAnothersProcess(t *testing.T) {
	c := Container{ContainerInfo: devcontainer.ContainerInfo{ID: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}}
	for _, pid := range []int{os.Getpid(), 1, 1 << 22} {
		if v, err := openProcRoot(c, pid); err == nil {
			t.Errorf("process %d: a view was given", pid)
			v.close()
		}
	}
}
