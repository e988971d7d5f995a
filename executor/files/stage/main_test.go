package stage

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray"
)

func TestMain(m *testing.M) {
	maybeRunWriter()
	goleak.VerifyTestMain(m)
}

func openRoot(t testing.TB, dir string) *os.File {
	t.Helper()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func writeTree(t testing.TB, dir string, how dray.WriteTreeOptions,
	list ...made) ([]dray.WrittenFile,
	error,
) {
	t.Helper()
	return WriteTree(t.Context(), openRoot(t, dir), treeOf(list...), how)
}

func mustWrite(t testing.TB, dir string, list ...made) []dray.WrittenFile {
	t.Helper()
	written, err := writeTree(t, dir, dray.WriteTreeOptions{}, list...)
	if err != nil {
		t.Fatal(err)
	}
	return written
}

func sh(t testing.TB, dir, script string) string {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-ec", script)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return string(out)
}

// contentOf returns mode, type, and content or target of all files beneath a directory, by name.
func contentOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += " " + string(b)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			what += " " + target
		}
		got[strings.TrimPrefix(path, dir+"/")] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func wantTree(t testing.TB, dir string, want map[string]string) {
	t.Helper()
	got := contentOf(t, dir)
	for name, what := range want {
		if got[name] != what {
			t.Errorf("%.80q: got %.200q, want %.200q", name, got[name], what)
		}
		delete(got, name)
	}
	for name, what := range got {
		t.Errorf("%.80q is there: %.200q", name, what)
	}
}

func sum(content string) string {
	s := sha256.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}

func wantCode(t testing.TB, what string, err error, code dray.Code) {
	t.Helper()
	if err == nil || dray.CodeOf(err) != code {
		t.Errorf("%s: got %v (%s), want %s", what, err, dray.CodeOf(err), code)
	}
}

// scratch returns an empty directory, on a tmpfs if possible: syncfs waits for writes of other
// processes to the same disk.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "dray-stage-test-") //nolint:usetesting // t.TempDir cannot choose a file system
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
