package audit

import (
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

// Executor puts the trail around an executor: the begin of a call is committed before next runs,
// its end before Execute returns.
//
// What next returns is concluded (dray.NormalizeResult) and stamped with its times, so Execute
// gives a Result for every call that was accepted, however it ended, and the trail has the same. It
// gives an error in three cases, and then no Result: audit_unavailable or shutting_down where the
// begin could not be committed (nothing ran), audit_unavailable where the end could not (it ran;
// the package documentation says what becomes of the end), and internal where the id is no UUID.
//
// A begin is waited for although the context ends meanwhile: such a call is recorded and next sees
// the ended context. A panic of next ends its call as internal.
func (s *Store) Executor(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		inv, started := call.Invocation, time.Now()
		unfit, err := s.begin(ctx, inv, started)
		if err != nil {
			return dray.Result{}, err
		}
		var res dray.Result
		if unfit == nil {
			res, err = s.recoverPanics(next).Execute(ctx, call, sink)
		} else {
			err = dray.Errorf(dray.CodeInvalidInput, "record the input: %w", unfit).
				WithHint("send a JSON object")
		}
		return s.end(ctx, inv, setTimes(dray.NormalizeResult(res, err), started))
	})
}

// recoverPanics makes a panic an error, and logs where it came from.
func (s *Store) recoverPanics(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call,
		sink dray.Sink,
	) (res dray.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				id := call.Invocation.ID
				s.log.Error("a call panicked", zap.String("invocation", id), zap.String("panic", fmt.Sprint(p)),
					zap.ByteString("stack", debug.Stack()))
				res, err = dray.Result{}, dray.InternalError(dray.CodeInternal, id, "the call")
			}
		}()
		return next.Execute(ctx, call, sink)
	})
}

// setTimes writes the times: the two on the wall clock, their distance on the monotonic one.
func setTimes(res dray.Result, started time.Time) dray.Result {
	now := time.Now()
	res.StartedAt, res.EndedAt, res.Duration = started.Round(0).UTC(), now.Round(0).
		UTC(), now.Sub(started)
	return res
}

const projectBegun = `INSERT INTO invocations
	(seq, id, tool, principal, plan_id, session_id, status, started_at, input_sha256)
	VALUES (?, ?, ?, ?, ?, ?, 'running', ?, ?)`

// begin commits that a call was accepted. An input that cannot be recorded is told as unfit, and
// the call shall not run.
func (s *Store) begin(ctx context.Context, inv dray.Invocation, at time.Time) (unfit, err error) {
	j, unfit, err := s.beginJob(inv, at)
	if err == nil {
		err = s.submit(ctx, j)
	}
	if err != nil {
		return nil, unavailableError(s.path, "record the begin of the call, which did not run", err)
	}
	return unfit, nil
}

func (s *Store) beginJob(inv dray.Invocation, at time.Time) (j *pendingEvent, unfit, err error) {
	if !validID(inv.ID) {
		return nil, nil, dray.Errorf(dray.CodeInternal, "record a call: %q is not a UUID in lower case",
			inv.ID)
	}
	body, file, unfit, err := encodeBegin(inv, at.Round(0).UTC(), s.files)
	if err != nil {
		return nil, nil, err
	}
	return &pendingEvent{
		event:         event{invocation: inv.ID, kind: begun, body: body},
		projectionSQL: projectBegun,
		args: []any{
			inv.ID, inv.Tool, inv.Principal, nullString(inv.Context.PlanID),
			nullString(inv.Context.SessionID), at.UnixNano(), file.name(),
		},
		compensate: func() *pendingEvent { return s.compensateBegin(inv, at) },
	}, unfit, nil
}

// compensateBegin is the end of a call whose begin was committed when its caller had been told that
// nothing runs.
func (s *Store) compensateBegin(inv dray.Invocation, started time.Time) *pendingEvent {
	err := dray.Errorf(dray.CodeAuditUnavailable,
		"the begin was recorded too late: the caller was told so, and nothing ran")
	j, encodeErr := s.endJob(inv, setTimes(dray.NormalizeResult(dray.Result{}, err), started))
	if encodeErr != nil {
		panic(encodeErr) // a result of nothing but strings
	}
	return j
}

// end commits how a call ended and gives the result as it was recorded. Nothing that the caller
// does can break it off.
func (s *Store) end(ctx context.Context, inv dray.Invocation, res dray.Result) (dray.Result,
	error,
) {
	changed, err := newChangedFiles(inv, res)
	var j *pendingEvent
	if err == nil {
		j, err = s.endJob(inv, res)
	}
	if err != nil {
		s.log.Error("a result cannot be recorded", zap.String("invocation", inv.ID), zap.Error(err))
		res = fallbackResult(res, err)
		j, err = s.endJob(inv, res)
	}
	if err == nil {
		j.changes = changed // of what was done to files nothing is lost with the result
	}
	if err == nil {
		err = s.submit(ctx, j)
	}
	if err == nil {
		return res, nil
	}
	s.log.Error("the end of a call is not recorded", zap.String("invocation", inv.ID),
		zap.String("reason", string(res.Reason)), zap.Error(err))
	e := dray.Errorf(dray.CodeAuditUnavailable, "record the end of the call, which did run: %w", err)
	return dray.Result{},
		e.WithHint("do not repeat the call blindly: see what it did, and look for %s in the trail when %s can be written again", inv.ID, s.path)
}

// fallbackResult is what remains of a result that cannot be encoded or kept: how the call ended,
// without what it gave. The rows of the trail may well have room where the files of long outputs
// have none.
func fallbackResult(res dray.Result, err error) dray.Result {
	res.Output, res.Metadata = nil, dray.Metadata{Kill: res.Metadata.Kill}
	code, hint := dray.CodeInternal, "the call did run: see what it did before you repeat it"
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		code, hint = dray.CodeDiskFull, "make room on the disk of the state folder; "+hint
	}
	return dray.NormalizeResult(res, dray.Errorf(code,
		"the result could not be recorded and is lost: %w", err).WithHint("%s", hint))
}

const projectEnded = `UPDATE invocations SET
	ended_seq = ?, status = ?, reason = ?, exit_code = ?, environment = ?, container = ?, container_name = ?, container_id = ?, image = ?,
	ended_at = ?, duration = ?, output_sha256 = ?, metadata_container = ?
	WHERE id = ? AND status = 'running'`

func (s *Store) endJob(inv dray.Invocation, res dray.Result) (*pendingEvent, error) {
	body, file, err := encodeEnd(res, s.files)
	if err != nil {
		return nil, err
	}
	args := []any{
		string(res.Status), nullString(string(res.Reason)), nullInt(res.ExitCode),
		nullString(string(res.Route.Environment)), nullString(res.Route.Container),
	}
	container, err := containerColumns(res.Metadata.Container)
	if err != nil {
		return nil, err
	}
	args = append(args, container[:3]...)
	args = append(args, res.EndedAt.UnixNano(), res.Duration.Nanoseconds(), file.name(), container[3],
		inv.ID)
	return &pendingEvent{
		event:         event{invocation: inv.ID, kind: ended, body: body},
		projectionSQL: projectEnded, args: args,
	}, nil
}

// containerColumns gives name, id and image, and the whole as JSON; all NULL for a call that had no
// container.
func containerColumns(c *dray.ContainerMetadata) ([]any, error) {
	if c == nil {
		return make([]any, 4), nil
	}
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode the container's metadata: %w", err)
	}
	return []any{nullString(c.Name), nullString(c.ID), nullString(c.Image), string(b)}, nil
}

// nullString is a string as a column, NULL if it is empty: most calls have none, and the indexes
// leave NULL out.
func nullString(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

func nullInt(n *int) sql.NullInt64 {
	if n == nil {
		return sql.NullInt64{}
	}
	return sql.NullInt64{Int64: int64(*n), Valid: true}
}

func (f *blobRef) name() sql.NullString {
	if f == nil {
		return sql.NullString{}
	}
	return nullString(f.SHA256)
}

const projectInterrupted = `UPDATE invocations SET ended_seq = ?, status = ?, reason = ?, ended_at = ? WHERE id = ? AND status = 'running'`

// interrupt ends every call that has a begin and no end: only this daemon has the file, and it has
// started none yet. How long such a call ran nobody knows, so it gets no duration; ended_at is when
// it was found.
func (s *Store) interrupt(ctx context.Context) (int, error) {
	ids, err := s.running(ctx)
	if err != nil {
		return 0, fmt.Errorf("look for calls without an end: %w", err)
	}
	jobs := make([]*pendingEvent, 0, len(ids))
	for _, id := range ids {
		j, err := interruptJob(id, time.Now().Round(0).UTC())
		if err != nil {
			return 0, err
		}
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		return 0, nil
	}
	if err := s.submit(ctx, jobs...); err != nil {
		return 0, fmt.Errorf("end the calls that were interrupted: %w", err)
	}
	return len(jobs), nil
}

func (s *Store) running(ctx context.Context) (ids []string, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT id FROM invocations WHERE status = 'running' ORDER BY seq`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func interruptJob(id string, now time.Time) (*pendingEvent, error) {
	b := endBody{
		Status: dray.StatusFailed, Reason: dray.ReasonInterrupted, EndedAt: now,
		Error: dray.Errorf(dray.CodeInternal, "the daemon ended while the call ran").
			WithHint("how far the call came is not known: see what it did before you repeat it"),
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
