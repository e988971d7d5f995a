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
	selectRecord = `SELECT i.id, i.tool, i.principal, i.status, i.reason, i.started_at, i.ended_at, i.duration, i.metadata_container, b.body, e.body
		FROM invocations i LEFT JOIN events b ON b.seq = i.seq LEFT JOIN events e ON e.seq = i.ended_seq WHERE `
	bySeq = selectRecord + `i.seq = ?`
	byID  = selectRecord + `i.id = ?`
)

// Get gives one invocation in full, running or ended. It fails with not_found for an id that is
// unknown or another principal's; the empty principal is the operator, who sees all. A part that is
// damaged is left out and named in the record's metadata.warnings.
func (s *Store) Get(ctx context.Context, principal, id string) (dray.Record, error) {
	rec, err := s.load(ctx, s.read, byID, id, true)
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && principal != "" && rec.Principal != principal:
		return dray.Record{}, dray.Errorf(dray.CodeNotFound, "there is no invocation %q", id).
			WithHint("dray audit list shows those there are")
	case err != nil:
		return dray.Record{}, unavailableError(s.path, "read invocation "+id, err)
	}
	return rec, nil
}

// rowQuerier is a *sql.DB or *sql.Tx.
type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
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

// load reads a record. With full, inputs and outputs are fetched from their files.
func (s *Store) load(ctx context.Context, db rowQuerier, query string, key any,
	full bool,
) (dray.Record, error) {
	var r row
	err := db.QueryRowContext(ctx, query, key).
		Scan(&r.id, &r.tool, &r.principal, &r.status, &r.reason, &r.startedAt, &r.endedAt,
			&r.duration, &r.container, &r.begun, &r.ended)
	if err != nil {
		return dray.Record{}, err
	}
	files := s.files
	if !full {
		files = nil
	}
	return r.record(files), nil
}

// record puts the row together. Each part is read for itself: what cannot be read leaves a warning,
// and the columns stand for it.
func (r row) record(files *blobStore) dray.Record {
	rec, begunErr := r.decodeBegin(files)
	var endedErr, containerErr error
	if r.endedAt.Valid {
		rec, endedErr = r.decodeEnd(rec, files)
		rec.Metadata.Container, containerErr = r.metadataContainer()
	}
	for _, part := range []struct {
		name string
		err  error
	}{{"begun event", begunErr}, {"ended event", endedErr}, {"metadata_container", containerErr}} {
		if part.err != nil {
			rec.Metadata.Warnings = append(rec.Metadata.Warnings,
				fmt.Sprintf("the trail's %s cannot be read in full: %v", part.name, part.err))
		}
	}
	return rec
}

var errBodyMissing = errors.New("its body is gone")

func (r row) decodeBegin(files *blobStore) (dray.Record, error) {
	inv := dray.Invocation{ID: r.id, Tool: r.tool, Principal: r.principal}
	started := time.Unix(0, r.startedAt).UTC()
	var body beginBody
	if err := decode(r.begun, &body); err != nil {
		return dray.NewRecord(inv, started), err
	}
	var err error
	inv = body.Invocation
	// what List selects by is what is shown
	inv.ID, inv.Tool, inv.Principal = r.id, r.tool, r.principal
	inv.Input, err = fetch(body.Input, body.InputFile, files)
	return dray.NewRecord(inv, started), err
}

func (r row) decodeEnd(rec dray.Record, files *blobStore) (dray.Record, error) {
	res := dray.Result{
		Status: dray.Status(r.status), Reason: dray.Reason(r.reason.String),
		EndedAt: time.Unix(0, r.endedAt.Int64).UTC(), Duration: time.Duration(r.duration.Int64),
	}
	var body endBody
	err := decode(r.ended, &body)
	if err == nil {
		res.ExitCode, res.Signal, res.Stdout, res.Stderr = body.ExitCode, body.Signal, body.Stdout, body.Stderr
		res.Error, res.Route, res.Metadata = body.Error, body.Route, body.Metadata
		res.Output, err = fetch(body.Output, body.OutputFile, files)
		err = errors.Join(err, loadLists(&res.Metadata, body.ListsFile, files))
	}
	rec = rec.WithResult(res)
	if !r.duration.Valid {
		rec.DurationMS = nil
	}
	return rec, err
}

// metadataContainer reads the column, which is what programs that query the file see too.
func (r row) metadataContainer() (*dray.ContainerMetadata, error) {
	var c *dray.ContainerMetadata
	if !r.container.Valid {
		return c, nil // most calls have none
	}
	if err := json.Unmarshal([]byte(r.container.String), &c); err != nil {
		return nil, err
	}
	return c, nil
}

func decode(body sql.NullString, into any) error {
	if !body.Valid {
		return errBodyMissing
	}
	return json.Unmarshal([]byte(body.String), into)
}

// fetch gives a value from the body or from its file; without files, only what stands in the body.
func fetch(inline json.RawMessage, ref *blobRef, files *blobStore) (json.RawMessage, error) {
	if ref == nil || files == nil {
		return inline, nil
	}
	return files.get(*ref)
}
