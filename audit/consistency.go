package audit

import (
	"context"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit/proof"
)

// Consistency returns a checkpoint of all committed events with the proof that the first old events
// are those that the log had when it had no more, in the form of [proof.Consistency.Encode]. It
// fails with invalid_request if the log has fewer events, and with audit_unavailable if the events
// in the file are not those that were committed.
func (s *Store) Consistency(ctx context.Context, old int64) ([]byte, error) {
	signed, err := s.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.Key().Open(signed)
	if err == nil && (old < 0 || old > c.Size) {
		return nil, dray.Errorf(dray.CodeInvalidRequest, "the log has %d events, not %d", c.Size, old).
			WithHint("send the number of events of an earlier checkpoint of this log; if it has more " +
				"events than the log, the log was cut or replaced by an older copy")
	}
	var p tlog.TreeProof
	if err == nil {
		p, err = proveConsistency(treeReader{ctx, s.read}, old, c)
	}
	if err != nil {
		return nil, dray.Errorf(dray.CodeAuditUnavailable, "prove the first %d events: %w", old, err).
			WithHint("the audit log may have been changed: run `dray audit verify`")
	}
	return proof.Consistency{OldSize: old, Proof: p, Checkpoint: signed}.Encode(), nil
}

// proveConsistency returns a proof that was checked.
func proveConsistency(r tlog.HashReader, old int64, c proof.Checkpoint) (tlog.TreeProof, error) {
	root, err := tlog.TreeHash(old, r)
	if err != nil || old == 0 {
		return nil, err
	}
	p, err := tlog.ProveTree(c.Size, old, r)
	if err == nil {
		err = proof.CheckConsistency(p, proof.Checkpoint{Size: old, Root: root}, c)
	}
	return p, err
}
