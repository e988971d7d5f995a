package transfer

import (
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dray-dev/dray"
)

// scripted is a tree in memory that fails after a number of bytes and entries.
type scripted struct {
	files  map[string]string // content by name; "/" at the end is a directory
	held   map[string]dray.PartialFile
	budget int
	fault  error

	names []string
	rest  string
}

func (s *scripted) version(name string) string {
	if strings.HasSuffix(name, "/") {
		return ""
	}
	return "v" + s.files[name]
}

func (s *scripted) spend() error {
	if s.budget == 0 {
		return s.fault
	}
	s.budget--
	return nil
}

func (s *scripted) Next() (dray.TreeEntry, error) {
	if s.names == nil {
		s.names = slices.Sorted(maps.Keys(s.files))
	}
	if err := s.spend(); err != nil {
		return dray.TreeEntry{}, err
	}
	if len(s.names) == 0 {
		return dray.TreeEntry{}, io.EOF
	}
	name := s.names[0]
	s.names = s.names[1:]
	if folder, ok := strings.CutSuffix(name, "/"); ok {
		return dray.TreeEntry{Name: folder, Type: "directory"}, nil
	}
	content := s.files[name]
	e := dray.TreeEntry{Name: name, Type: "file", Size: int64(len(content)), Version: s.version(name)}
	if h := s.held[name]; h.Version == e.Version {
		e.Offset = h.Bytes
	}
	s.rest = content[e.Offset:]
	return e, nil
}

func (s *scripted) Read(p []byte) (int, error) {
	if s.rest == "" {
		return 0, io.EOF
	}
	if err := s.spend(); err != nil {
		return 0, err
	}
	n := copy(p[:1], s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *scripted) Close() error { return nil }

var errAgent = dray.Errorf(dray.CodeAgentLost, "the agent went away: %w", io.EOF)

func readAll(t dray.Tree, skip func(name string) bool) (map[string]string, error) {
	got := map[string]string{}
	for {
		e, err := t.Next()
		if isEOF(err) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		if e.Type == "directory" {
			got[e.Name+"/"] = ""
			continue
		}
		if e.Offset != 0 {
			return got, errors.New("a file that was never read begins in its middle")
		}
		if skip != nil && skip(e.Name) {
			got[e.Name] = "skipped"
			continue
		}
		content, err := io.ReadAll(t)
		if err != nil {
			return got, err
		}
		got[e.Name] = string(content)
	}
}

var someFiles = map[string]string{
	"d/": "", "d/a": "first", "d/b": "", "d/c": "third and longer",
	"d/e/": "", "d/e/f": "last",
}

// A transfer that is interrupted twice, at any point, has the right content (SY-09).
func TestResume_AnyPoint(t *testing.T) { synctest.Test(t, testResumeAnyPoint) }

func testResumeAnyPoint(t *testing.T) {
	for at := range 45 {
		for again := range 12 {
			budgets := []int{at, again, -1}
			opened := 0
			r, err := newResumableTree(t.Context(),
				func(held map[string]dray.PartialFile) (dray.Tree, error) {
					s := &scripted{files: someFiles, held: held, budget: budgets[opened], fault: errAgent}
					opened++
					return s, nil
				})
			if err != nil {
				t.Fatal(err)
			}
			got, err := readAll(r, func(name string) bool { return name == "d/a" && again%2 == 1 })
			if again%2 == 1 && got["d/a"] == "skipped" {
				got["d/a"] = someFiles["d/a"]
			}
			if err != nil || !maps.Equal(got, someFiles) {
				t.Fatalf("broken off after %d and %d steps: got %v, %v", at, again, got, err)
			}
		}
	}
}

// A third interruption, or another error, ends the transfer.
func TestResume_LastAttempt(t *testing.T) { synctest.Test(t, testResumeLastAttempt) }

func testResumeLastAttempt(t *testing.T) {
	for name, tc := range map[string]struct {
		fault error
		opens int
	}{
		"again and again": {errAgent, maxAttemptsPerTree},
		"a limit":         {dray.Errorf(dray.CodeLimitExceeded, "too much"), 1},
		"something else":  {errors.New("odd"), 1},
	} {
		opened := 0
		r, err := newResumableTree(t.Context(),
			func(held map[string]dray.PartialFile) (dray.Tree, error) {
				opened++
				return &scripted{files: someFiles, held: held, budget: 4, fault: tc.fault}, nil
			})
		if err == nil {
			_, err = readAll(r, nil)
		}
		if !errors.Is(err, tc.fault) || opened != tc.opens {
			t.Errorf("%s: got %v after %d", name, err, opened)
		}
	}
}

// A change during the transfer is an error (SY-09).
func TestResume_FileChanged(t *testing.T) { synctest.Test(t, testResumeFileChanged) }

func testResumeFileChanged(t *testing.T) {
	for name, second := range map[string]map[string]string{
		"a file that came": {
			"d/": "", "d/a": "other", "d/b": "", "d/c": "third and longer",
			"d/e/": "", "d/e/f": "last",
		},
		"the file that was read": {
			"d/": "", "d/a": "first", "d/b": "", "d/c": "third and older!",
			"d/e/": "", "d/e/f": "last",
		},
		"a file that is gone": {
			"d/": "", "d/b": "", "d/c": "third and longer", "d/e/": "",
			"d/e/f": "last",
		},
		"the file read is gone": {"d/": "", "d/a": "first", "d/b": "", "d/e/": "", "d/e/f": "last"},
		"a file before that came": {
			"d/": "", "d/a": "first", "d/aa": "new", "d/b": "",
			"d/c": "third and longer",
		},
	} {
		opened := 0
		r, err := newResumableTree(t.Context(),
			func(held map[string]dray.PartialFile) (dray.Tree, error) {
				s := &scripted{files: someFiles, held: held, budget: 13, fault: errAgent} // within d/c
				if opened++; opened > 1 {
					s.files, s.budget = second, -1
				}
				return s, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(r, nil); !errors.Is(err, errFileChanged) ||
			dray.CodeOf(err) != dray.CodeTransferFailed {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Random trees that are interrupted at random points have the right content.
func TestResume_RandomTrees(t *testing.T) { synctest.Test(t, testResumeRandomTrees) }

func testResumeRandomTrees(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	by := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		files := map[string]string{}
		for i := range by.IntN(12) {
			files["d/"+string(rune('a'+i))] = strings.Repeat("x", by.IntN(20))
		}
		if len(files) > 0 {
			files["d/"] = ""
		}
		opened := 0
		r, err := newResumableTree(t.Context(),
			func(held map[string]dray.PartialFile) (dray.Tree, error) {
				budget := -1
				if opened++; opened < maxAttemptsPerTree {
					budget = by.IntN(60)
				}
				return &scripted{files: files, held: held, budget: budget, fault: errAgent}, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readAll(r, nil); err != nil || !maps.Equal(got, files) {
			t.Fatalf("got %v, %v; want %v", got, err, files)
		}
	}
}
