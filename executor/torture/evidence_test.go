package torture_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// group is one page of docs/evidence.
type group struct {
	file, title, text string
	columns           []string
}

var (
	escaping = group{
		"escapes.md", "What a tool does to outlive its timeout",
		`Each call was ended by its timeout once the tool had done what its style says; one in five was ended at a random moment of its first eight
milliseconds instead. *left* counts the processes that ran the tool's program afterwards, as /proc of the host shows them, and *overshoot* is the
time from the deadline to the end of the call, the grace of 2 s for those that ignore TERM included. *docker exec leaves* is the same tool started
by ` + "`docker exec`" + `, whose client was ended in the same way: the processes left for each call 2 s later. The styles are those of
executor/torture/testdata/hostile.c.`,
		[]string{"place", "style", "calls", "left", "overshoot p50", "p99", "max", "docker exec leaves"},
	}
	losing = group{
		"losses.md", "What is lost under a call",
		`Each time, calls in every style of escape were in flight when the loss came. All of them ended as unavailable with what they had printed, but for
those of a memory or fork bomb and of a stopped supervisor, which ended by their own reason; the next call worked. *told after* is the time from
the loss to the end of the call, *left* what of the tool's processes was there when all was over.`,
		[]string{"place", "loss", "calls", "left", "told after p50", "p99", "max"},
	}
	counting = group{
		"bytes.md", "Any number of bytes",
		`Totals, kept bytes and their digests were exact each time. *memory* is how much more the daemon's process held at most than before.`,
		[]string{"place", "what", "bytes", "memory", "time"},
	}
)

// series are durations of one kind.
type series struct {
	mu  sync.Mutex
	all []time.Duration
}

func (s *series) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, d)
}

func (s *series) count() string { return fmt.Sprint(len(s.all)) }

// at is the duration below which so many of a hundred lie.
func (s *series) at(percent int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return "-"
	}
	slices.Sort(s.all)
	d := s.all[min(len(s.all)*percent/100, len(s.all)-1)]
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// finding is a row of a page.
type finding struct {
	Cells        []string
	Seed         uint64
	Commit, Date string
}

// report says what a test found, and where the published counts are run writes it down. Pages grow row by row: what ran for a place and a
// style replaces what stood there for them, so that a soak can be done in parts.
func report(t *testing.T, g group, cells ...string) {
	t.Helper()
	t.Log(strings.Join(cells, " | "))
	if !soaking || t.Failed() {
		return
	}
	seed, _ := seeds.Load(t.Name())
	number, _ := seed.(uint64)
	row := finding{cells, number, commit(), time.Now().UTC().Format(time.DateOnly)}
	if err := g.write(strings.Join(cells[:2], "\x00"), row); err != nil {
		t.Error(err)
	}
}

// told is the row of a series.
func told(t *testing.T, g group, place, what string, s *series, left int, more ...string) {
	t.Helper()
	report(t, g, append([]string{place, what, s.count(), fmt.Sprint(left), s.at(50), s.at(99), s.at(100)}, more...)...)
}

var (
	writing sync.Mutex
	seeds   sync.Map // test -> the seed it printed
)

// write puts a row into the page, by way of the rows of earlier runs.
func (g group) write(key string, row finding) error {
	writing.Lock()
	defer writing.Unlock()
	store := "../../.tools/test/evidence/" + strings.TrimSuffix(g.file, ".md") + ".json"
	rows := map[string]finding{}
	if b, err := os.ReadFile(store); err == nil {
		if err := json.Unmarshal(b, &rows); err != nil {
			return fmt.Errorf("reading %s: %w", store, err)
		}
	}
	rows[key] = row
	b, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	page := "../../docs/evidence/" + g.file
	for path, text := range map[string][]byte{store: b, page: g.page(rows)} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (g group) page(rows map[string]finding) []byte {
	var b strings.Builder
	columns := append(slices.Clone(g.columns), "seed", "commit", "date")
	fmt.Fprintf(&b, "# %s\n\nWritten by `make soak` on %s.\n\n%s\n\n", g.title, machine(), g.text)
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		r := rows[key]
		seed := "-"
		if r.Seed != 0 {
			seed = fmt.Sprint(r.Seed)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(append(slices.Clone(r.Cells), seed, r.Commit, r.Date), " | "))
	}
	return []byte(b.String())
}

// machine is what the figures depend on, without anything that names the machine.
var machine = sync.OnceValue(func() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	release, _, _ := strings.Cut(strings.TrimSpace(string(kernel)), "-") // what follows is the builder's own
	return fmt.Sprintf("%d cores, %s of memory, Linux %s, engine %s, Go %s, the race detector in the daemon's part", runtime.NumCPU(), total(), release,
		engineVersion(), strings.TrimPrefix(runtime.Version(), "go"))
})

func total() string {
	b, _ := os.ReadFile("/proc/meminfo")
	var kib int
	if _, err := fmt.Sscanf(string(b), "MemTotal: %d kB", &kib); err != nil {
		return "an unknown amount"
	}
	return fmt.Sprintf("%d GiB", (kib+1<<19)>>20)
}

func engineVersion() string {
	api, err := client.New(client.FromEnv)
	if err != nil {
		return "unknown"
	}
	defer func() { _ = api.Close() }()
	v, err := api.ServerVersion(context.Background(), client.ServerVersionOptions{})
	if err != nil {
		return "unknown"
	}
	return v.Version
}

// commit names what was tested, and says so if it was changed since; what is written here is no change.
var commit = sync.OnceValue(func() string {
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(out))
	if exec.Command("git", "diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)docs/evidence").Run() != nil {
		name += ", changed"
	}
	return name
})
