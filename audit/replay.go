package audit

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/mattn/go-sqlite3"

	"github.com/dray-dev/dray"
)

// replay computes the tables that are projections of events, with the statements that wrote them,
// in temporary tables of the same names: SQLite finds those first. It compares them with the tables
// in the file and forgets them, some thousand events at a time.
type replay struct {
	v    *verifier
	fix  bool  // correct the tables in the file
	next int64 // the number of the next event

	tables []replayTable
	open   map[string]openCall // calls that run at this point of the log, by id
	// unknown are the seqs whose rows cannot be computed, because of a finding or because the body is
	// gone; ranges are those that cannot be read.
	unknown map[int64]bool
	ranges  [][2]int64
	lost    map[string]bool // calls whose begin record is unknown
	pruned  int64           // the last event whose body retention has removed, as prunings has it
}

// openCall is what the end record of a call needs of its begin record.
type openCall struct {
	seq             int64
	principal, plan string
}

// replayTable is a table that is computed from events. Its rows begin with the seq of an event.
type replayTable struct {
	name          string
	columns, keys []string
}

// projectionTables are the names of the computed tables.
var projectionTables = []string{"invocations", "labels", "changed_files", "prunings"}

// newReplay creates the temporary tables, as the migrations do.
func newReplay(ctx context.Context, v *verifier) (*replay, error) {
	r := &replay{
		v: v, next: 1, fix: v.fix, open: map[string]openCall{}, unknown: map[int64]bool{},
		lost: map[string]bool{},
	}
	schema, err := freshSchema(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range projectionTables {
		t, err := v.createTemporary(ctx, name, schema)
		if err != nil {
			return nil, err
		}
		r.tables = append(r.tables, t)
	}
	err = v.db.QueryRowContext(ctx, `SELECT coalesce(max(last_seq), 0) FROM main.prunings`).
		Scan(&r.pruned)
	return r, err
}

// createTemporary creates the temporary table with the name of one of the file, and its triggers.
func (v *verifier) createTemporary(ctx context.Context, name string, schema map[string]string) (
	replayTable, error,
) {
	t := replayTable{name: name}
	err := v.exec(ctx, `DROP TABLE IF EXISTS temp.`+name,
		strings.Replace(schema["table "+name], "CREATE TABLE", "CREATE TEMP TABLE", 1))
	if err != nil {
		return t, err
	}
	for object, statement := range schema {
		if strings.HasPrefix(object, "trigger "+name) {
			err := v.exec(ctx, strings.Replace(statement, "CREATE TRIGGER", "CREATE TEMP TRIGGER", 1))
			if err != nil {
				return t, err
			}
		}
	}
	columns, err := selectAll(ctx, v.db, selectQuery{
		sql: `SELECT name, pk FROM pragma_table_info(?, 'temp')`, args: []any{name},
	}, func(c *tableColumn) []any { return []any{&c.name, &c.pk} })
	for _, c := range columns {
		t.columns = append(t.columns, c.name)
		if c.pk > 0 {
			t.keys = append(t.keys, c.name)
		}
	}
	return t, err
}

type tableColumn struct {
	name string
	pk   int
}

// skipRange notes events that cannot be read.
func (r *replay) skipRange(first, last int64) { r.ranges = append(r.ranges, [2]int64{first, last}) }

// skipped reports whether all events from first to last are known to be unreadable.
func (r *replay) skipped(first, last int64) bool {
	return slices.ContainsFunc(r.ranges, func(known [2]int64) bool {
		return known[0] <= first && last <= known[1]
	})
}

// skip notes an event whose rows cannot be computed.
func (r *replay) skip(e storedEvent) {
	r.unknown[e.seq] = true
	switch e.kind {
	case begun:
		r.lost[e.invocation] = true
	case ended, interrupted:
		if call, ok := r.open[e.invocation]; ok {
			r.unknown[call.seq] = true
			delete(r.open, e.invocation)
		}
		delete(r.lost, e.invocation)
	}
}

// event computes the rows of an event whose leaf is right.
func (r *replay) event(ctx context.Context, e storedEvent) error {
	if !e.body.Valid {
		r.withoutBody(e)
		return nil
	}
	var err error
	switch e.kind {
	case begun:
		err = r.begin(ctx, e)
	case ended, interrupted:
		err = r.end(ctx, e)
	case kindPruned:
		err = r.prune(ctx, e)
	}
	if err == nil {
		return nil
	}
	if sqlErr, ok := errors.AsType[sqlite3.Error](err); ok && sqlErr.Code != sqlite3.ErrConstraint {
		return err
	}
	r.skip(e)
	r.v.add(Finding{
		Kind: FindingEvent, Seq: e.seq, Invocation: e.invocation, Column: "events.body",
		Message: fmt.Sprintf("the %s event does not fit the log: %v", e.kind, err),
	})
	return nil
}

// withoutBody handles an event whose body is gone. Its call has no rows if retention removed it.
func (r *replay) withoutBody(e storedEvent) {
	r.skip(e)
	if e.seq <= r.pruned {
		delete(r.unknown, e.seq)
		return
	}
	r.v.add(Finding{
		Kind: FindingEvent, Seq: e.seq, Invocation: e.invocation, Column: "events.body",
		Message: "the body was removed, and no event says that retention did so",
	})
}

// prune computes the row of a pruning.
func (r *replay) prune(ctx context.Context, e storedEvent) error {
	var p Pruning
	if err := json.Unmarshal([]byte(e.body.String), &p); err != nil {
		return err
	}
	if p.Events == 0 { // it removed nothing
		return nil
	}
	_, err := r.v.db.ExecContext(ctx, insertPruning, append([]any{e.seq}, p.args()...)...)
	return err
}

func (r *replay) begin(ctx context.Context, e storedEvent) error {
	var b beginBody
	if err := json.Unmarshal([]byte(e.body.String), &b); err != nil {
		return err
	}
	r.v.checkCapture(e, b.InputFile)
	_, err := r.v.db.ExecContext(ctx, projectBegun, append([]any{e.seq}, b.args(e.invocation)...)...)
	if err == nil {
		r.open[e.invocation] = openCall{e.seq, b.Principal, b.Context.PlanID}
	}
	return err
}

func (r *replay) end(ctx context.Context, e storedEvent) error {
	call, ok := r.open[e.invocation]
	switch {
	case r.lost[e.invocation]:
		r.skip(e)
		return nil
	case !ok:
		return errNotRunning
	}
	var b endBody
	if err := json.Unmarshal([]byte(e.body.String), &b); err != nil {
		return err
	}
	r.v.checkCapture(e, b.OutputFile)
	r.v.checkCapture(e, b.ListsFile)
	if raw := b.Metadata.Container; raw != nil {
		if err := json.Unmarshal(raw, &b.Metadata.Metadata.Container); err != nil {
			return err
		}
	}
	statement, args := projectInterrupted, b.interruptedArgs(e.invocation)
	if e.kind == ended {
		statement, args = b.statement(), b.args(e.invocation)
	}
	if _, err := r.v.db.ExecContext(ctx, statement, append([]any{e.seq}, args...)...); err != nil {
		return err
	}
	delete(r.open, e.invocation)
	return r.changes(ctx, e, b, call)
}

// changes computes the changed files of a call.
func (r *replay) changes(ctx context.Context, e storedEvent, b endBody, call openCall) error {
	err := loadLists(&b.Metadata.Metadata, b.ListsFile, r.v.blobs())
	if err != nil {
		err = fmt.Errorf("it cannot be read: %w", err)
	} else if b.Metadata.ChangesOmitted > 0 {
		err = errors.New("it is not in the log")
	}
	if err != nil {
		r.unknown[e.seq] = true
		r.v.note("the list of the changed files of event %d cannot be compared: %v", e.seq, err)
		return nil
	}
	changes, err := newChangedFiles(dray.Invocation{
		Principal: call.principal, Context: dray.CallContext{PlanID: call.plan},
	}, dray.Result{Metadata: b.Metadata.Metadata, EndedAt: b.EndedAt})
	if err != nil {
		return err
	}
	return changes.write(ctx, r.v.db, e.seq, e.invocation)
}

// compare compares the rows of the events after lo, until hi, and of calls that ended in them.
func (r *replay) compare(ctx context.Context, lo, hi int64) error {
	for _, t := range r.tables {
		doing := fmt.Sprintf("compare %s with the events %d to %d", t.name, lo+1, hi)
		if err := r.v.damage(ctx, lo+1, doing, r.compareTable(ctx, t, lo, hi)); err != nil {
			return err
		}
	}
	for _, t := range r.tables[1:] {
		if err := r.v.exec(ctx, `DELETE FROM temp.`+t.name); err != nil {
			return err
		}
	}
	return r.v.exec(ctx, `DELETE FROM temp.invocations WHERE ended_seq IS NOT NULL`)
}

func (r *replay) compareTable(ctx context.Context, t replayTable, lo, hi int64) error {
	inRange := fmt.Sprintf("SELECT * FROM main.%s WHERE seq > %d AND seq <= %d", t.name, lo, hi)
	if t.name != "invocations" {
		return r.diff(ctx, t, "SELECT * FROM temp."+t.name, inRange)
	}
	err := r.diff(ctx, t, "SELECT * FROM temp.invocations WHERE false",
		inRange+" AND seq NOT IN (SELECT seq FROM temp.invocations)")
	if err != nil {
		return err
	}
	return r.diff(ctx, t, "SELECT * FROM temp.invocations WHERE ended_seq IS NOT NULL", `SELECT * FROM
		main.invocations WHERE seq IN (SELECT seq FROM temp.invocations WHERE ended_seq IS NOT NULL)`)
}

// finish compares what is left at the end of the log: the calls that run, and rows of events that
// do not exist.
func (r *replay) finish(ctx context.Context) error {
	for _, t := range r.tables {
		outside := fmt.Sprintf("SELECT * FROM main.%s WHERE seq < 1 OR seq > %d", t.name, r.v.total)
		if err := r.diff(ctx, t, "SELECT * FROM temp."+t.name+" WHERE false", outside); err != nil {
			return err
		}
	}
	return r.diff(ctx, r.tables[0], "SELECT * FROM temp.invocations",
		"SELECT * FROM main.invocations WHERE seq IN (SELECT seq FROM temp.invocations)")
}

// diff compares two selections of a table: the computed one, and that of the file.
func (r *replay) diff(ctx context.Context, t replayTable, computed, stored string) error {
	rows, err := r.v.db.QueryContext(ctx, t.diffQuery(computed, stored))
	if err != nil {
		return err
	}
	differing, err := scanPairs(rows, len(t.columns))
	if err != nil {
		return err
	}
	for _, pair := range differing {
		if err := r.report(ctx, t, pair); err != nil {
			return err
		}
	}
	return nil
}

// diffQuery returns the query for the rows that differ: first all columns of the computed row, then
// all of the stored one. Rows are found by their keys; SQLite would compare each pair for a FULL
// JOIN.
func (t replayTable) diffQuery(computed, stored string) string {
	var differ, same []string
	for _, c := range t.columns {
		term := fmt.Sprintf("t.%s IS NOT m.%[1]s", c)
		if c == "bytes" { // NULL in rows of older versions
			term = "(" + term + " AND (m.bytes IS NOT NULL OR m.seq IS NULL))"
		}
		differ = append(differ, term)
	}
	for _, c := range t.keys {
		same = append(same, fmt.Sprintf("t.%s = m.%[1]s", c))
	}
	on := strings.Join(same, " AND ")
	changed := fmt.Sprintf("SELECT t.*, m.* FROM (%s) t LEFT JOIN main.%s m ON %s WHERE %s",
		computed, t.name, on, strings.Join(differ, " OR "))
	invented := fmt.Sprintf(
		"SELECT %sm.* FROM (%s) m WHERE NOT EXISTS (SELECT 1 FROM temp.%s t WHERE %s)",
		strings.Repeat("NULL, ", len(t.columns)), stored, t.name, on)
	return changed + " UNION ALL " + invented
}

// rowPair are the values of a computed and of a stored row; those of a row that does not exist are
// all nil.
type rowPair struct{ computed, stored []any }

func scanPairs(rows *sql.Rows, columns int) (all []rowPair, err error) {
	defer rows.Close()
	for rows.Next() {
		values := make([]any, 2*columns)
		into := make([]any, len(values))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		all = append(all, rowPair{values[:columns], values[columns:]})
	}
	return all, rows.Err()
}

// report adds the differences of two rows, and corrects the stored one.
func (r *replay) report(ctx context.Context, t replayTable, pair rowPair) error {
	missing, invented := isAbsent(pair.stored), isAbsent(pair.computed)
	row := pair.computed
	if invented {
		row = pair.stored
	}
	seq, _ := row[slices.Index(t.columns, "seq")].(int64)
	if r.skipped(seq, seq) || r.unknown[seq] && t.name != "prunings" {
		return nil
	}
	f := Finding{Kind: FindingProjection, Seq: seq, Column: t.name, Repairable: true}
	if i := max(slices.Index(t.columns, "id"), slices.Index(t.columns, "invocation")); i >= 0 {
		f.Invocation = valueText(row[i])
	}
	switch {
	case missing:
		f.Message = "the row of the event is missing"
		r.v.add(f)
	case invented:
		f.Message = "no event has this row"
		r.v.add(f)
	default:
		for i, c := range t.columns {
			if reflect.DeepEqual(pair.computed[i], pair.stored[i]) || c == "bytes" && pair.stored[i] == nil {
				continue
			}
			f.Column, f.Message = t.name+"."+c, "the column is not what the event has"
			f.Expected, f.Got = valueText(pair.computed[i]), valueText(pair.stored[i])
			r.v.add(f)

		}
	}
	if !r.fix {
		return nil
	}
	return r.correct(ctx, t, row, invented)
}

// correct replaces the stored row by the computed one.
func (r *replay) correct(ctx context.Context, t replayTable, row []any, invented bool) error {
	var where []string
	var args []any
	for _, k := range t.keys {
		where = append(where, k+" = ?")
		args = append(args, row[slices.Index(t.columns, k)])
	}
	form := "INSERT OR REPLACE INTO main.%s SELECT * FROM temp.%[1]s WHERE %s"
	if invented {
		form = "DELETE FROM main.%s WHERE %s"
	}
	statement := fmt.Sprintf(form, t.name, strings.Join(where, " AND ")) //nolint:gosec // names of ours
	_, err := r.v.db.ExecContext(ctx, statement, args...)
	return err
}

func isAbsent(row []any) bool {
	return !slices.ContainsFunc(row, func(v any) bool { return v != nil })
}

// valueText returns a value for a finding.
func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case []byte:
		return fmt.Sprintf("%.200s", v)
	default:
		return fmt.Sprintf("%.200v", v)
	}
}
