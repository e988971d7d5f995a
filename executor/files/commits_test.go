package files_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/executortest"
	"github.com/dray-dev/dray/executor/files"
	"github.com/dray-dev/dray/executor/files/stage"
)

func recorded(t *testing.T, commits files.Commits, root string) dray.Files {
	t.Helper()
	local, err := files.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return commits.Files(local)
}

func TestRecordedFiles(t *testing.T) {
	commits := files.NewCommits(t.TempDir() + "/commits")
	executortest.RunFiles(t, harness(t, func(t *testing.T, root string) dray.Files {
		return recorded(t, commits, root)
	}))
	if n, err := commits.Recover(t.Context()); n != 0 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

// emptyFiles is a tree of empty files.
type emptyFiles struct{ names []string }

func (f *emptyFiles) Next() (dray.TreeEntry, error) {
	if len(f.names) == 0 {
		return dray.TreeEntry{}, io.EOF
	}
	e := dray.TreeEntry{Name: f.names[0], Type: "file"}
	f.names = f.names[1:]
	return e, nil
}

func (*emptyFiles) Read([]byte) (int, error) { return 0, io.EOF }
func (*emptyFiles) Close() error             { return nil }

// A start completes the commits that an earlier daemon has left, in whatever directory. Here one
// fails and cannot be rolled back, which leaves what a kill leaves (PY-10, SY-06).
func TestCommitsAreRecovered(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("flags of files need root")
	}
	dir := t.TempDir()
	commits := files.NewCommits(dir + "/state/commits")
	run := func(script string) {
		t.Helper()
		cmd := exec.Command("/bin/sh", "-ec", script)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("%s: %v: %s", script, err, out)
		}
	}
	run("mkdir -p real/a real/z; ln -s real link; chattr +a real/a; chattr +i real/z")
	defer func() { _ = exec.Command("chattr", "-a", "-i", dir+"/real/a", dir+"/real/z").Run() }()
	f := recorded(t, commits, dir+"/link")
	_, err := f.WriteTree(t.Context(), &emptyFiles{[]string{"a/x", "z/x"}}, dray.WriteTreeOptions{
		Expect: map[string]string{"a/x": "", "z/x": ""},
	})
	_ = f.Close()
	if !errors.Is(err, stage.ErrCommitIncomplete) {
		t.Fatalf("got %v", err)
	}
	if err := os.WriteFile(dir+"/state/commits/torn", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	gone := []byte(dir + "/gone")
	if err := os.WriteFile(dir+"/state/commits/gone", gone, 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := commits.Recover(t.Context())
	if n != 0 || err == nil || !strings.Contains(err.Error(), dir+"/real") {
		t.Errorf("got %d, %v", n, err)
	}
	left, _ := filepath.Glob(dir + "/state/commits/*")
	if len(left) != 1 {
		t.Errorf("left: %q", left)
	}
	run("rm link; chattr -a real/a; chattr -i real/z")
	if n, err := commits.Recover(t.Context()); n != 1 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	for _, name := range []string{"a/x", "z/x"} {
		if _, err := os.Stat(dir + "/real/" + name); err != nil {
			t.Error(err)
		}
	}
	if left, _ := filepath.Glob(dir + "/state/commits/*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A commit without a record does not begin.
func TestCommitsThatCannotBeRecorded(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/state", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/root", 0o700); err != nil {
		t.Fatal(err)
	}
	f := recorded(t, files.NewCommits(dir+"/state/commits"), dir+"/root")
	defer f.Close()
	_, err := f.WriteTree(t.Context(), &emptyFiles{[]string{"x"}}, dray.WriteTreeOptions{
		Expect: map[string]string{"x": ""},
	})
	if err == nil {
		t.Error("it was written")
	}
	if left, _ := os.ReadDir(dir + "/root"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
