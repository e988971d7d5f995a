package audit

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// secondLink is the displacement that only files can have.
const secondLink = "removed, with a second link"

// displacements take a file of the log away and return what puts it back; nil if nothing can.
var displacements = map[string]func(t *testing.T, path string) (restore func()){
	"moved": func(t *testing.T, path string) func() {
		must(t, os.Rename(path, path+".away"))
		return func() { must(t, os.Rename(path+".away", path)) }
	},
	"replaced by a copy": func(t *testing.T, path string) func() {
		must(t, os.Rename(path, path+".away"))
		if info, err := os.Stat(path + ".away"); err == nil && info.IsDir() {
			must(t, os.Mkdir(path, 0o700))
		} else {
			data, err := os.ReadFile(path + ".away")
			must(t, err)
			must(t, os.WriteFile(path, data, 0o600))
		}
		return func() {
			must(t, os.RemoveAll(path))
			must(t, os.Rename(path+".away", path))
		}
	},
	"replaced by a symlink": func(t *testing.T, path string) func() {
		must(t, os.Rename(path, path+".away"))
		must(t, os.Symlink(path+".away", path))
		return func() {
			must(t, os.Remove(path))
			must(t, os.Rename(path+".away", path))
		}
	},
	secondLink: func(t *testing.T, path string) func() {
		must(t, os.Link(path, path+".link"))
		must(t, os.Remove(path))
		return func() { must(t, os.Rename(path+".link", path)) }
	},
	"removed": func(t *testing.T, path string) func() {
		must(t, os.RemoveAll(path))
		return nil
	},
	"its directory moved": func(t *testing.T, path string) func() {
		dir := filepath.Dir(path)
		must(t, os.Rename(dir, dir+".away"))
		return func() { must(t, os.Rename(dir+".away", dir)) }
	},
	"its directory hidden by a mount": func(t *testing.T, path string) func() {
		dir := filepath.Dir(path)
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			t.Skipf("mount: %v", err)
		}
		unmount := sync.OnceValue(func() error { return unix.Unmount(dir, unix.MNT_DETACH) })
		t.Cleanup(func() { must(t, unmount()) }) // also after a failure, before the directory is removed
		return func() { must(t, unmount()) }
	},
}

// A call runs only if its record stays in the files that the next daemon opens. Calls run again
// when the files are back (AU-01).
func TestDisplacedFilesRefuseCalls(t *testing.T) {
	for _, file := range []string{"audit.db", "audit.db-wal", "audit.db-shm", "audit.db.lock", "captures"} {
		for name, displace := range displacements {
			if file == "captures" && name == secondLink { // a directory has one link
				continue
			}
			t.Run(file+" "+name, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "state")
				must(t, os.Mkdir(dir, 0o700))
				opts := impatient(dir)
				s := open(t, opts)
				run(t, s, newInvocation("exec"), exited(0))
				restore := displace(t, filepath.Join(dir, file))
				e := refused(t, s, newInvocation("exec"))
				if !strings.Contains(e.Message, filepath.Join(dir, file)) &&
					!strings.Contains(name, "directory") || !strings.Contains(e.Hint, "kill ") {
					t.Errorf("%s, hint %s", e.Message, e.Hint)
				}
				if err := s.Ready(t.Context()); codeOf(err) != dray.CodeAuditUnavailable {
					t.Errorf("Ready returns %v", err)
				}
				if restore == nil {
					return
				}
				restore()
				run(t, s, newInvocation("exec"), exited(0))
				checkLog(t, s)
			})
		}
	}
}

// A file that is moved between the check and the commit, or while the tool runs, is noticed before
// the reply: no result is returned that the file in its place does not have (AU-01).
func TestDisplacedFilesReturnNoResult(t *testing.T) {
	opts := impatient(t.TempDir())
	s := open(t, opts)
	inv := newInvocation("exec")
	away := opts.Path + ".away"
	next := dray.ExecutorFunc(func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
		must(t, os.Rename(opts.Path, away))
		return exited(0), nil
	})
	_, err := s.Executor(next).Execute(context.Background(), dray.Call{Invocation: inv}, dray.Discard)
	if e := dray.AsError(err); e.Code != dray.CodeAuditUnavailable ||
		!strings.Contains(e.Message, "the call ran") {
		t.Errorf("the call returns %v", err)
	}

	// the begin record of this one is written to the moved file, and the caller gives up
	late := newInvocation("exec")
	must(t, os.Rename(away, opts.Path))
	for s.Ready(t.Context()) != nil { // until the writer has seen it
		must(t, t.Context().Err())
	}
	claim := &dray.Idempotency{Key: "k", Request: "00"}
	e, err := s.beginEvent(dray.Call{Invocation: late, Idempotency: claim}, time.Now())
	must(t, err)
	must(t, os.Rename(opts.Path, away))
	if err := s.submit(context.Background(), e); !isDisplaced(err) {
		t.Errorf("a begin record in the moved file: %v", err)
	}

	must(t, os.Rename(away, opts.Path))
	s.writeTimeout = 10 * time.Second
	run(t, s, newInvocation("exec"), exited(0)) // behind the others in the queue
	if rec := get(t, s, inv.ID); rec.Status != dray.StatusSucceeded {
		t.Errorf("the end record is %+v", rec)
	}
	if rec := get(t, s, late.ID); rec.Error == nil || rec.Error.Code != dray.CodeAuditUnavailable {
		t.Errorf("the late begin record has the end %+v", rec.Error)
	}
	// nothing ran, so its key is free again (RE-01)
	if _, _, err := s.Claimed(t.Context(), late.Principal, "k"); dray.CodeOf(err) != dray.CodeNotFound {
		t.Errorf("the key of the late begin record: %v", err)
	}
	checkLog(t, s)
}

// A disk that does not respond bounds no call by more than the write timeout, also where its input
// is a file (AU-01).
func TestFrozenCapturesRefuseCalls(t *testing.T) {
	opts := impatient(t.TempDir())
	freeze := mountExt4(t, opts.CapturesDir)
	s := open(t, opts)
	thaw := freeze()
	inv := newInvocation("exec")
	inv.Input = longJSON(maxInline + 1)
	if e := refused(t, s, inv); !strings.Contains(e.Message, errTimedOut.Error()) {
		t.Errorf("a call with a long input: %v", e)
	}
	run(t, s, newInvocation("exec"), exited(0))
	res := exited(0)
	res.Output = longJSON(maxInline + 2)
	if got := run(t, s, newInvocation("exec"), res); got.Output != nil || got.Error == nil ||
		!strings.Contains(got.Error.Message, errTimedOut.Error()) {
		t.Errorf("a call with a long output: %+v", got)
	}
	thaw()
	for range cap(s.blobs.writes) { // until what still waits has ended
		s.blobs.writes <- struct{}{}
	}
	for range cap(s.blobs.writes) {
		<-s.blobs.writes
	}
	run(t, s, inv, exited(0))
	checkLog(t, s)
}

// mountExt4 mounts a new file system of its own at dir, until the end of the test. freeze makes
// every write to it wait until thaw.
func mountExt4(t *testing.T, dir string) (freeze func() (thaw func())) {
	t.Helper()
	must(t, os.Mkdir(dir, 0o700))
	image := filepath.Join(t.TempDir(), "ext4")
	for _, line := range [][]string{
		{"truncate", "--size=16M", image}, {"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%v: %v: %s", line, err, out)
		}
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return func() func() {
		frozen, err := os.Open(dir)
		must(t, err)
		const fiFreeze, fiThaw = 0xC0045877, 0xC0045878
		must(t, unix.IoctlSetInt(int(frozen.Fd()), fiFreeze, 0))
		thaw := sync.OnceFunc(func() {
			must(t, unix.IoctlSetInt(int(frozen.Fd()), fiThaw, 0))
			must(t, frozen.Close())
		})
		t.Cleanup(thaw)
		return thaw
	}
}
