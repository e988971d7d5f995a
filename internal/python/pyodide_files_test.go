package python_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/python/pythontest"
)

// filesTest is a session with files, and its working directory.
type filesTest struct {
	pythontest.Worker
	dir string
	ws  *python.Workspace
}

func newFilesTest(t *testing.T, h pythontest.Harness, fs string) *filesTest {
	t.Helper()
	h.Permissions = &python.Permissions{FS: fs}
	dir, err := os.MkdirTemp(h.Dir, "work-") //nolint:usetesting // beneath a root of the host
	if err != nil {
		t.Fatal(err)
	}
	h.Dir = dir
	ws := h.Workspace()
	h.Files = &ws
	return &filesTest{Worker: h.Start(t, nil), dir: h.Dir, ws: h.Files}
}

func (f *filesTest) path(name string) string { return filepath.Join(f.dir, name) }

func (f *filesTest) put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(f.path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.path(name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// has fails the test unless the directory has exactly the given files: names and contents.
func (f *filesTest) has(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	err := filepath.WalkDir(f.dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		got = append(got, strings.TrimPrefix(p, f.dir+"/"), string(b))
		return err
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the directory has %.300q, want %.300q; %v", got, want, err)
	}
}

// run runs code, and commits what it has changed.
func (f *filesTest) run(t *testing.T, req python.Request) pythontest.Outcome {
	t.Helper()
	return f.Run(t, req)
}

func (f *filesTest) code(t *testing.T, code string) pythontest.Outcome {
	t.Helper()
	return f.run(t, python.Request{Code: code})
}

// fails fails the test unless an error has a code and names all words.
func fails(t *testing.T, err error, code dray.Code, words ...string) {
	t.Helper()
	e := dray.AsError(err)
	if e == nil || e.Code != code || e.Hint == "" {
		t.Fatalf("got %v, want %s with a hint", err, code)
	}
	for _, word := range words {
		if !strings.Contains(e.Message, word) {
			t.Errorf("the error does not name %q: %s", word, e.Message)
		}
	}
}

// TestPyodideFiles runs code that reads and changes files (PY-10, PY-18).
func TestPyodideFiles(t *testing.T) {
	h := newPyodideHarness(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, pythontest.Harness)
	}{
		{"read-only", testFilesReadOnly},
		{"not committed", testFilesNotCommitted},
		{"refused", testFilesRefused},
		{"symlinked directory", testFilesSymlinkedDir},
		{"conflicts", testFilesConflicts},
		{"staged", testFilesStaged},
		{"names", testFilesNames},
		{"not staged", testFilesNotStaged},
		{"limits", testFilesLimits},
		{"scripts", testFilesScripts},
		{"without permission", testFilesNone},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, h) })
	}
}

// A run that may not change files and does is refused, with the path and EACCES (PY-10, PY-18).
func testFilesReadOnly(t *testing.T, h pythontest.Harness) {
	for _, fs := range []string{python.FSWrite, python.FSRead} {
		f := newFilesTest(t, h, fs)
		f.put(t, "a.txt", "one")
		req := python.Request{Code: "open('a.txt').read()", ReadOnly: fs == python.FSWrite}
		if got := f.run(t, req); got.CommitErr != nil || string(got.Value) != `"one"` {
			t.Errorf("%s: %v, %s", fs, got.CommitErr, got.Describe())
		}
		for code, name := range map[string]string{
			"open('a.txt', 'w').write('x')":        "a.txt",
			"import os\nos.remove('a.txt')":        "a.txt",
			"import os\nos.mkdir('empty')":         "empty",
			"open('new', 'w').close()":             "new",
			"open('a.txt', 'r+').truncate(1)":      "a.txt",
			"import os\nos.rename('a.txt', 'b')\n": "b",
			// what no run could make
			"import os\nos.symlink('a.txt', 'link')": "link",
			"open('A.txt', 'w').close()":             "A.txt",
			"open('large', 'wb').truncate(33 << 20)": "large",
		} {
			req.Code = code
			got := f.run(t, req)
			fails(t, got.CommitErr, dray.CodeDenied, "EACCES", name)
			if !errors.Is(got.CommitErr, python.ErrReadOnly) {
				t.Errorf("%s: %v is not ErrReadOnly", fs, got.CommitErr)
			}
		}
		f.has(t, "a.txt", "one")
		if got := f.code(t, "import os\nopen('a.txt').read(), os.listdir('.')"); string(got.Value) != `["one",["a.txt"]]` {
			t.Errorf("%s: the next run has %s", fs, got.Describe())
		}
	}
}

// Changes that are discarded, and those of a worker that was killed, reach neither the host nor the
// next run (PY-18).
func testFilesNotCommitted(t *testing.T, h pythontest.Harness) {
	f := newFilesTest(t, h, python.FSWrite)
	f.put(t, "a.txt", "one")
	f.put(t, "d/b.txt", "two")
	running := f.Begin(t, python.Request{Code: "import os, shutil, time\n" +
		"open('a.txt', 'w').write('lost')\nopen('new.txt', 'w').write('lost')\nshutil.rmtree('d')\n" +
		"open('d', 'w').close()\nos.mkdir('e')\nprint('changed', flush=True)\ntime.sleep(1000)"})
	running.NoCommit = true // as Sessions does after a timeout
	running.Until(t, "changed")
	running.Interrupt()
	if got := running.End(t); got.Code != 1 {
		t.Errorf("interrupted: %s", got.Describe())
	}
	f.has(t, "a.txt", "one", "d/b.txt", "two")
	got := f.code(t, "sorted(os.listdir('.')), open('a.txt').read(), open('d/b.txt').read()")
	if string(got.Value) != `[["a.txt","d"],"one","two"]` || got.CommitErr != nil {
		t.Errorf("the next run: %v; %s", got.CommitErr, got.Describe())
	}
	running = f.Begin(t, python.Request{
		Code: "open('a.txt', 'w').write('lost')\nprint('changed', flush=True)\ntime.sleep(1000)",
	})
	running.Until(t, "changed")
	f.Kill()
	if got := running.End(t); got.Err == nil {
		t.Errorf("killed: %s", got.Describe())
	}
	f.has(t, "a.txt", "one", "d/b.txt", "two")
}

// Names and kinds that must not reach the host are refused, and everything else with them
// (PY-10, SY-08).
func testFilesRefused(t *testing.T, h pythontest.Harness) {
	f := newFilesTest(t, h, python.FSWrite)
	f.put(t, "a.txt", "one")
	f.ws.CheckChange = func(path string, _ bool) error {
		if strings.Contains(path, "/.git/hooks") {
			return dray.Errorf(dray.CodeDenied, "%s is denied", path).WithHint("use another name")
		}
		return nil
	}
	for _, c := range []struct {
		name, code string
		want       dray.Code
		says       string
	}{
		{"newline", "open('x\\ny', 'w').close()", dray.CodePathInvalid, `"x\ny"`},
		{"case pair", "open('A.txt', 'w').close()", dray.CodePathInvalid, `"A.txt"`},
		{"two new names", "open('Q', 'w').close()\nopen('q', 'w').close()", dray.CodePathInvalid, `"q"`},
		{"case of a directory", "os.makedirs('E')\nos.makedirs('e')", dray.CodePathInvalid, `"e"`},
		{"symlink", "os.symlink('/etc/passwd', 'link')", dray.CodePathInvalid, `"link"`},
		{"long name", "open('n' * 256, 'w').write('1')", dray.CodePathInvalid, "nnn"},
		{"name that is not UTF-8", "open(b'n\\xff', 'w').write('1')", dray.CodePathInvalid, "UTF-8"},
		{"symlink in place of a file", "os.remove('a.txt')\nos.symlink('b', 'a.txt')", dray.CodePathInvalid, `"a.txt"`},
		{"hook", "os.makedirs('.git/hooks')\nopen('.git/hooks/post-checkout', 'w').close()", dray.CodeDenied, ".git/hooks"},
		{"repository", "[open(n, 'w').close() for n in ('HEAD', 'config')]\n[os.mkdir(n) for n in ('objects', 'refs')]", dray.CodeDenied, "repository"},
		{"the directory itself", "cwd = os.getcwd()\nos.chdir('/')\nimport shutil\nshutil.rmtree(cwd)", dray.CodePathInvalid, "working directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := f.code(t, "import os\nopen('canary', 'w').write('dead')\n"+c.code)
			if !got.OK {
				t.Fatal(got.Describe())
			}
			fails(t, got.CommitErr, c.want, c.says)
			f.has(t, "a.txt", "one")
			if got := f.code(t, "os.listdir('.'), open('a.txt').read()"); string(got.Value) != `[["a.txt"],"one"]` {
				t.Errorf("the next run has %s", got.Describe())
			}
		})
	}
}

// What must not be written is refused by its real path too, if the working directory is a symlink,
// and by the path of the symlink (SY-08).
func testFilesSymlinkedDir(t *testing.T, h pythontest.Harness) {
	f := newFilesTest(t, h, python.FSWrite)
	f.put(t, "repo/.git/hooks/sample", "one")
	f.put(t, "plain/a.txt", "one")
	if err := errors.Join(os.Symlink("repo/.git/hooks", f.path("g")), os.Mkdir(f.path(".git"), 0o700),
		os.Symlink("../plain", f.path(".git/hooks"))); err != nil {
		t.Fatal(err)
	}
	f.ws.CheckChange = func(path string, _ bool) error {
		if strings.Contains(path, "/.git/hooks") {
			return dray.Errorf(dray.CodeDenied, "%s is denied", path).WithHint("use another name")
		}
		return nil
	}
	for _, cwd := range []string{"g", ".git/hooks"} {
		for _, code := range []string{
			"open('pre-commit', 'w').write('#!')", "import os\n[os.remove(n) for n in os.listdir('.')]",
		} {
			got := f.run(t, python.Request{Code: code, Cwd: f.path(cwd)})
			fails(t, got.CommitErr, dray.CodeDenied, "/.git/hooks")
		}
	}
	for dir, want := range map[string]string{"plain": "a.txt", "repo/.git/hooks": "sample"} {
		entries, err := os.ReadDir(f.path(dir))
		if err != nil || len(entries) != 1 || entries[0].Name() != want {
			t.Errorf("%s has %v; %v", dir, entries, err)
		}
	}
	f.ws.CheckChange = nil // fails closed
	got := f.code(t, "open('new', 'w').close()")
	fails(t, got.CommitErr, dray.CodeDenied, "new")
}

// A file of the host that has changed since it was staged is not overwritten, and the whole run is
// refused (PY-10).
func testFilesConflicts(t *testing.T, h pythontest.Harness) {
	f := newFilesTest(t, h, python.FSWrite)
	outside := t.TempDir()
	for name, c := range map[string]struct {
		code   string
		change func() error
		name   string
	}{
		"modified": {
			"open('a.txt', 'w').write('mine')",
			func() error { return os.WriteFile(f.path("a.txt"), []byte("theirs"), 0o600) }, "a.txt",
		},
		"created": {
			"open('b.txt', 'w').write('mine')",
			func() error { return os.WriteFile(f.path("b.txt"), []byte("theirs"), 0o600) }, "b.txt",
		},
		"deleted": {
			"import os\nos.remove('a.txt')",
			func() error { return os.WriteFile(f.path("a.txt"), []byte("theirs"), 0o600) }, "a.txt",
		},
		"removed on the host": {
			"open('a.txt', 'w').write('mine')",
			func() error { return os.Remove(f.path("a.txt")) }, "a.txt",
		},
		"a directory with a new file": {
			"import shutil\nshutil.rmtree('d')",
			func() error { return os.WriteFile(f.path("d/new"), nil, 0o600) }, "d",
		},
		"a symlink in place of a file": {
			"open('a.txt', 'w').write('mine')",
			func() error {
				return errors.Join(os.Remove(f.path("a.txt")),
					os.Symlink(filepath.Join(outside, "canary"), f.path("a.txt")))
			}, "a.txt",
		},
		"a symlink in place of a directory": {
			"open('d/in', 'w').write('mine')",
			func() error {
				return errors.Join(os.RemoveAll(f.path("d")), os.Symlink(outside, f.path("d")))
			}, "d",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(f.path("a.txt")), os.RemoveAll(f.path("b.txt")),
				os.RemoveAll(f.path("d")), os.WriteFile(filepath.Join(outside, "canary"), []byte("sings"), 0o600),
			); err != nil {
				t.Fatal(err)
			}
			f.put(t, "a.txt", "one")
			f.put(t, "d/in", "two")
			running := f.Begin(t, python.Request{Code: "input()\nopen('canary', 'w').write('dead')\n" + c.code})
			if err := c.change(); err != nil {
				t.Fatal(err)
			}
			_, _ = running.Stdin().Write([]byte("\n"))
			_ = running.Stdin().Close()
			got := running.End(t)
			if !got.OK {
				t.Fatal(got.Describe())
			}
			fails(t, got.CommitErr, dray.CodeConflict, c.name)
			if _, err := os.Lstat(f.path("canary")); err == nil {
				t.Error("a part of the run was written")
			}
			entries, err := os.ReadDir(outside)
			b, _ := os.ReadFile(filepath.Join(outside, "canary"))
			if err != nil || len(entries) != 1 || string(b) != "sings" {
				t.Errorf("outside of the directory there is %v, %q; %v", entries, b, err)
			}
		})
	}
}

// The worker gets what has changed on the host since the last run, with times and modes (PY-10).
func testFilesStaged(t *testing.T, h pythontest.Harness) {
	f := newFilesTest(t, h, python.FSWrite)
	f.put(t, "a.txt", "one")
	f.put(t, "d/b.txt", "two")
	if err := os.Chmod(f.path("a.txt"), 0o755); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(f.path("a.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("[%d,%d,%q]", 0o755, info.ModTime().UnixMilli(), f.path("a.txt"))
	got := f.code(t, "import os\ns = os.stat('a.txt')\ns.st_mode & 0o777, s.st_mtime_ns // 10**6, os.path.abspath('a.txt')")
	if string(got.Value) != want {
		t.Errorf("got %s, want %s", got.Describe(), want)
	}
	f.put(t, "a.txt", "uno") // the same length
	f.put(t, "new.txt", "new")
	if err := os.RemoveAll(f.path("d")); err != nil {
		t.Fatal(err)
	}
	f.put(t, "d", "a file now")
	got = f.code(t, "[open(n).read() for n in sorted(os.listdir('.'))]")
	if string(got.Value) != `["uno","a file now","new"]` {
		t.Errorf("after changes on the host: %s", got.Describe())
	}
	f.put(t, "mod.py", "answer = 41")
	f.put(t, "pkg/__init__.py", "from .part import answer")
	f.put(t, "pkg/part.py", "answer = 42")
	got = f.code(t, "import mod, pkg\nmod.answer, pkg.answer, open('a.txt', 'a').write('!')")
	if string(got.Value) != "[41,42,1]" || strings.Join(got.Files.Modified, " ") != "a.txt" ||
		len(got.Files.Created) != 0 {
		t.Errorf("modules of the directory: %s, %+v", got.Describe(), got.Files)
	}
	if info, err := os.Stat(f.path("a.txt")); err != nil || info.Mode().Perm()&0o077 != 0 ||
		info.Mode().Perm()&0o100 == 0 {
		t.Errorf("an executable file has the mode %v, %v", info.Mode(), err)
	}
	// Set-id bits and execute bits of new files do not reach the host.
	f.code(t, "open('tool', 'w').write('#!')\nos.chmod('tool', 0o6755)")
	if info, err := os.Stat(f.path("tool")); err != nil || info.Mode() != 0o600 {
		t.Errorf("a new file has the mode %v, %v", info.Mode(), err)
	}
	// A session that works in another directory has the files of that one.
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	list := python.Request{Code: "import os\nos.listdir('.'), os.path.exists('" + f.dir + "')", Cwd: other}
	if got := f.run(t, list); string(got.Value) != `[["other"],false]` {
		t.Errorf("in another directory: %s", got.Describe())
	}
	list.Cwd = "/"
	if got := f.run(t, list); !got.OK || got.CommitErr != nil {
		t.Errorf("in the root of the file system: %s", got.Describe())
	}
	for _, cwd := range []string{"/dev", "/proc/self", "/lib/python3.14"} {
		_, err := f.Execute(t.Context(), python.Request{Code: "1", Cwd: cwd, State: python.Fresh}, *f.ws)
		fails(t, err, dray.CodeBadCwd, cwd)
	}
}

// Files and directories may have the names of members of all JavaScript objects (PY-10).
func testFilesNames(t *testing.T, h pythontest.Harness) {
	f := newFilesTest(t, h, python.FSWrite)
	f.put(t, "constructor", "one")
	f.put(t, "hasOwnProperty", "two")
	f.put(t, "toString/valueOf", "three")
	got := f.code(t, "import os\n[open(n).read() for n in ('constructor', 'hasOwnProperty', 'toString/valueOf')], "+
		"sorted(os.listdir('.')), os.remove('hasOwnProperty'), open('valueOf', 'w').write('four'), "+
		"open('toString/valueOf', 'w').write('five')")
	want := `[["one","two","three"],["constructor","hasOwnProperty","toString"],null,4,4]`
	if string(got.Value) != want || got.CommitErr != nil {
		t.Fatalf("got %v, %s", got.CommitErr, got.Describe())
	}
	f.has(t, "constructor", "one", "toString/valueOf", "five", "valueOf", "four")
}

// Entries that code cannot have are named in warnings, and those that cannot be read end the call
// before any code runs (PY-10).
func testFilesNotStaged(t *testing.T, h pythontest.Harness) {
	f := newFilesTest(t, h, python.FSWrite)
	f.put(t, "a.txt", "one")
	f.put(t, "skipped/b.txt", "two")
	f.put(t, "new\nline", "three")
	if err := errors.Join(os.Symlink("/etc/passwd", f.path("link")),
		os.Link(f.path("a.txt"), filepath.Join(t.TempDir(), "elsewhere"))); err != nil {
		t.Fatal(err)
	}
	f.ws.Skip = func(name string, _ bool) bool { return name == "skipped" }
	running := f.Begin(t, python.Request{Code: "import os\nos.listdir('.')"})
	warnings := strings.Join(running.Execution.(interface{ Warnings() []string }).Warnings(), "\n") //nolint:forcetypeassert,errcheck // it has them
	if got := running.End(t); string(got.Value) != "[]" {
		t.Errorf("got %s", got.Describe())
	}
	for _, want := range []string{`"link" was not staged: it is a symlink`, `"a.txt"`, `"new\nline"`} {
		if !strings.Contains(warnings, want) {
			t.Errorf("no warning of %s: %s", want, warnings)
		}
	}
	got := f.code(t, "os.mkdir('skipped')\nopen('skipped/b.txt', 'w').write('mine')")
	fails(t, got.CommitErr, dray.CodeConflict, "skipped")
	if os.Geteuid() == 0 {
		return // who may read everything
	}
	f.put(t, "secret", "three")
	if err := os.Chmod(f.path("secret"), 0); err != nil {
		t.Fatal(err)
	}
	_, err := f.Execute(t.Context(), python.Request{Code: "1", Cwd: f.dir, State: python.Fresh}, *f.ws)
	fails(t, err, dray.CodeDenied, "secret")
}

// All within the limits passes in both directions, and one more fails (PY-10).
func testFilesLimits(t *testing.T, h pythontest.Harness) {
	f := newFilesTest(t, h, python.FSWrite)
	got := f.code(t, "import os\nfor i in range(99):\n  os.mkdir(f'd{i}')\n  for j in range(100):\n"+
		"    open(f'd{i}/{j}', 'w').write(str(j))\nopen('last', 'w').close()")
	if got.CommitErr != nil || len(got.Files.Created) != 9901 {
		t.Fatalf("10,000 entries: %v, %d", got.CommitErr, len(got.Files.Created))
	}
	if got := f.code(t, "sum(len(n) for _, d, f in os.walk('.') for n in (d, f))"); string(got.Value) != "10000" {
		t.Errorf("staged: %s", got.Describe())
	}
	got = f.code(t, "for i in range(99):\n  for j in range(102):\n    open(f'd{i}/{j}', 'w').write('x' + str(j))")
	fails(t, got.CommitErr, dray.CodeLimitExceeded, "10000")
	f.put(t, "more", "")
	_, err := f.Execute(t.Context(), python.Request{Code: "1", Cwd: f.dir, State: python.Fresh}, *f.ws)
	fails(t, err, dray.CodeLimitExceeded, "10000")

	f = newFilesTest(t, h, python.FSWrite)
	got = f.code(t, "block = bytes(range(256)) * 4096\nfor i in range(4):\n  with open(f'f{i}', 'wb') as f:\n"+
		"    for _ in range(32): f.write(block)")
	if got.CommitErr != nil || len(got.Files.Created) != 4 {
		t.Fatalf("128 MiB: %v, %+v; %s", got.CommitErr, got.Files, got.Describe())
	}
	if got := f.code(t, "import os\nsum(os.path.getsize(n) for n in os.listdir('.')), len(open('f3', 'rb').read())"); string(got.Value) != "[134217728,33554432]" {
		t.Errorf("staged: %s", got.Describe())
	}
	got = f.code(t, "open('f1', 'ab').write(b'x')")
	fails(t, got.CommitErr, dray.CodeLimitExceeded, "f1", "33554433")
	got = f.code(t, "for i in range(4): open(f'f{i}', 'r+b').write(b'y')\nopen('small', 'w').write('z')")
	fails(t, got.CommitErr, dray.CodeLimitExceeded, "134217729")
	f.put(t, "more", "x")
	_, err = f.Execute(t.Context(), python.Request{Code: "1", Cwd: f.dir, State: python.Fresh}, *f.ws)
	fails(t, err, dray.CodeLimitExceeded, "134217729")
	if err := os.Truncate(f.path("f0"), python.MaxFile+1); err != nil {
		t.Fatal(err)
	}
	_, err = f.Execute(t.Context(), python.Request{Code: "1", Cwd: f.dir, State: python.Fresh}, *f.ws)
	fails(t, err, dray.CodeLimitExceeded, "f0", "33554433")
}

// A script outside of the working directory runs with the Python files beside it, and neither may
// change (PY-10, PY-13).
func testFilesScripts(t *testing.T, h pythontest.Harness) {
	f := newFilesTest(t, h, python.FSWrite)
	f.put(t, "a.txt", "one")
	other := t.TempDir()
	for name, content := range map[string]string{
		"script.py": "import helper, sys\nopen('out', 'w').write(open('a.txt').read())\n__file__, sys.path[0], helper.answer",
		"helper.py": "answer = 42", "data.txt": "unseen",
		"change.py": "open(__file__, 'a').write('#')",
		"beside.py": "import os\nopen(os.path.dirname(__file__) + '/new', 'w').close()",
		"remove.py": "import os\nos.remove(os.path.dirname(__file__) + '/helper.py')",
	} {
		if err := os.WriteFile(filepath.Join(other, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := filepath.Join(other, "script.py")
	got := f.run(t, python.Request{File: script})
	if want := fmt.Sprintf("[%q,%q,42]", script, other); string(got.Value) != want || got.CommitErr != nil {
		t.Errorf("got %v, %s, want %s", got.CommitErr, got.Describe(), want)
	}
	f.has(t, "a.txt", "one", "out", "one")
	for name, says := range map[string]string{"change.py": "change.py", "beside.py": other, "remove.py": "helper.py"} {
		got := f.run(t, python.Request{File: filepath.Join(other, name)})
		fails(t, got.CommitErr, dray.CodePathInvalid, says)
	}
	f.has(t, "a.txt", "one", "out", "one")
	if entries, err := os.ReadDir(other); err != nil || len(entries) != 6 {
		t.Errorf("the directory of the script has %v, %v", entries, err)
	}
	for _, missing := range []string{filepath.Join(other, "absent.py"), "/no/such/dir/absent.py", f.path("absent.py")} {
		if got := f.run(t, python.Request{File: missing}); got.Code != 2 || got.Error.Code != "not_found" {
			t.Errorf("%s: %s", missing, got.Describe())
		}
	}
	// They count for the limits of the run: here 96 MiB and 40 MiB.
	for i, size := range []int64{python.MaxFile, python.MaxFile, python.MaxFile} {
		f.put(t, fmt.Sprint("large", i), "")
		if err := os.Truncate(f.path(fmt.Sprint("large", i)), size); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"one.py", "two.py"} {
		err := errors.Join(os.WriteFile(filepath.Join(other, name), nil, 0o600),
			os.Truncate(filepath.Join(other, name), 20<<20))
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.Execute(t.Context(), python.Request{File: script, Cwd: f.dir, State: python.Fresh}, *f.ws)
	fails(t, err, dray.CodeLimitExceeded, "two.py", "134217728 in total")
	open := f.ws.Open
	f.ws.Open = func(ctx context.Context, dir string) (python.Directory, error) {
		if dir != f.dir {
			return nil, dray.Errorf(dray.CodeDenied, "%s is outside host.roots", dir).WithHint("add it")
		}
		return open(ctx, dir)
	}
	_, err = f.Execute(t.Context(), python.Request{File: script, Cwd: f.dir, State: python.Fresh}, *f.ws)
	fails(t, err, dray.CodeDenied, "host.roots")
}

// Without the permission no directory is opened, and nothing comes back (PY-19).
func testFilesNone(t *testing.T, h pythontest.Harness) {
	f := newFilesTest(t, h, python.FSNone)
	f.put(t, "a.txt", "one")
	f.ws.Open = func(context.Context, string) (python.Directory, error) {
		t.Error("a directory was opened")
		return nil, errors.New("refused")
	}
	got := f.code(t, "import os\nopen('new', 'w').close()\nos.getcwd(), os.listdir('.')")
	if want := fmt.Sprintf(`[%q,["new"]]`, f.dir); string(got.Value) != want || got.CommitErr != nil ||
		len(got.Files.Created) != 0 {
		t.Errorf("got %v, %s", got.CommitErr, got.Describe())
	}
	f.has(t, "a.txt", "one")
	_, err := f.Execute(t.Context(), python.Request{File: f.path("a.txt"), Cwd: f.dir, State: python.Fresh}, *f.ws)
	fails(t, err, dray.CodeDenied, "a.txt")
}
