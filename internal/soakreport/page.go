// Package soakreport writes the pages of docs/evidence: what the tests measured at their published
// counts. Only tests import it, and `make soak` runs every package whose tests do.
package soakreport

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Page is one page of docs/evidence with one table. A run replaces the rows that it measures, so
// that a soak can be run in parts.
type Page struct {
	File, Title, Text string
	// Target states what every row must show.
	Target string
	// Columns name the cells of a row. The first Key of them identify it.
	Columns []string
	Key     int
	// Setup returns what the figures depend on beside the machine. It may be nil.
	Setup func() string
}

// Cell is one measured value.
type Cell struct {
	Text   string
	Missed bool // the value misses the page's target
}

// Value returns a cell that has no target.
func Value(v any) Cell { return Cell{Text: format(v)} }

// AtMost returns a cell whose target is a value of at most limit.
func AtMost[T int | int64 | time.Duration](v, limit T) Cell {
	return Cell{Text: format(v), Missed: v > limit}
}

// Exactly returns a cell whose target is the value want.
func Exactly[T comparable](v, want T) Cell { return Cell{Text: format(v), Missed: v != want} }

func format(v any) string {
	if d, ok := v.(time.Duration); ok {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprint(v)
}

// row is a row as it is stored. Result is "ok", "missed", "failed" or "unfinished".
type row struct {
	Cells                         []Cell
	Result, Machine, Commit, Date string
	Seed                          uint64
}

// Row records the row that key identifies. When t has ended, passed or failed, it calls cells for
// the other cells and writes the row; until then the page calls the row unfinished. A run at less
// than the published counts only logs the cells.
func (p Page) Row(t testing.TB, key []string, cells func() []Cell) {
	t.Helper()
	if Enabled() {
		p.write(t, key, nil, "unfinished")
	}
	t.Cleanup(func() {
		measured := cells()
		missed := slices.ContainsFunc(measured, func(c Cell) bool { return c.Missed })
		t.Logf("%s: %s", strings.Join(key, ", "), joinCells(measured))
		switch {
		case !Enabled():
		case t.Failed():
			p.write(t, key, measured, "failed")
		case missed:
			p.write(t, key, measured, "missed")
		default:
			p.write(t, key, measured, "ok")
		}
	})
}

var writing sync.Mutex

func (p Page) write(t testing.TB, key []string, measured []Cell, result string) {
	t.Helper()
	r := row{
		Result: result, Machine: machine(), Commit: commit(), Seed: seedOf(t),
		Date: time.Now().UTC().Format(time.DateOnly),
	}
	if p.Setup != nil {
		r.Machine += ", " + p.Setup()
	}
	for _, k := range key {
		r.Cells = append(r.Cells, Value(k))
	}
	r.Cells = append(r.Cells, measured...)
	for len(r.Cells) < len(p.Columns) {
		r.Cells = append(r.Cells, Value("-"))
	}
	if err := p.store(strings.Join(key, "\x00"), r); err != nil {
		t.Errorf("write %s: %v", p.File, err)
	}
}

// store replaces a row of the page. The rows are kept as JSON too, from which the page is written.
func (p Page) store(key string, r row) error {
	writing.Lock()
	defer writing.Unlock()
	file := strings.TrimSuffix(p.File, ".md") + ".json"
	stored := filepath.Join(moduleRoot(), ".tools", "test", "evidence", file)
	rows := map[string]row{}
	if b, err := os.ReadFile(stored); err == nil {
		if err := json.Unmarshal(b, &rows); err != nil {
			return fmt.Errorf("read %s: %w", stored, err)
		}
	}
	maps.DeleteFunc(rows, func(_ string, r row) bool {
		return !inHistory(r.Commit) || len(r.Cells) != len(p.Columns) // the page has changed
	})
	rows[key] = r
	b, err := json.Marshal(rows)
	if err != nil {
		return fmt.Errorf("encode the rows: %w", err)
	}
	if err := replaceFile(stored, b); err != nil {
		return err
	}
	return replaceFile(filepath.Join(moduleRoot(), "docs", "evidence", p.File), p.markdown(rows))
}

func replaceFile(path string, text []byte) error {
	//nolint:gosec // a part of the repository
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644) //nolint:gosec // the same
}

func (p Page) markdown(rows map[string]row) []byte {
	var b strings.Builder
	var machines []string
	count := map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		r := rows[key]
		count[r.Result]++
		if !slices.Contains(machines, r.Machine) {
			machines = append(machines, r.Machine)
		}
	}
	fmt.Fprintf(&b, "# %s\n\n%s\n\nTarget: %s\n\n", p.Title, p.Text, p.Target)
	fmt.Fprintf(&b, "Of %d rows %d meet it, %d miss it (bold), %d failed, %d are unfinished.\n\n",
		len(rows), count["ok"], count["missed"], count["failed"], count["unfinished"])
	for i, m := range machines {
		fmt.Fprintf(&b, "Machine %d: %s.\n\n", i+1, m)
	}
	columns := append(slices.Clone(p.Columns), "result", "seed", "machine", "commit", "date")
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(columns, " | "),
		strings.Repeat("---|", len(columns)))
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		r := rows[key]
		fmt.Fprintf(&b, "%s %s | %d | %d | %s | %s |\n", joinCells(r.Cells), r.Result, r.Seed,
			slices.Index(machines, r.Machine)+1, r.Commit, r.Date)
	}
	return []byte(b.String())
}

func joinCells(cells []Cell) string {
	var b strings.Builder
	b.WriteString("|")
	for _, c := range cells {
		text := strings.ReplaceAll(c.Text, "|", `\|`)
		if c.Missed {
			text = "**" + text + "**"
		}
		b.WriteString(" " + text + " |")
	}
	return b.String()
}
