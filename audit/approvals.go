package audit

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dray-dev/dray"
)

// ApprovalState is the state of an approval.
type ApprovalState string

// The states of an approval. Pending and approved are open; the others are final. A used approval
// has let one call run, and lets no other run.
const (
	ApprovalPending  ApprovalState = "pending"
	ApprovalApproved ApprovalState = "approved"
	ApprovalDenied   ApprovalState = "denied"
	ApprovalUsed     ApprovalState = "used"
	ApprovalExpired  ApprovalState = "expired"
)

// IsOpen reports whether an approval in this state can still change.
func (s ApprovalState) IsOpen() bool { return s == ApprovalPending || s == ApprovalApproved }

// Approval is the request for a human's decision about one call, and the decision. It lets one call
// run, with exactly its hash (SE-04).
type Approval struct {
	ID    string        `json:"id"`
	State ApprovalState `json:"state" enum:"pending,approved,denied,used,expired"`
	// Hash identifies the call: a keyed hash of everything that decides what it does.
	Hash string `json:"-"`
	// Principal made the call, and Invocation is the call that asked first.
	Principal  string    `json:"principal" doc:"Who made the call."`
	Invocation string    `json:"invocation" doc:"The id of the call that asked first."`
	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  time.Time `json:"expires_at" doc:"The end of an approval that was not used until then."`
	// Request is the call as the human sees it, without secrets.
	Request   json.RawMessage `json:"request" doc:"The call: tool, input, environment, working directory, variables, stdin, and why policy asks."`
	DecidedBy string          `json:"decided_by,omitempty"`
	DecidedAt *time.Time      `json:"decided_at,omitempty"`
	Reason    string          `json:"reason,omitempty" doc:"What the human said."`
	UsedBy    string          `json:"used_by,omitempty" doc:"The id of the call that ran."`
}

// ApprovalChanged is the body of the kind approval (SE-04).
type ApprovalChanged struct {
	Principal  string        `json:"principal" doc:"who made this step: the caller, who decided, or the daemon's user for an expiry"`
	Approval   string        `json:"approval" doc:"id of the approval"`
	State      ApprovalState `json:"state" doc:"its new state: pending, approved, denied, used or expired"`
	Owner      string        `json:"owner" doc:"whose call it is about"`
	Tool       string        `json:"tool,omitempty" doc:"the tool of the call, in the first event"`
	Reasons    []string      `json:"reasons,omitempty" doc:"why policy asks, in the first event"`
	Invocation string        `json:"invocation,omitempty" doc:"the call that asked, or that ran"`
	Reason     string        `json:"reason,omitempty" doc:"what the human said"`
	Via        string        `json:"via,omitempty" doc:"how it was decided: http, or elicitation by an MCP client"`
}

// Kind implements [Body].
func (*ApprovalChanged) Kind() string { return "approval" }

// Summary implements [Body].
func (b *ApprovalChanged) Summary() string {
	text := string(b.State) + " " + b.Approval + " of " + b.Owner
	if b.Tool != "" {
		text += ", tool " + b.Tool
	}
	return withError(text, b.Reason)
}

// RequestApproval commits a new approval, which is pending, and its event. It fails with conflict
// if there is an open one with its hash.
func (r *recorder) RequestApproval(ctx context.Context, a Approval, step ApprovalChanged) error {
	step.Approval, step.State = a.ID, ApprovalPending
	return r.recordApproval(ctx, &step, `INSERT INTO approvals (seq, id, hash, principal, invocation,
		state, created_at, expires_at, request)
		SELECT ?1, ?2, ?3, ?4, ?5, 'pending', ?6, ?7, ?8 WHERE NOT EXISTS (
			SELECT 1 FROM approvals WHERE hash = ?3 AND state IN ('pending', 'approved'))`,
		a.ID, a.Hash, a.Principal, a.Invocation, a.CreatedAt.UnixNano(), a.ExpiresAt.UnixNano(),
		string(a.Request))
}

// ChangeApproval changes an approval from a state to that of step, and commits the event. It fails
// with conflict if the approval is not in the state from: of several concurrent changes one
// succeeds.
func (r *recorder) ChangeApproval(ctx context.Context, from ApprovalState, at time.Time,
	step ApprovalChanged,
) error {
	var usedBy, decidedBy, decidedAt, reason any
	switch step.State {
	case ApprovalUsed:
		usedBy = step.Invocation
	case ApprovalApproved, ApprovalDenied:
		decidedBy, decidedAt, reason = step.Principal, at.UnixNano(), step.Reason
	}
	return r.recordApproval(ctx, &step, `UPDATE approvals SET seq = ?1, state = ?4,
		used_by = coalesce(?5, used_by), decided_by = coalesce(?6, decided_by),
		decided_at = coalesce(?7, decided_at), reason = coalesce(?8, reason)
		WHERE id = ?2 AND state = ?3`,
		step.Approval, string(from), string(step.State), usedBy, decidedBy, decidedAt, reason)
}

// recordApproval commits an event with a change of exactly one approval.
func (r *recorder) recordApproval(ctx context.Context, step *ApprovalChanged, statement string,
	args ...any,
) error {
	e, err := r.newEvent(step)
	if err != nil {
		return err
	}
	e.projectionSQL, e.args = statement, args
	err = r.submit(ctx, e)
	if errors.Is(err, errNotRunning) {
		return dray.Errorf(dray.CodeConflict, "approval %s was changed meanwhile", step.Approval).
			WithHint("see dray approvals show %s", step.Approval)
	}
	if err != nil {
		return unavailableError(r.path, "write the event "+step.Kind(), err)
	}
	return nil
}

// ApprovalQuery selects approvals. An empty field selects all.
type ApprovalQuery struct {
	ID        string
	Hash      string
	Principal string
	State     ApprovalState
}

// maxApprovals is the maximum number of approvals that a query returns.
const maxApprovals = 1000

// Approvals returns the approvals that a query selects, newest first, at most 1000.
func (s *Store) Approvals(ctx context.Context, q ApprovalQuery) ([]Approval, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT id, hash, principal, invocation, state, created_at,
		expires_at, request, coalesce(decided_by, ''), decided_at, coalesce(reason, ''),
		coalesce(used_by, '') FROM approvals
		WHERE (?1 = '' OR id = ?1) AND (?2 = '' OR hash = ?2) AND (?3 = '' OR principal = ?3)
			AND (?4 = '' OR state = ?4)
		ORDER BY created_at DESC, id DESC LIMIT ?5`,
		q.ID, q.Hash, q.Principal, string(q.State), maxApprovals)
	if err != nil {
		return nil, unavailableError(s.path, "read the approvals", err)
	}
	defer rows.Close()
	all := []Approval{}
	for rows.Next() {
		a, err := scanApproval(rows)
		if err != nil {
			return nil, unavailableError(s.path, "read the approvals", err)
		}
		all = append(all, a)
	}
	if err := rows.Err(); err != nil {
		return nil, unavailableError(s.path, "read the approvals", err)
	}
	return all, nil
}

func scanApproval(rows *sql.Rows) (a Approval, err error) {
	var created, expires int64
	var decided sql.NullInt64
	var request string
	err = rows.Scan(&a.ID, &a.Hash, &a.Principal, &a.Invocation, &a.State, &created, &expires,
		&request, &a.DecidedBy, &decided, &a.Reason, &a.UsedBy)
	if err != nil {
		return a, fmt.Errorf("read an approval: %w", err)
	}
	a.CreatedAt, a.ExpiresAt = time.Unix(0, created).UTC(), time.Unix(0, expires).UTC()
	a.Request = json.RawMessage(request)
	if decided.Valid {
		at := time.Unix(0, decided.Int64).UTC()
		a.DecidedAt = &at
	}
	return a, nil
}
