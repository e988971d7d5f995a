package audit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// RecordSync commits an event with the files that a sync of a running call is about to change on
// the host. If the daemon is killed before the end record, the next start finds in it which files
// were changed. RecordSync blocks like a begin record, and fails with audit_unavailable.
func (r *recorder) RecordSync(ctx context.Context, invocation string, planned []dray.FileChange,
) error {
	if len(planned) == 0 {
		return nil
	}
	m, lists, err := storeLists(dray.Metadata{Changes: planned}, r.blobs)
	if err != nil {
		return unavailableError(r.path, "record the files of the sync", err)
	}
	return r.RecordEvent(ctx, &SyncPlanned{
		Changes: m.Changes, ChangesOmitted: m.ChangesOmitted, ListsFile: lists, Invocation: invocation,
	})
}

const (
	selectOpenCalls = `SELECT seq, id, principal, coalesce(plan_id, '') FROM invocations
		WHERE status = 'running' AND status <> 'succeeded' ORDER BY seq`
	selectSyncing = `SELECT invocation, body FROM events WHERE seq > ? AND kind = 'sync'
		AND body IS NOT NULL ORDER BY seq`
)

// interruptedCall is a call without an end record.
type interruptedCall struct {
	seq int64
	inv dray.Invocation // id, principal and plan
}

func (c *interruptedCall) columns() []any {
	return []any{&c.seq, &c.inv.ID, &c.inv.Principal, &c.inv.Context.PlanID}
}

// interrupt writes an end record for every call without one, and returns their number. It must be
// called before the first call runs. Such a call has no duration; its end is the time of interrupt.
func (r *recorder) interrupt(ctx context.Context, db *sql.DB,
	recoverCalls func(ctx context.Context, ids []string) map[string]dray.Metadata,
) (int, error) {
	calls, err := selectAll(ctx, db, selectQuery{sql: selectOpenCalls}, (*interruptedCall).columns)
	if err != nil {
		return 0, fmt.Errorf("find calls without an end record: %w", err)
	}
	if len(calls) == 0 {
		return 0, nil
	}
	var known map[string]dray.Metadata
	if recoverCalls != nil {
		var ids []string
		for _, c := range calls {
			ids = append(ids, c.inv.ID)
		}
		known = recoverCalls(ctx, ids)
	}
	synced, err := r.syncedFiles(ctx, db, calls[0].seq)
	if err != nil {
		return 0, fmt.Errorf("find the files of interrupted syncs: %w", err)
	}
	var events []*pendingEvent
	for _, c := range calls {
		m := known[c.inv.ID]
		m.Changes = append(m.Changes, synced[c.inv.ID]...)
		e, err := r.interruptedEvent(c.inv, m, time.Now().Round(0).UTC())
		if err != nil {
			return 0, err
		}
		events = append(events, e)
	}
	if err := r.submit(ctx, events...); err != nil {
		return 0, fmt.Errorf("mark interrupted calls: %w", err)
	}
	return len(events), nil
}

func (r *recorder) interruptedEvent(inv dray.Invocation, m dray.Metadata, now time.Time) (
	*pendingEvent, error,
) {
	changed, err := newChangedFiles(inv, dray.Result{Metadata: m, EndedAt: now})
	if err != nil {
		return nil, err
	}
	m, lists, err := storeLists(m, r.blobs)
	if err != nil {
		return nil, fmt.Errorf("store the lists of files: %w", err)
	}
	b := endBody{
		Status: dray.StatusFailed, Reason: dray.ReasonInterrupted, EndedAt: now,
		Error: dray.Errorf(dray.CodeInternal, "the daemon ended while the call ran").
			WithHint("check what the call did before you repeat it"),
		Metadata: endMetadata{Metadata: m}, ListsFile: lists,
	}
	body, err := encode(b, "", nil)
	if err != nil {
		return nil, err
	}
	return &pendingEvent{
		event:         event{invocation: inv.ID, kind: interrupted, body: body},
		projectionSQL: projectInterrupted,
		args:          b.interruptedArgs(inv.ID),
		extra:         changed,
	}, nil
}

// syncedFiles returns by call which files the syncs after an event have changed: those that have
// the content that was to be written, and deleted files that are gone. A sync writes all of its
// files or none, and one that was interrupted was completed or undone before.
func (r *recorder) syncedFiles(ctx context.Context, db *sql.DB, after int64) (
	map[string][]dray.FileChange, error,
) {
	type row struct{ invocation, body string }
	rows, err := selectAll(ctx, db, selectQuery{sql: selectSyncing, args: []any{after}},
		func(r *row) []any { return []any{&r.invocation, &r.body} })
	found := map[string][]dray.FileChange{}
	for _, row := range rows {
		var planned SyncPlanned
		_ = json.Unmarshal([]byte(row.body), &planned) // a damaged body has no files
		m := dray.Metadata{Changes: planned.Changes, ChangesOmitted: planned.ChangesOmitted}
		_ = loadLists(&m, planned.ListsFile, r.blobs) // of a damaged list the first files are left
		// a later attempt of the same sync replaces an earlier one, which wrote nothing
		found[row.invocation] = slices.DeleteFunc(m.Changes,
			func(c dray.FileChange) bool { return !wasMade(c) })
	}
	return found, err
}

func wasMade(c dray.FileChange) bool {
	if c.Action == dray.FileDeleted {
		info, err := os.Lstat(c.Path)
		return isGone(err) || err == nil && !info.Mode().IsRegular() // a directory can take its name
	}
	return hasContent(c.Path, c.SHA256After)
}

// isGone reports whether an error means that a path does not exist.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// hasContent reports whether a regular file has the given digest.
func hasContent(path, sha256Hex string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	return err == nil && hex.EncodeToString(h.Sum(nil)) == sha256Hex
}
