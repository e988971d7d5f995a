package evidence

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// A page grows row by row, and what is found again stands in the place of what was found before.
func TestWrite(t *testing.T) {
	top := t.TempDir()
	if err := os.MkdirAll(top+"/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(top+"/go.mod", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(top + "/a/b")
	p := Page{
		File: "p.md", Title: "T", Text: "Text.", Columns: []string{"where", "what", "left"},
		Key: 2, Machine: func() string { return "M" },
	}
	for _, cells := range [][]string{{"x", "2", "7"}, {"x", "1", "8"}, {"x", "2", "9"}} {
		if err := p.WriteRow(5, cells...); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.WriteRow(0, "y", "1", "0"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(top, "docs", "evidence", "p.md"))
	want := regexp.MustCompile(`^# T\n\nWritten by .make soak. on M\.\n\nText\.\n\n\| where \| what \| left \| seed \| commit \| date \|\n\|---\|---\|---\|---\|---\|---\|\n` +
		`\| x \| 1 \| 8 \| 5 \|.*\n\| x \| 2 \| 9 \| 5 \|.*\n\| y \| 1 \| 0 \| - \|.*\n$`)
	if err != nil || !want.Match(b) {
		t.Errorf("%v\n%s", err, b)
	}
}
