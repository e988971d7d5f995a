package stage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
	"github.com/dray-dev/dray/internal/soakreport"
)

// exchange swaps two names of a directory in one step, as an attacker in a shared directory may.
func exchange(dir int, one, two string) {
	_ = linux.Rename(dir, one, dir, two, unix.RENAME_EXCHANGE)
}

// swapAttack is done to the destination, over and over, while a tree is written.
type swapAttack struct {
	name string
	turn func(root, d int, fresh string)
	// files is set if a file's own name is attacked: the attacker can always remove that.
	files bool
}

var attacks = []swapAttack{
	{name: "directory and symlink", turn: func(root, _ int, _ string) { exchange(root, "d", "l") }},
	{name: "subdirectory and symlink", turn: func(_, d int, _ string) { exchange(d, "s", "sl") }},
	{name: "both", turn: func(root, d int,
		_ string,
	) {
		exchange(root, "d", "l")
		exchange(d, "s", "sl")
	}},
	{name: "file and symlink", turn: func(_, d int, _ string) { exchange(d, "f", "fl") }, files: true},
	{name: "symlink for a new directory", turn: func(root, _ int, fresh string) {
		at := fmt.Sprintf("/proc/self/fd/%d/%s", root, fresh)
		_ = syscall.Symlink("../outside", at)
		_ = syscall.Unlink(at)
	}},
	{name: "two directories", turn: func(root, _ int, _ string) { exchange(root, "d", "other") }},
}

// swapFixture has a root, the files outside of it, and an inotify watch on those.
type swapFixture struct {
	dir     string
	root, d int
	watch   int
	outside map[string]string
	// versions has the content of d and of the directory that it is exchanged with.
	versions map[string]string
}

func newSwapFixture(t *testing.T) *swapFixture {
	t.Helper()
	a := &swapFixture{dir: scratch(t), versions: map[string]string{"d": "", "other": ""}}
	sh(t, a.dir, `mkdir -p outside/deep root/d/s root/other/s; for f in outside/canary outside/deep/0 outside/0 outside/f; do echo canary >$f; done
		ln -s ../outside root/l; ln -s ../../outside/deep root/d/sl; ln -s ../../outside/canary root/d/fl; echo f >root/d/f`)
	a.outside = contentOf(t, a.dir+"/outside")
	for path, fd := range map[string]*int{"root": &a.root, "root/d": &a.d} {
		*fd = int(openRoot(t, a.dir+"/"+path).Fd())
	}
	watch, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	a.watch = watch
	t.Cleanup(func() { _ = syscall.Close(watch) })
	for _, path := range []string{"", "/deep", "/canary", "/0", "/f", "/deep/0"} {
		if _, err := syscall.InotifyAddWatch(watch, a.dir+"/outside"+path,
			syscall.IN_ALL_EVENTS); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// untouched fails the test after any event outside, even an open, and returns the size of the
// events.
func (a *swapFixture) untouched(t *testing.T) int {
	t.Helper()
	n, err := syscall.Read(a.watch, make([]byte, 64<<10))
	if err == nil || !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("outside something happened: %d bytes of events, %v", n, err)
	}
	return max(n, 0)
}

// under runs an attack while a tree is written.
func (a *swapFixture) under(t *testing.T, r *rand.Rand, k swapAttack, fresh string,
	list []made, how dray.WriteTreeOptions,
) error {
	t.Helper()
	over := make(chan struct{})
	idle, turns := r.IntN(1<<r.IntN(20)+1), 1<<r.IntN(20) // always, often, or a few times
	var attacker sync.WaitGroup
	attacker.Go(func() {
		for range turns {
			select {
			case <-over:
				return
			default:
				k.turn(a.root, a.d, fresh)
				for i := 0; i < idle; i++ { //nolint:modernize // it spins: the attack comes at any moment
				}
			}
		}
	})
	written, err := WriteTree(context.Background(), openRoot(t, a.dir+"/root"), treeOf(list...), how)
	close(over)
	attacker.Wait()
	if want := len(list) + len(how.Remove); err == nil && len(written) != want {
		t.Errorf("%d of %d files were written", len(written), want)
	}
	// Exchanged names are exchanged back.
	if info, err := os.Lstat(a.dir + "/root/d"); err == nil && info.Mode()&os.ModeSymlink != 0 {
		exchange(a.root, "d", "l")
	}
	var here, ours syscall.Stat_t
	if syscall.Stat(a.dir+"/root/d", &here) == nil && syscall.Fstat(a.d, &ours) == nil &&
		here.Ino != ours.Ino {
		exchange(a.root, "d", "other")
	}
	if info, err := os.Lstat(a.dir + "/root/d/s"); err == nil && info.Mode()&os.ModeSymlink != 0 {
		exchange(a.d, "s", "sl")
	}
	_ = os.Remove(a.dir + "/root/" + fresh) // a symlink, or nothing
	return err
}

var swapPage = soakreport.Page{
	File: "swaps.md", Title: "Names are exchanged while a tree is written",
	Text: `Directories, files and symlinks were exchanged in the destination while trees
were written there. Each tree was written completely (*exact*), or the write failed and none of it
was there (*refused*); every file was compared. *Events* counts what inotify reported outside the
root, where the symlinks point.`,
	Target:  "every tree is exact or refused, and there is no event outside the root",
	Columns: []string{"exchanged", "trees", "files each", "exact", "refused", "events"},
	Key:     1,
}

// While directories, files and symlinks are exchanged in the destination, every tree is written
// completely or not at all, and nothing outside is touched (SY-03).
func TestSoakSwap(t *testing.T) {
	files := soakreport.Count(10_000, 200)
	for _, k := range attacks {
		t.Run(k.name, func(t *testing.T) {
			r := soakreport.Rand(t)
			a := newSwapFixture(t)
			exact, refused, events := 0, 0, 0
			swapPage.Row(t, []string{k.name}, func() []soakreport.Cell {
				return []soakreport.Cell{
					soakreport.Value(exact + refused), soakreport.Value(files),
					soakreport.Value(exact), soakreport.Value(refused), soakreport.Exactly(events, 0),
				}
			})
			version := ""
			for round := range 20 {
				fresh, next := fmt.Sprint("n", round), fmt.Sprint("version ", round)
				err := a.under(t, r, k, fresh, attacked(files, fresh, next),
					dray.WriteTreeOptions{})
				if errors.Is(err, ErrCommitIncomplete) {
					recoverIn(t, a.dir+"/root")
					err = nil
				}
				if err == nil {
					exact++
					version = next
				} else {
					refused++
					mustBeTyped(t, err)
				}
				a.check(t, k, files, fresh, version, err)
			}
			events = a.untouched(t)
			wantTree(t, a.dir+"/outside", a.outside)
			if exact == 0 || refused == 0 && soakreport.Enabled() && !k.files {
				t.Errorf("%d were exact, %d refused", exact, refused)
			}
		})
	}
}

func mustBeTyped(t *testing.T, err error) {
	t.Helper()
	switch dray.CodeOf(err) {
	case dray.CodePathInvalid, dray.CodeTransferFailed:
	default:
		t.Errorf("got %v (%s)", err, dray.CodeOf(err))
	}
}

// attacked returns a tree with names in the attacked directories.
func attacked(files int, fresh, content string) []made {
	var list []made
	for i := range files {
		at := []string{"d/", "d/s/", fresh + "/", "plain/", ""}[i%5]
		list = append(list, file(fmt.Sprint(at, i), content))
	}
	return append(list, file("d/f", content))
}

// check compares every file with the last written tree. Of two exchanged directories either one may
// have got it, completely.
func (a *swapFixture) check(t *testing.T, k swapAttack, files int, fresh, version string,
	failed error,
) {
	t.Helper()
	if k.files {
		a.checkFile(t, version, failed)
	}
	if failed == nil && a.content("d/0") == version {
		a.versions["d"] = version
	} else if failed == nil {
		a.versions["other"] = version
	}
	for _, m := range attacked(files, fresh, version) {
		below, inD := strings.CutPrefix(m.name, "d/")
		inFresh := strings.HasPrefix(m.name, fresh+"/")
		switch {
		case inD && below == "f":
		case inD:
			for dir, version := range a.versions {
				if got := a.content(dir + "/" + below); got != version {
					t.Fatalf("%s/%s is %q, it should be %q after %v", dir, below, got, version, failed)
				}
			}
		case inFresh && failed != nil:
			if got := a.content(m.name); got != "" {
				t.Fatalf("%s is %q after %v", m.name, got, failed)
			}
		default:
			if got := a.content(m.name); got != version {
				t.Fatalf("%s is %q, it should be %q after %v", m.name, got, version, failed)
			}
		}
	}
}

// checkFile looks for the file whose own name was attacked under both its names, and restores both.
func (a *swapFixture) checkFile(t *testing.T, version string, failed error) {
	t.Helper()
	if failed == nil && a.content("d/f") != version && a.content("d/fl") != version {
		t.Fatalf("the file is %q or %q, it should be %q", a.content("d/f"), a.content("d/fl"), version)
	}
	sh(t, a.dir+"/root/d", "rm -f f fl; ln -s ../../outside/canary fl; echo f >f")
}

// content returns the content of a regular file beneath the root; otherwise nothing.
func (a *swapFixture) content(name string) string {
	info, err := os.Lstat(a.dir + "/root/" + name)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	b, _ := os.ReadFile(a.dir + "/root/" + name)
	return string(b)
}

// The same holds for commits that expect and remove files: each is exact, or a conflict with
// nothing written (PY-10, SY-03).
func TestSwap_Expectations(t *testing.T) {
	const files = 100
	for _, k := range attacks {
		t.Run(k.name, func(t *testing.T) {
			r := soakreport.Rand(t)
			a := newSwapFixture(t)
			exact, version := 0, ""
			rounds := soakreport.Count(200, 20)
			for round := range rounds {
				removed := fmt.Sprint("removed", round%2)
				sh(t, a.dir+"/root", "echo old >"+removed)
				fresh, next := fmt.Sprint("n", round), fmt.Sprint("version ", round)
				list := attacked(files, fresh, next)
				how := dray.WriteTreeOptions{
					Remove: []string{removed}, Expect: map[string]string{removed: sum("old\n")},
				}
				for _, m := range list {
					how.Expect[m.name] = a.expected(m.name)
				}
				err := a.under(t, r, k, fresh, list, how)
				if errors.Is(err, ErrCommitIncomplete) {
					t.Fatal(err)
				}
				if err == nil {
					exact++
					version = next
				} else {
					wantCode(t, "refused", err, dray.CodeConflict)
				}
				if got := a.content(removed); (got == "") != (err == nil) {
					t.Fatalf("%s is %q after %v", removed, got, err)
				}
				a.check(t, k, files, fresh, version, err)
			}
			a.untouched(t)
			wantTree(t, a.dir+"/outside", a.outside)
			if t.Logf("%d of %d were exact", exact, rounds); exact == 0 {
				t.Error("none was exact")
			}
		})
	}
}

// expected returns what a commit expects at a name: what is there without the attack.
func (a *swapFixture) expected(name string) string {
	if content := a.content(name); content != "" {
		return sum(content)
	}
	return dray.ExpectAbsent
}
