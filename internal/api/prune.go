package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/dray-dev/dray/audit"
)

// pruneRequest is the body of POST /v1/audit/prune.
type pruneRequest struct {
	Before time.Time `json:"before,omitzero" doc:"Remove records from before this time. Default: audit.keep ago."`
	DryRun bool      `json:"dry_run,omitzero" doc:"Only count."`
}

// prune removes expired records of the audit log.
func (h *info) prune(w http.ResponseWriter, r *http.Request) error {
	var req pruneRequest
	caller := principal(r)
	err := h.server.cfg.Access.CheckOperator(caller, "remove records of the audit log")
	if err == nil {
		err = h.bodies.decodeOptional(w, r, &req)
	}
	if err != nil {
		return err
	}
	opts := audit.PruneOptions{Before: req.Before, DryRun: req.DryRun, Principal: caller}
	ctx := r.Context()
	if format := responseFormat(r, mediaJSON); format != mediaJSON {
		return streamAction(w, r, format, func(progress progressFunc) (actionEnd, error) {
			opts.Progress = func(p audit.Pruning) {
				progress("prune", fmt.Sprintf("%d calls, %d events", p.Calls, p.Events))
			}
			report, err := h.server.cfg.Daemon.Prune(ctx, opts)
			return actionEnd{Pruned: &report}, err
		})
	}
	report, err := h.server.cfg.Daemon.Prune(ctx, opts)
	if err != nil {
		return err
	}
	return reply(w, report)
}
