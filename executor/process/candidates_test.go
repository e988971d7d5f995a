package process

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A name without a slash is looked up as by execvp(3), except that an empty PATH finds nothing.
func TestCandidates(t *testing.T) {
	root := t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"plain/tool": 0o644, "one/tool": 0o755,
		"two/tool": 0o755, "plain/text": 0o644,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "folder", "tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	in := func(names ...string) []string {
		paths := make([]string, len(names))
		for i, name := range names {
			paths[i] = filepath.Join(root, name)
		}
		return paths
	}
	path := "PATH=" + root + "/absent:" + root + "/folder:" + root + "/plain:.:" + root + "/two"
	tests := map[string]struct {
		argv0 string
		env   []string
		want  []string
	}{
		"not executable files last": {
			"tool",
			[]string{path},
			in("one/tool", "two/tool", "plain/tool"),
		},
		"not executable": {"text", []string{path}, in("plain/text")},
		"not found":      {"none", []string{path}, nil},
		"the last PATH counts": {
			"tool",
			[]string{path, "PATH=" + root + "/two"},
			in("two/tool"),
		},
		"with a slash":                {"./tool", []string{path}, []string{"./tool"}},
		"empty name":                  {"", []string{path}, nil},
		"an empty PATH finds nothing": {"tool", []string{"PATH="}, nil},
		"an empty entry is the working directory": {
			"tool",
			[]string{"PATH=" + root + "/two:"},
			in("two/tool", "one/tool"),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := slices.Collect(candidates(Spec{
				Argv: []string{tt.argv0}, Env: tt.env,
				Dir: filepath.Join(root, "one"),
			}))
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The second file is removed while the first is tried, so it must not have been looked up before.
func TestCandidatesAreLazy(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, two} {
		if err := os.WriteFile(filepath.Join(dir, "tool"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for path := range candidates(Spec{
		Argv: []string{"tool"}, Env: []string{"PATH=" + one + ":" + two},
		Dir: "/",
	}) {
		got = append(got, path)
		if err := os.Remove(filepath.Join(two, "tool")); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, []string{filepath.Join(one, "tool")}) {
		t.Errorf("got %q", got)
	}
}
