package audit

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// Statistics are exact for each key: computed here from the list of the same calls (AU-08).
func TestStats(t *testing.T) {
	s, _ := various(t)
	keys := map[StatsKey]func(dray.Record) string{
		ByTool:      func(r dray.Record) string { return r.Tool },
		ByPrincipal: func(r dray.Record) string { return r.Principal },
		ByWorkspace: func(r dray.Record) string { return r.Workspace },
		ByReason:    func(r dray.Record) string { return string(r.Reason) },
		ByContainer: func(r dray.Record) string {
			if r.Metadata.Container == nil {
				return ""
			}
			return r.Metadata.Container.Name
		},
	}
	queries := map[string]Query{"none": {}, "half a minute": {Until: epoch.Add(30 * time.Second)}}
	maps.Copy(queries, everyFilter)
	for name, q := range queries {
		for by, key := range keys {
			got, err := s.Stats(t.Context(), by, q)
			must(t, err)
			q.Limit = MaxLimit
			checkStats(t, name+" by "+string(by), got, list(t, s, q).Items, key)
		}
	}
	if _, err := s.Stats(t.Context(), "color", Query{}); codeOf(err) != dray.CodeInvalidRequest {
		t.Errorf("an unknown key: %v", err)
	}
}

func checkStats(t *testing.T, name string, got []dray.Stat, calls []dray.Record,
	key func(dray.Record) string,
) {
	t.Helper()
	groups := map[string][]dray.Record{}
	for _, rec := range calls {
		groups[key(rec)] = append(groups[key(rec)], rec)
	}
	if len(got) != len(groups) {
		t.Errorf("%s: %d keys, want %d", name, len(got), len(groups))
	}
	if !slices.IsSortedFunc(got, func(a, b dray.Stat) int { return int(b.Calls - a.Calls) }) {
		t.Errorf("%s: not the most frequent first: %+v", name, got)
	}
	for _, stat := range got {
		var failed int64
		var durations []float64
		for _, rec := range groups[stat.Key] {
			if rec.Status == dray.StatusFailed {
				failed++
			}
			if rec.DurationMS != nil {
				durations = append(durations, *rec.DurationMS)
			}
		}
		slices.Sort(durations)
		if stat.Calls != int64(len(groups[stat.Key])) || stat.Failed != failed ||
			!isPercentile(stat.P50MS, durations, 0.5) || !isPercentile(stat.P99MS, durations, 0.99) {
			t.Errorf("%s: %+v, want %d calls, %d failed, of %v", name, stat,
				len(groups[stat.Key]), failed, durations)
		}
	}
}

// isPercentile reports whether got is the smallest value that at least this part of the values does
// not exceed.
func isPercentile(got *float64, sorted []float64, part float64) bool {
	if len(sorted) == 0 {
		return got == nil
	}
	return got != nil && *got == sorted[int(math.Ceil(part*float64(len(sorted))))-1]
}

// Statistics over a time range read the calls of that range only (AU-08).
func TestStatsReadTheirTimeRange(t *testing.T) {
	s := open(t, options(t.TempDir()))
	stmt, err := Query{Since: epoch, Until: epoch.Add(time.Hour)}.stats(ByTool)
	must(t, err)
	checkUses(t, queryPlan(t, s, stmt), "invocations_started (started_at>? AND started_at<?)")
	stmt, err = Query{Since: epoch, Reason: dray.ReasonTimeout}.stats(ByWorkspace)
	must(t, err)
	checkUses(t, queryPlan(t, s, stmt), "invocations_reason (reason=? AND started_at>?)")
}

func checkUses(t *testing.T, plan, index string) {
	t.Helper()
	if !strings.Contains(plan, index) {
		t.Errorf("the plan does not use %s\n%s", index, plan)
	}
}
