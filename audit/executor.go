package audit

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

// recorder writes begin and end records.
type recorder struct {
	path         string // of the database, for errors
	log          *zap.Logger
	writeTimeout time.Duration
	redact       func(body []byte) []byte // of events that belong to no call; nil for none
	blobs        *blobStore
	files        openedFiles
	writer       *writer
	disk         *disk
	degrade      bool // calls run while the log cannot be written
}

// Executor returns an Executor that commits the begin record of a call before next runs, and its
// end record before Execute returns.
//
// The result of next is normalized (dray.NormalizeResult) and gets its times; Execute returns what
// was recorded. It returns an error and no Result in three cases: audit_unavailable or
// shutting_down if the begin record could not be committed (nothing ran), audit_unavailable if the
// end record could not (the call ran; see the package documentation), and internal if the id is not
// a UUID.
//
// Execute waits for the begin record even if the context ends: such a call is recorded, and next
// receives the ended context. A panic of next ends its call with the code internal.
func (r *recorder) Executor(next dray.Executor) dray.Executor {
	execute := func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
		inv, started := call.Invocation, time.Now()
		begin, err := r.begin(ctx, call, started)
		if err != nil {
			return dray.Result{}, err
		}
		var res dray.Result
		if begin.refusal == nil {
			res, err = r.executeRecovered(ctx, next, call, sink)
		} else {
			res.Route, err = call.Route, begin.refusal
		}
		res = warnLate(dray.NormalizeResult(res, err), "begin", begin.late)
		return r.end(ctx, inv, setTimes(res, started))
	}
	return dray.ExecutorFunc(execute)
}

// executeRecovered calls next. It logs a panic and returns it as an error.
func (r *recorder) executeRecovered(
	ctx context.Context, next dray.Executor, call dray.Call, sink dray.Sink,
) (res dray.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			id := call.Invocation.ID
			r.log.Error("call panicked", zap.String("invocation", id),
				zap.String("panic", fmt.Sprint(p)), zap.ByteString("stack", debug.Stack()))
			res = dray.Result{Route: call.Route}
			err = dray.InternalError(dray.CodeInternal, id, "the call")
		}
	}()
	return next.Execute(ctx, call, sink)
}

// setTimes sets start and end by the wall clock and the duration by the monotonic clock.
func setTimes(res dray.Result, started time.Time) dray.Result {
	now := time.Now()
	res.StartedAt, res.EndedAt = started.Round(0).UTC(), now.Round(0).UTC()
	res.Duration = now.Sub(started)
	return res
}

// submit blocks until the events are committed or the write timeout has elapsed. The end of ctx
// does not end the wait.
func (r *recorder) submit(ctx context.Context, events ...*pendingEvent) error {
	return r.writer.submit(ctx, r.writeTimeout, events...)
}

// beginOutcome is what became of a begin record that calls may go on after.
type beginOutcome struct {
	// late is why the record is not committed yet, nil if it is.
	late error
	// refusal is why the call must not run, nil if it may: its input is not JSON.
	refusal error
}

// begin commits the begin record.
func (r *recorder) begin(ctx context.Context, call dray.Call, at time.Time) (
	out beginOutcome, err error,
) {
	// The claim of an idempotency key must be on disk before the call runs: a crash must not lose it.
	mayBeLate := call.Idempotency == nil
	if !r.degrade || !mayBeLate {
		if err := r.checkRefusal(); err != nil {
			return out, err
		}
	}
	e, err := r.beginEvent(call, at)
	if err == nil {
		out.refusal = e.refusal
		out.late, err = r.submitRecord(ctx, e, mayBeLate)
	}
	if call.Idempotency != nil && isConstraint(err) {
		return out, dray.Errorf(dray.CodeAuditUnavailable,
			"the call did not run: another call has claimed its idempotency key meanwhile").
			WithHint("repeat the request")
	}
	if err != nil {
		return out, unavailableError(r.path, "the call did not run: write its begin record", err)
	}
	return out, nil
}

// checkRefusal returns why a call must be refused at once, without the write timeout.
func (r *recorder) checkRefusal() error {
	if err := r.files.check(); err != nil {
		err = cmp.Or(r.writer.writeError(), err) // SQLite removes some of the files when it is closed
		return unavailableError(r.path, "the call did not run", err)
	}
	return r.disk.check()
}

func (r *recorder) beginEvent(call dray.Call, at time.Time) (*pendingEvent, error) {
	inv := call.Invocation
	if !lowerUUID.MatchString(inv.ID) {
		return nil, dray.Errorf(dray.CodeInternal, "record call %q: the id is not a lower-case UUID",
			inv.ID)
	}
	b, body, err := encodeBegin(call, at.Round(0).UTC(), r.blobs)
	if err != nil {
		return nil, err
	}
	return &pendingEvent{
		event:         event{invocation: inv.ID, kind: begun, body: body},
		projectionSQL: projectBegun,
		args:          b.args(inv.ID),
		refusal:       b.refusal,
		compensate:    func() *pendingEvent { return r.compensateBegin(call, at) },
	}, nil
}

// compensateBegin returns the end record of a call whose begin record was committed after the call
// had been refused.
func (r *recorder) compensateBegin(call dray.Call, started time.Time) *pendingEvent {
	res := setTimes(dray.NormalizeResult(dray.Result{Route: call.Route}, errBegunTooLate), started)
	e, encodeErr := r.endEvent(call.Invocation, res)
	if encodeErr != nil {
		panic(encodeErr) // the result consists of strings
	}
	return e
}

// end commits the end record and returns the recorded result. The end of ctx does not interrupt it.
func (r *recorder) end(ctx context.Context, inv dray.Invocation, res dray.Result) (
	dray.Result, error,
) {
	changed, err := newChangedFiles(inv, res)
	var e *pendingEvent
	if err == nil {
		e, err = r.endEvent(inv, res)
	}
	if err != nil {
		r.log.Error("result not recorded", zap.String("invocation", inv.ID), zap.Error(err))
		res = fallbackResult(res, err)
		e, err = r.endEvent(inv, res)
	}
	if err == nil {
		e.extra = changed // recorded even if the result is lost
		var late error
		late, err = r.submitRecord(ctx, e, true)
		res = warnLate(res, "end", late)
	}
	if err == nil {
		return res, nil
	}
	r.log.Error("end record failed", zap.String("invocation", inv.ID),
		zap.String("reason", string(res.Reason)), zap.Error(err))
	return dray.Result{}, dray.Errorf(dray.CodeAuditUnavailable,
		"the call ran, but its result could not be recorded: %w", err).
		WithHint("check what it did before you repeat it; look for %s in the audit log later", inv.ID)
}

// fallbackResult returns how the call ended, without a result that cannot be encoded or stored.
func fallbackResult(res dray.Result, err error) dray.Result {
	res.Output, res.Metadata = nil, dray.Metadata{Kill: res.Metadata.Kill}
	code, hint := dray.CodeInternal, "the call ran: check what it did before you repeat it"
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		code, hint = dray.CodeDiskFull, "free space on the disk of the state directory; "+hint
	}
	return dray.NormalizeResult(res, dray.Errorf(code,
		"the result could not be recorded and is lost: %w", err).WithHint("%s", hint))
}

func (r *recorder) endEvent(inv dray.Invocation, res dray.Result) (*pendingEvent, error) {
	b, body, err := encodeEnd(res, r.blobs)
	if err != nil {
		return nil, err
	}
	return &pendingEvent{
		event:         event{invocation: inv.ID, kind: ended, body: body},
		projectionSQL: b.statement(),
		args:          b.args(inv.ID),
	}, nil
}

// nullString returns a column value that is NULL for an empty string.
func nullString(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }
