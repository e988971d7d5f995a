package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

const (
	// maxExamined bounds the calls that one page examines, and so its time, whatever the filters are.
	maxExamined = 2500
	// examineAtOnce is how many calls are read from an index before their rows are checked.
	examineAtOnce = 500
)

// filter is one condition of a query.
type filter struct {
	sql  string // on the row i of invocations, and the events b and e
	args []any
	// sources find the calls that meet the condition, each by an index in the order of started_at. A
	// filter without an index has none.
	sources []source
	bodies  bool // the condition needs b and e
}

// source is a table, named i, and conditions that one index of it serves.
type source struct {
	table string
	where whereClause
}

// search is how the calls of a query are found: the candidates are read from an index in the order
// of the list, and those that pass all checks are listed. The order of the indexes is fixed,
// because SQLite has no statistics of this file to choose by.
type search struct {
	sources []source
	order   string // the column that the list is ordered by
	checks  whereClause
	bodies  bool // checks need b and e

	limit  int
	cursor byte // the kind of cursors
	after  *position
}

// search returns how to find the calls of a page.
func (q Query) search() (search, error) {
	if err := q.check(); err != nil {
		return search{}, err
	}
	s := search{order: "started_at", cursor: callCursor, limit: q.limit()}
	if q.Sort == SortDuration {
		s.order, s.cursor = "duration", durationCursor
	}
	if q.Cursor != "" {
		after, err := parseCursor(s.cursor, q.Cursor)
		if err != nil {
			return search{}, err
		}
		s.after = &after
	}
	all := source{table: "invocations"}
	if q.Sort == SortDuration {
		s.checks = q.timeRange(s.checks)
		all.where = q.minDuration(all.where)
	} else {
		s.checks = q.minDuration(s.checks)
	}
	for _, f := range q.filters() {
		if f.sources != nil && s.sources == nil && q.Sort != SortDuration {
			s.sources = f.sources
			continue
		}
		s.checks, s.bodies = s.checks.and(f.sql, f.args...), s.bodies || f.bodies
	}
	if s.sources == nil {
		s.sources = []source{all}
	}
	if q.Sort != SortDuration {
		for i := range s.sources {
			s.sources[i].where = q.timeRange(s.sources[i].where)
		}
	}
	return s, nil
}

// run returns the positions of a page, and the cursor of the next one.
func (s search) run(ctx context.Context, db querier) (found []position, next string, err error) {
	after := s.after
	for examined := 0; examined < maxExamined; {
		n := examineAtOnce
		if len(s.checks.clause) == 0 {
			n = s.limit + 1
		}
		chunk, err := selectAll(ctx, db, s.candidates(after, n), (*position).columns)
		if err != nil {
			return nil, "", err
		}
		passed, err := s.check(ctx, db, chunk)
		if err != nil {
			return nil, "", err
		}
		found = append(found, passed...)
		switch {
		case len(found) > s.limit:
			return found[:s.limit], found[s.limit-1].cursor(s.cursor), nil
		case len(chunk) < n:
			return found, "", nil
		}
		examined, after = examined+n, &chunk[n-1]
	}
	return found, after.cursor(s.cursor), nil
}

// candidates returns the query for the next n positions after one.
func (s search) candidates(after *position, n int) selectQuery {
	var all selectQuery
	for i, from := range s.sources {
		where := from.where
		if after != nil {
			where = where.and("(i."+s.order+", i.seq) < (?, ?)", after.major, after.minor)
		}
		if s.order == "duration" {
			where = where.and("i.duration IS NOT NULL")
		}
		part := "SELECT i." + s.order + " AS major, i.seq AS minor FROM " + from.table + " i" +
			where.where() + " ORDER BY i." + s.order + " DESC, i.seq DESC LIMIT ?"
		if len(s.sources) > 1 { // an OR would sort all matches
			part = "SELECT * FROM (" + part + ")"
		}
		if i > 0 {
			all.sql += " UNION "
		}
		all.sql += part
		all.args = append(append(all.args, where.args...), n)
	}
	if len(s.sources) > 1 {
		all.sql += " ORDER BY major DESC, minor DESC LIMIT ?"
		all.args = append(all.args, n)
	}
	return all
}

// check returns the candidates that pass the checks, in the same order.
func (s search) check(ctx context.Context, db querier, chunk []position) ([]position, error) {
	if len(s.checks.clause) == 0 || len(chunk) == 0 {
		return chunk, nil
	}
	passed, err := selectAll(ctx, db, s.checked(chunk), func(seq *int64) []any { return []any{seq} })
	if err != nil {
		return nil, err
	}
	is := make(map[int64]bool, len(passed))
	for _, seq := range passed {
		is[seq] = true
	}
	return slices.DeleteFunc(slices.Clone(chunk), func(p position) bool { return !is[p.minor] }), nil
}

// checked returns the query for the seqs among the candidates that pass the checks.
func (s search) checked(chunk []position) selectQuery {
	seqs := make([]int64, len(chunk))
	for i, p := range chunk {
		seqs[i] = p.minor
	}
	return selectQuery{
		sql: "SELECT i.seq FROM json_each(?) c CROSS JOIN invocations i ON i.seq = c.value" +
			joinBodies(s.bodies) + s.checks.where(),
		args: append([]any{jsonList(seqs)}, s.checks.args...),
	}
}

func joinBodies(needed bool) string {
	if !needed {
		return ""
	}
	return " LEFT JOIN events b ON b.seq = i.seq LEFT JOIN events e ON e.seq = i.ended_seq"
}

// timeRange adds the conditions on the start.
func (q Query) timeRange(c whereClause) whereClause {
	if !q.Since.IsZero() {
		c = c.and("i.started_at >= ?", nanoseconds(q.Since))
	}
	if !q.Until.IsZero() {
		c = c.and("i.started_at < ?", nanoseconds(q.Until))
	}
	return c
}

func (q Query) minDuration(c whereClause) whereClause {
	if q.MinDuration > 0 {
		c = c.and("i.duration >= ?", q.MinDuration.Nanoseconds())
	}
	return c
}

// filters returns the conditions of the query without those on time. Those whose indexes find the
// fewest calls come first.
func (q Query) filters() []filter {
	var all []filter
	add := func(set bool, f filter) {
		if set {
			all = append(all, f)
		}
	}
	add(q.Only != nil, byIndex("i.id IN (SELECT value FROM json_each(?))", jsonList(q.Only)))
	add(q.IDPrefix != "", byIndex("i.id >= ? AND i.id < ?", q.IDPrefix, q.IDPrefix+"~"))
	add(q.PlanID != "", byIndex("i.plan_id = ?", q.PlanID))
	add(q.SessionID != "", byIndex("i.session_id = ?", q.SessionID))
	add(q.LabelName != "", q.labelFilter())
	add(q.Container != "", q.containerFilter())
	add(q.Code != "", byIndex("i.code = ?", string(q.Code)))
	add(q.Reason != "", exceptCommon("reason", string(q.Reason), "exited"))
	add(q.Status != "", exceptCommon("status", string(q.Status), "succeeded"))
	add(q.Environment != "", exceptCommon("environment", string(q.Environment), "container"))
	add(q.Workspace != "", byIndex("i.workspace = ?", q.Workspace))
	add(q.Principal != "", byIndex("i.principal = ?", q.Principal))
	add(q.Tool != "", byIndex("i.tool = ?", q.Tool))
	add(q.Image != "", filter{sql: "i.image = ?", args: []any{q.Image}})
	add(len(q.Except) > 0, filter{
		sql: "i.id NOT IN (SELECT value FROM json_each(?))", args: []any{jsonList(q.Except)},
	})
	add(q.Argv != "", filter{sql: argvMatches, args: []any{likePattern(q.Argv)}, bodies: true})
	add(q.Text != "", textFilter(q.Text))
	return all
}

// byIndex returns a condition that an index of invocations serves.
func byIndex(sql string, args ...any) filter {
	var where whereClause
	return filter{
		sql: sql, args: args, sources: []source{{"invocations", where.and(sql, args...)}},
	}
}

// exceptCommon returns a condition on a column whose index leaves the most common value out.
func exceptCommon(column, value, common string) filter {
	sql := "i." + column + " = ?"
	if value == common {
		return filter{sql: sql, args: []any{value}}
	}
	return byIndex(sql+" AND i."+column+" <> '"+common+"'", value)
}

func (q Query) labelFilter() filter {
	var where whereClause
	args := []any{q.LabelName, q.LabelValue}
	return filter{
		sql: "EXISTS (SELECT 1 FROM labels l WHERE l.name = ? AND l.value = ? AND " +
			"l.started_at = i.started_at AND l.seq = i.seq)",
		args:    args,
		sources: []source{{"labels", where.and("i.name = ? AND i.value = ?", args...)}},
	}
}

// containerFilter returns the condition on the three names of a container, each with its own index.
func (q Query) containerFilter() filter {
	f := filter{
		sql: "? IN (i.container, i.container_name, i.container_id)", args: []any{q.Container},
	}
	for _, column := range []string{"container", "container_name", "container_id"} {
		f.sources = append(f.sources, byIndex("i."+column+" = ?", q.Container).sources...)
	}
	return f
}

// validBody returns an expression for the body of an event. A damaged body counts as empty instead
// of failing the query.
func validBody(table string) string {
	return fmt.Sprintf("CASE WHEN json_valid(%[1]s.body) THEN %[1]s.body ELSE '{}' END", table)
}

const like = ` LIKE ? ESCAPE '\'`

// likePattern returns the pattern of LIKE for texts that contain this one.
func likePattern(text string) string {
	return "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text) + "%"
}

// argvMatches is the condition of a search in the command line.
var argvMatches = "coalesce((SELECT group_concat(value, ' ') FROM json_each(" + validBody("b") +
	", '$.input.argv')), " + validBody("b") + " ->> '$.input.command')" + like

// textMatches is the condition of a text search. It compares JSON values, not their encoding.
var textMatches = func() string {
	tree := func(table, path string) string {
		return "EXISTS (SELECT 1 FROM json_tree(" + validBody(table) + ", '" + path + "') " +
			"WHERE atom" + like + ")"
	}
	return "(" + strings.Join([]string{
		"i.tool" + like, tree("b", "$.input"), tree("b", "$.context.labels"), tree("e", "$.error"),
		tree("e", "$.stdout.text"), tree("e", "$.stderr.text"), tree("e", "$.output"),
	}, " OR ") + ")"
}()

// mayMatch is a condition that is true for each call of a text search, if its parameters are
// encodings of parts of the text. It is cheap: SQLite checks it before textMatches, which parses
// the bodies.
const mayMatch = "(i.tool" + like + " OR b.body" + like + " OR e.body" + like +
	` OR instr(b.body, '\u') OR instr(e.body, '\u'))`

func textFilter(text string) filter {
	args := slices.Repeat([]any{likePattern(text)}, strings.Count(textMatches, "?"))
	sql := textMatches
	if part := encodedPart(text); part != "" {
		sql = mayMatch + " AND " + sql
		inTool, inBody := likePattern(text), likePattern(part)
		args = append([]any{inTool, inBody, inBody}, args...)
	}
	return filter{sql: sql, args: args, bodies: true}
}

// encodedPart returns the longest part of a text that all JSON encodings without \u have alike, as
// they encode it. A slash may be escaped or not, so no part has one.
func encodedPart(text string) string {
	var longest string
	for part := range strings.SplitSeq(text, "/") {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return jsonEscapes.Replace(longest)
}

// jsonEscapes writes the characters that JSON escapes without \u (RFC 8259, 7).
var jsonEscapes = strings.NewReplacer(
	`"`, `\"`, `\`, `\\`, "\b", `\b`, "\f", `\f`, "\n", `\n`, "\r", `\r`, "\t", `\t`)
