package assets

import (
	"path/filepath"
	"testing"
)

// A folder of other files than the assets is verified as they are (PY-24).
func TestVerifyFolder(t *testing.T) {
	files := []File{FileOf("a", []byte("one")), FileOf("b", nil)}
	for name, tc := range map[string]struct {
		change func(t *testing.T, dir string)
		kind   Kind
	}{
		"as it was made":  {func(*testing.T, string) {}, ""},
		"no folder":       {func(t *testing.T, dir string) { remove(t, dir) }, Missing},
		"a missing file":  {func(t *testing.T, dir string) { remove(t, dir+"/b") }, Incomplete},
		"another content": {func(t *testing.T, dir string) { writeText(t, dir+"/a", "two") }, Mismatch},
		"another size":    {func(t *testing.T, dir string) { writeText(t, dir+"/a", "three") }, Mismatch},
		"one file more":   {func(t *testing.T, dir string) { writeText(t, dir+"/c", "") }, Unexpected},
		"one folder more": {func(t *testing.T, dir string) { mkdir(t, dir, "c") }, Unexpected},
		"a file of all":   {func(t *testing.T, dir string) { chmod(t, dir+"/a", 0o666) }, Unsafe},
		"a folder of all": {func(t *testing.T, dir string) { chmod(t, dir, 0o777) }, Unsafe},
		"a public parent": {
			func(t *testing.T, dir string) { chmod(t, filepath.Dir(dir), 0o777) }, Unsafe,
		},
		"a link": {func(t *testing.T, dir string) {
			remove(t, dir+"/b")
			symlink(t, "/dev/null", dir+"/b")
		}, Unsafe},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, mkdir(t, parent, "folder"))
			writeText(t, dir+"/a", "one")
			writeText(t, dir+"/b", "")
			tc.change(t, dir)
			_, err := VerifyFolder(t.Context(), dir, files)
			var kind Kind
			if p, ok := asProblem(err); ok {
				kind = p.Kind
			}
			if kind != tc.kind || (err == nil) != (tc.kind == "") {
				t.Errorf("got %q, %v, want %q", kind, err, tc.kind)
			}
		})
	}
}
