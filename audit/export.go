package audit

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dray-dev/dray"
)

// Exporter receives the calls of Export. An error of one of its methods ends the export.
type Exporter interface {
	Call(rec dray.Record) error
	// Unreadable receives a row that cannot be read.
	Unreadable(row Unreadable) error
}

// Export passes the calls that a query selects to an exporter, in the order of List. q.Limit is
// their maximum number; 0 means all. Each is complete: with the inputs, outputs and lists that are
// files.
//
// Export has one call in memory and no transaction open, so calls that begin or end meanwhile may
// be missing. It fails like List, or with the error of the exporter.
func (s *Store) Export(ctx context.Context, q Query, to Exporter) error {
	left := q.Limit
	if left < 0 {
		return q.check()
	}
	for {
		q.Limit = MaxLimit
		if left > 0 {
			q.Limit = min(left, MaxLimit)
		}
		search, err := q.search()
		if err != nil {
			return err
		}
		found, next, err := search.run(ctx, s.read)
		if err != nil {
			return unavailableError(s.path, "export the audit log", err)
		}
		for _, p := range found {
			if err := s.exportCall(ctx, p.minor, to); err != nil {
				return err
			}
		}
		if next == "" || left > 0 && len(found) == left {
			return nil
		}
		left, q.Cursor = max(left-len(found), 0), next
	}
}

func (s *Store) exportCall(ctx context.Context, seq int64, to Exporter) error {
	rec, err := load(ctx, s.read, s.blobs, bySeq, seq)
	switch {
	case err == nil:
		return to.Call(rec)
	case errors.Is(err, sql.ErrNoRows):
		return nil // retention removed it meanwhile
	case ctx.Err() != nil:
		return unavailableError(s.path, "export the audit log", err)
	default:
		return to.Unreadable(Unreadable{Seq: seq, Message: err.Error()})
	}
}
