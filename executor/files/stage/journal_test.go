package stage

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/soakreport"
)

// interrupt places a tree up to a point of its commit, and leaves everything as a process that dies
// there does. It says whether there were that many moves to make.
func interrupt(t *testing.T, dir string, moved int, list ...made) bool {
	t.Helper()
	root := openRoot(t, dir)
	p := newPlacing(int(root.Fd()), dray.WriteTreeOptions{})
	defer p.close()
	m := newMoves(p.resolver, p.root, nil)
	defer m.close()
	err := errors.Join(p.receive(t.Context(), treeOf(list...)), p.plan(t.Context(), m))
	p.stage.keep = true
	if err == nil && moved >= 0 {
		err = p.stage.commitJournal(t.Context(), p.items)
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
	finished, err := Recover(t.Context(), openRoot(t, dir))
	if err != nil {
		t.Error(err)
	}
	return finished
}

var (
	oldTree = []made{
		file("replaced", "old"), file("kept", "same"), folder("d"),
		file("d/replaced", "old"), file("d/e/replaced", "old"),
	}
	newTree = []made{
		file("replaced", "new"), file("kept", "same"), file("created",
			"new"), folder("d"), file("d/replaced", "new"), file("d/e/replaced", "new"),
		file("d/e/f/created", "new"), folder("d/e/f/g"), file("h/created", "new"), file("h/i/created",
			strings.Repeat("new", 1<<20)),
	}
)

func treeAfter(t *testing.T, trees ...[]made) map[string]string {
	t.Helper()
	dir := scratch(t)
	for _, list := range trees {
		mustPlace(t, dir, list...)
	}
	return tree(t, dir)
}

// SY-06: a commit that was cut after any of its steps is finished, once and for all.
func TestRecover(t *testing.T) {
	before, after := treeAfter(t, oldTree), treeAfter(t, oldTree, newTree)
	for moved := -1; ; moved++ {
		dir := scratch(t)
		mustPlace(t, dir, oldTree...)
		if !interrupt(t, dir, moved, newTree...) {
			if moved < 6 {
				t.Errorf("there were %d moves", moved-1)
			}
			break
		}
		want, finished := after, 1
		if moved < 0 {
			want, finished = before, 0 // the journal had not been written
		}
		if got := recoverIn(t, dir); got != finished {
			t.Errorf("after %d moves: %d were finished", moved, got)
		}
		wantTree(t, dir, want)
		if got := recoverIn(t, dir); got != 0 {
			t.Errorf("after %d moves: %d were finished again", moved, got)
		}
	}
}

// SY-06: a recovery that was cut itself is done once more; here it got so far that only the journal
// was left to be removed.
func TestRecoverTwice(t *testing.T) {
	dir := scratch(t)
	mustPlace(t, dir, oldTree...)
	interrupt(t, dir, 2, newTree...)
	root := openRoot(t, dir)
	left, err := abandoned(newWalker(), int(root.Fd()))
	if err != nil || len(left) != 1 {
		t.Fatalf("got %d, %v", len(left), err)
	}
	left[0].keep = true
	err = left[0].finish(t.Context())
	left[0].close()
	if err != nil {
		t.Fatal(err)
	}
	// Meanwhile somebody writes a file of the tree, and removes one and a folder: that stands.
	sh(t, dir, "echo mine >replaced; rm -r d/e created")
	want := tree(t, dir)
	maps.DeleteFunc(want, func(name, _ string) bool { return strings.HasPrefix(name, Prefix) })
	if got := recoverIn(t, dir); got != 1 {
		t.Errorf("%d were finished", got)
	}
	wantTree(t, dir, want)
}

// SY-06: several are finished in the order of their commits, and before the next tree is committed.
func TestRecoverOrder(t *testing.T) {
	for range 10 { // names are random, and so is the order in which the folder lists them
		dir := scratch(t)
		for i := range 4 {
			interrupt(t, dir, 0, file("x", fmt.Sprint(i)), file(fmt.Sprint("only", i), ""))
		}
		if got := recoverIn(t, dir); got != 4 {
			t.Errorf("%d were finished", got)
		}
		wantTree(t, dir, map[string]string{
			"x": "-rw------- 3", "only0": "-rw------- ",
			"only1": "-rw------- ", "only2": "-rw------- ", "only3": "-rw------- ",
		})

		interrupt(t, dir, 1, file("x", "interrupted"), file("y", "interrupted"))
		mustPlace(t, dir, file("x", "last"))
		recoverIn(t, dir)
		if got := tree(t, dir); got["x"] != "-rw------- last" || got["y"] != "-rw------- interrupted" {
			t.Errorf("got %v", got)
		}
	}
}

// SY-06: a journal that is cut or altered anywhere is none: nothing of the tree comes.
func TestTornJournal(t *testing.T) {
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
			mustPlace(t, dir, oldTree...)
			before := tree(t, dir)
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
				t.Errorf("%d were finished", got)
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

// Stage folders that are in use, another's, open to others, or no folders are left alone.
func TestRecoverLeaves(t *testing.T) {
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
	before := tree(t, dir)
	if got := recoverIn(t, dir+"/root"); got != 0 {
		t.Errorf("%d were finished", got)
	}
	wantTree(t, dir, before)
	_ = used.Close()
	recoverIn(t, dir+"/root")
	delete(before, "root/"+Prefix+"used")
	delete(before, "root/"+Prefix+"used/x")
	wantTree(t, dir, before)
}

// A stage folder that somebody forged, or filled with links, leads nowhere.
func TestRecoverForged(t *testing.T) {
	for name, forge := range map[string]string{
		"links":          `ln -s ../../outside tree; rm journal; ln -s ../../outside/journal journal`,
		"a link":         `ln -s ../../outside tree`,
		"a link in tree": `mkdir tree; ln -s ../../../outside tree/d; ln -s ../../../outside/secret tree/replaced; ln -s / tree/slash`,
		"fifos":          `rm journal; mkfifo tree journal`,
		"deep":           `mkdir tree; cd tree; for i in 1 2 3 4 5 6 7 8; do mkdir -p a/a/a/a/a/a/a/a/a/a; cd a/a/a/a/a/a/a/a/a/a; done`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := scratch(t)
			sh(t, dir, `mkdir outside root; echo secret >outside/secret`)
			mustPlace(t, dir+"/root", oldTree...)
			before := tree(t, dir)
			interrupt(t, dir+"/root", 0, newTree...)
			held := glob(t, dir+"/root/"+Prefix+"*")
			// the journal stays true
			sh(t, held, `cp journal ../../outside/journal; mv tree ../../outside/was; `+forge)
			sh(t, dir, `rm -r outside/was`)
			sum := tree(t, dir+"/outside")
			_, err := Recover(t.Context(), openRoot(t, dir+"/root"))
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
		{name: "d", folder: true},
		{name: "d/x", size: 7, mode: fileMode},
		{name: "y", mode: executableMode},
	}}.encode()
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
		again, err := j.encode()
		if err != nil {
			t.Fatal(err)
		}
		if k, err := decodeJournal(again); err != nil || len(k.items) != len(j.items) ||
			!k.stamp.Equal(j.stamp) {
			t.Errorf("got %+v, %v, want %+v", k, err, j)
		}
	})
}

func sealed(body []byte) []byte {
	sum := sha256.Sum256(body)
	return append(bytes.Clone(body), sum[:]...)
}

// Who holds the lock of a root keeps nobody from starting: a container that shows the folder could
// do so for ever.
func TestRecoverWaitsForNobodyForLong(t *testing.T) {
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
		finished, err := Recover(t.Context(), root)
		if e := dray.AsError(err); finished != 0 || !errors.Is(err, ErrLocked) ||
			e.Code != dray.CodeTransferFailed || e.Hint == "" {
			t.Errorf("got %d, %+v", finished, err)
		}
		if waited := time.Since(begun); waited != maxRecoverWait {
			t.Errorf("it waited %v", waited)
		}
	})
}
