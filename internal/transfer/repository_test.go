package transfer

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dray-dev/dray"
)

// A repositoryAttack makes git run a command in a directory of the sandbox root.
type repositoryAttack struct {
	// exists prepares the sandbox root, and source the directory /ws of the container. $MARK is the
	// file that the command creates.
	exists, source string
	// syncs are the sources and destination of each sync: "a b > to".
	syncs []string
	// harmless is set if a copy without dray runs nothing with this git, on this file system.
	harmless bool
}

// bare makes a directory that git takes for a repository, with a work tree, in any version.
const bare = `bare() { git init -q --bare $1; rm -r $1/hooks $1/info
	git -C $1 config core.bare false; git -C $1 config core.worktree .
	git -C $1 config core.fsmonitor "touch $MARK; false"; touch $1/objects/x $1/refs/x; }
	linked() { mkdir $2; mv $1/HEAD $2; echo ../$1 >$2/commondir
	git config -f $2/config.worktree core.worktree .
	git config -f $1/config extensions.worktreeConfig true; git config -f $1/config core.repositoryFormatVersion 1; }; `

var repositoryAttacks = map[string]repositoryAttack{
	"commondir leads to the configuration of another directory": {
		source: bare + `bare c; rm c/HEAD; git init -q x; cd x; rm -r .git/hooks .git/config .git/objects .git/refs
			echo ../../c >.git/commondir`,
		syncs: []string{"x c >"},
	},
	"commondir last": {
		source: bare + `bare c; rm c/HEAD; git init -q x; cd x; rm -r .git/hooks .git/config
			echo ../../c >.git/commondir; mkdir last; mv .git/commondir last`,
		syncs: []string{"x >", "c >", "x/last/commondir > x/.git"},
	},
	"a bare repository":        {source: bare + `bare b`, syncs: []string{"b >"}},
	"one with another name":    {source: bare + `mkdir a; bare a/results.git`, syncs: []string{"a >"}},
	"the root itself":          {source: bare + `bare b`, syncs: []string{"b/HEAD b/config b/objects b/refs >"}},
	"in two syncs":             {source: bare + `bare b`, syncs: []string{"b/HEAD b/config > b", "b/objects b/refs > b"}},
	"HEAD last":                {source: bare + `bare b`, syncs: []string{"b/config b/refs b/objects > b", "b/HEAD > b"}},
	"the configuration last":   {source: bare + `bare b`, syncs: []string{"b/HEAD > b", "b/refs b/objects > b", "b/config > b"}},
	"a file at a time":         {source: bare + `bare b`, syncs: []string{"b/HEAD > b", "b/config > b", "b/objects/x > b/objects", "b/refs/x > b/refs"}},
	"files below a repository": {exists: `git init -q --bare b`, source: bare + `bare b`, syncs: []string{"b/config > b"}},
	"hooks of a repository":    {exists: `git init -q --bare b; cd b; git config core.bare false; git config core.worktree ../; git --git-dir . --work-tree . add -f .`, source: `mkdir hooks; printf '#!/bin/sh\ntouch $MARK' >hooks/post-index-change; chmod +x hooks/*`, syncs: []string{"hooks > b"}, harmless: true},
	"the rest exists":          {exists: `mkdir -p b/refs b/objects`, source: bare + `bare b`, syncs: []string{"b/config b/HEAD > b"}},
	"HEAD exists as a symlink": {exists: `mkdir b; ln -s refs/heads/main b/HEAD`, source: bare + `bare b`, syncs: []string{"b/config b/objects b/refs > b"}},
	"directories are symlinks": {exists: `mkdir -p b o r; ln -s ../o b/objects; ln -s ../r b/refs`, source: bare + `bare b`, syncs: []string{"b/config b/HEAD > b"}},
	"commondir exists": {
		exists: `mkdir w; echo ../c >w/commondir`,
		source: bare + `bare c; linked c w; rm w/commondir`,
		syncs:  []string{"c/config c/objects c/refs > c", "w >"},
	},
	"a work tree elsewhere": {
		source: bare + `bare c; linked c w`,
		syncs:  []string{"c/config c/objects c/refs > c", "w >"},
	},
	"programs for directories":  {source: bare + `bare b; rm -r b/objects b/refs; touch b/objects b/refs; chmod +x b/objects b/refs`, syncs: []string{"b >"}},
	"a hash as HEAD":            {source: bare + `bare b; echo 1234567890123456789012345678901234567890 >b/HEAD`, syncs: []string{"b >"}},
	"stubs of reftable":         {source: bare + `bare b; echo 'ref: refs/heads/.invalid' >b/HEAD; mkdir b/reftable; rm -r b/refs/heads; echo x >b/refs/heads`, syncs: []string{"b >"}, harmless: true},
	"inside of .git":            {exists: `git init -q x`, source: bare + `bare b`, syncs: []string{"b > x/.git"}},
	"inside of its objects":     {exists: `git init -q x`, source: bare + `bare b`, syncs: []string{"b > x/.git/objects"}},
	"a file .git":               {source: bare + `bare c; mkdir w; echo gitdir: ../c >w/.git`, syncs: []string{"c/config c/objects c/refs > c", "c/HEAD > c", "w >"}},
	"a file .git that exists":   {exists: `mkdir w; echo gitdir: ../c >w/.git`, source: bare + `bare c`, syncs: []string{"c >"}},
	"modules of .git":           {source: bare + `git init -q x; mkdir x/.git/modules x/s; bare x/.git/modules/s; echo gitdir: ../.git/modules/s >x/s/.git`, syncs: []string{"x >"}},
	"work trees of .git":        {source: bare + `git init -q x; rm -r x/.git/hooks x/.git/config; mkdir -p x/.git/worktrees; bare x/.git/worktrees/w`, syncs: []string{"x >"}},
	"the configuration of .git": {source: `git init -q x; git -C x config core.fsmonitor "touch $MARK; false"`, syncs: []string{"x >", "x/.git/config > x/.git"}},
	"in upper case":             {source: bare + `bare b; mv b .GIT`, syncs: []string{".GIT >"}},
	"marks in other cases":      {source: bare + `bare b; cd b; mv HEAD Head; mv objects OBJECTS`, syncs: []string{"b >"}, harmless: true},
	"with invisible characters": {source: bare + "bare b; cd b; mv HEAD HE\u200dAD", syncs: []string{"b >"}, harmless: true},
	"attributes and submodules": {source: `git init -q x; cd x; rm -r .git/hooks .git/config; echo '* filter=x' >.gitattributes
			printf '[submodule "s"]\npath = s\nurl = s\nupdate = !touch $MARK\n' >.gitmodules; git init -q s; rm -r s/.git/hooks s/.git/config`, syncs: []string{"x >"}, harmless: true},
}

// Git runs nothing in any directory of the sandbox root after syncs, accepted or refused, whatever
// exists there, and whatever they bring together (SY-08).
func TestFetch_Repositories(t *testing.T) {
	for name, attack := range repositoryAttacks {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", "/dev/shm") // syncfs is quick there
			w := newFixture(t, func(c *Config) { c.Executable, c.Limits = true, dray.TreeLimits{} })
			mark := filepath.Join(t.TempDir(), "mark")
			t.Setenv("MARK", mark)
			withoutUserConfig(t, w.root)
			copied := filepath.Join(w.box.base, "copied")
			script(t, w.root, attack.exists)
			script(t, w.box.base, "mkdir copied; cd copied; "+attack.exists)
			script(t, filepath.Join(w.box.base, "ws"), attack.source)
			for _, sync := range attack.syncs {
				from, to, _ := strings.Cut(sync, ">")
				to = strings.TrimSpace(to)
				script(t, w.box.base+"/ws", "mkdir -p '"+copied+"/"+to+"'; cp -a "+from+" '"+copied+"/"+to+"'")
				req := Request{ID: "call", Destination: to}
				for p := range strings.FieldsSeq(from) {
					req.Paths = append(req.Paths, "/ws/"+p)
				}
				w.fetchEveryWay(req)
			}
			if ran := gitStatusRuns(t, copied, mark); len(ran) == 0 && !attack.harmless {
				t.Error("git runs nothing in a copy")
			}
			if ran := gitStatusRuns(t, w.root, mark); len(ran) > 0 {
				t.Errorf("git status ran a command in %q", ran)
			}
		})
	}
}

// fetchEveryWay makes all kinds of sync of the same sources. Each may be refused.
func (w *fixture) fetchEveryWay(req Request) {
	w.t.Helper()
	_, err := w.Fetch(w.t.Context(), w.box, req)
	req.SkipRefused = true
	_, skipErr := w.Fetch(w.t.Context(), w.box, req)
	req.Destination = ""
	declared := w.FetchDeclared(w.t.Context(), w.box, req)
	for _, err := range []error{err, skipErr} {
		if err != nil && dray.CodeOf(err) != dray.CodeSyncRefused {
			w.t.Errorf("got %v", err)
		}
	}
	if declared.State == dray.SyncFailed {
		w.t.Errorf("got %+v", declared.Error)
	}
	w.t.Log(err, skipErr, declared.State, declared.Error)
}

// withoutUserConfig hides the configuration of git outside of a directory.
func withoutUserConfig(t *testing.T, dir string) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
}

// gitStatusRuns runs git status in each directory and returns those in which it created mark.
func gitStatusRuns(t *testing.T, root, mark string) (ran []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		cmd := exec.CommandContext(t.Context(), "git", "status")
		cmd.Dir = p
		_ = cmd.Run() // most directories are no repository
		if os.Remove(mark) == nil {
			ran = append(ran, strings.TrimPrefix(p, root))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ran
}

func script(t *testing.T, dir, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", text)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", text, err, out)
	}
}

// Concurrent syncs of the parts of a repository do not make one (SY-08).
func TestFetch_RepositoryInConcurrentParts(t *testing.T) {
	w := newFixture(t, nil)
	withoutUserConfig(t, w.root)
	script(t, filepath.Join(w.box.base, "ws"), bare+"bare b")
	for range 20 {
		var wait sync.WaitGroup
		for _, part := range []string{"HEAD", "objects", "refs", "config"} {
			wait.Go(func() {
				req := Request{Paths: []string{"/ws/b/" + part}, Destination: "b"}
				_, _ = w.Fetch(t.Context(), w.box, req)
			})
		}
		wait.Wait()
		names := content(t, w.root)
		_, head := names["b/HEAD"]
		_, objects := names["b/objects/x"]
		_, refs := names["b/refs/x"]
		if head && objects && refs {
			t.Fatalf("a repository was written: %q", names)
		}
		script(t, w.root, "rm -rf b")
	}
}

// The file tools on the host follow the same rules beneath the sandbox root, also through symlinks
// of the workspace (SY-08).
func TestCheckHostWrite(t *testing.T) {
	w := newFixture(t, nil)
	outside := t.TempDir()
	script(t, w.root, `mkdir -p .git b/objects b/refs c/d; touch c/HEAD c/commondir; ln -s `+w.root+` `+outside+`/link`)
	for name, denied := range map[string]bool{
		"a":                 false,
		".git/index":        false,
		".git/config":       true,
		"b/HEAD":            true,
		"b/head":            true,
		"b/other":           false,
		"c/d/config":        true,
		".envrc":            true,
		"missing/.envrc":    false, // the write fails
		"../outside/.envrc": false,
		"../" + filepath.Base(w.root) + "/.envrc": true,
	} {
		for _, dir := range []string{w.root, filepath.Join(outside, "link")} {
			if strings.HasPrefix(name, "..") && dir != w.root {
				continue
			}
			err := w.CheckHostWrite(filepath.Join(dir, name))
			if (dray.CodeOf(err) == dray.CodeDenied) != denied || err != nil && !denied {
				t.Errorf("%s: got %v", name, err)
			}
		}
	}
}
