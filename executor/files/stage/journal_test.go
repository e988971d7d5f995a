package stage

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/soakreport"
)

// interrupt writes a tree up to a point of its commit and leaves the state of a process that died
// there. It reports whether the commit had that many renames.
func interrupt(t *testing.T, dir string, moved int, list ...made) bool {
	t.Helper()
	root := openRoot(t, dir)
	p := newTransaction(int(root.Fd()), dray.WriteTreeOptions{})
	defer p.close()
	m := newRenameSet(p.resolver, p.root)
	defer m.close()
	err := errors.Join(p.receive(t.Context(), treeOf(list...)), p.plan(t.Context(), m))
	p.staging.keep = true
	if err == nil && moved >= 0 {
		err = p.staging.commitJournal(t.Context(), p.journal())
	}
	if err != nil {
		t.Fatal(err)
	}
	if moved > len(m.list) {
		return false
	}
	for _, move := range m.list[:max(moved, 0)] {
		if err := move.do(p.resolver); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

func recoverIn(t *testing.T, dir string) int {
	t.Helper()
	finished, err := Recover(t.Context(), openRoot(t, dir), dray.WriteTreeOptions{})
	if err != nil {
		t.Error(err)
	}
	return finished
}

var (
	oldTree = []made{
		file("replaced", "old"), file("kept", "same"), mkdir("d"),
		file("d/replaced", "old"), file("d/e/replaced", "old"),
	}
	newTree = []made{
		file("replaced", "new"), file("kept", "same"), file("created",
			"new"), mkdir("d"), file("d/replaced", "new"), file("d/e/replaced", "new"),
		file("d/e/f/created", "new"), mkdir("d/e/f/g"), file("h/created", "new"), file("h/i/created",
			strings.Repeat("new", 1<<20)),
	}
)

func treeAfter(t *testing.T, trees ...[]made) map[string]string {
	t.Helper()
	dir := scratch(t)
	for _, list := range trees {
		mustWrite(t, dir, list...)
	}
	return contentOf(t, dir)
}

// A commit that was interrupted after any of its steps is completed once (SY-06).
func TestRecover(t *testing.T) {
	before, after := treeAfter(t, oldTree), treeAfter(t, oldTree, newTree)
	for moved := -1; ; moved++ {
		dir := scratch(t)
		mustWrite(t, dir, oldTree...)
		if !interrupt(t, dir, moved, newTree...) {
			if moved < 6 {
				t.Errorf("%d renames", moved-1)
			}
			break
		}
		want, finished := after, 1
		if moved < 0 {
			want, finished = before, 0 // the journal had not been written
		}
		if got := recoverIn(t, dir); got != finished {
			t.Errorf("after %d renames: %d completed", moved, got)
		}
		wantTree(t, dir, want)
		if got := recoverIn(t, dir); got != 0 {
			t.Errorf("after %d renames: %d completed again", moved, got)
		}
	}
}

// An interrupted recovery is repeated. Here only the removal of the journal was missing (SY-06).
func TestRecover_Repeated(t *testing.T) {
	dir := scratch(t)
	mustWrite(t, dir, oldTree...)
	interrupt(t, dir, 2, newTree...)
	root := openRoot(t, dir)
	left, err := findStale(newResolver(), int(root.Fd()))
	if err != nil || len(left) != 1 {
		t.Fatalf("got %d, %v", len(left), err)
	}
	left[0].keep = true
	err = left[0].complete(t.Context(), dray.WriteTreeOptions{})
	left[0].close()
	if err != nil {
		t.Fatal(err)
	}
	// Later changes of the files stay.
	sh(t, dir, "echo mine >replaced; rm -r d/e created")
	want := contentOf(t, dir)
	maps.DeleteFunc(want, func(name, _ string) bool { return strings.HasPrefix(name, Prefix) })
	if got := recoverIn(t, dir); got != 1 {
		t.Errorf("%d completed", got)
	}
	wantTree(t, dir, want)
}

// Several commits are completed in their order, and before the next commit (SY-06).
func TestRecover_Order(t *testing.T) {
	for range 10 { // names are random, and so is their order in the directory
		dir := scratch(t)
		for i := range 4 {
			interrupt(t, dir, 0, file("x", fmt.Sprint(i)), file(fmt.Sprint("only", i), ""))
		}
		if got := recoverIn(t, dir); got != 4 {
			t.Errorf("%d completed", got)
		}
		wantTree(t, dir, map[string]string{
			"x": "-rw------- 3", "only0": "-rw------- ",
			"only1": "-rw------- ", "only2": "-rw------- ", "only3": "-rw------- ",
		})

		interrupt(t, dir, 1, file("x", "interrupted"), file("y", "interrupted"))
		mustWrite(t, dir, file("x", "last"))
		recoverIn(t, dir)
		if got := contentOf(t, dir); got["x"] != "-rw------- last" ||
			got["y"] != "-rw------- interrupted" {
			t.Errorf("got %v", got)
		}
	}
}

// A truncated or modified journal is ignored, and nothing of the tree is written (SY-06).
func TestRecover_InvalidJournal(t *testing.T) {
	r := soakreport.Rand(t)
	for _, damage := range []func(b []byte) []byte{
		func(b []byte) []byte { return b[:r.IntN(len(b))] },
		func(b []byte) []byte { b[r.IntN(len(b))] ^= 1 << r.IntN(8); return b },
		func(b []byte) []byte { return append(b, 0) },
		func([]byte) []byte { return nil },
		func(b []byte) []byte { clear(b[len(b)/2:]); return b },
	} {
		for range 20 {
			dir := scratch(t)
			mustWrite(t, dir, oldTree...)
			before := contentOf(t, dir)
			interrupt(t, dir, 0, newTree...)
			path := glob(t, dir+"/"+Prefix+"*/"+journalName)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := recoverIn(t, dir); got != 0 {
				t.Errorf("%d completed", got)
			}
			wantTree(t, dir, before)
		}
	}
}

func glob(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v", pattern, found, err)
	}
	return found[0]
}

// Staging directories that are locked, owned by another user, accessible to others, or no
// directories are left alone.
func TestRecover_ForeignDirectories(t *testing.T) {
	dir := scratch(t)
	sh(t, dir, `mkdir outside root; echo x >outside/tree; cd root; p=`+Prefix+`
		ln -s ../outside ${p}link; echo >${p}file; mkdir ${p}open ${p}other ${p}used; chmod 750 ${p}open; chmod 700 ${p}other ${p}used; chown 7 ${p}other; touch ${p}used/x`)
	used, err := os.Open(dir + "/root/" + Prefix + "used")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(used.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	before := contentOf(t, dir)
	if got := recoverIn(t, dir+"/root"); got != 0 {
		t.Errorf("%d completed", got)
	}
	wantTree(t, dir, before)
	_ = used.Close()
	recoverIn(t, dir+"/root")
	delete(before, "root/"+Prefix+"used")
	delete(before, "root/"+Prefix+"used/x")
	wantTree(t, dir, before)
}

// A forged staging directory, or one with symlinks, changes nothing outside.
func TestRecover_ForgedDirectories(t *testing.T) {
	for name, forge := range map[string]string{
		"links":             `ln -s ../../outside tree; rm journal; ln -s ../../outside/journal journal`,
		"a symlink":         `ln -s ../../outside tree`,
		"a symlink in tree": `mkdir tree; ln -s ../../../outside tree/d; ln -s ../../../outside/secret tree/replaced; ln -s / tree/slash`,
		"fifos":             `rm journal; mkfifo tree journal`,
		"deep":              `mkdir tree; cd tree; for i in 1 2 3 4 5 6 7 8; do mkdir -p a/a/a/a/a/a/a/a/a/a; cd a/a/a/a/a/a/a/a/a/a; done`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := scratch(t)
			sh(t, dir, `mkdir outside root; echo secret >outside/secret`)
			mustWrite(t, dir+"/root", oldTree...)
			before := contentOf(t, dir)
			interrupt(t, dir+"/root", 0, newTree...)
			held := glob(t, dir+"/root/"+Prefix+"*")
			// the journal stays valid
			sh(t, held, `cp journal ../../outside/journal; mv tree ../../outside/was; `+forge)
			sh(t, dir, `rm -r outside/was`)
			sum := contentOf(t, dir+"/outside")
			_, err := Recover(t.Context(), openRoot(t, dir+"/root"), dray.WriteTreeOptions{})
			t.Log(err)
			wantTree(t, dir+"/outside", sum)
			sh(t, dir, `rm outside/journal`)
			if err != nil {
				sh(t, dir, `rm -r root/`+Prefix+`*`)
			}
			wantTree(t, dir, before)
		})
	}
}

func FuzzJournal(f *testing.F) {
	whole, err := journal{items: []*item{
		{name: "d", dir: true},
		{name: "d/x", size: 7, mode: fileMode},
		{name: "y", mode: executableMode},
	}, expected: []expectedName{
		{"d", expectation{kind: directory}},
		{"y", expectation{}},
		{"z", expectation{regular, digest{1}}},
	}, removed: []string{"z"}}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole[:len(whole)-len(digest{})])
	f.Add([]byte(journalHeader + "\x00x\x03a/b\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := decodeJournal(body); err == nil {
			t.Error("a journal without its digest")
		}
		j, err := decodeJournal(sealed(body))
		if err != nil {
			return
		}
		for _, it := range j.items {
			if checkName(it.name) != nil || it.size < 0 {
				t.Errorf("got %+v", it)
			}
		}
		for _, name := range j.removed {
			if checkName(name) != nil {
				t.Errorf("it removes %q", name)
			}
		}
		again, err := j.encode()
		if err != nil {
			t.Fatal(err)
		}
		if k, err := decodeJournal(again); err != nil || len(k.items) != len(j.items) ||
			!slices.Equal(k.expected, j.expected) || !slices.Equal(k.removed, j.removed) ||
			!k.stamp.Equal(j.stamp) {
			t.Errorf("got %+v, %v, want %+v", k, err, j)
		}
	})
}

func sealed(body []byte) []byte {
	sum := sha256.Sum256(body)
	return append(bytes.Clone(body), sum[:]...)
}

// A process that holds the lock of a root delays a recovery for maxRecoverWait only.
func TestRecover_LockHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := t.TempDir()
		holder, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Close()
		if err := syscall.Flock(int(holder.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		root, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		begun := time.Now()
		finished, err := Recover(t.Context(), root, dray.WriteTreeOptions{})
		if e := dray.AsError(err); finished != 0 || !errors.Is(err, ErrLocked) ||
			e.Code != dray.CodeTransferFailed || e.Hint == "" {
			t.Errorf("got %d, %+v", finished, err)
		}
		if waited := time.Since(begun); waited != maxRecoverWait {
			t.Errorf("it waited %v", waited)
		}
	})
}

// A recovery does not complete a write that would make a repository with what was written since
// (SY-06, SY-08).
func TestRecoverRefusesRepositories(t *testing.T) {
	dir := scratch(t)
	how := dray.WriteTreeOptions{RefuseRepositories: true}
	interrupted := newTransaction(int(openRoot(t, dir).Fd()), how)
	set := newRenameSet(interrupted.resolver, interrupted.root)
	err := errors.Join(interrupted.receive(t.Context(), treeOf(file("b/HEAD", "ref: refs/heads/main"))),
		interrupted.plan(t.Context(), set))
	if err == nil {
		err = interrupted.staging.commitJournal(t.Context(), interrupted.journal())
	}
	if err != nil {
		t.Fatal(err)
	}
	interrupted.staging.keep = true
	set.close()
	interrupted.close() // as the kernel does when the process is killed
	sh(t, dir, "mkdir -p b/objects b/refs")
	n, err := Recover(t.Context(), openRoot(t, dir), how)
	wantCode(t, fmt.Sprint(n, " completed"), err, dray.CodeDenied)
	if _, err := os.Stat(dir + "/b/HEAD"); err == nil {
		t.Error("HEAD was written")
	}
}
