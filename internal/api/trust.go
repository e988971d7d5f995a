package api

import (
	"context"
	"net/http"

	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/validate"
	"github.com/dray-dev/dray/internal/workspace"
)

// trustRequest has the hash of what the caller agrees to.
type trustRequest struct {
	Hash string `json:"hash" doc:"The hash of a review of the workspace."`
}

// reviewTrust responds with what a trust in a workspace covers.
func (h *workspaces) reviewTrust(w http.ResponseWriter, r *http.Request) error {
	id, err := h.parseID(r)
	if err != nil {
		return err
	}
	review, err := h.manager.Review(r.Context(), id)
	if err != nil {
		return err
	}
	return reply(w, review)
}

// trust trusts what a review with the hash of the request shows.
func (h *workspaces) trust(w http.ResponseWriter, r *http.Request) error {
	id, err := h.parseID(r)
	if err == nil {
		err = h.access.CheckTrust(principal(r))
	}
	if err != nil {
		return err
	}
	var req trustRequest
	if err := h.bodies.decode(w, r, &req); err != nil {
		return err
	}
	if req.Hash == "" {
		var v validate.Violations
		v.Add("/hash", "the hash of what is trusted is required: GET this path to look at it")
		return v.Err()
	}
	return h.changeTrust(w, r, audit.TrustChanged{
		Workspace: id, Action: "give", Hash: recordedText(req.Hash),
	}, func(ctx context.Context) (workspace.Info, error) {
		return h.manager.Trust(ctx, id, req.Hash)
	})
}

// revokeTrust ends the trust in a workspace.
func (h *workspaces) revokeTrust(w http.ResponseWriter, r *http.Request) error {
	id, err := h.parse(w, r)
	if err == nil {
		err = h.access.CheckTrust(principal(r))
	}
	if err != nil {
		return err
	}
	return h.changeTrust(w, r, audit.TrustChanged{Workspace: id, Action: "revoke"},
		func(ctx context.Context) (workspace.Info, error) { return h.manager.Revoke(ctx, id) })
}

// changeTrust gives or revokes trust, with an event in the audit log.
func (h *workspaces) changeTrust(w http.ResponseWriter, r *http.Request, change audit.TrustChanged,
	do func(context.Context) (workspace.Info, error),
) error {
	change.Principal = principal(r)
	event := func(failure string) audit.Body {
		change.Error = failure
		return &change
	}
	var info workspace.Info
	err := h.record.do(r.Context(), event, func(ctx context.Context) (err error) {
		info, err = do(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return reply(w, info)
}
