package audit

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/soakreport"
)

var manyCallsPage = soakreport.Page{
	File: "audit-log.md", Title: "The audit log with many calls",
	Text: `The log has calls as ` + "`generate`" + ` of audit/generate_test.go writes them: 20 tools, 50
containers, 10 principals, 100 workspaces, 1000 plans, 5000 sessions, one call of 20 failed, begun
at even distances within 30 days. A page has 50 calls and is read with all of them; the values of
the filters are random. *Space* is what one call takes in audit.db, with its two events, its row and
the indexes. *Calls beside a reader* are made one after another while another connection reads the
log within one transaction: the WAL grows meanwhile, by what is written, and is used again
afterwards.`,
	Target:  "a page takes at most 50 ms, p99, and the statistics of a day 1 s",
	Columns: []string{"measure", "calls in the log", "repetitions", "p50", "p99", "figure"},
	Key:     1,
}

// What a page and the statistics of a day may take, p99.
const (
	pageTarget  = 50 * time.Millisecond
	statsTarget = time.Second
)

// manyCallsQueries are filters with random values.
var manyCallsQueries = map[string]func(r *rand.Rand, start time.Time) Query{
	"newest":       func(*rand.Rand, time.Time) Query { return Query{} },
	"by tool":      func(r *rand.Rand, _ time.Time) Query { return Query{Tool: pick(r, "tool", 20)} },
	"by principal": func(r *rand.Rand, _ time.Time) Query { return Query{Principal: pick(r, "uid", 10)} },
	"by plan":      func(r *rand.Rand, _ time.Time) Query { return Query{PlanID: pick(r, "plan", 1000)} },
	"by session": func(r *rand.Rand, _ time.Time) Query {
		return Query{SessionID: pick(r, "session", 5000)}
	},
	"by container": func(r *rand.Rand, _ time.Time) Query { return Query{Container: pick(r, "web", 50)} },
	"by workspace": func(r *rand.Rand, _ time.Time) Query {
		return Query{Workspace: "/home/me/" + pick(r, "app", 100)}
	},
	"failed":          func(*rand.Rand, time.Time) Query { return Query{Status: dray.StatusFailed} },
	"by reason":       func(*rand.Rand, time.Time) Query { return Query{Reason: dray.ReasonUnavailable} },
	"by code":         func(*rand.Rand, time.Time) Query { return Query{Code: dray.CodeAgentLost} },
	"by tool and day": func(r *rand.Rand, start time.Time) Query { return dayOf(r, start, "tool") },
	"by label": func(r *rand.Rand, _ time.Time) Query {
		return Query{LabelName: "team", LabelValue: pick(r, "team", 8)}
	},
	"longer than 3 s": func(*rand.Rand, time.Time) Query { return Query{MinDuration: 3 * time.Second} },
	"text":            func(r *rand.Rand, _ time.Time) Query { return Query{Text: fmt.Sprintf("y%d\t", r.IntN(1000))} },
}

func pick(r *rand.Rand, name string, of int) string { return fmt.Sprintf("%s-%d", name, r.IntN(of)) }

// dayOf selects a tool within one of the 30 days.
func dayOf(r *rand.Rand, start time.Time, tool string) Query {
	since := start.Add(time.Duration(r.IntN(30*24)) * time.Hour)
	return Query{Tool: pick(r, tool, 20), Since: since, Until: since.Add(24 * time.Hour)}
}

// manyCallsDir is the variable with a directory that keeps the log for another run: 10 million
// calls take half an hour and 30 GB.
const manyCallsDir = "DRAY_TEST_MANY_CALLS"

// Pages of a log with many calls; 10 million in a soak (AU-08).
func TestManyCalls(t *testing.T) {
	n := soakreport.Count(10_000_000, 2000)
	const span = 30 * 24 * time.Hour
	start := time.Now().Add(-span)
	opts := options(cmp.Or(os.Getenv(manyCallsDir), t.TempDir()))
	s := open(t, opts)
	made := "made before"
	if kept := list(t, s, Query{Limit: 1}).Items; len(kept) > 0 {
		start = kept[0].StartedAt.Add(-span)
	} else {
		began := time.Now()
		generate(t, s, n, start, span/time.Duration(n))
		made = fmt.Sprintf("made at %.0f calls/s", float64(n)/time.Since(began).Seconds())
	}
	figure := fmt.Sprintf("%d bytes for each call; %s", size(t, opts.Path)/int64(n), made)
	calls := soakreport.Value(n)
	dash := soakreport.Value("-")
	manyCallsPage.Row(t, []string{"space"}, func() []soakreport.Cell {
		return []soakreport.Cell{calls, dash, dash, dash, soakreport.Value(figure)}
	})
	repetitions := int(soakreport.Size(200, 3))
	for name, query := range manyCallsQueries {
		t.Run(name, func(t *testing.T) {
			random := soakreport.Rand(t)
			var times []time.Duration
			for range repetitions {
				began := time.Now()
				page := list(t, s, query(random, start))
				times = append(times, time.Since(began))
				if len(page.Unreadable) > 0 {
					t.Errorf("unreadable: %+v", page.Unreadable)
				}
			}
			timesRow(t, "page, "+name, calls, times, pageTarget)
		})
	}
	for _, by := range []StatsKey{ByTool, ByContainer, ByWorkspace, ByPrincipal, ByReason} {
		t.Run("stats by "+string(by), func(t *testing.T) { statsOfDays(t, s, by, start, calls) })
	}
	t.Run("reader", func(t *testing.T) { callsBesideReader(t, s, calls) })
	t.Run("verify", func(t *testing.T) { verifyMany(t, opts, n) })
}

// statsOfDays measures the statistics of random days.
func statsOfDays(t *testing.T, s *Store, by StatsKey, start time.Time, calls soakreport.Cell) {
	t.Helper()
	random := soakreport.Rand(t)
	var times []time.Duration
	for range soakreport.Size(20, 2) {
		q := dayOf(random, start, "tool")
		q.Tool = ""
		began := time.Now()
		if _, err := s.Stats(t.Context(), by, q); err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	timesRow(t, "stats of a day by "+string(by), calls, times, statsTarget)
}

// timesRow writes how long something took.
func timesRow(
	t *testing.T, measure string, calls soakreport.Cell, times []time.Duration, target time.Duration,
) {
	t.Helper()
	manyCallsPage.Row(t, []string{measure}, func() []soakreport.Cell {
		slices.Sort(times)
		p99 := times[(len(times)*99+99)/100-1]
		return []soakreport.Cell{
			calls, soakreport.Value(len(times)), soakreport.Value(times[len(times)/2]),
			soakreport.AtMost(p99, target), soakreport.Value("-"),
		}
	})
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Size()
}

// callsBesideReader makes calls while a reader holds a snapshot, and without it, in turns. The
// reader sees none of them, and each is recorded (AU-08).
func callsBesideReader(t *testing.T, s *Store, calls soakreport.Cell) {
	reader, err := s.read.Conn(t.Context())
	must(t, err)
	defer reader.Close()
	block := int(soakreport.Size(2000, 20))
	var took [2]time.Duration
	var wal int64
	for range 5 {
		for held := range took {
			var before int64
			if held == 1 {
				if _, err := reader.ExecContext(t.Context(), "BEGIN"); err != nil {
					t.Fatal(err)
				}
				before = scan[int64](t, reader, lastSeq)
			}
			began := time.Now()
			for range block {
				run(t, s, newInvocation("exec"), exited(0))
			}
			took[held] += time.Since(began)
			wal = max(wal, size(t, s.path+"-wal"))
			if held == 0 {
				continue
			}
			if now := scan[int64](t, reader, lastSeq); now != before {
				t.Errorf("the reader sees event %d after %d within one transaction", now, before)
			}
			if _, err := reader.ExecContext(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
		}
	}
	manyCallsPage.Row(t, []string{"calls beside a reader"}, func() []soakreport.Cell {
		each := func(d time.Duration) time.Duration { return d / time.Duration(5*block) }
		return []soakreport.Cell{
			calls, soakreport.Value(5 * block), soakreport.Value("-"), soakreport.Value("-"),
			soakreport.Value(fmt.Sprintf("%v for each call, %v without the reader; the WAL had %d MiB",
				each(took[1]).Round(time.Microsecond), each(took[0]).Round(time.Microsecond), wal>>20)),
		}
	})
}

func verifyMany(t *testing.T, opts Options, n int) {
	began := time.Now()
	report := mustVerify(t, opts, nil)
	took := time.Since(began)
	if len(report.Findings) > 0 {
		t.Errorf("%+v", report.Findings[0])
	}
	manyCallsPage.Row(t, []string{"verify"}, func() []soakreport.Cell {
		return []soakreport.Cell{
			soakreport.Value(n), soakreport.Value(1), soakreport.Value("-"), soakreport.Value("-"),
			soakreport.Value(fmt.Sprintf("%v, %.0f events/s", took.Round(time.Millisecond),
				float64(report.Events)/took.Seconds())),
		}
	})
}
