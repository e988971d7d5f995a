package transfer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A root that other users could write to, or that leads elsewhere, is refused with a hint (SY-04).
func TestOpen_InvalidRoot(t *testing.T) {
	dir := t.TempDir()
	folder := func(name string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.Mkdir(p, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	own := folder("own", 0o700)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ root, says, hint string }{
		"relative":           {"sandbox", "absolute", "absolute path without"},
		"not clean":          {own + "/", "clean", "absolute path without"},
		"parent":             {own + "/../own", "clean", "absolute path without"},
		"everything":         {"/", "whole file system", "of its own"},
		"a link":             {link, "link", own},
		"a file":             {file, "not a directory", "remove"},
		"open to the group":  {folder("group", 0o750), "0750", "chmod 700"},
		"open to the world":  {folder("world", 0o701), "0701", "chmod 700"},
		"no parent":          {filepath.Join(dir, "a", "b"), "does not exist", "mkdir -p -m 700"},
		"a NUL in its name":  {dir + "/a\x00b", "absolute, clean", "absolute path without"},
		"nothing but a name": {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := Check(tc.root)
			s, err := Open(t.Context(), Config{Root: tc.root})
			if (before == nil) != (err == nil) || err != nil && before.Error() != err.Error() {
				t.Errorf("Check says %v, and Open %v", before, err)
			}
			if tc.says == "" {
				if err != nil || s.root != nil {
					t.Fatalf("got %v, %v", s, err)
				}
				_ = s.Close()
				return
			}
			if e := dray.AsError(err); e == nil || e.Code != dray.CodeInvalidRequest ||
				!strings.Contains(e.Message, tc.says) || !strings.Contains(e.Hint, tc.hint) {
				t.Errorf("got %+v", e)
			}
		})
	}
}

// Syncs to a root that was moved, removed, replaced or opened to others since the start are refused
// with a hint (SY-04).
func TestSyncVerifiesRoot(t *testing.T) {
	for name, tc := range map[string]struct {
		change     func(root string) error
		says, hint string
	}{
		"moved": {
			func(root string) error { return os.Rename(root, root+"2") }, "any more",
			"move the directory back",
		},
		"removed":  {os.RemoveAll, "any more", "move the directory back"},
		"replaced": {func(root string) error { return errors.Join(os.Rename(root, root+"2"), os.Mkdir(root, 0o700)) }, "another directory", "restart the daemon"},
		"a link":   {func(root string) error { return errors.Join(os.Rename(root, root+"2"), os.Symlink(root+"2", root)) }, "any more", "move the directory back"},
		"opened": {
			func(root string) error { return os.Chmod(root, 0o755) }, "open to others",
			"chmod 700",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, nil)
			w.put("/tmp/a", "alpha")
			if err := tc.change(w.root); err != nil {
				t.Fatal(err)
			}
			for _, dry := range []bool{false, true} {
				_, err := w.Fetch(t.Context(), w.box, Request{Paths: []string{"/tmp/a"}, DryRun: dry})
				if e := dray.AsError(err); e == nil || e.Code != dray.CodeSyncRefused ||
					!strings.Contains(e.Message, tc.says) || !strings.Contains(e.Hint, tc.hint) {
					t.Errorf("got %+v", e)
				}
			}
			r := w.FetchDeclared(t.Context(), w.box, Request{ID: "the-id", Paths: []string{"/tmp/a"}})
			if r.State != dray.SyncRefused || len(r.Files) > 0 {
				t.Errorf("got %+v", r)
			}
			for _, dir := range []string{w.root, w.root + "2"} {
				if left, _ := filepath.Glob(dir + "/*"); len(left) > 0 {
					t.Errorf("%v was written", left)
				}
			}
		})
	}
}

// A directory of another user is refused, whatever its mode (SY-04).
func TestOpen_RootOfOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(root, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{Root: root})
	if e := dray.AsError(err); e == nil || !strings.Contains(e.Message, "12345") ||
		!strings.Contains(e.Hint, "chown") {
		t.Errorf("got %+v", e)
	}
}

// A missing root is created with mode 0700, whatever the umask (SY-04).
func TestOpenCreatesRoot(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	if err := Check(root); err != nil {
		t.Errorf("Check refuses what Open makes: %v", err)
	}
	if _, err := os.Lstat(root); err == nil {
		t.Error("Check made it")
	}
	s, err := Open(t.Context(), Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if info, err := os.Stat(root); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v", info, err)
	}
}
