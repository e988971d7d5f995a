package audit

import (
	"context"
	"database/sql"
	"fmt"
	"math"

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

// Stat are the statistics of the calls with one key.
type Stat struct {
	// Key is empty for calls that have none, such as the reason of calls that run.
	Key string `json:"key"`
	// Calls counts the calls, Failed those of them that failed.
	Calls  int64 `json:"calls"`
	Failed int64 `json:"failed"`
	// P50MS and P99MS are durations in milliseconds: at least half of the calls that have a duration,
	// and 99 of 100, took no longer. They are nil if none has one.
	P50MS *float64 `json:"p50_ms"`
	P99MS *float64 `json:"p99_ms"`
	// Bytes is the sum of [dray.Result.Bytes].
	Bytes int64 `json:"bytes"`
}

// Stats returns statistics of the calls that a query selects, those of the key with the most calls
// first, of at most 1000 keys. It ignores Sort, Limit and Cursor. It reads every call that q
// selects: with 10 million calls in the log, those of a day take less than a second, all of them
// minutes. Stats fails with invalid_request for an unknown key, else with audit_unavailable.
func (s *Store) Stats(ctx context.Context, by StatsKey, q Query) ([]Stat, error) {
	stmt, err := q.stats(by)
	if err != nil {
		return nil, err
	}
	rows, err := selectAll(ctx, s.read, stmt, (*statRow).columns)
	if err != nil {
		return nil, unavailableError(s.path, "compute statistics of the audit log", err)
	}
	all := make([]Stat, len(rows))
	for i, row := range rows {
		row.P50MS, row.P99MS = milliseconds(row.p50), milliseconds(row.p99)
		all[i] = row.Stat
	}
	return all, nil
}

type statRow struct {
	Stat
	p50, p99 sql.NullInt64
}

func (r *statRow) columns() []any {
	return []any{&r.Key, &r.Calls, &r.Failed, &r.p50, &r.p99, &r.Bytes}
}

// milliseconds returns nanoseconds as milliseconds, to the microsecond.
func milliseconds(ns sql.NullInt64) *float64 {
	if !ns.Valid {
		return nil
	}
	return new(math.Round(float64(ns.Int64)/1e3) / 1e3)
}

// stats returns the query for statistics. The n-th shortest of a key's calls has the rank n.
func (q Query) stats(by StatsKey) (selectQuery, error) {
	column, ok := statsColumns[by]
	if !ok {
		return selectQuery{}, dray.Errorf(dray.CodeInvalidRequest, "unknown key %q", by).
			WithHint("group by tool, container, workspace, principal or reason")
	}
	from, where := q.selected()
	return selectQuery{
		sql: fmt.Sprintf(`WITH calls AS MATERIALIZED (
			SELECT coalesce(%s, '') AS key, i.status = 'failed' AS failed, i.duration AS duration,
				coalesce(i.bytes, 0) AS bytes FROM %s%s),
		ranked AS (SELECT *, count(duration) OVER (PARTITION BY key) AS timed,
			row_number() OVER (PARTITION BY key ORDER BY duration NULLS LAST) AS rank FROM calls)
		SELECT key, count(*), sum(failed), max(iif(rank = (timed + 1) / 2, duration, NULL)),
			max(iif(rank = (timed * 99 + 99) / 100, duration, NULL)), sum(bytes)
		FROM ranked GROUP BY key ORDER BY count(*) DESC, key LIMIT ?`, column, from, where.where()),
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
