package audit

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dray-dev/dray"
)

const byIdempotencyKey = `SELECT id, coalesce(idempotency_request, '') FROM invocations
	WHERE principal = ? AND idempotency_key = ?`

// Claimed returns the call of a principal that has claimed an idempotency key, and the hash of its
// request. It fails with not_found if there is none.
func (s *Store) Claimed(ctx context.Context, principal, key string) (
	rec dray.Record, request string, err error,
) {
	var id string
	err = s.read.QueryRowContext(ctx, byIdempotencyKey, principal, key).Scan(&id, &request)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return rec, "", dray.Errorf(dray.CodeNotFound, "no call has claimed this idempotency key")
	case err != nil:
		return rec, "", unavailableError(s.path, "look for the idempotency key", err)
	}
	rec, err = s.Get(ctx, principal, id)
	return rec, request, err
}
