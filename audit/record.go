package audit

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dray-dev/dray"
)

const (
	selectRecord = `SELECT i.id, i.tool, i.principal, i.status, i.reason, i.started_at,
		i.ended_at, i.duration, i.metadata_container, b.body, e.body FROM invocations i
		LEFT JOIN events b ON b.seq = i.seq LEFT JOIN events e ON e.seq = i.ended_seq WHERE `
	bySeq = selectRecord + `i.seq = ?`
	byID  = selectRecord + `i.id = ?`
)

// Get returns the invocation with the given id. It fails with the code not_found if the id is
// unknown, was removed by Prune, or belongs to another principal. An empty principal may read
// every invocation. A damaged part of the record is omitted and named in metadata.warnings.
func (s *Store) Get(ctx context.Context, principal, id string) (dray.Record, error) {
	rec, err := load(ctx, s.read, s.blobs, byID, id)
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && principal != "" && rec.Principal != principal:
		return dray.Record{}, notFoundError(ctx, s.read, id)
	case err != nil:
		return dray.Record{}, unavailableError(s.path, "read invocation "+id, err)
	}
	return rec, nil
}

// row is an invocation with its two events as they are stored.
type row struct {
	id, tool, principal, status string
	reason                      sql.NullString
	startedAt                   int64
	endedAt, duration           sql.NullInt64
	container                   sql.NullString
	begun, ended                sql.NullString
}

// load reads a record. If blobs is nil, inputs, outputs and lists in files are omitted.
func load(ctx context.Context, db querier, blobs *blobStore, query string, key any) (
	dray.Record, error,
) {
	var r row
	err := db.QueryRowContext(ctx, query, key).Scan(&r.id, &r.tool, &r.principal, &r.status,
		&r.reason, &r.startedAt, &r.endedAt, &r.duration, &r.container, &r.begun, &r.ended)
	if err != nil {
		return dray.Record{}, err
	}
	return r.record(blobs), nil
}

// record assembles the record. A part that cannot be read leaves a warning; the columns remain.
func (r row) record(blobs *blobStore) dray.Record {
	rec, begunErr := r.decodeBegin(blobs)
	var endedErr, containerErr error
	if r.endedAt.Valid {
		rec, endedErr = r.decodeEnd(rec, blobs)
		if r.container.Valid { // not that of the body: other programs read the column too
			containerErr = json.Unmarshal([]byte(r.container.String), &rec.Metadata.Container)
		}
	}
	for _, part := range []struct {
		name string
		err  error
	}{{"begun event", begunErr}, {"ended event", endedErr}, {"metadata_container", containerErr}} {
		if part.err != nil {
			rec.Metadata.Warnings = append(rec.Metadata.Warnings,
				fmt.Sprintf("the %s in the audit log is damaged: %v", part.name, part.err))
		}
	}
	return rec
}

func (r row) decodeBegin(blobs *blobStore) (dray.Record, error) {
	inv := dray.Invocation{ID: r.id, Tool: r.tool, Principal: r.principal}
	started := time.Unix(0, r.startedAt).UTC()
	var body beginBody
	if err := decode(r.begun, &body); err != nil {
		return dray.NewRecord(inv, started), err
	}
	inv = body.Invocation
	// The columns that List filters by take precedence.
	inv.ID, inv.Tool, inv.Principal = r.id, r.tool, r.principal
	var err error
	inv.Input, err = fetch(body.Input, body.InputFile, blobs)
	rec := dray.NewRecord(inv, started)
	rec.Route = body.Route
	return rec, err
}

func (r row) decodeEnd(rec dray.Record, blobs *blobStore) (dray.Record, error) {
	res := dray.Result{
		Status: dray.Status(r.status), Reason: dray.Reason(r.reason.String),
		EndedAt: time.Unix(0, r.endedAt.Int64).UTC(), Duration: time.Duration(r.duration.Int64),
		Route: rec.Route, // an interrupted call has no other
	}
	var body endBody
	err := decode(r.ended, &body)
	if err == nil {
		res.ExitCode, res.Signal = body.ExitCode, body.Signal
		res.Stdout, res.Stderr = body.Stdout, body.Stderr
		res.Error, res.Metadata = body.Error, body.Metadata.Metadata
		if r.duration.Valid {
			res.Route = body.Route
		}
		res.Output, err = fetch(body.Output, body.OutputFile, blobs)
		err = errors.Join(err, loadLists(&res.Metadata, body.ListsFile, blobs))
	}
	rec = rec.WithResult(res)
	if !r.duration.Valid {
		rec.DurationMS = nil
	}
	return rec, err
}

func decode(body sql.NullString, into any) error {
	if !body.Valid {
		return errors.New("its body is missing")
	}
	return json.Unmarshal([]byte(body.String), into)
}

// fetch returns a value from the body or from its file.
func fetch(inline json.RawMessage, ref *blobRef, blobs *blobStore) (json.RawMessage, error) {
	if ref == nil || blobs == nil {
		return inline, nil
	}
	return blobs.get(ref)
}
