package call

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/call/eventlog"
)

const (
	// retention is how long an ended call stays in memory; maxRetained and maxRetainedBytes bound how
	// many do, and what they hold.
	retention        = 5 * time.Minute
	maxRetained      = 256
	maxRetainedBytes = 64 << 20
	// drainKillTimeout is how long Drain waits for what it has cancelled: a grace, a kill, and the end
	// in the trail.
	drainKillTimeout = 30 * time.Second
)

// Options are what a registry needs.
type Options struct {
	Executor dray.Executor
	// Open opens the kept output of a call.
	Open func(id string, stream dray.Stream) (io.ReadSeekCloser, error)
	Log  *zap.Logger
}

// Registry starts calls and finds them again. It is safe for concurrent use.
type Registry struct {
	opts Options

	mu        sync.Mutex
	active    map[string]*Call
	ended     map[string]*Call
	order     []*Call // the ended ones, oldest first
	bytes     int     // what they hold
	lastEnded time.Time
	draining  bool
	empty     chan struct{} // closed when draining and nothing lives
	running   sync.WaitGroup
}

// New makes an empty registry.
func New(opts Options) *Registry {
	return &Registry{
		opts: opts, active: map[string]*Call{}, ended: map[string]*Call{},
		empty: make(chan struct{}),
	}
}

// StartRequest is a call to start. Its invocation has no id yet.
type StartRequest struct {
	Invocation dray.Invocation
	Tool       *dray.Tool
	// Route is where the call goes as far as its request says; the zero value where that is not
	// decided.
	Route dray.Route
	// Stdin is what the tool reads; nil is an empty stdin.
	Stdin io.Reader
	// StdinOpen gives the call a stdin that is written to while it runs, instead of Stdin.
	StdinOpen bool
	// BlockOnReader makes the tool wait for a reader of its events: [Call.BlockingReader].
	BlockOnReader bool
}

// Start starts a call in a goroutine of its own and gives it an id. The call keeps the context's
// values and outlives it: [Call.Cancel] ends it. It fails with shutting_down once the registry
// drains.
func (r *Registry) Start(ctx context.Context, spec StartRequest) (*Call, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, dray.Errorf(dray.CodeInternal, "making an id: %w", err).
			WithHint("the system's source of random numbers does not answer")
	}
	inv := spec.Invocation
	inv.ID = id.String()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	now := time.Now()
	c := &Call{
		id: inv.ID, principal: inv.Principal, started: now, cancel: cancel, accepted: make(chan struct{}), done: make(chan struct{}),
		record:   dray.NewRecord(inv, now),
		control:  make(chan dray.Control),
		terminal: inv.Terminal != nil,
		events: eventlog.NewLog(func(s dray.Stream) (io.ReadSeekCloser,
			error,
		) {
			return r.opts.Open(inv.ID, s)
		}),
		onAccept: func() { r.logBegin(inv) },
	}
	call := dray.Call{
		Invocation: inv, Tool: spec.Tool, Stdin: spec.Stdin, Control: c.control, Route: spec.Route,
	}
	if spec.StdinOpen {
		c.stdin = NewStdinPipe()
		call.Stdin = c.stdin
	}
	if err := r.admit(c); err != nil {
		cancel(err)
		return nil, err
	}
	if spec.BlockOnReader {
		c.reader = c.events.BlockingReader() // before the tool prints anything
	}
	go r.run(context.WithValue(ctx, acceptedKey{}, c.markAccepted), c, call)
	return c, nil
}

// admit makes the call one of the living.
func (r *Registry) admit(c *Call) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return dray.Errorf(dray.CodeShuttingDown, "the daemon is ending and takes no new calls").
			WithHint("repeat the call when it runs again")
	}
	r.active[c.id] = c
	r.running.Add(1)
	return nil
}

// Find finds a call by its id. Another principal's is not found.
func (r *Registry) Find(id, principal string) (*Call, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(time.Now())
	c, ok := r.active[id]
	if !ok {
		c, ok = r.ended[id]
	}
	if !ok || c.principal != principal {
		return nil, false
	}
	return c, true
}

// Running counts the calls that are not over, and says when one last ended.
func (r *Registry) Running() (n int, ended time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.active), r.lastEnded
}

// Queued gives the ids of a principal's calls that wait for their turn.
func (r *Registry) Queued(principal string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for id, c := range r.active {
		if c.principal == principal && c.Queued() {
			ids = append(ids, id)
		}
	}
	return ids
}

// retire moves a call from the living to the ended, where it stays for a while.
func (r *Registry) retire(c *Call) {
	held := c.events.Size()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.active, c.id)
	r.lastEnded = time.Now()
	c.retainedBytes, c.expiresAt = held, r.lastEnded.Add(retention)
	r.ended[c.id] = c
	r.order = append(r.order, c)
	r.bytes += held
	r.expire(r.lastEnded)
	r.drained()
}

// forget drops a call that was refused.
func (r *Registry) forget(c *Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.active, c.id)
	r.drained()
}

// expire forgets ended calls: those whose time is over, and the oldest while there are too many.
func (r *Registry) expire(now time.Time) {
	for len(r.order) > 0 {
		oldest := r.order[0]
		if len(r.order) <= maxRetained && r.bytes <= maxRetainedBytes && now.Before(oldest.expiresAt) {
			return
		}
		r.bytes -= oldest.retainedBytes
		delete(r.ended, oldest.id)
		r.order[0] = nil
		r.order = r.order[1:]
	}
}

// drained tells Drain that nothing lives any more.
func (r *Registry) drained() {
	if r.draining && len(r.active) == 0 {
		select {
		case <-r.empty:
		default:
			close(r.empty)
		}
	}
}

// Draining says whether new calls are refused.
func (r *Registry) Draining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

// Drain refuses new calls and waits for those that run. When the context is over they are cancelled
// with the cause of a shutdown; what has not ended half a minute later is named in the error.
func (r *Registry) Drain(ctx context.Context) error {
	r.mu.Lock()
	r.draining = true
	r.drained()
	r.mu.Unlock()
	select {
	case <-r.empty:
		r.running.Wait()
		return nil
	case <-ctx.Done():
	}
	r.cancelAll()
	timer := time.NewTimer(drainKillTimeout)
	defer timer.Stop()
	select {
	case <-r.empty:
		r.running.Wait()
		return nil
	case <-timer.C:
		return fmt.Errorf("ending the calls: still running after %v: %s", drainKillTimeout,
			strings.Join(r.ids(), ", "))
	}
}

func (r *Registry) cancelAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.active {
		c.Cancel(executor.ErrShutdown)
	}
}

func (r *Registry) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]string, 0, len(r.active))
	for id := range r.active {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// run is the goroutine of a call, from its first moment to its last. Whoever waits for the call
// does not wait for the log.
func (r *Registry) run(ctx context.Context, c *Call, call dray.Call) {
	defer r.running.Done()
	if rec, ended := r.execAndRecord(ctx, c, call); ended {
		r.logEnd(rec)
	}
}

// execAndRecord runs the call and makes its end known. It gives the record of a call that was
// accepted.
func (r *Registry) execAndRecord(ctx context.Context, c *Call, call dray.Call) (rec dray.Record,
	ended bool,
) {
	defer close(c.done)
	defer c.cancel(nil)
	defer r.recoverRun(c)
	res, err := r.execute(ctx, c, call)
	if c.stdin != nil {
		_ = c.stdin.Close() // it never fails
	}
	if err != nil && !c.wasAccepted() && isRejection(dray.CodeOf(err)) {
		c.reject(err)
		r.forget(c)
		return rec, false
	}
	c.markAccepted()
	rec = c.conclude(res, err)
	c.finish(rec)
	if rec.Error != nil && rec.Error.Code == dray.CodeAuditUnavailable {
		r.forget(c) // once the trail can be written again it knows better than this answer
		return rec, true
	}
	r.retire(c)
	return rec, true
}

// recoverRun keeps a panic in the telling of a call's end from being everybody's end. The trail has
// the call's end by then.
func (r *Registry) recoverRun(c *Call) {
	p := recover()
	if p == nil {
		return
	}
	r.logPanic(c.id, p)
	r.forget(c) // whoever asks for it again gets what the trail has
}

// execute runs the call below the server. A panic in there ends this call and nothing else (EX-18).
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

// isRejection says whether an error with this code, before the call was accepted, means that it
// never began: there is no row that could tell more.
func isRejection(code dray.Code) bool {
	switch code {
	case dray.CodeAuditUnavailable, dray.CodeShuttingDown, dray.CodeBusy, dray.CodeInternal:
		return true
	default:
		return false
	}
}

// conclude makes the final record. Executors say when a call began and ended; where one does not,
// it is now.
func (c *Call) conclude(res dray.Result, err error) dray.Record {
	rec, res := c.record, dray.NormalizeResult(res, err)
	if !res.StartedAt.IsZero() {
		rec.StartedAt = res.StartedAt.UTC()
	}
	if res.EndedAt.IsZero() {
		res.EndedAt = time.Now()
		res.Duration = res.EndedAt.Sub(c.started)
	}
	return rec.WithResult(res)
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
		zap.String("principal", rec.Principal), zap.String("status",
			string(rec.Status)), zap.String("reason", string(rec.Reason)),
		zap.Float64("ms", *rec.DurationMS))
}
