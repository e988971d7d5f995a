package call

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dray-dev/dray"
)

// Budgets refuse calls of plans whose budget is used up (RT-11). What earlier calls used is read
// from the audit log once for each plan, so it survives a restart. A call that is running is not
// ended when its plan's budget is. Budgets are safe for concurrent use.
type Budgets struct {
	used  func(ctx context.Context, planID string) (dray.PlanUsage, error)
	plans map[string]*planBudget
}

// NewBudgets returns the budgets of plans by id; their zero fields are unlimited. used returns what
// the recorded calls of a plan have used.
func NewBudgets(limits map[string]dray.PlanUsage,
	used func(ctx context.Context, planID string) (dray.PlanUsage, error),
) *Budgets {
	b := &Budgets{used: used, plans: map[string]*planBudget{}}
	for id, limit := range limits {
		if limit != (dray.PlanUsage{}) {
			b.plans[id] = &planBudget{id: id, limit: limit}
		}
	}
	return b
}

// Check returns the error with which a new call of a plan would be refused. It claims nothing.
func (b *Budgets) Check(ctx context.Context, planID string) error {
	p := b.plans[planID]
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.check(ctx, b.used)
}

// Executor refuses a call with budget_exceeded before it is recorded if the budget of its plan is
// used up. It must be outside the audit log's.
func (b *Budgets) Executor(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink,
	) (dray.Result, error) {
		p := b.plans[call.Invocation.Context.PlanID]
		if p == nil {
			return next.Execute(ctx, call, sink)
		}
		started, err := p.begin(ctx, b.used)
		if err != nil {
			return dray.Result{}, err
		}
		res := dray.Result{}
		defer func() { p.end(started, res, isRecorded(ctx)) }() // also after a panic
		res, err = next.Execute(ctx, call, sink)
		return res, err
	})
}

// isRecorded reports whether the call of a context has a begin record.
func isRecorded(ctx context.Context) bool {
	c, ok := ctx.Value(callKey{}).(*Call)
	return !ok || c.wasAccepted()
}

// planBudget is the budget of one plan and what is used of it.
type planBudget struct {
	id    string
	limit dray.PlanUsage

	mu     sync.Mutex
	loaded bool
	used   dray.PlanUsage // with the calls that run, but without their time and bytes
	// running calls have run for running*now - startedSum together, in times since the first of all.
	running    int64
	first      time.Time
	startedSum time.Duration
}

// check fails if nothing more may start. It reads the earlier usage first.
func (p *planBudget) check(ctx context.Context,
	used func(context.Context, string) (dray.PlanUsage, error),
) error {
	if !p.loaded {
		earlier, err := used(ctx, p.id)
		if err != nil {
			return err
		}
		p.used, p.loaded, p.first = earlier, true, time.Now()
	}
	wall := p.used.Wall + time.Duration(p.running)*time.Since(p.first) - p.startedSum
	switch limit := p.limit; {
	case limit.Calls > 0 && p.used.Calls >= limit.Calls:
		return p.exceeded("calls", fmt.Sprintf("%d of %d calls", p.used.Calls, limit.Calls))
	case limit.Wall > 0 && wall >= limit.Wall:
		return p.exceeded("wall", fmt.Sprintf("%v of %v", wall.Round(time.Millisecond), limit.Wall))
	case limit.Bytes > 0 && p.used.Bytes >= limit.Bytes:
		return p.exceeded("bytes", fmt.Sprintf("%d of %d bytes", p.used.Bytes, limit.Bytes))
	default:
		return nil
	}
}

func (p *planBudget) exceeded(key, used string) error {
	return dray.Errorf(dray.CodeBudgetExceeded, "the budget of plan %q is used up: %s", p.id, used).
		WithHint("raise routing.plans.%s.budget.%s, or use another plan", p.id, key)
}

// begin counts a call. It returns its start, as time since the first one.
func (p *planBudget) begin(ctx context.Context,
	used func(context.Context, string) (dray.PlanUsage, error),
) (started time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.check(ctx, used); err != nil {
		return 0, err
	}
	started = time.Since(p.first)
	p.used.Calls++
	p.running++
	p.startedSum += started
	return started, nil
}

// end counts what a call used. A call without a record used nothing.
func (p *planBudget) end(started time.Duration, res dray.Result, recorded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	p.startedSum -= started
	if !recorded {
		p.used.Calls--
		return
	}
	p.used.Wall += res.Duration
	p.used.Bytes += res.Bytes()
}
