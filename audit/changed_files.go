package audit

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dray-dev/dray"
)

// changedFiles are the files that a call changed. They are inserted by one statement, because a
// sync may have changed thousands and no other event is written meanwhile.
type changedFiles struct {
	list      []byte // a JSON list of dray.FileChange, for json_each
	principal string
	plan      sql.NullString
	at        int64
}

const selectChanges = `SELECT seq, n, invocation, coalesce(plan_id, ''), environment, path, action,
	coalesce(sha256_before, ''), coalesce(sha256_after, ''), at FROM changed_files`

const insertChangedFiles = `INSERT INTO changed_files
	(seq, n, invocation, principal, plan_id,
	 environment, path, action, sha256_before, sha256_after, at)
	SELECT ?, key, ?, ?, ?, value ->> 'environment', value ->> 'path', value ->> 'action',
	 value ->> 'sha256_before', value ->> 'sha256_after', ?
	FROM json_each(?)`

// newChangedFiles returns the changed files of a result, or nil if there are none.
func newChangedFiles(inv dray.Invocation, res dray.Result) (*changedFiles, error) {
	if len(res.Metadata.Changes) == 0 {
		return nil, nil
	}
	list, err := json.Marshal(res.Metadata.Changes)
	if err != nil {
		return nil, fmt.Errorf("encode the changed files: %w", err)
	}
	return &changedFiles{
		list: list, principal: inv.Principal, plan: nullString(inv.Context.PlanID),
		at: res.EndedAt.UnixNano(),
	}, nil
}

func (c *changedFiles) write(ctx context.Context, tx *sql.Conn, seq int64,
	invocation string,
) error {
	if c == nil {
		return nil
	}
	_, err := tx.ExecContext(ctx, insertChangedFiles,
		seq, invocation, c.principal, c.plan, c.at, string(c.list))
	if err != nil {
		return fmt.Errorf("write the changed files: %w", err)
	}
	return nil
}

// ChangeQuery selects changed files. An empty field does not restrict; strings are compared
// exactly.
type ChangeQuery struct {
	PlanID, Invocation, Path, Principal string
	// Limit is 50 if zero, at most 1000.
	Limit int
	// Cursor is the NextCursor of the previous page, or empty.
	Cursor string
}

// Change is a file that dray changed for a call.
type Change struct {
	Invocation string `json:"invocation"`
	PlanID     string `json:"plan_id,omitzero"`
	dray.FileChange
	// At is when the call ended.
	At time.Time `json:"at"`
}

// ChangePage is a page of changed files. The call that ended last comes first, and of its files the
// last one.
type ChangePage struct {
	Items []Change `json:"items"`
	// NextCursor selects the next page; it is empty on the last one.
	NextCursor string `json:"next_cursor"`
}

// Changes returns a page of changed files. Files recorded between two calls sort before the first
// page. Changes fails with invalid_request for an invalid limit or cursor, else with
// audit_unavailable.
func (s *Store) Changes(ctx context.Context, q ChangeQuery) (ChangePage, error) {
	stmt, err := q.statement()
	if err != nil {
		return ChangePage{}, err
	}
	found, err := selectAll(ctx, s.read, stmt, (*changeRow).columns)
	if err != nil {
		return ChangePage{}, unavailableError(s.path, "list the changed files", err)
	}
	page := ChangePage{Items: []Change{}}
	if limit := q.limit(); len(found) > limit {
		found = found[:limit]
		page.NextCursor = found[limit-1].cursor(changeCursor)
	}
	for _, row := range found {
		row.At = time.Unix(0, row.at).UTC()
		page.Items = append(page.Items, row.Change)
	}
	return page, nil
}

// changeRow is a changed file with its position.
type changeRow struct {
	position
	Change
	at int64
}

func (r *changeRow) columns() []any {
	return []any{
		&r.major, &r.minor, &r.Invocation, &r.PlanID, &r.Environment, &r.Path, &r.Action,
		&r.SHA256Before, &r.SHA256After, &r.at,
	}
}

func (q ChangeQuery) limit() int { return Query{Limit: q.Limit}.limit() }

// statement returns the query for one row more than the limit: it exists if there is another page.
func (q ChangeQuery) statement() (selectQuery, error) {
	if err := (Query{Limit: q.Limit}).check(); err != nil {
		return selectQuery{}, err
	}
	var c whereClause
	c = c.equal("plan_id", q.PlanID).equal("path", q.Path).equal("principal", q.Principal)
	if q.Invocation != "" {
		c = c.and("seq = (SELECT ended_seq FROM invocations WHERE id = ?)", q.Invocation)
	}
	if q.Cursor != "" {
		p, err := parseCursor(changeCursor, q.Cursor)
		if err != nil {
			return selectQuery{}, err
		}
		c = c.and("(seq, n) < (?, ?)", p.major, p.minor)
	}
	return selectQuery{
		sql:  selectChanges + c.where() + " ORDER BY seq DESC, n DESC LIMIT ?",
		args: append(c.args, q.limit()+1),
	}, nil
}
