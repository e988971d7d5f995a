package lexical

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestIsName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "9": true, "A.b_c-d": true, "": false, "-a": false, ".a": false, "_a": false,
		"a b": false, "a/b": false, "a\n": false, "é": false,
	} {
		if got := IsName(name); got != want {
			t.Errorf("IsName(%q) = %v", name, got)
		}
	}
}

func TestTruncate(t *testing.T) {
	for _, tt := range []struct {
		text  string
		limit int
		want  string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"aéb", 2, "a…"},
		{"éé", 3, "é…"},
		{"a", 0, "…"},
		{"\x80\x80\x80", 2, "…"},
	} {
		if got := Truncate(tt.text, tt.limit); got != tt.want {
			t.Errorf("Truncate(%q, %d) = %q, want %q", tt.text, tt.limit, got, tt.want)
		}
	}
}

// A word of a hint that somebody copies is the path again, for a real shell.
func TestShellWord(t *testing.T) {
	for s, want := range map[string]string{
		"/srv/app-1.2_x": "/srv/app-1.2_x", "/srv/grün": "/srv/grün", "": "''",
		"/my app": "'/my app'", "/it's": `'/it'\''s'`, "/$HOME/`id`": "'/$HOME/`id`'",
		"/a\nb": "'/a\nb'", "~/x": "'~/x'", `/a"b\c`: `'/a"b\c'`, "/*?[": "'/*?['",
	} {
		got := ShellWord(s)
		read, err := exec.Command("sh", "-c", "printf %s "+got).Output()
		if got != want || err != nil || string(read) != s {
			t.Errorf("ShellWord(%q) = %s, want %s; sh reads %q, %v", s, got, want, read, err)
		}
	}
}

func TestRel(t *testing.T) {
	for _, tt := range []struct{ dir, name, want string }{
		{"/a", "/a", "."},
		{"/a", "/a/b/c", "b/c"},
		{"/a/", "/a/b", "b"},
		{"/", "/a", "a"},
		{"/", "/", "."},
		{".", "a/b", "a/b"},
		{"a", "a/b", "b"},
		{"..", "../x", "x"},
		{"/a", "/a/..b", "..b"},
		{"/a", "/ab", ""},
		{"/a", "/", ""},
		{"/a", "/a/../b", ""},
		{".", "../x", ""},
		{"..", "../../x", ""},
		{"/a", "a", ""},
		{"", "/a", ""},
		{"", "", ""},
	} {
		got, ok := Rel(tt.dir, tt.name)
		if got != tt.want || ok != (tt.want != "") || Contains(tt.dir, tt.name) != ok {
			t.Errorf("Rel(%q, %q) = %q, %v, want %q", tt.dir, tt.name, got, ok, tt.want)
		}
	}
}

// FuzzRel compares Rel with the standard library, which is slower and knows more cases.
func FuzzRel(f *testing.F) {
	f.Add("/a", "/a/../b")
	f.Add("..", "../../x")
	f.Add("a/b", "a/b/c")
	f.Fuzz(func(t *testing.T, dir, name string) {
		if dir == "" || filepath.IsAbs(dir) != filepath.IsAbs(name) {
			t.Skip("Rel is for two absolute or two relative paths")
		}
		want, err := filepath.Rel(dir, name)
		inside := err == nil && filepath.IsLocal(want)
		got, ok := Rel(dir, name)
		if ok != inside || ok && got != want {
			t.Errorf("Rel(%q, %q) = %q, %v; filepath.Rel: %q, %v", dir, name, got, ok, want, err)
		}
	})
}

func TestClosest(t *testing.T) {
	names := []string{"read_file", "write_file", "exec", "max_body"}
	for name, want := range map[string]string{
		"read_fiel": "read_file", "Exec": "exec", "max-body": "max_body", "excc": "exec",
		"zzzzzzzzz": "", "": "", strings.Repeat("e", 200): "",
	} {
		if got := Closest(name, names); got != want {
			t.Errorf("Closest(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"abc", "abc", 0},
		{"abc", "acb", 1},
		{"abc", "axc", 1},
		{"abc", "ac", 1},
		{"kitten", "sitting", 3},
	} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

// JSONSize is at least the size in every encoder's form, and that of plain text is exact.
func FuzzJSONSize(f *testing.F) {
	f.Add("plain")
	f.Add("\x00\x1f\"\\<>&\u2028\xffé")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := json.Marshal(text)
		if err != nil || len(b)-2 > JSONSize(text) || JSONSize(text) > 6*len(text) {
			t.Errorf("JSONSize(%q) = %d, and json.Marshal gives %s, %v", text, JSONSize(text), b, err)
		}
	})
}
