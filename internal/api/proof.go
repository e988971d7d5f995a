package api

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"sync"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/validate"
)

// mediaText is the media type of a checkpoint.
const mediaText = "text/plain; charset=utf-8"

// AuditProver proves what the audit log has; *[audit.Store] implements it.
type AuditProver interface {
	// Checkpoint returns a signed checkpoint of all committed events.
	Checkpoint(ctx context.Context) ([]byte, error)
	// Consistency returns one with the proof that the log has its first old events since it had no
	// more. It fails with invalid_request if the log has fewer.
	Consistency(ctx context.Context, old int64) ([]byte, error)
	// Receipt returns the receipt of a call. It fails with not_found for an unknown id and for the
	// call of another principal.
	Receipt(ctx context.Context, principal, id string, bodies bool) ([]byte, error)
	// Verify checks the whole log.
	Verify(ctx context.Context) (audit.Report, error)
}

// proofs serves what proves the audit log.
type proofs struct {
	prover    AuditProver
	access    call.Access
	verifying sync.Mutex // held while the log is verified: one run reads as fast as the disk can
}

func (h *proofs) operations(op newOperationFunc) []*operation {
	return []*operation{
		op("GET /v1/audit/checkpoint", "get-checkpoint", h.checkpoint,
			"Get a signed checkpoint of the audit log, in the form of C2SP tlog-checkpoint.").
			number("old", "The number of events of an earlier checkpoint: also prove that the log "+
				"extends it, in the form of a request of C2SP tlog-witness.", 0, math.MaxInt32).
			returns(200, "The signed note, with old after the proof.", nil).also(200, mediaText),
		op("GET /v1/audit/receipt/{id}", "get-receipt", h.receipt,
			"Get the receipt of a call, which proves what the audit log has of it, also without the log.").
			path("id", "The invocation's id.").
			query("body", "false: only the hashes of the bodies of events. Default: true.", "true", "false").
			returns(200, "The receipt, in the one encoding in which it verifies.", map[string]any{}),
		op("GET /v1/audit/verify", "verify-audit", h.verify,
			"Check the whole audit log against its hashes and its last checkpoints. Operators only; it "+
				"takes some seconds for each 100,000 calls, and ends when its client goes.").
			returns(200, "What was checked and what was found.", audit.Report{}).
			fails(429, "The log is already being verified."),
	}
}

func (h *proofs) checkpoint(w http.ResponseWriter, r *http.Request) error {
	signed, err := h.signedCheckpoint(r)
	if err != nil {
		return err
	}
	respond(w, http.StatusOK, mediaText, signed)
	return nil
}

func (h *proofs) signedCheckpoint(r *http.Request) ([]byte, error) {
	text := r.URL.Query().Get("old")
	if text == "" {
		return h.prover.Checkpoint(r.Context())
	}
	old, err := strconv.ParseUint(text, 10, 62)
	if err != nil {
		return nil, invalid("", "invalid old %q", validate.Quote(text)).
			WithHint("send the number of events of an earlier checkpoint, its second line")
	}
	return h.prover.Consistency(r.Context(), int64(old))
}

func (h *proofs) receipt(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if !isID(id) {
		return noSuchInvocation(id)
	}
	var v validate.Violations
	body := validate.OneOf(&v, "body", r.URL.Query().Get("body"), "true", "false")
	if err := v.ParamErr(); err != nil {
		return err
	}
	receipt, err := h.prover.Receipt(r.Context(), h.access.Viewer(principal(r)), id, body != "false")
	if err != nil {
		return err
	}
	respond(w, http.StatusOK, mediaJSON, receipt)
	return nil
}

func (h *proofs) verify(w http.ResponseWriter, r *http.Request) error {
	if err := h.access.CheckOperator(principal(r), "verify the audit log"); err != nil {
		return err
	}
	if !h.verifying.TryLock() {
		return dray.Errorf(dray.CodeBusy, "the audit log is already being verified").
			WithHint("retry when that has ended; it takes some seconds for each 100,000 calls")
	}
	defer h.verifying.Unlock()
	report, err := h.prover.Verify(r.Context())
	if err != nil {
		return err
	}
	return reply(w, report)
}
