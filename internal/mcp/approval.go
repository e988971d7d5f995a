package mcp

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/policy/approval"
)

const (
	// approvalKey names the question about an approval in the input requests of a result.
	approvalKey = "approval"
	// maxAsked bounds a question in bytes. The user is not asked about a call that does not fit.
	maxAsked = 16 << 10
)

// Approvals are what the user of a client decides about; *[approval.Gate] implements it.
type Approvals interface {
	// Get returns an approval that a viewer may see. It fails with not_found.
	Get(ctx context.Context, viewer, id string) (audit.Approval, error)
	Decide(ctx context.Context, viewer, id string, v approval.Verdict) (audit.Approval, error)
}

// askUser returns the question about the approval that an ended call needs, or nil if there is
// nothing to ask. Clients of 2026-07-28 answer in a repeat of their request; for those of earlier
// revisions the SDK asks, and repeats the request itself (MC-05).
func (s *Server) askUser(ctx context.Context, req *sdk.CallToolRequest, rec dray.Record,
) *sdk.CallToolResult {
	needed := rec.Metadata.Approval
	if !canElicit(req.Session) || req.Params.RequestState != "" || rec.Error == nil ||
		rec.Error.Code != dray.CodeApprovalRequired || needed == nil {
		return nil
	}
	a, err := s.cfg.Approvals.Get(ctx, principalOf(req), needed.ID)
	if err != nil || a.State != audit.ApprovalPending {
		return nil
	}
	question := approvalQuestion(a)
	if question == nil {
		return nil
	}
	return &sdk.CallToolResult{
		InputRequests: sdk.InputRequestMap{approvalKey: question},
		RequestState:  s.approvalState(req, needed.ID),
	}
}

// canElicit reports whether a client has declared that it can show forms to its user. A client that
// declares elicitation without a kind shows forms. A request that the SDK does not serve has no
// session, and its client has not declared elicitation.
func canElicit(session *sdk.ServerSession) bool {
	if session == nil {
		return false
	}
	p := session.InitializeParams()
	if p == nil || p.Capabilities == nil || p.Capabilities.Elicitation == nil {
		return false
	}
	e := p.Capabilities.Elicitation
	return e.Form != nil || e.URL == nil
}

// approvalState returns the state of a question, which the client repeats with the answer: the id
// of the approval, signed for this principal, tool and arguments.
func (s *Server) approvalState(req *sdk.CallToolRequest, id string) string {
	h := hmac.New(sha256.New, s.cfg.SessionKey)
	for _, part := range []string{
		"mcp approval", id, principalOf(req), req.Params.Name, string(req.Params.Arguments),
	} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // a hash takes all
	}
	return id + "." + hex.EncodeToString(h.Sum(nil))
}

// takeAnswer records the user's answer in a repeated request, and returns the id of the approval.
// It returns "" for a request that repeats none, and fails with invalid_request for a forged state.
func (s *Server) takeAnswer(ctx context.Context, req *sdk.CallToolRequest) (id string, err error) {
	state := req.Params.RequestState
	if state == "" {
		return "", nil
	}
	id, _, _ = strings.Cut(state, ".")
	if !hmac.Equal([]byte(state), []byte(s.approvalState(req, id))) {
		return "", dray.Errorf(dray.CodeInvalidRequest, "invalid requestState").
			WithHint("repeat the call with the state and the arguments of the question, or without a state")
	}
	reply, ok := req.Params.InputResponses[approvalKey].(*sdk.ElicitResult)
	if !ok || reply == nil {
		return id, nil
	}
	a, err := s.decide(ctx, deciderOf(req), id, reply)
	if err == nil && reply.Action == "decline" && a.State == audit.ApprovalApproved {
		return "", dray.Errorf(dray.CodeDenied, "the user declined this call, which %s has approved",
			a.DecidedBy).WithHint("nothing ran; without the state the call uses the approval")
	}
	return id, err
}

// deciderOf returns the user of the client that makes a request.
func deciderOf(req sdk.Request) call.Decider {
	inCall, ok := req.GetExtra().TokenInfo.Extra[inCallExtra].(func() bool)
	if !ok {
		inCall = func() bool { return true } // unknown
	}
	return call.Decider{Principal: principalOf(req), InCall: inCall, Elicited: true}
}

// decide records the answer of a client's user about an approval. An answer other than accept and
// decline, such as cancel, decides nothing: the approval stays pending. decide fails with denied
// for a process of a call, which is no client with a user (SE-05). It returns the approval as it is
// then, and no error if it was decided before.
func (s *Server) decide(ctx context.Context, who call.Decider, id string, answer *sdk.ElicitResult,
) (audit.Approval, error) {
	if answer.Action != "accept" && answer.Action != "decline" {
		return audit.Approval{}, nil
	}
	if err := who.Check(); err != nil {
		return audit.Approval{}, err
	}
	a, err := s.cfg.Approvals.Decide(ctx, who.Principal, id, approval.Verdict{
		Approve: answer.Action == "accept", Principal: who.Principal, Via: "elicitation",
	})
	if code := dray.CodeOf(err); code == dray.CodeConflict || code == dray.CodeNotFound {
		return a, nil // the call then ends with the state of the approval
	}
	return a, err
}

// setApprovalKey sets the idempotency key of a request that repeats another with an answer. The key
// of the first request would return the call that has ended. With this one, two repeats are one
// call.
func setApprovalKey(r *call.Request, approvalID string) {
	key := "approval-" + approvalID
	r.IdempotencyKey = &key
}

// approvalMessage returns what a call waits for, for clients that cannot ask their user.
func approvalMessage(id string) string {
	return "waits for approval " + id + ": dray approvals show " + id
}

// approvalQuestion returns the question about an approval: what would run, and why policy asks. It
// returns nil if that cannot be shown in full, because the user must not decide about a part.
func approvalQuestion(a audit.Approval) *sdk.ElicitParams {
	var r approval.Request
	if json.Unmarshal(a.Request, &r) != nil {
		return nil
	}
	lines, complete := r.Lines()
	lines = append(lines, approval.Line{Name: "expires", Text: a.ExpiresAt.Format(time.RFC3339)},
		approval.Line{Name: "approval", Text: a.ID})
	var b strings.Builder
	b.WriteString("May this call run, once?")
	for _, line := range lines {
		b.WriteString("\n" + line.Name + ": " + visible(line.Text))
	}
	if !complete || b.Len() > maxAsked {
		return nil
	}
	return &sdk.ElicitParams{
		Mode: "form", Message: b.String(),
		RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}},
	}
}

// visible escapes characters that do not print, so that no part of a call can hide another one.
func visible(text string) string {
	var b strings.Builder
	for _, c := range text {
		if strconv.IsPrint(c) {
			b.WriteRune(c)
		} else {
			_, _ = fmt.Fprintf(&b, `\u%04x`, c) // never fails
		}
	}
	return b.String()
}
