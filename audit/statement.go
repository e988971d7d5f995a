package audit

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// selectQuery is an SQL query for positions.
type selectQuery struct {
	sql  string
	args []any
}

func (st selectQuery) positions(ctx context.Context, tx *sql.Tx) ([]position, error) {
	rows, err := tx.QueryContext(ctx, st.sql, st.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []position
	for rows.Next() {
		var p position
		if err := rows.Scan(&p.major, &p.minor); err != nil {
			return nil, err
		}
		found = append(found, p)
	}
	return found, rows.Err()
}

// statement gives the query for one row more than the limit, which tells whether there is another page.
func (q Query) statement() (selectQuery, error) {
	if err := q.check(); err != nil {
		return selectQuery{}, err
	}
	where, err := q.conditions()
	if err != nil {
		return selectQuery{}, err
	}
	if q.Container == "" {
		return where.page(q.limit() + 1), nil
	}
	// A page for each of the three names, each from its own index, instead of an OR that would sort all that match.
	var union selectQuery
	for i, column := range []string{"container", "container_name", "container_id"} {
		part := where.and("i."+column+" = ?", q.Container).page(q.limit() + 1)
		if i > 0 {
			union.sql += " UNION "
		}
		union.sql += "SELECT * FROM (" + part.sql + ")"
		union.args = append(union.args, part.args...)
	}
	union.sql += " ORDER BY started_at DESC, seq DESC LIMIT ?"
	union.args = append(union.args, q.limit()+1)
	return union, nil
}

// whereClause are what a WHERE joins with AND.
type whereClause struct {
	text   bool // the bodies are needed
	clause []string
	args   []any
}

func (c whereClause) and(clause string, args ...any) whereClause {
	c.clause = append(slices.Clip(c.clause), clause)
	c.args = append(slices.Clip(c.args), args...)
	return c
}

func (c whereClause) where() string {
	if len(c.clause) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.clause, " AND ")
}

func (c whereClause) page(limit int) selectQuery {
	var b strings.Builder
	b.WriteString("SELECT i.started_at, i.seq FROM invocations i")
	if c.text {
		b.WriteString(" JOIN events b ON b.seq = i.seq LEFT JOIN events e ON e.seq = i.ended_seq")
	}
	b.WriteString(c.where())
	b.WriteString(" ORDER BY i.started_at DESC, i.seq DESC LIMIT ?")
	return selectQuery{sql: b.String(), args: append(slices.Clip(c.args), limit)}
}

func (q Query) conditions() (whereClause, error) {
	var c whereClause
	for _, f := range []struct{ column, value string }{
		{"tool", q.Tool},
		{"status", string(q.Status)},
		{"reason", string(q.Reason)},
		{"environment", string(q.Environment)},
		{"plan_id", q.PlanID},
		{"principal", q.Principal},
	} {
		if f.value != "" {
			c = c.and("i."+f.column+" = ?", f.value)
		}
	}
	if q.Only != nil {
		c = c.and("i.id IN (SELECT value FROM json_each(?))", idList(q.Only))
	}
	if len(q.Except) > 0 {
		c = c.and("i.id NOT IN (SELECT value FROM json_each(?))", idList(q.Except))
	}
	if !q.Since.IsZero() {
		c = c.and("i.started_at >= ?", nanoseconds(q.Since))
	}
	if !q.Until.IsZero() {
		c = c.and("i.started_at < ?", nanoseconds(q.Until))
	}
	if q.Cursor != "" {
		p, err := parseCursor(callCursor, q.Cursor)
		if err != nil {
			return whereClause{}, err
		}
		c = c.and("(i.started_at, i.seq) < (?, ?)", p.major, p.minor)
	}
	if q.Text != "" {
		like := "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(q.Text) + "%"
		c = c.and(textMatches(), slices.Repeat([]any{like}, strings.Count(textMatches(), "?"))...)
		c.text = true
	}
	return c, nil
}

// idList writes ids as the JSON list that the query takes apart, so that it is one statement however many there are.
func idList(ids []string) string {
	b, _ := json.Marshal(ids) // texts always have a JSON form
	return string(b)
}

// nanoseconds is a time as the trail counts it; the years that it cannot count are as far away as can be.
func nanoseconds(t time.Time) int64 {
	switch year := t.UTC().Year(); {
	case year < 1678:
		return math.MinInt64
	case year > 2261:
		return math.MaxInt64
	default:
		return t.UnixNano()
	}
}

// textMatches is the condition of a text search. It looks at values, not at the JSON around them, and a body that is damaged
// counts as empty instead of ending the query.
func textMatches() string {
	const like = ` LIKE ? ESCAPE '\'`
	body := func(table string) string {
		return fmt.Sprintf("CASE WHEN json_valid(%[1]s.body) THEN %[1]s.body ELSE '{}' END", table)
	}
	tree := func(table, path string) string {
		return fmt.Sprintf("EXISTS (SELECT 1 FROM json_tree(%s, '%s') WHERE atom%s)", body(table), path, like)
	}
	return "(" + strings.Join([]string{
		"i.tool" + like,
		tree("b", "$.input"),
		tree("e", "$.error"),
		tree("e", "$.stdout.text"),
		tree("e", "$.stderr.text"),
		tree("e", "$.output"),
	}, " OR ") + ")"
}
