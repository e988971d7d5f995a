package stage

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
)

// expecting returns the options of a commit that removes names and expects what a directory has at
// those and at the names of the tree.
func expecting(t testing.TB, dir string, remove []string, list ...made) dray.WriteTreeOptions {
	t.Helper()
	how := dray.WriteTreeOptions{Remove: remove, Expect: map[string]string{}}
	for _, name := range remove {
		how.Expect[name] = stateOf(t, dir, name)
	}
	for _, m := range list {
		how.Expect[m.name] = stateOf(t, dir, m.name)
	}
	return how
}

func stateOf(t testing.TB, dir, name string) string {
	t.Helper()
	info, err := os.Lstat(dir + "/" + name)
	if err != nil {
		return dray.ExpectAbsent
	}
	if info.IsDir() {
		return dray.ExpectDirectory
	}
	b, err := os.ReadFile(dir + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return sum(string(b))
}

const strictScript = `mkdir -p d/e/f gone/deep/er f2d_dir d2f/in/ner keep; printf old >replaced
	printf old >d/replaced; printf old >d/removed; printf old >d/e/f/removed
	printf old >gone/deep/er/x; printf old >gone/y; printf old >f2d; printf old >d2f/in/ner/x
	printf old >d2f/y; printf old >keep/x; printf old >removed; chmod 4755 removed replaced`

var (
	strictRemove = []string{
		"removed", "d/removed", "d/e/f/removed", "d/e/f", "gone", "gone/y", "gone/deep",
		"gone/deep/er", "gone/deep/er/x", "f2d", "d2f", "d2f/y", "d2f/in", "d2f/in/ner", "d2f/in/ner/x",
		"f2d_dir",
	}
	strictTree = []made{
		file("replaced", "new"), mkdir("d"), file("d/replaced", "new"), mkdir("f2d"), file("f2d/x", "new"),
		file("f2d/deep/y", "new"), file("d2f", "new"), file("created", "new"), file("n/e/w", "new"),
		mkdir("empty"),
	}
	strictAfter = map[string]string{
		"replaced": "-rw------- new", "d": "drwxr-xr-x", "d/replaced": "-rw------- new",
		"d/e": "drwxr-xr-x", "f2d": "drwx------", "f2d/x": "-rw------- new", "f2d/deep": "drwx------",
		"f2d/deep/y": "-rw------- new", "d2f": "-rw------- new", "created": "-rw------- new",
		"n": "drwx------", "n/e": "drwx------", "n/e/w": "-rw------- new", "empty": "drwx------",
		"keep": "drwxr-xr-x", "keep/x": "-rw-r--r-- old",
	}
)

// A commit writes and removes files and directories, which may change places, and reports all of it
// (PY-10, SY-05, SY-10).
func TestRemove(t *testing.T) {
	for _, stepwise := range []bool{false, true} {
		t.Run(fmt.Sprint("stepwise ", stepwise), func(t *testing.T) {
			if stepwise {
				withoutOpenat2(t)
			}
			dir := scratch(t)
			sh(t, dir, strictScript)
			how := expecting(t, dir, strictRemove, strictTree...)
			var planned []dray.WrittenFile
			how.BeforeCommit = func(files []dray.WrittenFile) error {
				planned = files
				return nil
			}
			written, err := writeTree(t, dir, how, strictTree...)
			if err != nil {
				t.Fatal(err)
			}
			wantTree(t, dir, strictAfter)
			if !slices.Equal(planned, written) {
				t.Errorf("planned were %v, written %v", planned, written)
			}
			var got []string
			for _, f := range written {
				before := map[string]string{sum("old"): " old"}[f.SHA256Before]
				after := map[string]string{sum("new"): " new"}[f.SHA256]
				got = append(got, fmt.Sprint(f.Action, " ", f.Name, before, after))
			}
			want := strings.Split(`replaced replaced old new
replaced d/replaced old new
created f2d/x new
created f2d/deep/y new
created d2f new
created created new
created n/e/w new
deleted removed old
deleted d/removed old
deleted d/e/f/removed old
deleted gone/y old
deleted gone/deep/er/x old
deleted f2d old
deleted d2f/y old
deleted d2f/in/ner/x old`, "\n")
			if !slices.Equal(got, want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// Whatever is not as expected is a conflict that names the path, and nothing is written (PY-10,
// SY-06).
func TestExpectationsOfACommit(t *testing.T) {
	for meanwhile, at := range map[string]string{
		"printf changed >replaced":                    "replaced",
		"rm replaced":                                 "replaced",
		"rm replaced; mkdir replaced":                 "replaced",
		"rm replaced; ln -s keep/x replaced":          "replaced",
		"rm replaced; mkfifo replaced":                "replaced",
		"printf changed >removed":                     "removed",
		"rm removed":                                  "removed",
		"rm removed; ln -s keep/x removed":            "removed",
		"printf theirs >created":                      "created",
		"ln -s nowhere created":                       "created",
		"mkdir created":                               "created",
		"mkdir empty":                                 "empty",
		"printf theirs >empty":                        "empty",
		"printf theirs >d/e/f/new":                    "d/e/f/new",
		"printf theirs >gone/deep/er/new":             "gone/deep/er/new",
		"mkdir f2d_dir/new":                           "f2d_dir/new",
		"printf theirs >d2f/in/ner/new":               "d2f/in/ner/new",
		"printf changed >d2f/in/ner/x":                "d2f/in/ner/x",
		"printf changed >f2d":                         "f2d",
		"rm f2d; mkdir f2d":                           "f2d",
		"rm -r d2f; printf theirs >d2f":               "d2f",
		"mv d was; ln -s was d":                       "d",
		"rm -r d":                                     "d",
		"rm -r gone; printf theirs >gone":             "gone",
		"mv gone/deep was; ln -s ../was gone/deep":    "gone/deep",
		"printf theirs >n":                            "n",
		"mkdir -p n/e; printf theirs >n/e/w":          "n/e/w",
		"mkdir -p other; mv d/e/f other; mkdir d/e/f": "d/e/f/removed",
	} {
		t.Run(meanwhile, func(t *testing.T) {
			dir := scratch(t)
			sh(t, dir, strictScript)
			how := expecting(t, dir, strictRemove, strictTree...)
			sh(t, dir, meanwhile)
			before := contentOf(t, dir)
			_, err := writeTree(t, dir, how, strictTree...)
			wantConflict(t, err, at)
			wantTree(t, dir, before)
		})
	}
}

func wantConflict(t *testing.T, err error, at string) {
	t.Helper()
	wantCode(t, at, err, dray.CodeConflict)
	if err != nil && (!strings.Contains(err.Error(), fmt.Sprintf("%q", at)) ||
		dray.AsError(err).Hint == "" || errors.Is(err, ErrCommitIncomplete)) {
		t.Errorf("the conflict should be at %q: %v", at, err)
	}
}

// Removals and expectations that contradict each other or the tree are refused.
func TestExpectationsAreValidated(t *testing.T) {
	old, dirExpected := sum("old"), dray.ExpectDirectory
	for name, c := range map[string]struct {
		remove []string
		expect map[string]string
		list   []made
		code   dray.Code
	}{
		"no expectations":      {remove: []string{"removed"}},
		"none of a removal":    {[]string{"removed"}, map[string]string{}, nil, ""},
		"an absent removal":    {[]string{"removed"}, map[string]string{"removed": ""}, nil, ""},
		"twice":                {[]string{"removed", "removed"}, map[string]string{"removed": old}, nil, ""},
		"no digest":            {[]string{"removed"}, map[string]string{"removed": "1234"}, nil, ""},
		"a digest and more":    {[]string{"removed"}, map[string]string{"removed": old + "00"}, nil, ""},
		"none of a file":       {nil, map[string]string{}, []made{file("new", "")}, ""},
		"none of a directory":  {nil, map[string]string{}, []made{mkdir("new")}, ""},
		"of an unknown name":   {nil, map[string]string{"keep/x": old}, nil, ""},
		"removed and written":  {[]string{"removed"}, map[string]string{"removed": old}, []made{file("removed", "")}, ""},
		"removed and made":     {[]string{"keep"}, map[string]string{"keep": dirExpected}, []made{mkdir("keep")}, ""},
		"written in a removed": {[]string{"keep"}, map[string]string{"keep": dirExpected, "keep/new": ""}, []made{file("keep/new", "")}, ""},
		"removed in a file":    {[]string{"f2d", "f2d/x"}, map[string]string{"f2d": old, "f2d/x": old}, nil, ""},
		"a directory replaced": {nil, map[string]string{"keep": dirExpected}, []made{file("keep", "")}, dray.CodeConflict},
		"a file replaced":      {nil, map[string]string{"f2d": old}, []made{mkdir("f2d")}, dray.CodeConflict},
		"outside":              {[]string{"../x"}, map[string]string{"../x": old}, nil, ""},
		"absolute":             {[]string{"/x"}, map[string]string{"/x": old}, nil, ""},
		"the root":             {[]string{""}, map[string]string{"": dirExpected}, nil, ""},
		"through a symlink":    {[]string{"link/x"}, map[string]string{"link/x": old}, nil, dray.CodeConflict},
		"staging directories":  {[]string{Prefix + "x"}, map[string]string{Prefix + "x": dirExpected}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := scratch(t)
			sh(t, dir, strictScript+"; ln -s keep link; mkdir -m 700 "+Prefix+"held; chmod 755 "+Prefix+"held")
			before := contentOf(t, dir)
			_, err := writeTree(t, dir, dray.WriteTreeOptions{Remove: c.remove, Expect: c.expect}, c.list...)
			if c.code == "" {
				c.code = dray.CodePathInvalid
			}
			wantCode(t, name, err, c.code)
			wantTree(t, dir, before)
		})
	}
	_, err := writeTree(t, scratch(t), dray.WriteTreeOptions{
		DryRun: true, Expect: map[string]string{},
	})
	wantCode(t, "a dry run", err, dray.CodeUnsupported)
}

// planned is a commit whose renames were not made yet.
type planned struct {
	*transaction
	set *renameSet
}

func planStrict(t *testing.T, dir string) planned {
	t.Helper()
	p := newTransaction(int(openRoot(t, dir).Fd()), expecting(t, dir, strictRemove, strictTree...))
	set := newRenameSet(p.resolver, p.root)
	err := errors.Join(p.setExpectations(), p.receive(t.Context(), treeOf(strictTree...)),
		p.checkExpectations(), p.plan(t.Context(), set))
	if err == nil {
		err = p.staging.commitJournal(t.Context(), p.journal())
	}
	if err != nil {
		t.Fatal(err)
	}
	return planned{p, set}
}

func (p planned) end() {
	p.set.close()
	p.close()
}

// What changes between the comparison and the rename is found in what was renamed, and stays
// (PY-10, SY-03).
func TestChangeBetweenComparisonAndRename(t *testing.T) {
	for meanwhile, at := range map[string]string{
		"printf changed >replaced":                      "replaced",
		"printf theirs >x; mv x replaced":               "replaced",
		"rm replaced":                                   "replaced",
		"rm replaced; ln -s keep/x replaced":            "replaced",
		"rm replaced; mkdir replaced; touch replaced/x": "replaced",
		"printf changed >removed":                       "removed",
		"rm removed; ln -s keep/x removed":              "removed",
		"rm removed; mkdir removed; touch removed/x":    "removed",

		"rm removed":                           "removed",
		"printf theirs >created":               "created",
		"ln -s keep/x created":                 "created",
		"mkdir -p n/e":                         "n",
		"printf theirs >gone/deep/er/new":      "gone/deep/er/new",
		"mkdir gone/new":                       "gone/new",
		"printf theirs >f2d_dir/new":           "f2d_dir/new",
		"printf theirs >d2f/new":               "d2f/new",
		"mv d2f was; mkdir d2f; touch d2f/new": "d2f",
		"mv d2f was; ln -s was d2f":            "d2f",
		"printf changed >f2d":                  "f2d",
		"printf changed >d2f/in/ner/x":         "d2f/in/ner/x",
		"mv d was; cp -a was d":                "d",
		"mv d was; ln -s was d":                "d",
		"mv gone was; cp -a was gone":          "gone",
	} {
		t.Run(meanwhile, func(t *testing.T) {
			dir := scratch(t)
			sh(t, dir, strictScript)
			p := planStrict(t, dir)
			sh(t, dir, meanwhile)
			want := contentOf(t, dir)
			for name := range want {
				if strings.HasPrefix(name, Prefix) {
					delete(want, name)
				}
			}
			err := p.set.run()
			p.end()
			wantConflict(t, err, at)
			wantTree(t, dir, want)
		})
	}
}

// A file that a process has open for writing is not replaced or removed: what it writes would be
// lost (PY-10).
func TestOpenFilesConflict(t *testing.T) {
	for _, name := range []string{"replaced", "removed", "f2d"} {
		dir := scratch(t)
		sh(t, dir, strictScript)
		p := planStrict(t, dir)
		f, err := os.OpenFile(dir+"/"+name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		wantConflict(t, p.set.run(), name)
		p.end()
		if _, err := f.WriteString("changed"); err != nil {
			t.Error(err)
		}
		_ = f.Close()
		if got := contentOf(t, dir)[name]; !strings.HasSuffix(got, " changed") {
			t.Errorf("%s is %q", name, got)
		}
	}
	dir := scratch(t)
	sh(t, dir, strictScript)
	f, err := os.Open(dir + "/replaced")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := writeTree(t, dir, expecting(t, dir, strictRemove, strictTree...),
		strictTree...); err != nil {
		t.Errorf("a reader: %v", err)
	}
}

// A new file that another process changed before the commit is rolled back stays (PY-10).
func TestRollBackKeepsForeignWrites(t *testing.T) {
	for _, meanwhile := range []string{
		"printf theirs >replaced", "printf theirs >x; mv x replaced", "printf theirs >created",
		"rm created; printf theirs >created", "printf theirs >removed",
	} {
		dir := scratch(t)
		sh(t, dir, strictScript+"; chmod 600 *")
		want := contentOf(t, dir)
		p := planStrict(t, dir)
		done, err := p.set.apply()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // the time of a file is as coarse as a tick
		sh(t, dir, "umask 077; "+meanwhile)
		cause := errors.New("cause")
		if err := p.set.rollBack(done, cause); !errors.Is(err, cause) ||
			errors.Is(err, ErrCommitIncomplete) {
			t.Errorf("got %v", err)
		}
		p.end()
		fields := strings.Fields(meanwhile)
		want[strings.TrimPrefix(fields[len(fields)-1], ">")] = "-rw------- theirs"
		wantTree(t, dir, want)
	}
}

// A commit that fails in the middle is rolled back: the last file cannot be moved (SY-06, SY-09).
func TestFailedRemovalIsRolledBack(t *testing.T) {
	asRoot(t)
	for _, remove := range []string{"z/x", "z/sub"} {
		dir := scratch(t)
		sh(t, dir, strictScript+"; mkdir -p z/sub; printf old >z/x; chattr +i z")
		t.Cleanup(func() { sh(t, dir, "chattr -i z") })
		before := contentOf(t, dir)
		names := append(slices.Clone(strictRemove), remove)
		tree := strictTree
		if remove == "z/sub" { // directories are removed last, when nothing else can fail
			names, tree = names[:len(names)-1], append(slices.Clone(tree), file("z/sub/new", ""), file("z/x", ""))
		}
		_, err := writeTree(t, dir, expecting(t, dir, names, tree...), tree...)
		wantCode(t, remove, err, dray.CodeDenied)
		wantTree(t, dir, before)
	}
}

// On a full disk nothing is written or removed (SY-09).
func TestRemove_DiskFull(t *testing.T) {
	failed, done := 0, 0
	for inodes := 9; done == 0; inodes++ {
		dir := mounted(t, fmt.Sprintf("nr_inodes=%d,mode=700", inodes))
		sh(t, dir, "mkdir d; for i in 1 2 3; do printf old >d/$i; done; printf old >a; printf old >b; mkdir c")
		before := contentOf(t, dir)
		remove := []string{"d", "d/1", "d/2", "d/3", "b", "c"}
		list := []made{file("a", "new"), file("b/x", "new"), file("c", strings.Repeat("c", 2<<20))}
		_, err := writeTree(t, dir, expecting(t, dir, remove, list...), list...)
		if err == nil {
			done++
			continue
		}
		failed++
		wantCode(t, fmt.Sprint(inodes, " inodes"), err, dray.CodeDiskFull)
		wantTree(t, dir, before)
	}
	if failed < 3 {
		t.Errorf("it failed %d times", failed)
	}
}

// A commit with removals that was interrupted after any of its steps is completed once (PY-10,
// SY-06).
func TestRecoverRemovals(t *testing.T) {
	for at := 0; ; at++ {
		dir := scratch(t)
		sh(t, dir, strictScript)
		p := planStrict(t, dir)
		p.staging.keep = true
		last := at >= len(p.set.list)
		for _, s := range p.set.list[:min(at, len(p.set.list))] {
			if err := s.do(p.resolver); err != nil {
				t.Fatal(err)
			}
		}
		if at > len(p.set.list) {
			p.set.removeEmptied()
		}
		p.end()
		if n := recoverIn(t, dir); n != 1 {
			t.Errorf("after %d steps: %d completed", at, n)
		}
		wantTree(t, dir, strictAfter)
		if n := recoverIn(t, dir); n != 0 {
			t.Errorf("%d were completed again", n)
		}
		if last && at > len(p.set.list) {
			break
		}
	}
}

// A recovery neither replaces nor loses what was changed since the crash, or just before it: it
// fails until that is resolved (PY-10, SY-06).
func TestRecover_Conflict(t *testing.T) {
	dir := scratch(t)
	sh(t, dir, strictScript)
	p := planStrict(t, dir)
	steps := len(p.set.list)
	p.end()
	for at := range steps {
		for _, unverified := range []bool{false, true} {
			dir := scratch(t)
			sh(t, dir, strictScript)
			p := planStrict(t, dir)
			p.staging.keep = true
			for _, s := range p.set.list[:at] {
				if err := s.do(p.resolver); err != nil {
					t.Fatal(err)
				}
			}
			s := p.set.list[at]
			name := s.label()
			if s.rank() == 2 || name == "d2f" {
				p.staging.keep = false
				p.end()
				continue
			}
			sh(t, dir, "printf changed >"+name)
			if unverified {
				if err := s.do(p.resolver); err != nil {
					t.Fatal(err)
				}
			}
			p.end()
			for range 2 {
				n, err := Recover(t.Context(), openRoot(t, dir), dray.WriteTreeOptions{})
				if wantCode(t, name, err, dray.CodeConflict); n != 0 ||
					!strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
					t.Errorf("got %d, %v", n, err)
				}
				if got := contentOf(t, dir)[name]; !strings.HasSuffix(got, " changed") {
					t.Errorf("%s is %q", name, got)
				}
			}
			sh(t, dir, "printf old >"+name)
			if n := recoverIn(t, dir); n != 1 {
				t.Errorf("%s: %d completed", name, n)
			}
			wantTree(t, dir, strictAfter)
		}
	}
}

// A process that holds the lock of a directory delays a commit for maxCommitWait only (PY-10).
func TestCommit_LockHeld(t *testing.T) {
	dir := scratch(t)
	holder := openRoot(t, dir)
	if err := syscall.Flock(int(holder.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		root, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		_, err = WriteTree(t.Context(), root, treeOf(file("x", "")), dray.WriteTreeOptions{
			Expect: map[string]string{"x": ""},
		})
		if !errors.Is(err, ErrLocked) || dray.CodeOf(err) != dray.CodeTransferFailed {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(begun); waited != maxCommitWait {
			t.Errorf("it waited %v", waited)
		}
	})
	wantTree(t, dir, nil)
}
