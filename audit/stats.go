package audit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dray-dev/dray"
)

// StatsKey is what statistics are grouped by.
type StatsKey string

// The keys of groups.
const (
	ByTool      StatsKey = "tool"
	ByContainer StatsKey = "container" // the engine's name, else the configured one
	ByWorkspace StatsKey = "workspace"
	ByPrincipal StatsKey = "principal"
	ByReason    StatsKey = "reason"
)

var statsColumns = map[StatsKey]string{
	ByTool: "i.tool", ByContainer: "coalesce(i.container_name, i.container)",
	ByWorkspace: "i.workspace", ByPrincipal: "i.principal", ByReason: "i.reason",
}

// maxStats bounds the groups of statistics.
const maxStats = 1000

// Stats returns statistics of the calls that a query selects, those of the key with the most calls
// first, of at most 1000 keys. It ignores Sort, Limit and Cursor. It reads every call that q
// selects: with 10 million calls in the log, those of a day take less than a second, all of them a
// minute. Stats fails with invalid_request for an unknown key, else with audit_unavailable.
func (s *Store) Stats(ctx context.Context, by StatsKey, q Query) ([]dray.Stat, error) {
	stmt, err := q.stats(by)
	if err != nil {
		return nil, err
	}
	rows, err := selectAll(ctx, s.read, stmt, (*statRow).columns)
	if err != nil {
		return nil, unavailableError(s.path, "compute statistics of the audit log", err)
	}
	all := make([]dray.Stat, len(rows))
	for i, row := range rows {
		all[i] = row.stat()
	}
	return all, nil
}

// statRow is a [dray.Stat] with the durations of its calls: nanoseconds, separated by commas, not
// in order.
type statRow struct {
	dray.Stat
	durations string
}

func (r *statRow) columns() []any {
	return []any{&r.Key, &r.Calls, &r.Failed, &r.Bytes, &r.durations}
}

func (r *statRow) stat() dray.Stat {
	var all []int64
	for one := range strings.SplitSeq(r.durations, ",") {
		if ns, err := strconv.ParseInt(one, 10, 64); err == nil { // the only text is the empty one
			all = append(all, ns)
		}
	}
	slices.Sort(all)
	r.P50MS, r.P99MS = percentile(all, 50), percentile(all, 99)
	return r.Stat
}

// percentile returns the shortest duration that p of 100 do not exceed, in milliseconds to the
// microsecond.
func percentile(sorted []int64, p int) *float64 {
	if len(sorted) == 0 {
		return nil
	}
	ns := sorted[(len(sorted)*p+99)/100-1]
	return new(math.Round(float64(ns)/1e3) / 1e3)
}

// stats returns the query for statistics. The index of started_at has all columns that it needs
// without further filters. The durations are one text for each key, because a row for each call
// costs more than all else, and so does ranking them in SQL.
func (q Query) stats(by StatsKey) (selectQuery, error) {
	column, ok := statsColumns[by]
	if !ok {
		return selectQuery{}, dray.Errorf(dray.CodeInvalidRequest, "unknown key %q", by).
			WithHint("group by tool, container, workspace, principal or reason")
	}
	from, where := q.selected()
	return selectQuery{
		sql: fmt.Sprintf(`SELECT coalesce(%s, '') AS key, count(*) AS calls,
			sum(i.status = 'failed'), coalesce(sum(i.bytes), 0), coalesce(group_concat(i.duration), '')
			FROM %s%s GROUP BY key ORDER BY calls DESC, key LIMIT ?`, column, from, where.where()),
		args: append(where.args, maxStats),
	}, nil
}

// selected returns the tables and conditions that select all calls of the query.
func (q Query) selected() (from string, where whereClause) {
	where = q.minDuration(q.timeRange(whereClause{}))
	bodies := false
	for _, f := range q.filters() {
		where, bodies = where.and(f.sql, f.args...), bodies || f.bodies
	}
	return "invocations i" + joinBodies(bodies), where
}
