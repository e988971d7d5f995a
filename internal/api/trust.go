package api

import (
	"net/http"

	"github.com/dray-dev/dray/internal/validate"
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
	info, err := h.manager.Trust(r.Context(), id, req.Hash)
	if err != nil {
		return err
	}
	return reply(w, info)
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
	info, err := h.manager.Revoke(r.Context(), id)
	if err != nil {
		return err
	}
	return reply(w, info)
}
