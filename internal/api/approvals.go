package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/policy/approval"
	"github.com/dray-dev/dray/internal/validate"
)

// Approvals finds and decides approvals; *[approval.Gate] implements it.
type Approvals interface {
	List(ctx context.Context, viewer string, state audit.ApprovalState) ([]audit.Approval, error)
	Get(ctx context.Context, viewer, id string) (audit.Approval, error)
	Decide(ctx context.Context, viewer, id string, v approval.Verdict) (audit.Approval, error)
}

// approvals serves the requests that list and decide approvals.
type approvals struct {
	gate   Approvals
	access call.Access
	bodies *bodyReader
}

func (h *approvals) operations(op newOperationFunc) []*operation {
	onOne := func(route, id string, do handler, summary string) *operation {
		return op(route, id, do, summary).path("id", "The approval's id.").
			returns(200, "The approval.", audit.Approval{})
	}
	return []*operation{
		op("GET /v1/approvals", "list-approvals", h.list, "List the approvals of calls that the caller "+
			"may see, newest first, at most 1000.").
			query("state", "Default: pending.", enum(approvalStates())...).
			returns(200, "The approvals.", listReply[audit.Approval]{}),
		onOne("GET /v1/approvals/{id}", "get-approval", h.get, "Get an approval."),
		onOne("POST /v1/approvals/{id}/decision", "decide-approval", h.decide, "Approve or deny the "+
			"call of an approval. Tokens may not, and neither may processes of a call: a human decides.").
			accepts(decisionRequest{}).
			fails(409, "The approval is decided, used or expired."),
	}
}

const allStates = "all"

func approvalStates() []string {
	return []string{
		string(audit.ApprovalPending), string(audit.ApprovalApproved), string(audit.ApprovalDenied),
		string(audit.ApprovalUsed), string(audit.ApprovalExpired), allStates,
	}
}

// list responds with the approvals that the caller may see.
func (h *approvals) list(w http.ResponseWriter, r *http.Request) error {
	var v validate.Violations
	state := audit.ApprovalPending
	if values, given := r.URL.Query()["state"]; given {
		state = audit.ApprovalState(strings.Join(values, ","))
		if !slices.Contains(approvalStates(), string(state)) {
			v.Add("state", "%q is not a state: omit it for pending, or use one of %s",
				validate.Quote(string(state)), strings.Join(approvalStates(), ", "))
		}
	}
	if err := v.ParamErr(); err != nil {
		return err
	}
	if state == allStates {
		state = ""
	}
	items, err := h.gate.List(r.Context(), h.access.Viewer(principal(r)), state)
	if err != nil {
		return err
	}
	return reply(w, listReply[audit.Approval]{items})
}

func (h *approvals) get(w http.ResponseWriter, r *http.Request) error {
	a, err := h.gate.Get(r.Context(), h.access.Viewer(principal(r)), r.PathValue("id"))
	if err != nil {
		return err
	}
	return reply(w, a)
}

// decisionRequest is the body of a decision.
type decisionRequest struct {
	Decision string `json:"decision" enum:"approve,deny"`
	Reason   string `json:"reason,omitempty" maxLength:"1000" doc:"What the caller of the tool and the audit log get."`
}

// decide records a decision about an approval.
func (h *approvals) decide(w http.ResponseWriter, r *http.Request) error {
	var req decisionRequest
	if err := h.bodies.decode(w, r, &req); err != nil {
		return err
	}
	var v validate.Violations
	validate.OneOf(&v, "/decision", req.Decision, "approve", "deny")
	if req.Decision == "" {
		v.Add("/decision", "a decision is required: approve or deny")
	}
	validate.Text(&v, "/reason", req.Reason, approval.MaxReason)
	if err := v.Err(); err != nil {
		return err
	}
	viewer := h.access.Viewer(principal(r))
	// first: whether an approval of another principal exists is not for this one to know
	if _, err := h.gate.Get(r.Context(), viewer, r.PathValue("id")); err != nil {
		return err
	}
	who := call.Decider{Principal: principal(r), InCall: inCall(r)}
	if err := who.Check(); err != nil {
		return err
	}
	a, err := h.gate.Decide(r.Context(), viewer, r.PathValue("id"), approval.Verdict{
		Approve: req.Decision == "approve", Reason: req.Reason, Principal: who.Principal, Via: "http",
	})
	if err != nil {
		return err
	}
	return reply(w, a)
}
