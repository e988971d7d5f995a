package torture_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/dray-dev/dray/internal/evidence"
)

var (
	escaping = evidence.Page{
		File: "escapes.md", Title: "What a tool does to outlive its timeout",
		Text: `Each call was ended by its timeout once the tool had done what its style says; one in five was ended at a random moment of its first eight
milliseconds instead. *left* counts the processes that ran the tool's program afterwards, as /proc of the host shows them, and *overshoot* is the
time from the deadline to the end of the call, the grace of 2 s for those that ignore TERM included. *docker exec leaves* is the same tool started
by ` + "`docker exec`" + `, whose client was ended in the same way: the processes left for each call 2 s later. The styles are those of
executor/torture/testdata/hostile.c.`,
		Columns: []string{
			"place", "style", "calls", "left", "overshoot p50", "p99", "max",
			"docker exec leaves",
		},
		Key: 2, Machine: machine,
	}
	losing = evidence.Page{
		File: "losses.md", Title: "What is lost under a call",
		Text: `Each time, calls in every style of escape were in flight when the loss came. All of them ended as unavailable with what they had printed, but for
those of a memory or fork bomb and of a stopped supervisor, which ended by their own reason; the next call worked. *told after* is the time from
the loss to the end of the call, *left* what of the tool's processes was there when all was over.`,
		Columns: []string{"place", "loss", "calls", "left", "told after p50", "p99", "max"},
		Key:     2, Machine: machine,
	}
	counting = evidence.Page{
		File: "bytes.md", Title: "Any number of bytes",
		Text:    `Totals, kept bytes and their digests were exact each time. *memory* is how much more the daemon's process held at most than before.`,
		Columns: []string{"place", "what", "bytes", "memory", "time"},
		Key:     2, Machine: machine,
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

// report says what a test found, and where the published counts are run writes it down. Pages grow
// row by row: what ran for a place and a style replaces what stood there for them, so that a soak
// can be done in parts.
func report(t *testing.T, page evidence.Page, cells ...string) {
	t.Helper()
	t.Log(strings.Join(cells, " | "))
	if !soaking || t.Failed() {
		return
	}
	seed, _ := seeds.Load(t.Name())
	number, _ := seed.(uint64)
	if err := page.WriteRow(number, cells...); err != nil {
		t.Error(err)
	}
}

// told is the row of a series.
func told(t *testing.T, page evidence.Page, place, what string, s *series, left int,
	more ...string,
) {
	t.Helper()
	report(t, page, append([]string{
		place, what, s.count(), fmt.Sprint(left), s.at(50), s.at(99),
		s.at(100),
	}, more...)...)
}

var seeds sync.Map // test -> the seed it printed

// machine is what the figures depend on.
var machine = sync.OnceValue(func() string {
	return fmt.Sprintf("%d cores, %s of memory, %s, engine %s, %s, the race detector in the daemon's part", runtime.NumCPU(), total(), evidence.Kernel(),
		engineVersion(), evidence.Go())
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
