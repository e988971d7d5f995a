// Package evidence writes the pages of docs/evidence: what tests found when they ran for long. A
// page grows row by row, so that a soak can be done in parts; the rows lie in .tools too, from
// where a page is written anew. Only tests import it.
package evidence

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Page is a page with one table.
type Page struct {
	// File is its name in docs/evidence.
	File, Title, Text string
	// Columns are the table's; the first Key of them tell its rows apart. Seed, commit and date stand
	// behind them.
	Columns []string
	Key     int
	// Machine says on what the figures were found, without anything that names the machine.
	Machine func() string
}

type row struct {
	Cells        []string
	Seed         uint64
	Commit, Date string
}

var writing sync.Mutex

// WriteRow puts a row into the page, in the place of what was found before. The seed of zero is
// none.
func (p Page) WriteRow(seed uint64, cells ...string) error {
	writing.Lock()
	defer writing.Unlock()
	top, err := moduleRoot()
	if err != nil {
		return err
	}
	store := filepath.Join(top, ".tools", "test", "evidence",
		strings.TrimSuffix(p.File, ".md")+".json")
	rows := map[string]row{}
	if b, err := os.ReadFile(store); err == nil {
		if err := json.Unmarshal(b, &rows); err != nil {
			return fmt.Errorf("reading %s: %w", store, err)
		}
	}
	rows[strings.Join(cells[:p.Key], "\x00")] = row{cells, seed, commit(), time.Now().UTC().
		Format(time.DateOnly)}
	b, err := json.Marshal(rows)
	if err != nil {
		return fmt.Errorf("writing the rows of %s: %w", p.File, err)
	}
	return errors.Join(replaceFile(store, b),
		replaceFile(filepath.Join(top, "docs", "evidence", p.File), p.markdown(rows)))
}

func replaceFile(path string, text []byte) error {
	// a part of the repository
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec
		return err
	}
	return os.WriteFile(path, text, 0o644) //nolint:gosec // the same
}

func (p Page) markdown(rows map[string]row) []byte {
	var b strings.Builder
	columns := append(slices.Clone(p.Columns), "seed", "commit", "date")
	fmt.Fprintf(&b, "# %s\n\nWritten by `make soak` on %s.\n\n%s\n\n", p.Title, p.Machine(), p.Text)
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(columns, " | "),
		strings.Repeat("---|", len(columns)))
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		r := rows[key]
		seed := "-"
		if r.Seed != 0 {
			seed = fmt.Sprint(r.Seed)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(append(slices.Clone(r.Cells), seed, r.Commit, r.Date),
			" | "))
	}
	return []byte(b.String())
}

// moduleRoot is the folder of go.mod: tests run in the folder of their package.
func moduleRoot() (string, error) {
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if here, err := filepath.Abs(dir); err != nil || here == "/" {
			return "", fmt.Errorf("looking for the module: %w", fs.ErrNotExist)
		}
	}
}

// Kernel is the kernel's version without what its builder added, as pages tell it.
func Kernel() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	release, _, _ := strings.Cut(strings.TrimSpace(string(kernel)), "-")
	return "Linux " + release
}

// Go is the version of Go, as pages tell it.
func Go() string { return "Go " + strings.TrimPrefix(runtime.Version(), "go") }

// commit names what was tested, and says so if it was changed since; what is written here is no
// change.
var commit = sync.OnceValue(func() string {
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(out))
	if exec.Command("git", "diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)docs/evidence").
		Run() != nil {
		name += ", changed"
	}
	return name
})
