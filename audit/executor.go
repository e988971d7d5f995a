package audit

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
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
	blobs        *blobStore
	files        openedFiles
	writer       *writer
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
		inputErr, err := r.begin(ctx, call, started)
		if err != nil {
			return dray.Result{}, err
		}
		var res dray.Result
		if inputErr == nil {
			res, err = r.executeRecovered(ctx, next, call, sink)
		} else {
			res.Route = call.Route
			err = dray.Errorf(dray.CodeInvalidInput, "record the input: %w", inputErr).
				WithHint("send a JSON object")
		}
		return r.end(ctx, inv, setTimes(dray.NormalizeResult(res, err), started))
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

const projectBegun = `INSERT INTO invocations
	(seq, id, tool, principal, plan_id, session_id, status, environment, container, started_at,
	input_sha256) VALUES (?, ?, ?, ?, ?, ?, 'running', ?, ?, ?, ?)`

// begin commits the begin record. inputErr says why the input could not be recorded; such a call
// must not run.
func (r *recorder) begin(ctx context.Context, call dray.Call, at time.Time) (
	inputErr, err error,
) {
	if err := r.files.check(); err != nil { // refused at once, without the write timeout
		err = cmp.Or(r.writer.writeError(), err) // SQLite removes some of the files when it is closed
		return nil, unavailableError(r.path, "the call did not run", err)
	}
	e, inputErr, err := r.beginEvent(call, at)
	if err == nil {
		err = r.submit(ctx, e)
	}
	if err != nil {
		return nil, unavailableError(r.path, "the call did not run: write its begin record", err)
	}
	return inputErr, nil
}

func (r *recorder) beginEvent(call dray.Call, at time.Time) (
	e *pendingEvent, inputErr, err error,
) {
	inv, route := call.Invocation, call.Route
	if !lowerUUID.MatchString(inv.ID) {
		return nil, nil, dray.Errorf(dray.CodeInternal, "record call %q: the id is not a lower-case UUID",
			inv.ID)
	}
	body, blob, inputErr, err := encodeBegin(call, at.Round(0).UTC(), r.blobs)
	if err != nil {
		return nil, nil, err
	}
	return &pendingEvent{
		event:         event{invocation: inv.ID, kind: begun, body: body},
		projectionSQL: projectBegun,
		args: []any{
			inv.ID, inv.Tool, inv.Principal, nullString(inv.Context.PlanID),
			nullString(inv.Context.SessionID), nullString(string(route.Environment)),
			nullString(route.Container), at.UnixNano(), blob.name(),
		},
		compensate: func() *pendingEvent { return r.compensateBegin(call, at) },
	}, inputErr, nil
}

// compensateBegin returns the end record of a call whose begin record was committed after the call
// had been refused.
func (r *recorder) compensateBegin(call dray.Call, started time.Time) *pendingEvent {
	err := dray.Errorf(dray.CodeAuditUnavailable,
		"the begin record was committed too late: the call was refused, and nothing ran")
	res := setTimes(dray.NormalizeResult(dray.Result{Route: call.Route}, err), started)
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
		e.changes = changed // recorded even if the result is lost
		err = r.submit(ctx, e)
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

const projectEnded = `UPDATE invocations SET
	ended_seq = ?, status = ?, reason = ?, exit_code = ?, environment = ?,
	container = ?, container_name = ?, container_id = ?, image = ?,
	ended_at = ?, duration = ?, bytes = ?, output_sha256 = ?, metadata_container = ?
	WHERE id = ? AND status = 'running'`

func (r *recorder) endEvent(inv dray.Invocation, res dray.Result) (*pendingEvent, error) {
	body, blob, err := encodeEnd(res, r.blobs)
	if err != nil {
		return nil, err
	}
	var c dray.ContainerMetadata
	var containerJSON []byte
	if res.Metadata.Container != nil {
		c = *res.Metadata.Container
		if containerJSON, err = json.Marshal(c); err != nil {
			return nil, fmt.Errorf("encode the container's metadata: %w", err)
		}
	}
	return &pendingEvent{
		event:         event{invocation: inv.ID, kind: ended, body: body},
		projectionSQL: projectEnded,
		args: []any{
			string(res.Status), nullString(string(res.Reason)), res.ExitCode,
			nullString(string(res.Route.Environment)), nullString(res.Route.Container),
			nullString(c.Name), nullString(c.ID), nullString(c.Image),
			res.EndedAt.UnixNano(), res.Duration.Nanoseconds(), res.Bytes(), blob.name(),
			nullString(string(containerJSON)), inv.ID,
		},
	}, nil
}

// nullString returns a column value that is NULL for an empty string.
func nullString(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

const projectInterrupted = `UPDATE invocations SET
	ended_seq = ?, status = ?, reason = ?, ended_at = ? WHERE id = ? AND status = 'running'`

// interrupt writes an end record for every call without one, and returns their number. It must be
// called before the first call runs. Such a call has no duration; its end is the time of interrupt.
func (r *recorder) interrupt(ctx context.Context, db *sql.DB) (int, error) {
	running := selectQuery{sql: `SELECT id FROM invocations
		WHERE status = 'running' AND status <> 'succeeded' ORDER BY seq`}
	ids, err := selectAll(ctx, db, running, func(id *string) []any { return []any{id} })
	if err != nil {
		return 0, fmt.Errorf("find calls without an end record: %w", err)
	}
	if len(ids) == 0 {
		return 0, nil
	}
	var events []*pendingEvent
	for _, id := range ids {
		e, err := interruptedEvent(id, time.Now().Round(0).UTC())
		if err != nil {
			return 0, err
		}
		events = append(events, e)
	}
	if err := r.submit(ctx, events...); err != nil {
		return 0, fmt.Errorf("mark interrupted calls: %w", err)
	}
	return len(events), nil
}

func interruptedEvent(id string, now time.Time) (*pendingEvent, error) {
	b := endBody{
		Status: dray.StatusFailed, Reason: dray.ReasonInterrupted, EndedAt: now,
		Error: dray.Errorf(dray.CodeInternal, "the daemon ended while the call ran").
			WithHint("check what the call did before you repeat it"),
	}
	body, err := encode(b, "", nil)
	if err != nil {
		return nil, err
	}
	return &pendingEvent{
		event:         event{invocation: id, kind: interrupted, body: body},
		projectionSQL: projectInterrupted,
		args:          []any{string(b.Status), string(b.Reason), now.UnixNano(), id},
	}, nil
}
