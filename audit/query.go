package audit

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/dray-dev/dray"
)

const (
	defaultLimit = 50
	maxLimit     = 1000
	maxText      = 1024

	// The first byte of a cursor says what it is a place in, and in which form.
	callCursor, changeCursor byte = 1, 2
	cursorSize                    = 1 + 2*8
)

// Query says which invocations are wanted. What is zero does not restrict; strings are compared exactly unless said otherwise.
type Query struct {
	Tool        string
	Status      dray.Status
	Reason      dray.Reason
	Environment dray.EnvironmentKind
	// Container is what the call or the configuration named, or the engine's name or full id of the container.
	Container string
	PlanID    string
	Principal string
	// Only are the ids of which those are wanted that fit; nil is all. Except are ids that are not wanted.
	Only, Except []string
	// Since is the earliest start, Until the first that is too late.
	Since, Until time.Time
	// Text is looked for in the tool's name, the strings of input, output and error, and the texts of stdout and stderr; ASCII
	// letters match in either case. At most 1024 bytes. Inputs and outputs over 8 KiB are not searched.
	Text string
	// Limit is 50 if zero, at most 1000.
	Limit int
	// Cursor is the NextCursor of the page before, or empty.
	Cursor string
}

// Page is a part of an answer, newest first.
type Page struct {
	// Items are complete but for inputs and outputs over 8 KiB, which are null, and for lists of files, which have at most 10 entries and the
	// number of the others: Get has them.
	Items []dray.Record `json:"items"`
	// NextCursor leads to the next page; it is empty on the last.
	NextCursor string `json:"next_cursor,omitempty"`
	// Unreadable names the rows that are damaged beyond use. One with a damaged part is an item with a warning in its metadata.
	Unreadable []Unreadable `json:"unreadable,omitempty"`
}

// Unreadable is a row that cannot be read. Its begun event has the number Seq.
type Unreadable struct {
	Seq     int64  `json:"seq"`
	Message string `json:"message"`
}

// position is a place in the order of pages: of calls the start and the seq, of changed files the seq and the number within it.
type position struct{ major, minor int64 }

// List gives a page of invocations. What is inserted meanwhile comes before the first page, so no row is given twice and none that
// was there is left out. It fails with invalid_request for a limit or cursor that cannot be, else with audit_unavailable.
func (s *Store) List(ctx context.Context, q Query) (Page, error) {
	stmt, err := q.statement()
	if err != nil {
		return Page{}, err
	}
	tx, err := s.read.BeginTx(ctx, nil) // one snapshot for all statements
	if err != nil {
		return Page{}, unavailableError(s.path, "list the trail", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	found, err := stmt.positions(ctx, tx)
	if err != nil {
		return Page{}, unavailableError(s.path, "list the trail", err)
	}
	page := Page{Items: []dray.Record{}}
	if limit := q.limit(); len(found) > limit {
		found = found[:limit]
		page.NextCursor = found[limit-1].cursor(callCursor)
	}
	// Row by row, so that one that cannot be read spoils no other.
	for _, p := range found {
		rec, err := s.load(ctx, tx, bySeq, p.minor, false)
		switch {
		case err == nil:
			page.Items = append(page.Items, rec)
		case ctx.Err() != nil:
			return Page{}, unavailableError(s.path, "list the trail", err)
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
		return dray.Errorf(dray.CodeInvalidRequest, "a limit of %d is out of range", q.Limit).WithHint("ask for 1 to %d", maxLimit)
	case len(q.Text) > maxText:
		return dray.Errorf(dray.CodeInvalidRequest, "a search text of %d bytes is too long", len(q.Text)).WithHint("search for at most %d bytes", maxText)
	default:
		return nil
	}
}

// cursor writes a position down: a byte for what it is a place in, and the two numbers.
func (p position) cursor(of byte) string {
	b := make([]byte, cursorSize)
	b[0] = of
	_, _ = binary.Encode(b[1:], binary.BigEndian, [2]int64{p.major, p.minor}) // the size is right
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(of byte, s string) (position, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != cursorSize || b[0] != of {
		return position{}, dray.Errorf(dray.CodeInvalidRequest, "the cursor is malformed").
			WithHint("send next_cursor as the page before gave it, or none for the first page")
	}
	var n [2]int64
	_, _ = binary.Decode(b[1:], binary.BigEndian, &n) // the size is right
	return position{major: n[0], minor: n[1]}, nil
}
