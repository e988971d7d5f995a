package stage

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// asRoot skips the test without root privileges.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts and flags of files need root")
	}
}

// mounted mounts a tmpfs on a new directory.
func mounted(t *testing.T, options string) string {
	t.Helper()
	asRoot(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// When the disk is full, also for the journal, the old files stay and nothing else is left (SY-09).
func TestDiskFull(t *testing.T) {
	const page = 4096
	dir := mounted(t, "size=1m,mode=700")
	long := strings.Repeat("n", 200)
	list := []made{
		file("old", strings.Repeat("n", 3*page)),
		file("new/x", strings.Repeat("x", 5*page)), file("new/y", strings.Repeat("y", 2*page)),
	}
	for i := range 40 { // a journal of three pages
		list = append(list, file(fmt.Sprint("new/", long, i), ""))
	}
	const need = 3 + 5 + 2 + 3
	for spare := range need + 2 {
		sh(t, dir, fmt.Sprintf("rm -rf *; printf old >old; head -c %d /dev/zero >filler",
			(256-1-spare)*page))
		before := contentOf(t, dir)
		_, err := writeTree(t, dir, dray.WriteTreeOptions{}, list...)
		if spare >= need {
			if err != nil {
				t.Errorf("with %d pages: %v", spare, err)
			}
			continue
		}
		wantCode(t, fmt.Sprint("with ", spare, " pages"), err, dray.CodeDiskFull)
		if ofJournal := err != nil && strings.Contains(err.Error(),
			"journal"); ofJournal != (spare >= need-3) {
			t.Errorf("with %d pages: %v", spare, err)
		}
		wantTree(t, dir, before)
	}
}

// The same applies when inodes run out, as with quotas (SY-09).
func TestInodesFull(t *testing.T) {
	var failed, done int
	for inodes := 3; done < 2; inodes++ {
		dir := mounted(t, fmt.Sprintf("nr_inodes=%d,mode=700", inodes))
		sh(t, dir, "printf old >old")
		before := contentOf(t, dir)
		_, err := writeTree(t, dir, dray.WriteTreeOptions{}, file("old", "new"), file("d/e/x", "x"),
			file("y", strings.Repeat("y", 2<<20)))
		if err == nil {
			done++
			continue
		}
		failed++
		wantCode(t, fmt.Sprint("with ", inodes, " inodes"), err, dray.CodeDiskFull)
		wantTree(t, dir, before)
	}
	// the staging directory and its tree, three files, two directories, the journal; the mount's own,
	// old
	if failed < 7 {
		t.Errorf("it failed %d times", failed)
	}
}

// A write to a read-only root fails with denied (SY-09).
func TestReadOnly(t *testing.T) {
	dir := mounted(t, "mode=700")
	sh(t, dir, "printf old >old")
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err := writeTree(t, dir, dray.WriteTreeOptions{}, file("old", "new"))
	wantCode(t, "a root that is read-only", err, dray.CodeDenied)
	if written, err := writeTree(t, dir, dray.WriteTreeOptions{DryRun: true},
		file("old", "new")); err != nil || written[0].Action != dray.FileReplaced {
		t.Errorf("got %+v, %v", written, err)
	}
	wantTree(t, dir, map[string]string{"old": "-rw-r--r-- old"})
}

// Writes to mounts inside the root are refused: they could not be atomic (SY-03, SY-06).
func TestMountsAreRefused(t *testing.T) {
	dir := mounted(t, "mode=700")
	sh(t, dir, "mkdir -p root/sub root/other outside; printf old >root/old; printf f >root/file; "+
		"printf o >outside/o")
	// on the same file system
	for from, to := range map[string]string{"outside": "root/sub", "outside/o": "root/file"} {
		if err := syscall.Mount(dir+"/"+from, dir+"/"+to, "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("tmpfs", dir+"/root/other", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	before := contentOf(t, dir)
	for _, stepwise := range []bool{false, true} {
		t.Run(fmt.Sprint("stepwise ", stepwise), func(t *testing.T) {
			if stepwise {
				withoutOpenat2(t)
			}
			for _, name := range []string{"sub/new", "sub/o", "file", "other/new"} {
				_, err := writeTree(t, dir+"/root", dray.WriteTreeOptions{}, file("old", "new"),
					file("created", "new"), file("made/new", "new"), file(name, "new"))
				wantCode(t, name, err, dray.CodePathInvalid)
				wantTree(t, dir, before)
			}
		})
	}
}

// A commit that fails is rolled back. The directory that is not writable comes last (SY-06, SY-09).
func TestFailedCommitIsRolledBack(t *testing.T) {
	asRoot(t)
	dir := scratch(t)
	sh(t, dir, `mkdir d z; printf old >replaced; printf old >d/replaced; ln -s nowhere link; printf old >z/replaced; chattr +i z`)
	t.Cleanup(func() { sh(t, dir, "chattr -i z") })
	before := contentOf(t, dir)
	for _, last := range []string{"z/replaced", "z/created", "z/new/created"} {
		_, err := writeTree(t, dir, dray.WriteTreeOptions{}, file("replaced", "new"),
			file("created", "new"),
			file("link", "new"), file("d/replaced", "new"),
			file("d/e/f/created", "new"), mkdir("empty"), file(last, "new"))
		wantCode(t, last, err, dray.CodeDenied)
		if errors.Is(err, ErrCommitIncomplete) {
			t.Errorf("got %v", err)
		}
		wantTree(t, dir, before)
	}
}

// If the rollback fails too, the error says so, and the next commit completes the write (SY-06).
func TestFailedRollbackIsCompletedLater(t *testing.T) {
	asRoot(t)
	for _, byPlace := range []bool{false, true} {
		dir := scratch(t)
		// files cannot leave a
		sh(t, dir, `mkdir a z; printf old >replaced; printf old >z/replaced; chattr +a a; chattr +i z`)
		_, err := writeTree(t, dir, dray.WriteTreeOptions{}, file("replaced", "new"),
			file("a/created", "new"), file("z/replaced", "new"), file("z/created", "new"))
		wantCode(t, "unfinished", err, dray.CodeDenied)
		if !errors.Is(err, ErrCommitIncomplete) || dray.AsError(err).Hint == "" {
			t.Errorf("got %v", err)
		}
		if n, err := Recover(t.Context(), openRoot(t, dir), dray.WriteTreeOptions{}); err == nil || n != 0 {
			t.Errorf("got %d, %v", n, err)
		}
		want := map[string]string{
			"a": "drwxr-xr-x", "z": "drwxr-xr-x", "replaced": "-rw------- new",
			"a/created": "-rw------- new", "z/replaced": "-rw------- new", "z/created": "-rw------- new",
		}
		sh(t, dir, `chattr -a a; chattr -i z`)
		if byPlace {
			mustWrite(t, dir, file("next", ""))
			want["next"] = "-rw------- "
		} else if got := recoverIn(t, dir); got != 1 {
			t.Errorf("%d completed", got)
		}
		wantTree(t, dir, want)
	}
}

// A file that appears between the plan and the rename is not replaced (SY-03). A file system that
// ignores case leads to the same.
func TestChangeBetweenPlanAndRename(t *testing.T) {
	for name, meanwhile := range map[string]string{
		"a file appears":            "printf theirs >created",
		"a directory appears":       "mkdir new",
		"a symlink appears":         "ln -s /etc/passwd created",
		"a directory for a file":    "rm replaced; mkdir replaced; printf theirs >replaced/x",
		"a directory is removed":    "rm -r d",
		"a directory is exchanged":  "mv d was; mkdir d; printf theirs >d/replaced",
		"a symlink for a directory": "mv d was; ln -s was d",
		"an empty one for a new":    "mkdir -p d/e",
	} {
		t.Run(name, func(t *testing.T) {
			dir := scratch(t)
			mustWrite(t, dir, file("replaced", "old"), file("d/replaced", "old"))
			p := newTransaction(int(openRoot(t, dir).Fd()), dray.WriteTreeOptions{})
			m := newRenameSet(p.resolver, p.root)
			err := errors.Join(
				p.receive(t.Context(), treeOf(file("replaced", "new"), file("new/x", "new"),
					file("d/replaced", "new"), file("d/e/x", "new"), file("created", "new"))),
				p.plan(t.Context(), m))
			if err == nil {
				err = p.staging.commitJournal(t.Context(), p.journal())
			}
			if err != nil {
				t.Fatal(err)
			}
			sh(t, dir, meanwhile)
			want := contentOf(t, dir)
			for name := range want {
				if strings.HasPrefix(name, Prefix) {
					delete(want, name)
				}
			}
			err = m.run()
			t.Log(err)
			if err == nil || errors.Is(err, ErrCommitIncomplete) {
				t.Errorf("got %v", err)
			}
			m.close()
			p.close()
			wantTree(t, dir, want)
		})
	}
}

// Concurrent writes and recoveries leave complete trees (SY-06).
func TestConcurrentWrites(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	dir := scratch(t)
	for round := range rounds {
		at := fmt.Sprint("round", round%3, "/") // new, then replaced
		var wait sync.WaitGroup
		for writer := range 6 {
			wait.Go(func() {
				content := fmt.Sprintf("%d by %d", round, writer)
				var list []made
				for i := range 30 {
					list = append(list, file(fmt.Sprint(at, i%3, "/", i), content))
				}
				if _, err := writeTree(t, dir, dray.WriteTreeOptions{}, list...); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Go(func() { recoverIn(t, dir) })
		wait.Wait()
		got := contentOf(t, dir)
		want := got[at+"0/0"]
		for i := range 30 {
			if name := fmt.Sprint(at, i%3, "/", i); got[name] != want {
				t.Errorf("%s is %q, and another %q", name, got[name], want)
			}
		}
	}
	if got := sh(t, dir, "ls -A"); got != "round0\nround1\nround2\n" {
		t.Errorf("there is %q", got)
	}
}

// Two names of a tree that are one file at the destination are refused.
func TestCaseCollisionsAreRefused(t *testing.T) {
	one := fileState{kind: regular, stat: unix.Stat_t{Dev: 1, Ino: 7, Nlink: 1}}
	linked := one
	linked.stat.Nlink = 2
	p := &transaction{items: []*item{
		{name: "x", existing: linked},
		{name: "X", existing: linked},
		{name: "y", existing: one},
	}}
	if err := p.checkCaseCollisions(); err != nil {
		t.Error(err)
	}
	p.items = append(p.items, &item{name: "Y", existing: one})
	wantCode(t, "one file", p.checkCaseCollisions(), dray.CodePathInvalid)
}
