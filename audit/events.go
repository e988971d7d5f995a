package audit

import (
	"context"
	"database/sql"
	"encoding/json"
	"sort"
	"time"
)

// EventQuery selects events. A zero field does not restrict; strings are compared exactly.
type EventQuery struct {
	Kind string
	// Invocation is the call that an event belongs to.
	Invocation string
	// Principal is who acted, or whose call the event belongs to.
	Principal string
	// Since is the earliest time. Events at or after Until are excluded.
	Since, Until time.Time
	// Limit is 50 if zero, at most 1000.
	Limit int
	// Cursor is the NextCursor of the previous page, or empty.
	Cursor string
}

// Event is an event of the audit log.
type Event struct {
	Seq  int64     `json:"seq" doc:"Its number in the log, from 1 without gaps."`
	Kind string    `json:"kind"`
	At   time.Time `json:"at" doc:"When it was committed."`
	// Invocation is the call that it belongs to, if any.
	Invocation string `json:"invocation,omitempty" doc:"The call that it belongs to."`
	// Body depends on the kind. It is null if retention removed it, or if it is damaged.
	Body json.RawMessage `json:"body" doc:"An object that depends on the kind; null if it was removed or is damaged."`
}

// EventPage is a page of events, newest first.
type EventPage struct {
	Items []Event `json:"items"`
	// NextCursor selects the next page; it is empty on the last one.
	NextCursor string `json:"next_cursor"`
}

// Events returns a page of events. Events recorded between two calls sort before the first page.
// Events fails with invalid_request for an invalid limit or cursor, else with audit_unavailable.
//
// Times are those of the machine's clock. If it was set back, Since and Until can omit events of
// the time that it repeated.
func (s *Store) Events(ctx context.Context, q EventQuery) (EventPage, error) {
	limit := Query{Limit: q.Limit}
	if err := limit.check(); err != nil {
		return EventPage{}, err
	}
	c, err := q.conditions()
	if err != nil {
		return EventPage{}, err
	}
	found, err := s.selectEvents(ctx, q, c, limit.limit()+1)
	if err != nil {
		return EventPage{}, unavailableError(s.path, "list the events", err)
	}
	page := EventPage{Items: []Event{}}
	if n := limit.limit(); len(found) > n {
		found = found[:n]
		page.NextCursor = position{minor: found[n-1].Seq}.cursor(eventCursor)
	}
	for _, row := range found {
		page.Items = append(page.Items, row.event())
	}
	return page, nil
}

// selectEvents adds the range of the times to the conditions. seq is ordered by time, so that the
// bounds are found without an index.
func (s *Store) selectEvents(ctx context.Context, q EventQuery, c whereClause, limit int,
) ([]eventRow, error) {
	tx, err := s.read.BeginTx(ctx, nil) // one snapshot for all statements
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	for _, bound := range []struct {
		at         time.Time
		comparison string
	}{{q.Since, "e.seq >= ?"}, {q.Until, "e.seq < ?"}} {
		if bound.at.IsZero() {
			continue
		}
		seq, err := firstSince(ctx, tx, nanoseconds(bound.at))
		if err != nil {
			return nil, err
		}
		c = c.and(bound.comparison, seq)
	}
	return selectAll(ctx, tx, selectQuery{
		sql: `SELECT e.seq, e.kind, e.at, e.invocation, e.body FROM events e` + c.where() +
			" ORDER BY e.seq DESC LIMIT ?",
		args: append(c.args, limit),
	}, (*eventRow).columns)
}

// firstSince returns the number of the first event at or after a time, or one more than the last
// event.
func firstSince(ctx context.Context, db querier, at int64) (int64, error) {
	var last int64
	if err := db.QueryRowContext(ctx, lastSeq).Scan(&last); err != nil {
		return 0, err
	}
	var err error
	n := sort.Search(int(last), func(i int) bool {
		var found int64
		if e := db.QueryRowContext(ctx, `SELECT at FROM events WHERE seq = ?`, i+1).
			Scan(&found); e != nil {
			err = e
		}
		return found >= at
	})
	return int64(n) + 1, err
}

// eventRow is an event as it is stored.
type eventRow struct {
	Event
	at   int64
	body sql.NullString
}

func (r *eventRow) columns() []any {
	return []any{&r.Seq, &r.Kind, &r.at, &r.Invocation, &r.body}
}

func (r *eventRow) event() Event {
	r.At = time.Unix(0, r.at).UTC()
	r.Body = json.RawMessage("null")
	if r.body.Valid && isJSON([]byte(r.body.String)) {
		r.Body = json.RawMessage(r.body.String)
	}
	return r.Event
}

// conditions returns the conditions of the query but the range of times. Those of a partial index
// must stand in the statement itself.
func (q EventQuery) conditions() (whereClause, error) {
	var c whereClause
	switch q.Kind {
	case "":
	case string(begun), string(ended):
		c = c.and("e.kind = ?", q.Kind)
	default:
		c = c.and("e.kind = ? AND e.kind <> 'begun' AND e.kind <> 'ended'", q.Kind)
	}
	if q.Invocation != "" {
		c = c.and(`e.seq IN (SELECT seq FROM invocations WHERE id = ?
			UNION ALL SELECT ended_seq FROM invocations WHERE id = ?
			UNION ALL SELECT seq FROM events WHERE invocation = ? AND invocation <> ''
				AND kind <> 'begun' AND kind <> 'ended')`, q.Invocation, q.Invocation, q.Invocation)
	}
	if q.Principal != "" {
		c = c.and(`CASE WHEN e.invocation <> ''
			THEN EXISTS (SELECT 1 FROM invocations i WHERE i.id = e.invocation AND i.principal = ?)
				OR e.kind NOT IN ('begun', 'ended', 'interrupted') AND `+validBody("e")+` ->> '$.principal' = ?
			ELSE `+validBody("e")+` ->> '$.principal' = ? END`, q.Principal, q.Principal, q.Principal)
	}
	if q.Cursor != "" {
		p, err := parseCursor(eventCursor, q.Cursor)
		if err != nil {
			return c, err
		}
		c = c.and("e.seq < ?", p.minor)
	}
	return c, nil
}
