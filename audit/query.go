package audit

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dray-dev/dray"
)

const (
	defaultLimit = 50
	maxLimit     = 1000
	maxText      = 1024

	// The first byte of a cursor is the kind of its list and its format.
	callCursor, changeCursor byte = 1, 2
	cursorSize                    = 1 + 2*8
)

// Query selects invocations. A zero field does not restrict; strings are compared exactly unless
// stated otherwise.
type Query struct {
	Tool        string
	Status      dray.Status
	Reason      dray.Reason
	Environment dray.EnvironmentKind
	// Container is the name in the call or the configuration, or the engine's name or full id.
	Container string
	PlanID    string
	SessionID string
	// LabelName is a label that calls must have, with LabelValue.
	LabelName, LabelValue string
	Principal             string
	// Only restricts the result to these ids, nil does not. Except excludes ids.
	Only, Except []string
	// Since is the earliest start. Starts at or after Until are excluded.
	Since, Until time.Time
	// Text is searched in the name of the tool, the strings of input, output and error, and the texts
	// of stdout and stderr, ignoring the case of ASCII letters. It has at most 1024 bytes. Inputs and
	// outputs over 8 KiB are not searched.
	Text string
	// Limit is 50 if zero, at most 1000.
	Limit int
	// Cursor is the NextCursor of the previous page, or empty.
	Cursor string
}

// Page is a page of invocations, newest first.
type Page struct {
	// Items have null for inputs and outputs over 8 KiB, and at most 10 entries of each list of files
	// with the number of the others. Get returns the complete record.
	Items []dray.Record `json:"items"`
	// NextCursor selects the next page; it is empty on the last one.
	NextCursor string `json:"next_cursor,omitempty"`
	// Unreadable lists rows that could not be read at all. A row with a damaged part is an item with a
	// warning in its metadata.
	Unreadable []Unreadable `json:"unreadable,omitempty"`
}

// Unreadable is a row that cannot be read. Seq is the number of its begun event.
type Unreadable struct {
	Seq     int64  `json:"seq"`
	Message string `json:"message"`
}

// position is a position in the order of a list: start and seq of an invocation, or seq and index
// of a changed file.
type position struct{ major, minor int64 }

// List returns a page of invocations. Rows inserted between two calls sort before the first page,
// so the pages contain each existing row once. List fails with invalid_request for an invalid limit
// or cursor, else with audit_unavailable.
func (s *Store) List(ctx context.Context, q Query) (Page, error) {
	stmt, err := q.statement()
	if err != nil {
		return Page{}, err
	}
	tx, err := s.read.BeginTx(ctx, nil) // one snapshot for all statements
	if err != nil {
		return Page{}, unavailableError(s.path, "list the audit log", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	found, err := selectAll(ctx, tx, stmt,
		func(p *position) []any { return []any{&p.major, &p.minor} })
	if err != nil {
		return Page{}, unavailableError(s.path, "list the audit log", err)
	}
	page := Page{Items: []dray.Record{}}
	if limit := q.limit(); len(found) > limit {
		found = found[:limit]
		page.NextCursor = found[limit-1].cursor(callCursor)
	}
	// Each row is a query of its own, so that an unreadable row affects no other.
	for _, p := range found {
		rec, err := load(ctx, tx, nil, bySeq, p.minor)
		switch {
		case err == nil:
			page.Items = append(page.Items, rec)
		case ctx.Err() != nil:
			return Page{}, unavailableError(s.path, "list the audit log", err)
		default:
			page.Unreadable = append(page.Unreadable, Unreadable{Seq: p.minor, Message: err.Error()})
		}
	}
	return page, nil
}

func (q Query) limit() int {
	if q.Limit == 0 {
		return defaultLimit
	}
	return q.Limit
}

func (q Query) check() error {
	switch {
	case q.Limit < 0 || q.Limit > maxLimit:
		return dray.Errorf(dray.CodeInvalidRequest, "limit %d is out of range", q.Limit).
			WithHint("use a limit from 1 to %d", maxLimit)
	case len(q.Text) > maxText:
		return dray.Errorf(dray.CodeInvalidRequest, "the search text is too long: %d bytes", len(q.Text)).
			WithHint("search for at most %d bytes", maxText)
	default:
		return nil
	}
}

// cursor returns the position as text: a byte for the kind of the list and two numbers.
func (p position) cursor(list byte) string {
	b := make([]byte, cursorSize)
	b[0] = list
	_, _ = binary.Encode(b[1:], binary.BigEndian, [2]int64{p.major, p.minor}) // the size is right
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(list byte, s string) (position, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s) // it ignores line breaks
	if err != nil || len(b) != cursorSize || b[0] != list || strings.ContainsAny(s, "\r\n") {
		return position{}, dray.Errorf(dray.CodeInvalidRequest, "malformed cursor").
			WithHint("send next_cursor of the previous page, or no cursor for the first page")
	}
	var n [2]int64
	_, _ = binary.Decode(b[1:], binary.BigEndian, &n) // the size is right
	return position{major: n[0], minor: n[1]}, nil
}

// selectQuery is an SQL query with its arguments.
type selectQuery struct {
	sql  string
	args []any
}

// querier is a *sql.DB or *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// selectAll returns the rows of a query. columns returns the destinations of a row's columns.
func selectAll[T any](ctx context.Context, db querier, st selectQuery, columns func(*T) []any) (
	all []T, err error,
) {
	rows, err := db.QueryContext(ctx, st.sql, st.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one T
		if err := rows.Scan(columns(&one)...); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// statement returns the query for one row more than the limit: it exists if there is another page.
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
	// Each of the three names has an index and gets a page of its own. An OR would sort all matches.
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

// whereClause is a list of conditions joined with AND.
type whereClause struct {
	bodies bool // the query needs them
	clause []string
	args   []any
}

func (c whereClause) and(clause string, args ...any) whereClause {
	c.clause = append(slices.Clip(c.clause), clause)
	c.args = append(slices.Clip(c.args), args...)
	return c
}

// equal adds a condition unless the value is empty.
func (c whereClause) equal(column, value string) whereClause {
	if value == "" {
		return c
	}
	return c.and(column+" = ?", value)
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
	if c.bodies {
		b.WriteString(" JOIN events b ON b.seq = i.seq LEFT JOIN events e ON e.seq = i.ended_seq")
	}
	b.WriteString(c.where())
	b.WriteString(" ORDER BY i.started_at DESC, i.seq DESC LIMIT ?")
	return selectQuery{sql: b.String(), args: append(slices.Clip(c.args), limit)}
}

func (q Query) conditions() (whereClause, error) {
	var c whereClause
	// The partial indexes leave the most common values out: a second term lets SQLite use them.
	for _, f := range []struct{ column, value, common string }{
		{"tool", q.Tool, ""},
		{"status", string(q.Status), "succeeded"},
		{"reason", string(q.Reason), "exited"},
		{"environment", string(q.Environment), "container"},
		{"plan_id", q.PlanID, ""},
		{"session_id", q.SessionID, ""},
		{"principal", q.Principal, ""},
	} {
		c = c.equal("i."+f.column, f.value)
		if f.common != "" && f.value != "" && f.value != f.common {
			c = c.and("i." + f.column + " <> '" + f.common + "'")
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
	if q.LabelName != "" {
		c = c.and("EXISTS (SELECT 1 FROM json_each("+validBody("b")+", '$.context.labels') "+
			"WHERE key = ? AND value = ?)", q.LabelName, q.LabelValue)
		c.bodies = true
	}
	if q.Text != "" {
		like := "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(q.Text) + "%"
		c = c.and(textMatches(), slices.Repeat([]any{like}, strings.Count(textMatches(), "?"))...)
		c.bodies = true
	}
	return c, nil
}

// idList returns ids as one argument, a JSON list for json_each.
func idList(ids []string) string {
	b, _ := json.Marshal(ids) // strings always have a JSON form
	return string(b)
}

// nanoseconds returns a time as it is stored. Years out of range become the minimum or maximum.
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

// validBody returns an expression for the body of an event. A damaged body counts as empty instead
// of failing the query.
func validBody(table string) string {
	return fmt.Sprintf("CASE WHEN json_valid(%[1]s.body) THEN %[1]s.body ELSE '{}' END", table)
}

// textMatches returns the condition of a text search. It compares JSON values, not their encoding.
func textMatches() string {
	const like = ` LIKE ? ESCAPE '\'`
	tree := func(table, path string) string {
		return "EXISTS (SELECT 1 FROM json_tree(" + validBody(table) + ", '" + path + "') " +
			"WHERE atom" + like + ")"
	}
	return "(" + strings.Join([]string{
		"i.tool" + like, tree("b", "$.input"), tree("e", "$.error"), tree("e", "$.stdout.text"),
		tree("e", "$.stderr.text"), tree("e", "$.output"),
	}, " OR ") + ")"
}
