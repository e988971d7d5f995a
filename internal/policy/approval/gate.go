package approval

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/policy"
)

const (
	// maxPending bounds the pending approvals of one principal, so that an agent cannot hide one
	// among thousands.
	maxPending = 100
	// MaxReason bounds the reason of a decision in bytes.
	MaxReason = 1000
)

// Decider decides about calls; *[policy.Engine] implements it.
type Decider interface {
	Decide(ctx context.Context, call dray.Call) policy.Decision
}

// Log stores approvals; *[audit.Store] implements it.
type Log interface {
	RequestApproval(ctx context.Context, a audit.Approval, step audit.ApprovalChanged) error
	ChangeApproval(ctx context.Context, from audit.ApprovalState, at time.Time,
		step audit.ApprovalChanged) error
	Approvals(ctx context.Context, q audit.ApprovalQuery) ([]audit.Approval, error)
}

// Config has the dependencies of a gate. All are required unless they say otherwise.
type Config struct {
	Log Log
	// Key is the key of the hashes of calls.
	Key []byte
	// Lifetime returns how long an approval can be decided and used, from its request on.
	Lifetime func() time.Duration
	// Principal is the principal of the daemon, for expiries.
	Principal string
	// Session returns the state of the session of a shell that a call names. ok is false for a call
	// without one.
	Session func(c dray.Call) (state dray.SessionState, ok bool)
	// Policies returns the present policies. They decide again about a call that has waited, because
	// they may have changed since it began.
	Policies func() Decider
	// Now returns the time. Nil is [time.Now].
	Now func() time.Time
}

// Gate ends or delays the calls that policy asks about until they are approved. It is safe for
// concurrent use.
type Gate struct {
	cfg Config

	// mu is held while approvals are read and changed, so that an expiry is recorded before a
	// decision.
	mu      sync.Mutex
	changed chan struct{} // closed and replaced when an approval changes
}

// New returns a gate.
func New(cfg Config) *Gate {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Gate{cfg: cfg, changed: make(chan struct{})}
}

// Executor returns an Executor that runs a call with next if policy allows it, or once an approval
// of it is used. It fails with denied for a call that policy or a human denies, and with
// approval_required for a call that needs an approval and does not wait for it.
func (g *Gate) Executor(decider Decider, next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, c dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		d := decider.Decide(ctx, c)
		switch d.Effect {
		case policy.Allow:
			return next.Execute(ctx, c, sink)
		case policy.Ask:
		default:
			return dray.Result{}, deniedByPolicy(c, d)
		}
		var res dray.Result
		approved, report, err := g.ask(ctx, c, sink, d)
		if err == nil {
			c.Approved = approved
			res, err = next.Execute(ctx, c, sink)
		}
		res.Metadata.Approval = report
		return res, err
	})
}

// Refusal returns the error of a call with a decision, or nil. It considers no approval.
func Refusal(c dray.Call, d policy.Decision) error {
	switch d.Effect {
	case policy.Allow:
		return nil
	case policy.Ask:
		return dray.Errorf(dray.CodeApprovalRequired, "this call of %s needs an approval: %s",
			c.Invocation.Tool, strings.Join(d.Reasons, "; ")).
			WithHint("make the call, then decide with dray approvals")
	default:
		return deniedByPolicy(c, d)
	}
}

// deniedByPolicy returns the error of a call that policy denies.
func deniedByPolicy(c dray.Call, d policy.Decision) error {
	return dray.Errorf(dray.CodeDenied, "policy denies this call of %s: %s", c.Invocation.Tool,
		strings.Join(d.Reasons, "; ")).
		WithHint("dray policy explain %s --input JSON shows what decided; the operator can change "+
			"policy.files",
			c.Invocation.Tool)
}

// ask returns what an approval is for, when the call has used one, and nil when the call needs none
// any more. report is about the last approval that the call asked for, or nil.
func (g *Gate) ask(ctx context.Context, c dray.Call, sink dray.Sink, d policy.Decision,
) (approved *dray.Approved, report *dray.ApprovalReport, err error) {
	stdin, err := readStdin(c.Stdin)
	if err != nil {
		return nil, nil, err
	}
	for {
		// described again after each wait: the session and the directory may have changed
		described, err := describe(ctx, g.cfg, c, stdin)
		if err != nil {
			return nil, report, err
		}
		a, changed, err := g.useOrRequest(ctx, &described, d)
		if err != nil {
			return nil, report, err
		}
		report = &dray.ApprovalReport{ID: a.ID, DecidedBy: a.DecidedBy}
		switch {
		case a.State == audit.ApprovalUsed:
			return &described.approved, report, nil
		case a.State == audit.ApprovalDenied:
			return nil, report, deniedError(a)
		case !call.AwaitsApproval(ctx):
			return nil, report, requiredError(a)
		}
		if err := g.wait(ctx, a, sink, changed); err != nil {
			return nil, report, err
		}
		switch d = g.cfg.Policies().Decide(ctx, c); d.Effect {
		case policy.Allow:
			return nil, report, nil
		case policy.Ask:
		default:
			return nil, report, deniedByPolicy(c, d)
		}
	}
}

// useOrRequest returns the approval of a call: used, if a human has approved it; denied; or
// pending, and requested now if there is none. changed is closed when any approval changes.
func (g *Gate) useOrRequest(ctx context.Context, described *description, d policy.Decision,
) (a audit.Approval, changed <-chan struct{}, err error) {
	inv := described.call.Invocation
	g.mu.Lock()
	defer g.mu.Unlock()
	all, err := g.cfg.Log.Approvals(ctx, audit.ApprovalQuery{Hash: described.hash})
	if err != nil {
		return a, nil, err
	}
	for _, a := range all { // the newest first
		switch live, err := g.checkExpiry(ctx, a); {
		case err != nil:
			return a, nil, err
		case !live:
		case a.State == audit.ApprovalApproved:
			err := g.cfg.Log.ChangeApproval(ctx, a.State, g.cfg.Now(), audit.ApprovalChanged{
				Principal: inv.Principal, Approval: a.ID, State: audit.ApprovalUsed,
				Owner: a.Principal, Invocation: inv.ID,
			})
			if err != nil {
				return a, nil, err
			}
			g.announce()
			a.State = audit.ApprovalUsed
			return a, nil, nil
		case a.State == audit.ApprovalPending, a.State == audit.ApprovalDenied:
			return a, g.changed, nil
		}
	}
	a, err = g.request(ctx, described, d)
	return a, g.changed, err
}

// request commits a new approval. The caller holds mu.
func (g *Gate) request(ctx context.Context, described *description, d policy.Decision,
) (audit.Approval, error) {
	inv := described.call.Invocation
	pending, err := g.list(ctx, audit.ApprovalQuery{
		Principal: inv.Principal, State: audit.ApprovalPending,
	})
	if err != nil {
		return audit.Approval{}, err
	}
	if len(pending) >= maxPending {
		return audit.Approval{}, dray.Errorf(dray.CodeApprovalRequired,
			"this call needs an approval, and %d calls of %s wait for one already", len(pending),
			inv.Principal).WithHint("decide about some of them: dray approvals ls")
	}
	id, err := uuid.NewV7()
	if err != nil {
		return audit.Approval{}, dray.Errorf(dray.CodeInternal, "create an id: %w", err).
			WithHint("check the system's source of random numbers")
	}
	request, err := described.request(call.RedactorOf(ctx), d)
	if err != nil {
		return audit.Approval{}, err
	}
	now := g.cfg.Now()
	a := audit.Approval{
		ID: id.String(), State: audit.ApprovalPending, Hash: described.hash, Principal: inv.Principal,
		Invocation: inv.ID, CreatedAt: now, ExpiresAt: now.Add(g.cfg.Lifetime()),
		Request: request,
	}
	return a, g.cfg.Log.RequestApproval(ctx, a, audit.ApprovalChanged{
		Principal: inv.Principal, Owner: inv.Principal, Tool: inv.Tool, Invocation: inv.ID,
		Reasons: d.Reasons,
	})
}

// Sink is implemented by a [dray.Sink] that also reports the approval that a call waits for.
type Sink interface {
	// AwaitsApproval reports that the call waits for the approval with an id. An empty id reports the
	// end of the wait.
	AwaitsApproval(id string)
}

// wait blocks until any approval has changed. It fails with approval_required when a expires, and
// with the cause of ctx.
func (g *Gate) wait(ctx context.Context, a audit.Approval, sink dray.Sink, changed <-chan struct{},
) error {
	defer executor.PauseDeadline(ctx)()
	if s, ok := sink.(Sink); ok {
		s.AwaitsApproval(a.ID)
		defer s.AwaitsApproval("")
	}
	sink.Progress("approval", fmt.Sprintf("waits for approval %s until %s: dray approvals show %s",
		a.ID, a.ExpiresAt.Format(time.RFC3339), a.ID))
	timer := time.NewTimer(a.ExpiresAt.Sub(g.cfg.Now()))
	defer timer.Stop()
	select {
	case <-changed:
		return nil
	case <-timer.C:
		if err := g.expire(ctx, a.ID); err != nil {
			return err
		}
		return dray.Errorf(dray.CodeApprovalRequired, "approval %s expired before it was decided", a.ID).
			WithHint("repeat the call to ask again")
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, executor.ErrShutdown) {
		return dray.Errorf(dray.CodeShuttingDown,
			"%w while the call waited for approval %s: nothing of it ran", cause, a.ID).
			WithHint("repeat the call when the daemon runs again: the approval stays")
	}
	return cause
}

// announce wakes the calls that wait. The caller holds mu.
func (g *Gate) announce() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// expire records the expiry of an approval.
func (g *Gate) expire(ctx context.Context, id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, err := g.list(ctx, audit.ApprovalQuery{ID: id}) // it records expiries
	return err
}

// checkExpiry reports whether an approval has an effect: it can be decided or used, or denies. It
// records the expiry of an open one. The caller holds mu.
func (g *Gate) checkExpiry(ctx context.Context, a audit.Approval) (live bool, err error) {
	if g.cfg.Now().Before(a.ExpiresAt) {
		return a.State != audit.ApprovalUsed && a.State != audit.ApprovalExpired, nil
	}
	if !a.State.IsOpen() {
		return false, nil
	}
	err = g.cfg.Log.ChangeApproval(ctx, a.State, g.cfg.Now(), audit.ApprovalChanged{
		Principal: g.cfg.Principal, Approval: a.ID, State: audit.ApprovalExpired, Owner: a.Principal,
		Invocation: a.Invocation,
	})
	g.announce()
	if dray.CodeOf(err) == dray.CodeConflict {
		err = nil
	}
	return false, err
}

// list returns approvals, after it has recorded expiries. The caller holds mu.
func (g *Gate) list(ctx context.Context, q audit.ApprovalQuery) ([]audit.Approval, error) {
	all, err := g.cfg.Log.Approvals(ctx, q)
	if err != nil {
		return nil, err
	}
	kept := all[:0]
	for _, a := range all {
		live, err := g.checkExpiry(ctx, a)
		if err != nil {
			return nil, err
		}
		if a.State.IsOpen() && !live {
			a.State = audit.ApprovalExpired
		}
		if q.State == "" || a.State == q.State {
			kept = append(kept, a)
		}
	}
	return kept, nil
}

// List returns the approvals that a viewer may see, newest first. An empty viewer may see all. An
// empty state selects all states.
func (g *Gate) List(ctx context.Context, viewer string, state audit.ApprovalState,
) ([]audit.Approval, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.list(ctx, audit.ApprovalQuery{Principal: viewer, State: state})
}

// Get returns an approval that a viewer may see. It fails with not_found.
func (g *Gate) Get(ctx context.Context, viewer, id string) (audit.Approval, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.get(ctx, viewer, id)
}

func (g *Gate) get(ctx context.Context, viewer, id string) (audit.Approval, error) {
	all, err := g.list(ctx, audit.ApprovalQuery{ID: id, Principal: viewer})
	switch {
	case err != nil:
		return audit.Approval{}, err
	case len(all) == 0 || id == "":
		return audit.Approval{}, dray.Errorf(dray.CodeNotFound, "no such approval").
			WithHint("list them with dray approvals ls")
	}
	return all[0], nil
}

// Verdict is a decision of a human.
type Verdict struct {
	Approve bool
	// Reason is the human's text, of at most [MaxReason] bytes.
	Reason string
	// Principal is who decided, and Via how: "http" or "elicitation".
	Principal, Via string
}

// Decide records the decision about an approval that a viewer may see, and wakes the calls that
// wait for it. It fails with not_found, with conflict if the approval is decided, used or expired,
// and with invalid_input for a reason that is too long.
func (g *Gate) Decide(ctx context.Context, viewer, id string, v Verdict) (audit.Approval, error) {
	if len(v.Reason) > MaxReason {
		return audit.Approval{}, dray.Errorf(dray.CodeInvalidInput,
			"the reason has %d bytes, the maximum is %d", len(v.Reason), MaxReason)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a, err := g.get(ctx, viewer, id)
	if err != nil {
		return a, err
	}
	if a.State != audit.ApprovalPending {
		return a, decidedError(a)
	}
	step := audit.ApprovalChanged{
		Principal: v.Principal, Approval: id, State: audit.ApprovalDenied, Owner: a.Principal,
		Invocation: a.Invocation, Reason: v.Reason, Via: v.Via,
	}
	if v.Approve {
		step.State = audit.ApprovalApproved
	}
	now := g.cfg.Now()
	// A client that disconnects now must not leave the decision half done.
	err = g.cfg.Log.ChangeApproval(context.WithoutCancel(ctx), audit.ApprovalPending, now, step)
	if err != nil {
		return a, err
	}
	g.announce()
	a.State, a.DecidedBy, a.Reason = step.State, v.Principal, v.Reason
	a.DecidedAt = &now
	return a, nil
}

// decidedError returns the error of a decision about an approval that does not wait for one.
func decidedError(a audit.Approval) error {
	if a.State == audit.ApprovalExpired {
		return dray.Errorf(dray.CodeConflict, "approval %s has expired", a.ID).
			WithHint("let the caller repeat the call: it asks again")
	}
	return dray.Errorf(dray.CodeConflict, "approval %s is %s already", a.ID, a.State).
		WithHint("dray approvals show %s shows who decided", a.ID)
}

// requiredError returns the error of a call that needs an approval and does not wait for it.
func requiredError(a audit.Approval) error {
	e := dray.Errorf(dray.CodeApprovalRequired, "this call needs an approval: %s", a.ID).
		WithHint("dray approvals show %s, then dray approvals approve %s; after that repeat the same "+
			"call before %s", a.ID, a.ID, a.ExpiresAt.Format(time.RFC3339))
	e.Details = []dray.Detail{{Pointer: "/approval", Message: a.ID}}
	return e
}

// deniedError returns the error of a call whose approval was denied.
func deniedError(a audit.Approval) error {
	text := fmt.Sprintf("approval %s was denied by %s", a.ID, a.DecidedBy)
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	return dray.Errorf(dray.CodeDenied, "%s", text).
		WithHint("the same call can ask again after %s", a.ExpiresAt.Format(time.RFC3339))
}
