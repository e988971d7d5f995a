package soakreport

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// fixture is a repository with one commit, in which the test then runs.
func fixture(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	old := moduleRoot
	moduleRoot = func() string { return dir }
	t.Cleanup(func() { moduleRoot = old })
	for _, args := range [][]string{
		{"init", "-q"},
		{"-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "m"},
	} {
		if out, err := git(args...); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	head, err := git("rev-parse", "--short=12", "HEAD")
	oldCommit := commit
	commit = func() string { return head }
	t.Cleanup(func() { commit = oldCommit })
	if err != nil {
		t.Fatal(err)
	}
}

func page(t *testing.T, p Page) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(moduleRoot(), "docs", "evidence", p.File))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var testPage = Page{
	File: "p.md", Title: "T", Text: "Text.", Target: "left is 0.",
	Columns: []string{"where", "what", "left", "p50"}, Key: 2,
	Setup: func() string { return "engine 1" },
}

// A run replaces the row with its key and keeps the others. A cell that misses the target is bold.
func TestRowReplacesRowWithItsKey(t *testing.T) {
	fixture(t)
	t.Setenv("DRAY_TEST_SOAK", "1")
	for _, r := range []struct {
		key  string
		left int
	}{{"2", 7}, {"1", 0}, {"2", 3}} {
		t.Run("row", func(t *testing.T) {
			t.Setenv("DRAY_TEST_SEED", "5")
			Rand(t)
			testPage.Row(t, []string{"x", r.key}, func() []Cell {
				return []Cell{Exactly(r.left, 0), AtMost(2*time.Millisecond, time.Second)}
			})
		})
	}
	want := regexp.MustCompile(`^# T\n\nText\.\n\nTarget: left is 0\.\n\nOf 2 rows 1 meet it, ` +
		`1 miss it \(bold\), 0 failed, 0 are unfinished\.\n\nMachine 1: .*, engine 1\.\n\n` +
		`\| where \| what \| left \| p50 \| result \| seed \| machine \| commit \| date \|\n` +
		`\|(---\|){9}\n` +
		`\| x \| 1 \| 0 \| 2\.0 ms \| ok \| 5 \| 1 \| [0-9a-f]{12} \| \d{4}-\d\d-\d\d \|\n` +
		`\| x \| 2 \| \*\*3\*\* \| 2\.0 ms \| missed \| 5 \| 1 \| [0-9a-f]{12} \| .* \|\n$`)
	if got := page(t, testPage); !want.MatchString(got) {
		t.Errorf("the page is\n%s", got)
	}
}

// failing is a test that has failed.
type failing struct {
	testing.TB
	cleanups []func()
}

func (f *failing) Failed() bool     { return true }
func (f *failing) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }

// A failed run leaves its row, and so does a run that never ends (OP-07).
func TestRowOfFailedRun(t *testing.T) {
	fixture(t)
	t.Setenv("DRAY_TEST_SOAK", "1")
	f := &failing{TB: t}
	testPage.Row(f, []string{"x", "1"}, func() []Cell { return []Cell{Exactly(0, 0)} })
	if got := page(t, testPage); !strings.Contains(got, "| x | 1 | - | - | unfinished |") {
		t.Errorf("before the test has ended the page is\n%s", got)
	}
	for _, c := range f.cleanups {
		c()
	}
	if got := page(t, testPage); !strings.Contains(got, "| x | 1 | 0 | - | failed |") {
		t.Errorf("after the test has failed the page is\n%s", got)
	}
}

// Rows of a commit that is not in the history, and of another layout, are removed (OP-07).
func TestRowsOfOtherHistoriesAreRemoved(t *testing.T) {
	fixture(t)
	here := commit()
	cells := func(key string) []Cell {
		return append([]Cell{Value(key)}, make([]Cell, len(testPage.Columns)-1)...)
	}
	for key, r := range map[string]row{
		"a": {Cells: cells("a"), Commit: strings.Repeat("0", 12)}, "b": {Cells: cells("b"), Commit: here},
		"d": {Cells: cells("d")[:1], Commit: here},
	} {
		if err := testPage.store(key, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := testPage.store("c", row{Cells: cells("c"), Commit: here}); err != nil {
		t.Fatal(err)
	}
	if got := page(t, testPage); strings.Contains(got, "| a |") || strings.Contains(got, "| d |") ||
		!strings.Contains(got, "| b |") {
		t.Errorf("the page is\n%s", got)
	}
}

// Every row in docs/evidence names a commit of this history, without changes on top (OP-07).
func TestPagesNameCommitsOfThisHistory(t *testing.T) {
	if _, err := git("rev-parse", "HEAD"); err != nil {
		t.Skip("gap: the sources are not in a git repository")
	}
	if out, _ := git("rev-parse", "--is-shallow-repository"); out == "true" {
		t.Skip("gap: the repository is a shallow clone")
	}
	pages, err := filepath.Glob(filepath.Join(moduleRoot(), "docs", "evidence", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pages {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		checkCommits(t, filepath.Base(path), string(b))
	}
}

var commitCell = regexp.MustCompile(`\| ([0-9a-f]{12}|unknown)( \+ changes)? \|`)

func checkCommits(t *testing.T, name, text string) {
	t.Helper()
	for _, m := range commitCell.FindAllStringSubmatch(text, -1) {
		if m[2] != "" || !inHistory(m[1]) {
			t.Errorf("%s names commit %s%s, which is not of this history", name, m[1], m[2])
		}
	}
}

// Only this package reads DRAY_TEST_SOAK: `make soak` finds the tests that need long by who imports
// it.
func TestOnlySoakreportReadsVariable(t *testing.T) {
	err := filepath.WalkDir(moduleRoot(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if name := d.Name(); name == ".git" || name == ".tools" {
				return fs.SkipDir
			}
			return err
		}
		if filepath.Ext(path) != ".go" || filepath.Base(filepath.Dir(path)) == "soakreport" {
			return nil
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), `"DRAY_TEST_SOAK`) {
			t.Errorf("%s reads DRAY_TEST_SOAK; use soakreport.Enabled", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
