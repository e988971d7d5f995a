package call

import (
	"context"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/call/eventlog"
	"github.com/dray-dev/dray/internal/redact"
)

const (
	// retention is how long an ended call stays in memory. maxRetained and maxRetainedBytes bound the
	// number of ended calls and the memory that they use.
	retention        = 5 * time.Minute
	maxRetained      = 256
	maxRetainedBytes = 16 << 20
	// maxIdle bounds the goroutines that wait for a call.
	maxIdle = 16
	// drainKillTimeout bounds how long Drain waits for the calls that it cancelled: the grace, the
	// kill and the end record.
	drainKillTimeout = 30 * time.Second
)

// Options are the dependencies of a registry.
type Options struct {
	// Executor runs whole calls: the audit log's, with [Recorded] directly inside it.
	Executor dray.Executor
	// Open opens the captured output of a call.
	Open func(id string, stream dray.Stream) (io.ReadSeekCloser, error)
	// Claims finds calls by their idempotency key, and RequestKey is the key of the hashes of their
	// requests.
	Claims     Claims
	RequestKey []byte
	Log        *zap.Logger
}

// Registry starts calls and finds them by id. It is safe for concurrent use.
type Registry struct {
	opts Options

	mu         sync.Mutex
	active     map[string]*Call
	ended      map[string]*Call
	claims     map[claimKey]*Call // the active and ended calls with an idempotency key
	order      []*Call            // the ended calls, oldest first
	bytes      int                // memory that the ended calls use
	lastEnded  time.Time
	draining   bool
	empty      chan struct{} // closed when the registry drains and no call is active
	closeEmpty func()
	running    sync.WaitGroup
	jobs       chan func()  // received by goroutines without a call
	idle       atomic.Int32 // number of these goroutines
}

// NewRegistry returns an empty registry.
func NewRegistry(opts Options) *Registry {
	empty := make(chan struct{})
	return &Registry{
		opts: opts, active: map[string]*Call{}, ended: map[string]*Call{},
		claims: map[claimKey]*Call{}, jobs: make(chan func()),
		empty: empty, closeEmpty: sync.OnceFunc(func() { close(empty) }),
	}
}

// Start starts a call in its own goroutine and gives it an id. The call keeps the values of ctx but
// not its cancellation: [Call.Cancel] cancels it. Start fails with shutting_down once the registry
// drains.
func (r *Registry) Start(ctx context.Context, p *Prepared) (*Call, error) {
	c, _, err := r.start(ctx, p, nil)
	return c, err
}

// start is Start with a claim, nil for none. It returns the other call if one has claimed the key
// meanwhile.
func (r *Registry) start(ctx context.Context, p *Prepared, claim *dray.Idempotency,
) (c *Call, repeated bool, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, false, dray.Errorf(dray.CodeInternal, "create an id: %w", err).
			WithHint("check the system's source of random numbers")
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	inv := p.Invocation
	inv.ID = id.String()
	recorded := p.Redactor.Invocation(inv)
	c = r.newCall(recorded, p, cancel)
	c.invocation, c.claim = inv, claim
	c.clients.Store(1)
	if first, err := r.admit(c); first != nil || err != nil {
		cancel(err)
		return first, true, err
	}
	if p.BlockOnReader {
		c.reader.Store(c.events.BlockingReader()) // before the tool writes anything
	}
	call := dray.Call{
		Invocation: recorded, Tool: p.Tool, Route: c.record.Route, Stdin: p.Stdin,
		Control: c.control, Idempotency: claim,
	}
	if c.stdin != nil {
		call.Stdin = c.stdin
	}
	r.dispatch(func() { r.run(context.WithValue(ctx, callKey{}, c), c, call) })
	return c, false, nil
}

// dispatch runs job in a goroutine without a call, or in a new one.
func (r *Registry) dispatch(job func()) {
	select {
	case r.jobs <- job:
	default:
		r.running.Add(1)
		go r.work(job)
	}
}

// newCall returns a call with its record.
func (r *Registry) newCall(inv dray.Invocation, p *Prepared, cancel context.CancelCauseFunc) *Call {
	id, now := inv.ID, time.Now()
	c := &Call{
		id: id, principal: inv.Principal, started: now, cancel: cancel,
		route: p.Route, routeErr: p.RouteErr, redactor: p.Redactor,
		awaitsApproval: p.AwaitsApproval,
		accepted:       make(chan struct{}), done: make(chan struct{}), record: dray.NewRecord(inv, now),
		control: make(chan dray.Control), parked: make(chan struct{}), terminal: inv.Terminal != nil,
		onAccept: func() { r.logBegin(inv) },
	}
	c.record.Route = p.Redactor.Route(p.Route)
	c.events = eventlog.NewLog(func(s dray.Stream) (io.ReadSeekCloser, error) {
		return r.opts.Open(id, s)
	})
	if p.StdinOpen {
		c.stdin = NewStdinPipe()
	}
	return c
}

// admit adds a call to the active ones, unless another one has its claim: then it returns that one.
func (r *Registry) admit(c *Call) (first *Call, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.claim != nil {
		if first := r.claims[c.claimKey()]; first != nil {
			return first.join(c.claim)
		}
	}
	if r.draining {
		return nil, dray.Errorf(dray.CodeShuttingDown,
			"the daemon is shutting down and accepts no calls").
			WithHint("repeat the call when the daemon runs again")
	}
	r.active[c.id] = c
	if c.claim != nil {
		r.claims[c.claimKey()] = c
	}
	return nil, nil
}

// Find returns the call with the given id if it belongs to principal; the empty one may find all.
func (r *Registry) Find(id, principal string) (*Call, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(time.Now())
	c, ok := r.active[id]
	if !ok {
		c, ok = r.ended[id]
	}
	if !ok || principal != "" && c.principal != principal {
		return nil, false
	}
	return c, true
}

// Running returns the number of active calls and the time at which one last ended.
func (r *Registry) Running() (n int, lastEnded time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.active), r.lastEnded
}

// Counts returns the number of calls that run, and that wait for a slot or for an approval.
func (r *Registry) Counts() (running, queued int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.active {
		if c.Queued() {
			queued++
		}
	}
	return len(r.active) - queued, queued
}

// Active returns the calls of a principal that have not ended, oldest first.
func (r *Registry) Active(principal string) []*Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	var calls []*Call
	for _, id := range slices.Sorted(maps.Keys(r.active)) { // ids sort by time
		if c := r.active[id]; c.principal == principal {
			calls = append(calls, c)
		}
	}
	return calls
}

// CancelSession cancels the calls of a principal that belong to a session, waits until they have
// ended or ctx ends, and returns them, oldest first.
func (r *Registry) CancelSession(ctx context.Context, principal, session string) []*Call {
	calls := slices.DeleteFunc(r.Active(principal), func(c *Call) bool {
		return c.Record().Context.SessionID != session
	})
	for _, c := range calls {
		c.Cancel(executor.ErrCancelled)
	}
	for _, c := range calls {
		select {
		case <-c.Done():
		case <-ctx.Done():
		}
	}
	return calls
}

// Queued returns the calls of a principal that wait: the id of each, with the id of the approval
// that it waits for, empty for a slot. An empty principal selects all calls.
func (r *Registry) Queued(principal string) map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := map[string]string{}
	for id, c := range r.active {
		if rec := c.Record(); (principal == "" || c.principal == principal) &&
			rec.Status == dray.StatusQueued {
			ids[id] = rec.Approval
		}
	}
	return ids
}

// retire moves a call from the active to the ended ones.
func (r *Registry) retire(c *Call) {
	size := c.events.Size()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.active, c.id)
	r.lastEnded = time.Now()
	c.retainedBytes += size
	c.expiresAt = r.lastEnded.Add(retention)
	r.ended[c.id] = c
	r.order = append(r.order, c)
	r.bytes += c.retainedBytes
	r.expire(r.lastEnded)
	r.signalEmpty()
}

// remove removes a call that is not retained.
func (r *Registry) remove(c *Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.active, c.id)
	r.forgetClaim(c)
	r.signalEmpty()
}

// forgetClaim removes the claim of a call that is not retained. The audit log still has it if it
// has the call.
func (r *Registry) forgetClaim(c *Call) {
	if c.claim != nil {
		delete(r.claims, c.claimKey())
	}
}

// expire removes the ended calls whose retention is over, and the oldest ones beyond the bounds.
func (r *Registry) expire(now time.Time) {
	for len(r.order) > 0 {
		oldest := r.order[0]
		if len(r.order) <= maxRetained && r.bytes <= maxRetainedBytes && now.Before(oldest.expiresAt) {
			return
		}
		r.bytes -= oldest.retainedBytes
		delete(r.ended, oldest.id)
		r.forgetClaim(oldest)
		r.order[0] = nil
		r.order = r.order[1:]
	}
}

// signalEmpty closes empty if the registry drains and no call is active.
func (r *Registry) signalEmpty() {
	if r.draining && len(r.active) == 0 {
		r.closeEmpty()
	}
}

// Draining reports whether new calls are refused.
func (r *Registry) Draining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

// Drain refuses new calls and waits for the active ones. It cancels those that wait for an approval
// with [executor.ErrShutdown], and when ctx ends the others. It fails if a call has not ended 30
// seconds after that.
func (r *Registry) Drain(ctx context.Context) error {
	r.mu.Lock()
	r.draining = true
	r.signalEmpty()
	for _, c := range r.active {
		if c.Record().Approval != "" { // a human may take longer than any drain
			c.Cancel(executor.ErrShutdown)
		}
	}
	r.mu.Unlock()
	select {
	case <-r.empty:
		r.running.Wait()
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	for _, c := range r.active {
		c.Cancel(executor.ErrShutdown)
	}
	r.mu.Unlock()
	timer := time.NewTimer(drainKillTimeout)
	defer timer.Stop()
	select {
	case <-r.empty:
		r.running.Wait()
		return nil
	case <-timer.C:
		return fmt.Errorf("drain calls: still running after %v: %s", drainKillTimeout,
			strings.Join(r.activeIDs(), ", "))
	}
}

func (r *Registry) activeIDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.active))
}

// work runs a call, and later ones until the registry is drained: growing the stack of a new
// goroutine costs about a fifth of a short call.
func (r *Registry) work(job func()) {
	defer r.running.Done()
	for {
		job()
		if r.idle.Add(1) > maxIdle {
			r.idle.Add(-1)
			return
		}
		select {
		case job = <-r.jobs:
			r.idle.Add(-1)
		case <-r.empty:
			return
		}
	}
}

// run runs a call. The end is logged after the waiting clients are woken.
func (r *Registry) run(ctx context.Context, c *Call, call dray.Call) {
	if rec, accepted := r.execAndRecord(ctx, c, call); accepted {
		r.logEnd(rec)
	}
}

// execAndRecord runs the call and sets its final record, which it returns for an accepted call.
func (r *Registry) execAndRecord(ctx context.Context, c *Call, call dray.Call) (rec dray.Record,
	accepted bool,
) {
	defer close(c.done)
	defer c.cancel(nil)
	defer r.recoverRun(c)
	res, err := r.execute(ctx, c, call)
	if c.stdin != nil {
		_ = c.stdin.Close() // always nil
	}
	if err != nil && !c.wasAccepted() && isRejection(dray.CodeOf(err)) {
		c.reject(err)
		r.remove(c)
		return rec, false
	}
	c.markAccepted()
	rec = c.finalRecord(res, err)
	c.finish(rec)
	if rec.Error != nil && rec.Error.Code == dray.CodeAuditUnavailable {
		r.remove(c) // the audit log may still get the end record, and is right then
		return rec, true
	}
	r.retire(c)
	return rec, true
}

// recoverRun recovers a panic after the end of a call, when its end record is committed.
func (r *Registry) recoverRun(c *Call) {
	if p := recover(); p != nil {
		r.logPanic(c.id, p)
		r.remove(c) // later requests read the audit log
	}
}

// execute runs the call. A panic ends only this call (EX-18).
func (r *Registry) execute(ctx context.Context, c *Call, call dray.Call) (res dray.Result,
	err error,
) {
	defer func() {
		if p := recover(); p != nil {
			r.logPanic(c.id, p)
			res, err = dray.Result{}, dray.InternalError(dray.CodeInternal, c.id, "the call")
		}
	}()
	return r.opts.Executor.Execute(ctx, call, sink{c})
}

// isRejection reports whether an error with this code, before the call was accepted, means that the
// audit log has no begin record of it.
func isRejection(code dray.Code) bool {
	switch code {
	case dray.CodeAuditUnavailable, dray.CodeShuttingDown, dray.CodeBusy, dray.CodeInternal,
		dray.CodeBudgetExceeded:
		return true
	default:
		return false
	}
}

// finalRecord returns the record with the result. A result without times ended now.
func (c *Call) finalRecord(res dray.Result, err error) dray.Record {
	rec, res := c.Record(), dray.NormalizeResult(res, err)
	if !res.StartedAt.IsZero() {
		rec.StartedAt = res.StartedAt.UTC()
	}
	if res.EndedAt.IsZero() {
		res.EndedAt = time.Now()
		res.Duration = res.EndedAt.Sub(c.started)
	}
	return rec.WithResult(res)
}

type callKey struct{}

// RedactorOf returns what replaces the secrets of the call that ctx belongs to; nil replaces none.
func RedactorOf(ctx context.Context) *redact.Redactor {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		return c.redactor
	}
	return nil
}

// AwaitsApproval reports whether the call that ctx belongs to may wait for a human.
func AwaitsApproval(ctx context.Context) bool {
	c, ok := ctx.Value(callKey{}).(*Call)
	return ok && c.awaitsApproval
}

// Recorded returns the Executor that belongs directly inside the audit log's. A call that reaches
// it has a committed begin record, so it is accepted. A call whose route could not be decided ends
// here. Every result passes through it before the audit log, the events and the response get it,
// and is redacted here.
func Recorded(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		inner := call
		var redactor *redact.Redactor
		if c, ok := ctx.Value(callKey{}).(*Call); ok {
			c.markAccepted()
			inner, redactor = c.unredacted(call), c.redactor
			if c.routeErr != nil {
				return dray.Result{Route: call.Route}, redactor.Error(c.routeErr)
			}
		}
		res, err := next.Execute(ctx, inner, sink)
		res.Route = call.Route
		return redactor.Result(res), redactor.Error(err)
	})
}

// unredacted returns the call for what runs it.
func (c *Call) unredacted(call dray.Call) dray.Call {
	call.Invocation, call.Route = c.invocation, c.route
	if c.redactor != nil {
		call.NewRedaction = c.redactor.Stream
	}
	return call
}

func (r *Registry) logPanic(id string, p any) {
	r.opts.Log.Error("call panicked", zap.String("id", id), zap.String("panic", fmt.Sprint(p)),
		zap.ByteString("stack", debug.Stack()))
}

func (r *Registry) logBegin(inv dray.Invocation) {
	r.opts.Log.Info("call begun", zap.String("id", inv.ID), zap.String("tool", inv.Tool),
		zap.String("principal", inv.Principal))
}

func (r *Registry) logEnd(rec dray.Record) {
	r.opts.Log.Info("call ended", zap.String("id", rec.ID), zap.String("tool", rec.Tool),
		zap.String("principal", rec.Principal), zap.String("status", string(rec.Status)),
		zap.String("reason", string(rec.Reason)), zap.Float64("ms", *rec.DurationMS))
}
