package assets

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// fetched returns a store whose folder is complete, and its registry.
func fetched(t *testing.T) (*Store, *registry) {
	t.Helper()
	r := newRegistry(t)
	s := r.store(t)
	mustFetch(t, s, quick())
	return s, r
}

// change changes one byte of a file and sets its times back.
func change(t *testing.T, file string) {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	err = errors.Join(os.Chmod(file, 0o700), os.WriteFile(file, data, 0o700),
		os.Chmod(file, info.Mode()), os.Chtimes(file, info.ModTime(), info.ModTime()))
	if err != nil {
		t.Fatal(err)
	}
}

// Each kind of change is found before the next start, named, and repaired by a fetch that downloads
// only what is needed (PY-09, PY-24, OP-02).
func TestOpenFindsChanges(t *testing.T) {
	deno, pyodide := []string{"/deno.tgz "}, []string{"/pyodide.tgz "}
	for name, tc := range map[string]struct {
		change  func(t *testing.T, dir string)
		kind    Kind
		words   []string
		refetch []string
	}{
		"a byte of Deno, with the times set back": {
			func(t *testing.T, dir string) { change(t, dir+"/deno") },
			Mismatch,
			[]string{"/deno is not the pinned", "expected sha256 " + sum(denoText), "got sha256", "source @deno/test 1.2.3"},
			deno,
		},
		"a byte of Pyodide": {
			func(t *testing.T, dir string) { change(t, dir+"/pyodide/pyodide.asm.wasm") },
			Mismatch,
			[]string{"pyodide.asm.wasm", "source pyodide 314.0.0"},
			pyodide,
		},
		"a byte of the lock": {
			func(t *testing.T, dir string) { change(t, dir+"/pyodide/pyodide-lock.json") },
			Mismatch,
			[]string{"pyodide-lock.json", "expected sha256 " + sum(lockText)},
			pyodide,
		},
		"a shorter file": {
			func(t *testing.T, dir string) { truncate(t, dir+"/pyodide/pyodide.mjs") },
			Mismatch,
			[]string{"expected 9 bytes", "got 0 bytes"},
			pyodide,
		},
		"a missing file": {
			func(t *testing.T, dir string) { remove(t, dir+"/deno") },
			Incomplete,
			[]string{"/deno is missing", "@deno/test 1.2.3"},
			deno,
		},
		"a missing lock": {
			func(t *testing.T, dir string) { remove(t, dir+"/pyodide/pyodide-lock.json") },
			Incomplete,
			[]string{"pyodide-lock.json is missing"},
			pyodide,
		},
		"no folder of Pyodide": {
			func(t *testing.T, dir string) { remove(t, dir+"/pyodide") },
			Incomplete,
			[]string{"/pyodide is missing, of pyodide 314.0.0"},
			pyodide,
		},
		"no folder": {
			func(t *testing.T, dir string) { remove(t, dir) },
			Missing,
			[]string{"not installed in"},
			append(deno, pyodide...),
		},
		"a link to another file": {func(t *testing.T, dir string) {
			other := filepath.Join(t.TempDir(), "deno")
			rename(t, dir+"/deno", other)
			symlink(t, other, dir+"/deno")
		}, Unsafe, []string{"/deno is a symlink"}, nil},
		"a folder as a link": {func(t *testing.T, dir string) {
			other := filepath.Join(t.TempDir(), "pyodide")
			rename(t, dir+"/pyodide", other)
			symlink(t, other, dir+"/pyodide")
		}, Unsafe, []string{"/pyodide is not a directory"}, nil},
		"a file that others may write": {
			func(t *testing.T, dir string) { chmod(t, dir+"/pyodide/pyodide.mjs", 0o666) },
			Unsafe,
			[]string{"has mode 0666"},
			nil,
		},
		"a folder that others may write": {
			func(t *testing.T, dir string) { chmod(t, dir, 0o777) },
			Unsafe,
			[]string{"has mode 0777"},
			nil,
		},
		"a program that cannot be run": {
			func(t *testing.T, dir string) { chmod(t, dir+"/deno", 0o644) },
			Unsafe,
			[]string{"is not executable"},
			nil,
		},
		"a second program": {
			func(t *testing.T, dir string) { writeText(t, dir+"/pyodide/deno.json", "{}") },
			Unexpected,
			[]string{"deno.json is not pinned"},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, r := fetched(t)
			tc.change(t, s.Dir())
			_, err := s.Open(t.Context())
			known := dray.AsError(err)
			p, ok := asProblem(err)
			if !ok || p.Kind != tc.kind || known.Code != dray.CodeHelperMissing || known.Hint == "" {
				t.Fatalf("Open: %v (%s), hint %q", err, known.Code, known.Hint)
			}
			for _, word := range tc.words {
				if !strings.Contains(known.Message, word) {
					t.Errorf("the message %q lacks %q", known.Message, word)
				}
			}
			r.requests = nil
			mustFetch(t, s, quick())
			if !slices.Equal(r.requests, tc.refetch) {
				t.Errorf("requests: %q, want %q", r.requests, tc.refetch)
			}
			wantOnly(t, s.Dir(), "deno", "pyodide")
			wantOnly(t, filepath.Dir(s.Dir()), "assets")
		})
	}
}

// What was verified is not read again until it changes; any change of a file or folder is seen
// without reading it (PY-24).
func TestVerifiedUnchanged(t *testing.T) {
	for name, touch := range map[string]func(t *testing.T, dir string){
		"another mode":       func(t *testing.T, dir string) { chmod(t, dir+"/deno", 0o755) },
		"another file":       func(t *testing.T, dir string) { replaceFile(t, dir+"/pyodide/pyodide.mjs") },
		"a new file":         func(t *testing.T, dir string) { chmod(t, dir+"/pyodide", 0o711) },
		"a file that is not": func(t *testing.T, dir string) { remove(t, dir+"/deno") },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := fetched(t)
			v, err := s.verify(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			v.settled = true // as if the files were older
			if !v.Unchanged() {
				t.Error("a change was seen before there was one")
			}
			if want := 2 + len(pyodideTexts) + 1; len(v.seen) != want {
				t.Errorf("%d identities, want %d: %v", len(v.seen), want, v.seen)
			}
			touch(t, s.Dir())
			if v.Unchanged() {
				t.Error("the change was not seen")
			}
		})
	}
}

// Where everybody may exchange the folder, nothing is believed and nothing is fetched (PY-24).
func TestFolderInAPublicOne(t *testing.T) {
	s, r := fetched(t)
	s.verified, _ = s.verify(t.Context())
	chmod(t, filepath.Dir(s.Dir()), 0o777)
	r.requests = nil
	_, err := s.Open(t.Context())
	_, fetchErr := s.Fetch(t.Context(), quick())
	for _, err := range []error{err, fetchErr} {
		if p, ok := asProblem(err); !ok || p.Kind != Unsafe || p.File != filepath.Dir(s.Dir()) {
			t.Errorf("%v", err)
		}
	}
	if len(r.requests) > 0 {
		t.Errorf("requests: %q", r.requests)
	}
	chmod(t, filepath.Dir(s.Dir()), 0o777|os.ModeSticky)
	mustFetch(t, s, quick())
}

// Files of other users are refused, those of root are not (PY-24).
func TestPrivate(t *testing.T) {
	euid := uint32(os.Geteuid())
	for _, tc := range []struct {
		id   identity
		want bool
	}{
		{identity{uid: euid, mode: 0o644}, true},
		{identity{uid: 0, mode: 0o444}, true},
		{identity{uid: euid + 1, mode: 0o444}, false},
		{identity{uid: euid, mode: 0o664}, false},
		{identity{uid: 0, mode: 0o646}, false},
	} {
		if err := private("file", tc.id); (err == nil) != tc.want {
			t.Errorf("uid %d, mode %o: %v", tc.id.uid, tc.id.mode, err)
		}
	}
}

// Times that are too young prove nothing.
func TestVerifiedSettles(t *testing.T) {
	s, _ := fetched(t)
	v, err := s.verify(t.Context())
	if err != nil || v.settled {
		t.Errorf("settled: %v, %v", v.settled, err)
	}
	if v.Unchanged() {
		t.Error("a change in these seconds would not be seen")
	}
}

// A Deno elsewhere has the pinned checksum too, and is then not fetched.
func TestOtherDeno(t *testing.T) {
	r := newRegistry(t)
	deno := filepath.Join(t.TempDir(), "deno-1.2.3")
	writeText(t, deno, denoText)
	chmod(t, deno, 0o755)
	s := r.store(t)
	s.deno = deno
	got := mustFetch(t, s, quick())
	if got.Deno != deno || !slices.Equal(r.requests, []string{"/pyodide.tgz "}) {
		t.Errorf("Deno is %s, requests %q", got.Deno, r.requests)
	}
	writeText(t, filepath.Join(s.Dir(), "deno"), "not used") // from before the key was set
	if found, err := s.Open(t.Context()); err != nil || found.Deno != deno {
		t.Errorf("Open: %+v, %v", found, err)
	}
	change(t, deno)
	_, err := s.Open(t.Context())
	if p, ok := asProblem(err); !ok || p.Kind != Mismatch || p.File != deno ||
		!strings.Contains(dray.AsError(err).Hint, "python.pyodide.deno") {
		t.Errorf("Open: %v, hint %q", err, dray.AsError(err).Hint)
	}
}

func second[T any](_ T, err error) error { return err }

// The default folder is below XDG_DATA_HOME, and has the versions in its name.
func TestDefaultDir(t *testing.T) {
	release := Pinned().release()
	for _, tc := range []struct{ data, home, want string }{
		{"/data", "/home/u", "/data/dray/python/" + release},
		{"relative", "/home/u", "/home/u/.local/share/dray/python/" + release},
		{"", "/home/u", "/home/u/.local/share/dray/python/" + release},
		{"", "", ""},
	} {
		got := DefaultDir(func(name string) string {
			return map[string]string{"XDG_DATA_HOME": tc.data, "HOME": tc.home}[name]
		})
		if got != tc.want {
			t.Errorf("%q, %q: %q, want %q", tc.data, tc.home, got, tc.want)
		}
	}
}

func truncate(t *testing.T, file string) {
	t.Helper()
	chmod(t, file, 0o600)
	writeText(t, file, "")
	chmod(t, file, 0o444)
}

func replaceFile(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	writeText(t, file+".new", string(data))
	rename(t, file+".new", file)
}

func writeText(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

func chmod(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}
