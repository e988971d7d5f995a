package executortest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// FilesHarness has the files to test.
type FilesHarness struct {
	// Open opens the files beneath a directory.
	Open func(t *testing.T, root string) dray.Files
	// Dir is an empty directory, in which the root and a directory outside of it are created.
	Dir string
	// Shell runs a script in a directory as the user of the files, and returns its stdout.
	Shell func(t *testing.T, dir, script string) string
	// Background runs a script until stop is called.
	Background func(t *testing.T, dir, script string) (stop func())
	Rounds     int
	// Brief omits large files.
	Brief bool
}

// RunFiles tests the contract of dray.Files.
func RunFiles(t *testing.T, h FilesHarness) {
	h.Shell(t, h.Dir, `mkdir root outside && echo secret >outside/secret && mkdir root/inside && echo harmless >root/inside/secret`)
	for _, c := range []struct {
		name string
		test func(*testing.T, FilesHarness, dray.Files)
	}{
		{"Stat", filesStat},
		{"Open", filesOpen},
		{"Create", filesCreate},
		{"Rename", filesRename},
		{"Remove", filesRemove},
		{"List", filesList},
		{"Big", filesBig},
		{"Escapes", filesEscapes},
		{"NotRegular", filesNotRegular},
		{"Race", filesRace},
		{"Many", filesMany},
		{"WriteTree", filesWriteTree},
		{"WriteTreeRefuses", filesWriteTreeRefuses},
		{"WriteTreeCancelled", filesWriteTreeCancelled},
		{"WriteTreeExpects", filesWriteTreeExpects},
		{"WriteTreeRace", filesWriteTreeRace},
		{"ReadTreeExact", readTreeExact},
		{"ReadTreeNames", readTreeNames},
		{"ReadTreeRefuses", readTreeRefuses},
		{"ReadTreeHardLinks", readTreeHardLinks},
		{"ReadTreeDenied", readTreeDenied},
		{"ReadTreeLimits", readTreeLimits},
		{"ReadTreeSources", readTreeSources},
		{"ReadTreePartial", readTreePartial},
		{"ReadTreeChanging", readTreeChanging},
		{"ReadTreeCancelled", readTreeCancelled},
		{"ReadTreeThenMore", readTreeThenMore},
		{"ReadTreeRace", readTreeRace},
		{"Walk", filesWalk},
		{"WalkDenied", filesWalkDenied},
		{"WalkSkips", filesWalkSkips},
		{"WalkMany", filesWalkMany},
		{"WalkRace", filesWalkRace},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := h.Open(t, h.Dir+"/root")
			defer func() {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}()
			c.test(t, h, f)
		})
	}
}

// RunFilesOf tests the files of an environment.
func RunFilesOf(t *testing.T, h Harness) {
	c := h.caps().Container
	if c != nil && c.Transport == "engine" {
		_, err := h.Environment.Files(t.Context(), h.Dir)
		isCode(t, "files without an agent", err, dray.CodeContainerUnavailable)
		return
	}
	h.ok(t, h.sh(t, "mkdir files"), 0)
	RunFiles(t, FilesHarness{
		Dir: h.Dir + "/files", Rounds: h.rounds(), Brief: h.Brief,
		Open: func(t *testing.T, root string) dray.Files {
			f, err := h.Environment.Files(t.Context(), root)
			if err != nil {
				t.Fatal(err)
			}
			return f
		},
		Shell: func(t *testing.T, dir, script string) string {
			got := finish(h.start(t, dray.ProcessSpec{Argv: []string{"/bin/sh", "-ec", script}, Dir: dir}),
				nil)
			h.ok(t, got, 0)
			return got.stdout
		},
		Background: func(t *testing.T, dir, script string) func() {
			p := h.start(t, dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", script}, Dir: dir})
			return func() {
				p.Stop(0)
				collect(p)
			}
		},
	})
	_, err := h.Environment.Files(t.Context(), h.Dir+"/no/such")
	if f := err; f == nil {
		t.Log("a missing root is reported by the first operation")
	}
}

func write(t *testing.T, f dray.Files, name string, content []byte, mode fs.FileMode) {
	t.Helper()
	w, err := f.Create(name, mode)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func read(f dray.Files, name string, offset int64) ([]byte, error) {
	r, _, err := f.Open(name, offset)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

func filesStat(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `printf 12345 >file && chmod 640 file && touch -d @1700000000 file && ln -s file link && mkfifo fifo && chmod 750 inside`)
	for _, want := range []dray.FileInfo{
		{Name: "file", Type: "file", Size: 5, Mode: 0o640, Modified: time.Unix(1700000000, 0).UTC()},
		{Name: "inside", Type: "directory", Mode: 0o750},
		{Name: "link", Type: "symlink", Mode: 0o777, Target: "file"},
		{Name: "fifo", Type: "other", Mode: 0o644},
	} {
		got, err := f.Stat(want.Name)
		if want.Modified.IsZero() {
			got.Modified = time.Time{}
		}
		if want.Type != "file" {
			got.Size = 0
		}
		if err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if _, err := f.Stat("no/such"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if info, err := f.Stat(""); err != nil || info.Type != "directory" {
		t.Errorf("the root itself: %+v, %v", info, err)
	}
}

func filesOpen(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `printf 0123456789 >digits`)
	for offset, want := range map[int64]string{0: "0123456789", 7: "789", 10: "", 1000: ""} {
		if got, err := read(f, "digits", offset); err != nil || string(got) != want {
			t.Errorf("from %d: got %q, %v, want %q", offset, got, err, want)
		}
	}
	if _, err := read(f, "digits", -1); dray.CodeOf(err) != dray.CodePathInvalid {
		t.Errorf("a negative offset: %v", err)
	}
	if got, err := read(f, "link", 0); err != nil || string(got) != "12345" {
		t.Errorf("through a symlink inside: got %q, %v", got, err)
	}
	if _, err := read(f, "no-such", 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := read(f, "file/below", 0); err == nil {
		t.Error("a name below a file was opened")
	}
}

func filesCreate(t *testing.T, h FilesHarness, f dray.Files) {
	r := random(t)
	content := randomBytes(r, 300<<10)
	write(t, f, "inside/new", content, 0o666)
	if got, err := read(f, "inside/new", 0); err != nil || !bytes.Equal(got, content) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if info, err := f.Stat("inside/new"); err != nil || info.Mode != 0o666 ||
		info.Size != int64(len(content)) {
		t.Errorf("got %+v, %v; the mode is exact whatever the umask", info, err)
	}
	for _, name := range []string{"inside/new", "link", "fifo", "inside"} {
		if _, err := f.Create(name, 0o644); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s exists: %v", name, err)
		}
	}
	if _, err := f.Create("no/such/folder", 0o644); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	odd := "odd \xff\n name"
	write(t, f, odd, []byte("x"), 0o600)
	if got, err := read(f, odd, 0); err != nil || string(got) != "x" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := f.Remove(odd); err != nil {
		t.Error(err)
	}
	_ = h
}

func filesRename(t *testing.T, _ FilesHarness, f dray.Files) {
	write(t, f, "one", []byte("1"), 0o644)
	write(t, f, "two", []byte("2"), 0o644)
	if err := f.Rename("one", "two"); err != nil {
		t.Fatal(err)
	}
	if got, err := read(f, "two", 0); err != nil || string(got) != "1" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := f.Stat("one"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := f.Rename("one", "two"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	for _, to := range []string{"../outside/stolen", "../../x"} {
		if err := f.Rename("two", to); dray.CodeOf(err) != dray.CodePathInvalid {
			t.Errorf("to %s: %v", to, err)
		}
	}
}

func filesRemove(t *testing.T, _ FilesHarness, f dray.Files) {
	write(t, f, "gone", nil, 0o644)
	if err := f.Remove("gone"); err != nil {
		t.Error(err)
	}
	if err := f.Remove("gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := f.Remove("inside"); err == nil {
		t.Error("a directory that is not empty was removed")
	}
	if err := f.Remove("../outside/secret"); dray.CodeOf(err) != dray.CodePathInvalid {
		t.Errorf("got %v", err)
	}
}

func filesList(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `mkdir list; cd list; for i in 1 2 3 4 5; do : >$i; done; ln -s /etc/passwd 6`)
	entries, more, err := f.List("list", 100)
	if err != nil || more || len(entries) != 6 || entries[0].Name != "1" ||
		entries[5].Type != "symlink" || entries[5].Target != "/etc/passwd" {
		t.Errorf("got %+v, %v, %v", entries, more, err)
	}
	for limit, want := range map[int]int{3: 3, 0: 0, -1: 0} {
		if entries, more, err := f.List("list", limit); err != nil || !more || len(entries) != want {
			t.Errorf("limit %d: got %d, %v, %v", limit, len(entries), more, err)
		}
	}
	if _, _, err := f.List("no-such", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"file", "fifo"} {
		if _, _, err := f.List(name, 10); err == nil {
			t.Errorf("%s was listed", name)
		}
	}
	if h.Brief {
		return
	}
	// A directory with long names and targets is truncated, not refused.
	h.Shell(t, h.Dir+"/root", `mkdir long; cd long; t=$(printf %04000d 0); i=0; while [ $i -lt 700 ]; do ln -s $t l$i; i=$((i+1)); done`)
	if entries, _, err := f.List("long", 10000); err != nil || len(entries) < 400 {
		t.Errorf("got %d entries, %v", len(entries), err)
	}
}

func filesBig(t *testing.T, h FilesHarness, f dray.Files) {
	r, size := random(t), 5<<20+11
	if h.Brief {
		size = 1<<20 + 11
	}
	content := randomBytes(r, size)
	write(t, f, "big", content, 0o600)
	for range 5 {
		offset := r.IntN(len(content))
		if got, err := read(f, "big", int64(offset)); err != nil || !bytes.Equal(got, content[offset:]) {
			t.Errorf("from %d: %d bytes of %d, %v", offset, len(got), len(content)-offset, err)
		}
	}
}

// Neither "..", nor a symlink, nor an absolute name leads out of the root (SY-03).
func filesEscapes(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `ln -s ../outside out; ln -s "$PWD/../outside" abs; ln -s ../outside/secret leaf; ln -s /etc etc; ln -s inside/../../outside crooked; ln -s loop loop`)
	for _, name := range []string{
		"../outside/secret", "inside/../../outside/secret", "out/secret", "abs/secret", "leaf", "etc/passwd", "crooked/secret", "loop/secret",
		"a\x00b", strings.Repeat("x/", 3000) + "y",
	} {
		if got, err := read(f, name, 0); err == nil ||
			(dray.CodeOf(err) != dray.CodePathInvalid && !errors.Is(err, fs.ErrNotExist)) {
			t.Errorf("%.40q: got %q, %v", name, got, err)
		}
		if w, err := f.Create(name+"/new", 0o644); err == nil {
			t.Errorf("a file was created below %.40q", name)
			_ = w.Close()
		}
	}
	for _, name := range []string{"..", "out", "abs", "etc"} {
		if entries, _, err := f.List(name, 10); err == nil {
			t.Errorf("%s was listed: %+v", name, entries)
		}
	}
	if got, err := read(f, h.Dir+"/outside/secret", 0); err == nil {
		t.Errorf("an absolute name: got %q", got)
	}
	if got := h.Shell(t, h.Dir, "ls outside"); got != "secret\n" {
		t.Errorf("outside has %q", got)
	}
}

// A FIFO, a device or a directory is refused at once.
func filesNotRegular(t *testing.T, _ FilesHarness, f dray.Files) {
	for _, name := range []string{"fifo", "inside", ""} {
		err := withTimeout(t, 10*time.Second, func() error {
			_, _, err := f.Open(name, 0)
			return err
		})
		if dray.CodeOf(err) != dray.CodePathInvalid {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

// A symlink that is swapped during lookups never leads out.
func filesRace(t *testing.T, h FilesHarness, f dray.Files) {
	stop := h.Background(t, h.Dir+"/root", `while :; do ln -sfn ../outside turn; ln -sfn inside turn; done`)
	defer stop()
	inside, refused := 0, 0
	deadline := time.Now().Add(time.Minute)
	// it must have been seen in both states
	for i := 0; inside < 2*h.Rounds || refused < 2*h.Rounds; i++ {
		if time.Now().After(deadline) {
			t.Fatalf("the symlink led inside %d times and outside %d times", inside, refused)
		}
		got, err := read(f, "turn/secret", 0)
		switch {
		case err == nil && string(got) != "harmless\n":
			t.Fatalf("read %q from outside", got)
		case err == nil:
			inside++
		case dray.CodeOf(err) == dray.CodePathInvalid:
			refused++
		}
		if w, err := f.Create("turn/planted-"+strconv.Itoa(i), 0o644); err == nil {
			_ = w.Close()
		}
	}
	if got := h.Shell(t, h.Dir, "ls outside"); got != "secret\n" {
		t.Errorf("outside has %q", got)
	}
}

// Many files can be open at a time.
func filesMany(t *testing.T, _ FilesHarness, f dray.Files) {
	var open []io.ReadCloser
	for range 60 {
		r, _, err := f.Open("digits", 0)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, r)
	}
	for _, r := range open {
		b, err := io.ReadAll(r)
		if string(b) != "0123456789" || errors.Join(err, r.Close()) != nil {
			t.Fatalf("got %q, %v", b, err)
		}
	}
}
