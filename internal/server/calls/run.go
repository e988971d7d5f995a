package calls

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

// run is the goroutine of a call, from its first moment to its last. Whoever waits for the call does not wait for the log.
func (r *Registry) run(ctx context.Context, c *Call, call dray.Call) {
	defer r.running.Done()
	if rec, ended := r.execAndRecord(ctx, c, call); ended {
		r.logEnd(rec)
	}
}

// execAndRecord runs the call and makes its end known. It gives the record of a call that was accepted.
func (r *Registry) execAndRecord(ctx context.Context, c *Call, call dray.Call) (rec dray.Record, ended bool) {
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

// recoverRun keeps a panic in the telling of a call's end from being everybody's end. The trail has the call's end by then.
func (r *Registry) recoverRun(c *Call) {
	p := recover()
	if p == nil {
		return
	}
	r.logPanic(c.id, p)
	r.forget(c) // whoever asks for it again gets what the trail has
}

// execute runs the call below the server. A panic in there ends this call and nothing else (EX-18).
func (r *Registry) execute(ctx context.Context, c *Call, call dray.Call) (res dray.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.logPanic(c.id, p)
			res, err = dray.Result{}, dray.InternalError(dray.CodeInternal, c.id, "the call")
		}
	}()
	return r.opts.Executor.Execute(ctx, call, sink{c})
}

// isRejection says whether an error with this code, before the call was accepted, means that it never began: there is no row that could tell more.
func isRejection(code dray.Code) bool {
	switch code {
	case dray.CodeAuditUnavailable, dray.CodeShuttingDown, dray.CodeBusy, dray.CodeInternal:
		return true
	default:
		return false
	}
}

// conclude makes the final record. Executors say when a call began and ended; where one does not, it is now.
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
	r.opts.Log.Error("call panicked", zap.String("id", id), zap.String("panic", fmt.Sprint(p)), zap.ByteString("stack", debug.Stack()))
}

func (r *Registry) logBegin(inv dray.Invocation) {
	r.opts.Log.Info("call begun", zap.String("id", inv.ID), zap.String("tool", inv.Tool),
		zap.String("principal", inv.Principal))
}

func (r *Registry) logEnd(rec dray.Record) {
	r.opts.Log.Info("call ended", zap.String("id", rec.ID), zap.String("tool", rec.Tool),
		zap.String("principal", rec.Principal), zap.String("status", string(rec.Status)), zap.String("reason", string(rec.Reason)),
		zap.Float64("ms", *rec.DurationMS))
}
