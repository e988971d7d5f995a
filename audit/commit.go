package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/dray-dev/dray"
)

const (
	lastSeq     = `SELECT coalesce(max(seq), 0) FROM events`
	insertEvent = `INSERT INTO events (seq, invocation, kind, at, body, leaf) VALUES (?, ?, ?, ?, ?, ?)`
)

// errNotRunning says that a projection found nothing to change: the call was never begun, or is over already.
var errNotRunning = errors.New("no such call is running in the trail")

// commit writes a batch in one transaction: all of it or nothing. All events of it have one time, that of the transaction. Waiting for
// the lock may take long, so which jobs are still wanted is asked after it; those were written.
//
// The transaction is written out in SQL. A sql.Tx starts goroutines that watch its context, which never ends here, and wake up with
// each commit.
func commit(ctx context.Context, db *sql.DB, batch []*pendingEvent, wanted func([]*pendingEvent) []*pendingEvent) (written []*pendingEvent, err error) {
	tx, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin to write: %w", err)
	}
	defer func() { err = errors.Join(err, tx.Close()) }()
	if _, err := tx.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		return nil, fmt.Errorf("begin to write: %w", err)
	}
	defer func() {
		if err != nil {
			_, _ = tx.ExecContext(ctx, `ROLLBACK`) // SQLite may have done it by itself
		}
	}()
	defer recoverTo(&err) // before that: what was written until a panic is taken back, and the connection goes on
	// Asked each time: another program may have appended, and a gap or a clash would be refused.
	var last int64
	if err := tx.QueryRowContext(ctx, lastSeq).Scan(&last); err != nil {
		return nil, fmt.Errorf("find the last event: %w", err)
	}
	at := time.Now().UnixNano()
	written = wanted(batch)
	for i, j := range written {
		if err := j.write(ctx, tx, last+int64(i)+1, at); err != nil {
			return nil, err
		}
	}
	if _, err := tx.ExecContext(ctx, `COMMIT`); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return written, nil
}

// write appends the event and changes the projection.
func (j *pendingEvent) write(ctx context.Context, tx *sql.Conn, seq, at int64) error {
	e := j.event
	e.seq, e.at = seq, at
	leaf := e.leaf()
	_, err := tx.ExecContext(ctx, insertEvent, e.seq, e.invocation, string(e.kind), e.at, string(e.body), leaf[:])
	if err != nil {
		return fmt.Errorf("append the event: %w", err)
	}
	changed, err := tx.ExecContext(ctx, j.projectionSQL, append([]any{seq}, j.args...)...)
	if err != nil {
		return fmt.Errorf("write the projection: %w", err)
	}
	if n, err := changed.RowsAffected(); err != nil || n != 1 {
		return errors.Join(errNotRunning, err)
	}
	return j.changes.write(ctx, tx, seq, e.invocation)
}

// isRetryable says whether a write may succeed later although nobody changes what is written: the file is locked, the disk is full,
// or the system refuses now.
func isRetryable(err error) bool {
	e, ok := errors.AsType[sqlite3.Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case sqlite3.ErrBusy, sqlite3.ErrLocked, sqlite3.ErrFull, sqlite3.ErrIoErr, sqlite3.ErrNomem, sqlite3.ErrCantOpen, sqlite3.ErrProtocol:
		return true
	default:
		return false
	}
}

// unavailableError makes the error of a trail that cannot be used, with what to do about its cause.
func unavailableError(path, doing string, err error) *dray.Error {
	if known, ok := errors.AsType[*dray.Error](err); ok {
		return known
	}
	e := dray.Errorf(dray.CodeAuditUnavailable, "%s: %w", doing, err)
	cause, known := errors.AsType[sqlite3.Error](err)
	switch {
	case errors.Is(err, errClosed):
		return dray.Errorf(dray.CodeShuttingDown, "%s: %w", doing, err).WithHint("the daemon is ending: repeat the call when it runs again")
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return e.WithHint("ask for less, or allow more time")
	case !known:
		return e.WithHint("look at the disk of %s, then repeat the call", path)
	}
	switch cause.Code {
	case sqlite3.ErrConstraint:
		return dray.Errorf(dray.CodeConflict, "%s: %w", doing, err).WithHint("there is an invocation with this id: make a new one")
	case sqlite3.ErrBusy, sqlite3.ErrLocked:
		return e.WithHint("another program has locked %s: end it (fuser %s), then repeat the call", path, path)
	case sqlite3.ErrFull:
		return e.WithHint("the disk of %s is full: free space, then repeat the call", path)
	case sqlite3.ErrCorrupt, sqlite3.ErrNotADB:
		return e.WithHint("%s is damaged: stop the daemon, move the file away and restore a backup", path)
	default:
		return e.WithHint("look at the disk and the permissions of %s, then repeat the call", path)
	}
}
