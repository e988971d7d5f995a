package audit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dray-dev/dray"
)

// pruneBatch is the number of events in one transaction of Prune. Calls wait for it like for
// others.
const pruneBatch = 500

// kindPruned is the only kind of event whose bodies are never removed.
const kindPruned = "pruned"

// Pruning is what retention removed, or would remove. It is the body of an event `pruned`, for one
// transaction, and the sum of several.
type Pruning struct {
	// First and Last are 0 if nothing has expired.
	First     int64     `json:"first" doc:"the first event of the range"`
	Last      int64     `json:"last" doc:"the last event of the range"`
	Before    time.Time `json:"before" doc:"the time before which records had expired"`
	Events    int64     `json:"events" doc:"number of events whose body was removed"`
	Calls     int64     `json:"calls" doc:"number of calls whose row was removed"`
	Bytes     int64     `json:"bytes" doc:"bytes of the bodies"`
	Principal string    `json:"principal" doc:"who asked for it; empty for audit.keep"`
}

// Kind implements [Body].
func (*Pruning) Kind() string { return kindPruned }

// Summary implements [Body].
func (p *Pruning) Summary() string {
	return fmt.Sprintf("events %d to %d, with %d calls and %d bytes, of before %s",
		p.First, p.Last, p.Calls, p.Bytes, p.Before.Format(time.RFC3339))
}

// PruneOptions select what Prune removes.
type PruneOptions struct {
	// Before is the time before which records have expired. It must not be in the future.
	Before time.Time
	// Principal is who requests it; empty for audit.keep.
	Principal string
	// DryRun only counts.
	DryRun bool
	// Progress, if set, is called now and then with what was removed so far.
	Progress func(Pruning)
}

// progressBatches is the number of batches between two calls of Progress.
const progressBatches = 10

// PruneReport is what Prune did.
type PruneReport struct {
	Pruning
	// Files and FileBytes are removed files of long inputs, outputs and lists. A dry run does not
	// count them.
	Files     int64 `json:"files"`
	FileBytes int64 `json:"file_bytes"`
	// HeldBy is the id of the call at which Prune stopped: it began before Before and ended later, or
	// still runs. Empty if there is none.
	HeldBy string `json:"held_by,omitzero"`
}

// Prune removes records that have expired, the oldest first: the bodies of their events, the rows
// of their calls and changed files, and files that no call refers to any more. The events stay,
// with the hash of their body. It stops at the first event that has not expired and at the first
// call that has not ended before that time, so what was removed is always a range from the first
// event.
//
// Each transaction is short, and has an event `pruned` that says what it removed. Prune fails with
// invalid_request for a time in the future, else with audit_unavailable; what it removed until then
// is removed. The space is used again for new records; the file does not become smaller.
func (s *Store) Prune(ctx context.Context, opts PruneOptions) (PruneReport, error) {
	report := PruneReport{Pruning: Pruning{Before: opts.Before.UTC(), Principal: opts.Principal}}
	if now := time.Now(); opts.Before.After(now) {
		return report, dray.Errorf(dray.CodeInvalidRequest, "%s is in the future",
			opts.Before.Format(time.RFC3339)).WithHint("choose a time before now")
	}
	s.pruning.Lock()
	defer s.pruning.Unlock()
	err := s.pruneEvents(ctx, opts, &report)
	if err == nil && !opts.DryRun {
		err = s.removeUnusedFiles(ctx, &report)
	}
	if err != nil {
		return report, unavailableError(s.path, "remove expired records", err)
	}
	return report, nil
}

// pruneEvents removes batch after batch until one is empty or held.
func (s *Store) pruneEvents(ctx context.Context, opts PruneOptions, report *PruneReport) error {
	var last int64
	if err := s.read.QueryRowContext(ctx, lastPruned).Scan(&last); err != nil {
		return fmt.Errorf("find what was removed before: %w", err)
	}
	for n := 1; report.HeldBy == ""; n++ {
		batch, err := s.findExpired(ctx, last, opts.Before)
		if err != nil {
			return err
		}
		report.HeldBy = batch.heldBy
		if len(batch.removed) == 0 {
			return nil
		}
		batch.Before, batch.Principal = report.Before, opts.Principal
		if !opts.DryRun {
			if err := s.removeExpired(ctx, batch); err != nil {
				return err
			}
		}
		report.add(batch.Pruning)
		if opts.Progress != nil && n%progressBatches == 0 {
			opts.Progress(report.Pruning)
		}
		last = batch.Last
	}
	return nil
}

// add adds the next range.
func (p *Pruning) add(next Pruning) {
	if p.First == 0 {
		p.First = next.First
	}
	p.Last = next.Last
	p.Events += next.Events
	p.Calls += next.Calls
	p.Bytes += next.Bytes
}

const (
	lastPruned = `SELECT coalesce(max(last_seq), 0) FROM
		(SELECT last_seq FROM prunings ORDER BY seq DESC LIMIT 1)`
	selectExpired = `SELECT seq, at, body FROM events
		WHERE seq > ? AND kind <> 'pruned' ORDER BY seq LIMIT ?`
	selectUnexpiredCall = `SELECT seq, id FROM invocations
		WHERE seq BETWEEN ? AND ? AND (ended_at IS NULL OR ended_at >= ?) ORDER BY seq LIMIT 1`
	countCalls = `SELECT count(*) FROM invocations WHERE seq BETWEEN ? AND ?`
)

// expired is a range of events whose bodies can be removed.
type expired struct {
	Pruning
	removed []removedBody
	heldBy  string
}

type removedBody struct {
	seq    int64
	bytes  int64
	sha256 [sha256.Size]byte
}

// findExpired returns the next range after an event.
func (s *Store) findExpired(ctx context.Context, last int64, before time.Time) (expired, error) {
	var batch expired
	end := last
	rows, err := s.read.QueryContext(ctx, selectExpired, last, pruneBatch)
	if err != nil {
		return batch, fmt.Errorf("find expired records: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var e event
		if err := rows.Scan(&e.seq, &e.at, &e.body); err != nil {
			return batch, fmt.Errorf("read expired records: %w", err)
		}
		if e.at >= nanoseconds(before) {
			break
		}
		end = e.seq
		batch.removed = append(batch.removed,
			removedBody{e.seq, int64(len(e.body)), sha256.Sum256(e.body)})
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return batch, fmt.Errorf("read expired records: %w", err)
	}
	err = s.holdUnexpired(ctx, &batch, last+1, end, before)
	return batch, err
}

// holdUnexpired ends the range before the first call that has not expired, and counts what is in
// it.
func (s *Store) holdUnexpired(
	ctx context.Context, batch *expired, first, last int64, before time.Time,
) error {
	var held int64
	err := s.read.QueryRowContext(ctx, selectUnexpiredCall, first, last, nanoseconds(before)).
		Scan(&held, &batch.heldBy)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("find calls that have not expired: %w", err)
	}
	for i, b := range batch.removed {
		if held > 0 && b.seq >= held {
			batch.removed = batch.removed[:i]
			break
		}
		batch.Events++
		batch.Bytes += b.bytes
		batch.First, batch.Last = first, b.seq
	}
	err = s.read.QueryRowContext(ctx, countCalls, batch.First, batch.Last).Scan(&batch.Calls)
	if err != nil {
		return fmt.Errorf("count expired calls: %w", err)
	}
	return nil
}

const (
	insertPruning = `INSERT INTO prunings
		(seq, first_seq, last_seq, before, events, calls, bytes) VALUES (?, ?, ?, ?, ?, ?, ?)`
	// To set seq makes SQLite delete and insert the row. Then it merges pages that have become almost
	// empty and uses them again; otherwise they would stay as they are.
	removeBody = `UPDATE events SET seq = seq, body = NULL, body_sha256 = ? WHERE seq = ?`
)

// args returns the arguments of insertPruning after the seq.
func (p *Pruning) args() []any {
	return []any{p.First, p.Last, nanoseconds(p.Before), p.Events, p.Calls, p.Bytes}
}

// removeExpired commits the removal of a range together with its event.
func (s *Store) removeExpired(ctx context.Context, batch expired) error {
	e, err := newEvent(&batch.Pruning)
	if err != nil {
		return err
	}
	e.projectionSQL, e.extra = insertPruning, batch
	e.args = batch.args()
	if err := s.submit(ctx, e); err != nil {
		return fmt.Errorf("remove events %d to %d: %w", batch.First, batch.Last, err)
	}
	return ctx.Err()
}

// isPruning reports whether an event is the removal of a range. Such a transaction does not check
// foreign keys: SQLite would search all calls for each event, although no seq changes.
func isPruning(p *pendingEvent) bool {
	_, ok := p.extra.(expired)
	return ok
}

// write removes the bodies and rows of a range, in the transaction of the event `pruned`.
func (e expired) write(ctx context.Context, tx *sql.Conn, _ int64, _ string) error {
	for _, b := range e.removed {
		if _, err := tx.ExecContext(ctx, removeBody, b.sha256[:], b.seq); err != nil {
			return fmt.Errorf("remove the body of event %d: %w", b.seq, err)
		}
	}
	for _, statement := range []string{
		`DELETE FROM invocations WHERE seq BETWEEN ? AND ?`,
		`DELETE FROM labels WHERE seq BETWEEN ? AND ?`, // the transaction does not check foreign keys
		`DELETE FROM changed_files WHERE seq BETWEEN ? AND ?`,
		`DELETE FROM approvals WHERE seq BETWEEN ? AND ?`,
	} {
		if _, err := tx.ExecContext(ctx, statement, e.First, e.Last); err != nil {
			return fmt.Errorf("remove the rows of events %d to %d: %w", e.First, e.Last, err)
		}
	}
	return nil
}

// notFoundError returns the error for an id without a record. Its message differs for a call that
// began in the time whose records retention has removed.
func notFoundError(ctx context.Context, db querier, id string) error {
	var before int64
	err := db.QueryRowContext(ctx, `SELECT coalesce(max(before), 0) FROM prunings`).Scan(&before)
	if err == nil && lowerUUID.MatchString(id) && idTime(id) < before {
		return dray.Errorf(dray.CodeNotFound,
			"no such invocation: %q: calls that ended before %s were removed from the audit log",
			id, time.Unix(0, before).UTC().Format(time.RFC3339)).
			WithHint("audit.keep says how long calls are retained; a backup may have this one")
	}
	return dray.Errorf(dray.CodeNotFound, "no such invocation: %q", id).
		WithHint("use a whole id of yours: dray audit list and GET /v1/invocations list them")
}

// idTime returns the time in an id, a UUID of version 7, in nanoseconds since 1970 UTC.
func idTime(id string) int64 {
	ms, err := strconv.ParseInt(id[:8]+id[9:13], 16, 64)
	if err != nil {
		panic(err) // the caller checked the digits
	}
	return time.UnixMilli(ms).UnixNano()
}
