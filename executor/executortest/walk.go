package executortest

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// walked returns the names of a walk with their types.
func walked(t *testing.T, f dray.Files, name string) ([]string, error) {
	t.Helper()
	var all []string
	err := f.Walk(t.Context(), name, func(name string, info dray.FileInfo) error {
		line := name + " " + info.Type
		if info.Refused != nil {
			line += " " + string(info.Refused.Code)
		}
		all = append(all, line)
		return nil
	})
	return all, err
}

func filesWalk(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `mkdir -p walk/a/deep walk/a-b walk/.hidden walk/closed/in; cd walk
		echo 1 >a/deep/one; echo 22 >a/two; : >a-b/x; : >.hidden/y; : >Z; ln -s a to-a; ln -s /etc etc; ln -s nowhere dead; mkfifo fifo; : >"$(printf 'odd\377\nname')"`)
	got, err := walked(t, f, "walk")
	want := []string{
		"walk directory", "walk/.hidden directory", "walk/.hidden/y file", "walk/Z file", "walk/a directory", "walk/a/deep directory", "walk/a/deep/one file",
		"walk/a/two file", "walk/a-b directory", "walk/a-b/x file", "walk/closed directory", "walk/closed/in directory", "walk/dead symlink", "walk/etc symlink",
		"walk/fifo other", "walk/odd\xff\nname file", "walk/to-a symlink",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	for name, want := range map[string][]string{
		"walk/to-a": {
			"walk/to-a directory", "walk/to-a/deep directory", "walk/to-a/deep/one file",
			"walk/to-a/two file",
		},
		"walk/Z": {"walk/Z file"}, "walk/fifo": {"walk/fifo other"}, "walk/dead": nil, "walk/etc": nil, "..": nil, "walk/no-such": nil, "walk/Z/x": nil,
	} {
		got, err := walked(t, f, name)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	if got, err := walked(t, f, ""); err != nil || len(got) < 17 || got[0] != ". directory" ||
		!slices.Contains(got, "inside directory") {
		t.Errorf("the root itself: got %.300q, %v", got, err)
	}
	_ = f.Walk(t.Context(), "walk", func(name string, info dray.FileInfo) error {
		one, err := f.Stat(name)
		one.Target, info.Name = "", one.Name
		if err != nil || one != info {
			t.Errorf("Walk returns %+v for %q, Stat %+v, %v", info, name, one, err)
		}
		return nil
	})
}

// An unreadable directory is reported and does not end the walk.
func filesWalkDenied(t *testing.T, h FilesHarness, f dray.Files) {
	user := h.Shell(t, h.Dir+"/root", `mkdir -p locked/in/below locked/next; chmod 0 locked/in; id -u`)
	defer h.Shell(t, h.Dir+"/root", `chmod 700 locked/in`)
	want := []string{"locked directory", "locked/in directory denied", "locked/next directory"}
	if user == "0\n" {
		want = []string{
			"locked directory", "locked/in directory", "locked/in/below directory",
			"locked/next directory",
		}
	}
	if got, err := walked(t, f, "locked"); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := walked(t, f, "locked/in"); user != "0\n" && !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %q, %v", got, err)
	}
}

func filesWalkSkips(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `mkdir -p answers/a/b answers/c answers/d; cd answers; : >a/1; : >a/b/2; : >c/3; : >c/4; : >d/5`)
	mistake := errors.New("a mistake")
	for _, tt := range []struct {
		at     string
		answer error
		want   string
	}{
		{"answers", fs.SkipDir, ""},
		{"answers/a", fs.SkipDir, "a c c/3 c/4 d d/5"},
		{"answers/a/1", fs.SkipDir, "a a/1 c c/3 c/4 d d/5"},
		{"answers/c/3", fs.SkipDir, "a a/1 a/b a/b/2 c c/3 d d/5"},
		{"answers/a/b/2", fs.SkipDir, "a a/1 a/b a/b/2 c c/3 c/4 d d/5"},
		{"answers/c/3", fs.SkipAll, "a a/1 a/b a/b/2 c c/3"},
		{"answers/c", mistake, "a a/1 a/b a/b/2 c"},
	} {
		var names []string
		err := f.Walk(t.Context(), "answers", func(name string, _ dray.FileInfo) error {
			if rest, below := strings.CutPrefix(name, "answers/"); below {
				names = append(names, rest)
			}
			if name == tt.at {
				return tt.answer
			}
			return nil
		})
		if failed := errors.Is(tt.answer, mistake); strings.Join(names, " ") != tt.want ||
			failed != errors.Is(err, mistake) || !failed && err != nil {
			t.Errorf("%v at %s: got %q, %v", tt.answer, tt.at, names, err)
		}
	}
	if _, err := f.Stat("answers"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A walk handles many entries and deep directories, skips across batches, and its visitor can read
// files.
func filesWalkMany(t *testing.T, h FilesHarness, f dray.Files) {
	count := 5000
	if h.Brief {
		count = 1500
	}
	h.Shell(t, h.Dir+"/root", fmt.Sprintf(`mkdir -p many/big many/last; echo text >many/last/file; cd many/big; seq %d | xargs touch; mkdir 0; cd 0; seq 1200 | xargs touch`, count))
	h.Shell(t, h.Dir+"/root", `mkdir chain; cd chain; i=0; while [ $i -lt 70 ]; do mkdir d; cd d; i=$((i+1)); done; : >bottom`)
	h.Shell(t, h.Dir+"/root", `mkdir deep; cd deep; i=0; while [ $i -lt 140 ]; do mkdir d; cd d; i=$((i+1)); done; : >bottom`)
	var last string
	for name, want := range map[string]int{"many": count + 1200 + 5, "chain": 72, "deep": 129} {
		got, err := walked(t, f, name)
		if err != nil || len(got) != want {
			t.Errorf("%s: got %d entries, %v, want %d", name, len(got), err, want)
		}
		if name == "deep" {
			last = got[len(got)-1]
		}
	}
	if !strings.HasSuffix(last, "/d directory limit_exceeded") {
		t.Errorf("the deepest is %q", last)
	}
	var names []string
	err := f.Walk(t.Context(), "many", func(name string, info dray.FileInfo) error {
		names = append(names, name)
		switch {
		case name == "many/big/0":
			return fs.SkipDir
		case name == "many/big/1":
			return fs.SkipDir
		case info.Type == "file":
			if got, err := read(f, name, 0); err != nil || string(got) != "text\n" {
				t.Errorf("reading %s meanwhile: %q, %v", name, got, err)
			}
		}
		return nil
	})
	if want := []string{
		"many", "many/big", "many/big/0", "many/big/1", "many/last",
		"many/last/file",
	}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %q, %v", names, err)
	}
}

// A walk never enters a symlink that replaces a directory.
func filesWalkRace(t *testing.T, h FilesHarness, f dray.Files) {
	h.Shell(t, h.Dir+"/root", `mkdir -p exchange/turn; : >exchange/turn/inner`)
	stop := h.Background(t, h.Dir+"/root/exchange", `while :; do mv turn away; ln -s ../../outside turn; rm turn; mv away turn; done`)
	defer stop()
	entered, linked := 0, 0
	deadline := time.Now().Add(time.Minute)
	for entered < h.Rounds || linked < h.Rounds {
		if time.Now().After(deadline) {
			t.Fatalf("it was seen as a directory %d times and as a symlink %d times", entered, linked)
		}
		names, err := walked(t, f, "exchange")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.Contains(name, "secret") {
				t.Fatalf("the walk went outside: %q", names)
			}
		}
		if slices.Contains(names, "exchange/turn/inner file") {
			entered++
		}
		if slices.Contains(names, "exchange/turn symlink") {
			linked++
		}
	}
}
