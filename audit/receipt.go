package audit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit/proof"
)

// Receipt returns the receipt of a call: the events of the call that are committed, with their
// bodies or only the hashes of these, the proof that the log includes them, and a checkpoint of the
// log. It fails with not_found as Get does, and with audit_unavailable if the events in the file
// are not those that were committed.
func (s *Store) Receipt(ctx context.Context, principal, id string, bodies bool) ([]byte, error) {
	signed, err := s.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	doing := "make the receipt of " + id
	tx, err := s.read.BeginTx(ctx, nil) // one snapshot for all statements
	if err != nil {
		return nil, unavailableError(s.path, doing, err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	events, err := selectAll(ctx, tx, selectQuery{sql: selectCallEvents, args: []any{id, principal}},
		(*storedEvent).columns)
	if err != nil {
		return nil, unavailableError(s.path, doing, err)
	}
	if len(events) == 0 {
		return nil, notFoundError(ctx, tx, id)
	}
	receipt, err := proveEvents(ctx, tx, s.Key(), signed, events, bodies)
	if err != nil {
		return nil, dray.Errorf(dray.CodeAuditUnavailable, "%s: %w", doing, err).
			WithHint("the audit log may have been changed: run `dray audit verify`")
	}
	return receipt, nil
}

// storedEvent is an event as it is in the table.
type storedEvent struct {
	event
	body       sql.NullString
	bodySHA256 []byte // of a body that retention has removed
	leaf       []byte
}

const (
	eventColumns = `seq, invocation, kind, at, body, body_sha256, leaf`

	// The second argument is the principal who asks; an empty one may see all.
	selectCallEvents = `WITH found AS (SELECT seq, ended_seq FROM invocations
		WHERE id = ?1 AND (?2 = '' OR principal = ?2))
		SELECT ` + eventColumns + ` FROM events
		WHERE seq IN (SELECT seq FROM found UNION SELECT ended_seq FROM found) ORDER BY seq`
)

func (e *storedEvent) columns() []any {
	return []any{
		&e.seq, &e.invocation, &e.kind, &e.at, &e.body, &e.bodySHA256, &e.leaf,
	}
}

// proof returns the event as its leaf has it.
func (e *storedEvent) proof() (proof.Event, error) {
	p := proof.Event{Seq: e.seq, At: e.at, Kind: string(e.kind), Invocation: e.invocation}
	switch {
	case e.body.Valid:
		p.BodySHA256 = sha256.Sum256([]byte(e.body.String))
	case len(e.bodySHA256) == sha256.Size:
		p.BodySHA256 = [sha256.Size]byte(e.bodySHA256)
	default:
		return p, errors.New("the event has neither a body nor the hash of one")
	}
	return p, nil
}

// proveEvents returns a receipt that was verified.
func proveEvents(ctx context.Context, db querier, key proof.Verifier, signed []byte,
	events []storedEvent, bodies bool,
) ([]byte, error) {
	c, err := key.Open(signed)
	if err != nil {
		return nil, err
	}
	var proven []proof.ReceiptEvent
	for _, e := range events {
		p, err := e.proof()
		if err != nil {
			return nil, err
		}
		inclusion, err := tlog.ProveRecord(c.Size, e.seq-1, treeReader{ctx, db})
		if err != nil {
			return nil, fmt.Errorf("prove event %d: %w", e.seq, err)
		}
		one := proof.NewReceiptEvent(p, inclusion)
		if bodies && e.body.Valid {
			one = one.WithBody([]byte(e.body.String))
		}
		proven = append(proven, one)
	}
	receipt, err := proof.NewReceipt(proven, signed).Encode()
	if err == nil {
		_, _, err = key.VerifyReceipt(receipt)
	}
	return receipt, err
}
