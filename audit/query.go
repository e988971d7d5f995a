package audit

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dray-dev/dray"
)

// The number of entries of a page: without a limit, and at most.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

const (
	maxText = 1024

	// The first byte of a cursor is the kind of its list and its format.
	callCursor, changeCursor, eventCursor, durationCursor byte = 1, 2, 3, 4

	cursorSize = 1 + 2*8
)

// Sort is the order of a list of invocations.
type Sort string

// The orders. SortDuration leaves out calls that have no duration: running and interrupted ones.
const (
	SortStarted  Sort = "started"  // newest first
	SortDuration Sort = "duration" // longest first
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
	// Image is the name of the container's image.
	Image string
	// Workspace is the host directory that the call was routed to, else the one that it named.
	Workspace string
	PlanID    string
	SessionID string
	// LabelName is a label that calls must have, with LabelValue.
	LabelName, LabelValue string
	Principal             string
	// Code is the code of the error.
	Code dray.Code
	// MinDuration leaves out shorter calls, and those that have no duration.
	MinDuration time.Duration
	// Argv is searched in the elements of input.argv, joined by spaces, or in input.command.
	Argv string
	// IDPrefix is the beginning of the id, in lower case.
	IDPrefix string
	// Only restricts the result to these ids, nil does not. Except excludes ids.
	Only, Except []string
	// Since is the earliest start. Starts at or after Until are excluded.
	Since, Until time.Time
	// Text is searched in the name of the tool, the strings of input, labels, output and error, and
	// the texts of stdout and stderr.
	//
	// Text and Argv ignore the case of ASCII letters and have at most 1024 bytes each. Inputs and
	// outputs over 8 KiB are not searched.
	Text string
	// Sort is SortStarted if empty.
	Sort Sort
	// Limit is 50 if zero, at most 1000.
	Limit int
	// Cursor is the NextCursor of the previous page, or empty.
	Cursor string
}

// Page is a page of invocations in the order of the query.
type Page struct {
	// Items have null for inputs and outputs over 8 KiB, and at most 10 entries of each list of files
	// with the number of the others. Get returns the complete record.
	Items []dray.Record `json:"items"`
	// NextCursor selects the next page; it is empty on the last one. A page may have fewer items than
	// the limit, or none, and a NextCursor: List examines at most 2,500 calls for one page.
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

// position is a position in the order of a list: start or duration and seq of an invocation, or seq
// and index of a changed file.
type position struct{ major, minor int64 }

func (p *position) columns() []any { return []any{&p.major, &p.minor} }

// List returns a page of invocations. Rows inserted between two calls sort before the first page of
// SortStarted, so its pages contain each existing row once. A call that ends between two pages of
// SortDuration may be on none. List fails with invalid_request for an invalid limit, order or
// cursor, else with audit_unavailable.
func (s *Store) List(ctx context.Context, q Query) (Page, error) {
	search, err := q.search()
	if err != nil {
		return Page{}, err
	}
	tx, err := s.read.BeginTx(ctx, nil) // one snapshot for all statements
	if err != nil {
		return Page{}, unavailableError(s.path, "list the audit log", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	found, next, err := search.run(ctx, tx)
	if err != nil {
		return Page{}, unavailableError(s.path, "list the audit log", err)
	}
	page := Page{Items: []dray.Record{}, NextCursor: next}
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
		return DefaultLimit
	}
	return q.Limit
}

func (q Query) check() error {
	switch {
	case q.Limit < 0 || q.Limit > MaxLimit:
		return dray.Errorf(dray.CodeInvalidRequest, "limit %d is out of range", q.Limit).
			WithHint("use a limit from 1 to %d", MaxLimit)
	case max(len(q.Text), len(q.Argv)) > maxText:
		return dray.Errorf(dray.CodeInvalidRequest, "the search text is too long: %d bytes",
			max(len(q.Text), len(q.Argv))).WithHint("search for at most %d bytes", maxText)
	case q.Sort != "" && q.Sort != SortStarted && q.Sort != SortDuration:
		return dray.Errorf(dray.CodeInvalidRequest, "unknown order %q", q.Sort).
			WithHint("sort by %s or %s", SortStarted, SortDuration)
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

// whereClause is a list of conditions joined with AND.
type whereClause struct {
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

// jsonList returns values as one argument, a JSON list for json_each.
func jsonList[T string | int64](values []T) string {
	b, _ := json.Marshal(values) // texts and numbers always have a JSON form
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
