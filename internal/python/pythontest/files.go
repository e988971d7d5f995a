package pythontest

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python"
)

// fileCase is code that changes files. Before it each directory has the same ones.
type fileCase struct {
	name, code string
	exit       int
	// after are the files and their contents, in pairs. The lists are names with spaces.
	after                      []string
	created, modified, deleted string
}

var fileCases = []fileCase{
	{
		name: "nothing", code: "open('a.txt').read()",
		after: []string{"a.txt", "one", "b.txt", "two", "d/c.txt", "three"},
	},
	{
		name: "the same content", code: "open('a.txt', 'w').write('one')",
		after: []string{"a.txt", "one", "b.txt", "two", "d/c.txt", "three"},
	},
	{
		name: "created", code: "import os\nos.makedirs('n/m')\nopen('n/m/new.txt', 'w').write('new')\n" +
			"open('empty', 'w').close()",
		after:   []string{"a.txt", "one", "b.txt", "two", "d/c.txt", "three", "empty", "", "n/m/new.txt", "new"},
		created: "empty n/m/new.txt",
	},
	{
		name: "modified", code: "open('a.txt', 'a').write('!')\nopen('d/c.txt', 'r+').truncate(2)",
		after:    []string{"a.txt", "one!", "b.txt", "two", "d/c.txt", "th"},
		modified: "a.txt d/c.txt",
	},
	{
		name: "modified with the old time and size",
		code: "import os\nt = os.stat('a.txt')\nopen('a.txt', 'w').write('uno')\n" +
			"os.utime('a.txt', ns=(t.st_atime_ns, t.st_mtime_ns))",
		after:    []string{"a.txt", "uno", "b.txt", "two", "d/c.txt", "three"},
		modified: "a.txt",
	},
	{
		name: "deleted", code: "import os, shutil\nos.remove('a.txt')\nshutil.rmtree('d')",
		after: []string{"b.txt", "two"}, deleted: "a.txt d/c.txt",
	},
	{
		name: "renamed", code: "import os\nos.rename('a.txt', 'r.txt')\nos.rename('d', 'e')",
		after:   []string{"b.txt", "two", "e/c.txt", "three", "r.txt", "one"},
		created: "e/c.txt r.txt", deleted: "a.txt d/c.txt",
	},
	{
		name: "replaced by a rename", code: "import os\nos.replace('a.txt', 'b.txt')",
		after:    []string{"b.txt", "one", "d/c.txt", "three"},
		modified: "b.txt", deleted: "a.txt",
	},
	{
		name: "a file and a directory change places",
		code: "import os\nos.remove('a.txt')\nos.mkdir('a.txt')\nopen('a.txt/in', 'w').write('x')\n" +
			"os.remove('d/c.txt')\nos.rmdir('d')\nopen('d', 'w').write('file')",
		after:   []string{"a.txt/in", "x", "b.txt", "two", "d", "file"},
		created: "a.txt/in d", deleted: "a.txt d/c.txt",
	},
	{
		name: "an exception", code: "open('a.txt', 'w').write('before')\n1/0", exit: 1,
		after:    []string{"a.txt", "before", "b.txt", "two", "d/c.txt", "three"},
		modified: "a.txt",
	},
	{
		name: "SystemExit", code: "open('a.txt', 'w').write('exit')\nraise SystemExit(3)", exit: 3,
		after:    []string{"a.txt", "exit", "b.txt", "two", "d/c.txt", "three"},
		modified: "a.txt",
	},
	{
		name: "bytes", code: "open('a.txt', 'wb').write(bytes(range(256)) * 5000)",
		after:    []string{"a.txt", allBytes(), "b.txt", "two", "d/c.txt", "three"},
		modified: "a.txt",
	},
}

func allBytes() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return strings.Repeat(string(b), 5000)
}

// Code changes the files of its directory. A transactional runtime reports what has changed
// (PY-10, PY-18).
func testFileChanges(t *testing.T, h Harness) {
	w := h.Start(t, nil)
	for _, c := range fileCases {
		t.Run(c.name, func(t *testing.T) {
			w.reset(t)
			got := w.Code(t, c.code)
			if got.Code != c.exit || got.CommitErr != nil {
				t.Fatalf("commit: %v; %s", got.CommitErr, got.Describe())
			}
			if after := h.read(t); !slices.Equal(after, c.after) {
				t.Errorf("the files are %.300q, want %.300q", after, c.after)
			}
			if !h.Runtime.Capabilities().Transactional {
				return
			}
			for _, list := range []struct {
				what string
				got  []string
				want string
			}{
				{"created", got.Files.Created, c.created},
				{"modified", got.Files.Modified, c.modified},
				{"deleted", got.Files.Deleted, c.deleted},
			} {
				if names := strings.Join(list.got, " "); names != list.want || list.got == nil {
					t.Errorf("%s: %q, want %q", list.what, names, list.want)
				}
			}
			// The worker has what the host has.
			if got := w.Run(t, python.Request{Code: "0", ReadOnly: true}); got.CommitErr != nil {
				t.Errorf("the next run: %v", got.CommitErr)
			}
		})
	}
}

// reset makes the directory of the harness have the files that each case expects.
func (w Worker) reset(t *testing.T) {
	t.Helper()
	h := w.Harness
	files := h.open(t)
	defer func() { _ = files.Close() }()
	var names []string
	err := files.Walk(t.Context(), ".", func(name string, _ dray.FileInfo) error {
		names = append(names, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(names)
	for _, name := range names[:len(names)-1] {
		if err := files.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	h.write(t, "a.txt", "one")
	h.write(t, "b.txt", "two")
	if got := w.Code(t, "import os\nos.mkdir('d')"); !got.OK || got.CommitErr != nil {
		t.Fatalf("make a directory: %v; %s", got.CommitErr, got.Describe())
	}
	h.write(t, "d/c.txt", "three")
}

func (h Harness) open(t *testing.T) dray.Files {
	t.Helper()
	files, err := h.Environment.Files(t.Context(), h.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// read returns all files with their contents.
func (h Harness) read(t *testing.T) []string {
	t.Helper()
	files := h.open(t)
	defer func() { _ = files.Close() }()
	var found []string
	err := files.Walk(t.Context(), ".", func(name string, info dray.FileInfo) error {
		if info.Type == "directory" {
			return nil
		}
		r, _, err := files.Open(name, 0)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		b, err := io.ReadAll(r)
		found = append(found, name, string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
