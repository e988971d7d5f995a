package audit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// mountSmall mounts a tmpfs of a size at a new directory.
func mountSmall(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// fillDisk writes a file that leaves so many bytes free; 0 leaves none.
func fillDisk(t *testing.T, dir string, free int64) (name string) {
	t.Helper()
	var fs unix.Statfs_t
	must(t, unix.Statfs(dir, &fs))
	f, err := os.Create(filepath.Join(dir, "filler"))
	must(t, err)
	size := int64(fs.Bavail)*fs.Bsize - free
	must(t, unix.Fallocate(int(f.Fd()), 0, 0, size))
	must(t, f.Close())
	return f.Name()
}

// The disk is warned about before calls are refused, calls are refused before it is full, and run
// again when there is space (AU-09, AU-01).
func TestDiskLevels(t *testing.T) {
	dir := mountSmall(t, "16m")
	s := open(t, impatient(dir))
	for _, level := range []struct {
		free     int64
		want     DiskLevel
		warnings int
	}{{8 << 20, DiskOK, 0}, {1 << 20, DiskLow, 1}, {200 << 10, DiskFull, 0}} {
		filler := fillDisk(t, dir, level.free)
		if space, err := s.Space(); err != nil || space.Level() != level.want ||
			len(s.Warnings(t.Context())) != level.warnings {
			t.Errorf("%+v, %v, want %s; warnings %v", space, err, level.want, s.Warnings(t.Context()))
		}
		ready := s.Ready(t.Context())
		if level.want == DiskFull {
			if e := refused(t, s, newInvocation("exec")); !strings.Contains(e.Message, "nearly full") ||
				codeOf(ready) != dray.CodeAuditUnavailable {
				t.Errorf("%v; Ready returns %v", e, ready)
			}
		} else {
			must(t, ready)
			run(t, s, newInvocation("exec"), exited(0))
		}
		must(t, os.Remove(filler))
	}
	run(t, s, newInvocation("exec"), exited(0))
	var levels []DiskLevel
	for _, e := range events(t, s, EventQuery{Kind: "disk"}) {
		var b DiskChanged
		must(t, json.Unmarshal(e.Body, &b))
		levels = append(levels, b.Level)
	}
	if len(levels) < 3 || levels[0] != DiskOK || levels[1] != DiskFull || levels[2] != DiskLow {
		t.Errorf("the recorded levels are %v", levels)
	}
	checkLog(t, s)
}

// If other programs fill the disk while calls run, the end records of these calls are committed
// with the reserved space (AU-01).
func TestEndRecordsFitOnFullDisk(t *testing.T) {
	dir := mountSmall(t, "256m")
	s := open(t, impatient(dir))
	var ids []string
	for range 50 {
		ids = append(ids, beginOnly(t, s))
	}
	fillDisk(t, dir, 0)
	for _, id := range ids {
		res := exited(0)
		res.Stdout.Text = strings.Repeat("x", 4<<10)
		if _, err := s.end(t.Context(), dray.Invocation{ID: id}, setTimes(dray.NormalizeResult(res, nil), epoch)); err != nil {
			t.Fatal(err)
		}
	}
	_ = refused(t, s, newInvocation("exec"))
	checkLog(t, s)
}
