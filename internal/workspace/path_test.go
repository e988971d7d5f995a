package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Helper programs come from no directory that a stranger or a workspace controls (EX-05).
func TestSafePath(t *testing.T) {
	dir, workspace := t.TempDir(), t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"own": 0o755, "group": 0o775, "all": 0o777, "all/below": 0o755, "sticky": 0o777 | os.ModeSticky,
		"sticky/below": 0o755,
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(workspace+"/bin", 0o755), os.Mkdir(workspace+"-2", 0o755),
		os.Symlink(workspace+"/bin", dir+"/link"), os.WriteFile(dir+"/file", nil, 0o700),
		os.Symlink("own", dir+"/own-link"), os.Symlink(dir+"/own", dir+"/all/link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	t.Cleanup(func() { _ = os.Remove(workspace + "-2") })
	for _, test := range []struct {
		name, element string
		safe          bool
	}{
		{"own directory", dir + "/own", true},
		{"directory of a group", dir + "/group", true},
		{"directory beneath a sticky one", dir + "/sticky/below", true},
		{"link to a directory", dir + "/own-link", true},
		{"name that begins like a workspace", workspace + "-2", true},
		{"empty", "", false},
		{"current directory", ".", false},
		{"parent directory", "..", false},
		{"relative", "own", false},
		{"home directory that a shell would expand", "~/bin", false},
		{"directory of all", dir + "/all", false},
		{"directory beneath one of all", dir + "/all/below", false},
		{"link in a directory of all", dir + "/all/link", false},
		{"sticky directory of all", dir + "/sticky", false},
		{"workspace", workspace, false},
		{"directory in a workspace", workspace + "/bin", false},
		{"workspace by a detour", dir + "/../" + filepath.Base(workspace) + "/bin", false},
		{"link into a workspace", dir + "/link", false},
		{"file", dir + "/file", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			value := "/usr/bin:" + test.element + ":/bin"
			safe, unsafe := SafePath(value, workspace)
			if test.safe && (safe != value || unsafe != nil) ||
				!test.safe && (safe != "/usr/bin:/bin" || !slices.Equal(unsafe, []string{test.element})) {
				t.Errorf("got %q, unsafe %q, want safe %v", safe, unsafe, test.safe)
			}
		})
	}
	if safe, unsafe := SafePath("/bin:" + dir + "/missing"); safe != "/bin" || unsafe != nil {
		t.Errorf("with a missing directory: %q, unsafe %q", safe, unsafe)
	}
	for _, value := range []string{"", ":", ".:..", dir + "/missing"} {
		if safe, _ := SafePath(value); safe != defaultPath {
			t.Errorf("SafePath(%q) is %q, want the default", value, safe)
		}
	}
}
