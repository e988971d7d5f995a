package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/validate"
)

// errClientGone is the cause that cancels a call whose client disconnected.
var errClientGone = fmt.Errorf("%w: its client disconnected", executor.ErrCancelled)

// invocations serves the requests that start, read and end calls.
type invocations struct {
	finder
	configured *atomic.Pointer[Configured]
	bodies     *bodyReader
}

// start starts a call. The response is the invocation when it has ended, 202 when wait_ms has
// elapsed before, or the events of the call.
func (h *invocations) start(w http.ResponseWriter, r *http.Request) error {
	wait, err := parseWait(r)
	if err != nil {
		return err
	}
	shape, err := parseShape(r)
	if err != nil {
		return err
	}
	req := call.Request{IdempotencyKey: idempotencyKey(r), AwaitsApproval: wait.given}
	if err := h.bodies.decode(w, r, &req); err != nil {
		return err
	}
	format := responseFormat(r, mediaJSON)
	if err := checkResponseFormat(format, wait, shape, &req); err != nil {
		return err
	}
	c, repeated, err := h.calls.Begin(r.Context(), h.configured.Load().Intake, principal(r), &req)
	if err != nil {
		return err
	}
	defer leave(r.Context(), c, wait, &req)
	if repeated {
		w.Header().Set(replayedHeader, "true")
	}
	if format == mediaJSON {
		err = waitAndReply(w, r, c, wait, shape)
	} else {
		err = streamCall(w, r, c, format)
	}
	if err != nil { // no call, so no outcome to repeat
		w.Header().Del(replayedHeader)
	}
	return err
}

// replayedHeader is set in the response to a request that repeats another one.
const replayedHeader = "Idempotency-Replayed"

// idempotencyKey returns the Idempotency-Key of a request, or nil if it has none. Several keys are
// one invalid key.
func idempotencyKey(r *http.Request) *string {
	values, ok := r.Header["Idempotency-Key"]
	if !ok {
		return nil
	}
	key := strings.Join(values, ", ")
	return &key
}

// decode decodes the body of a request that cannot have an idempotency key.
func (h *invocations) decode(w http.ResponseWriter, r *http.Request, v any) error {
	if idempotencyKey(r) != nil {
		return invalid("", "Idempotency-Key is not supported for %s", r.URL.Path).
			WithHint("omit the header; to repeat a sync, call the tool sync with POST /v1/invocations")
	}
	return h.bodies.decode(w, r, v)
}

// leave cancels a call whose last client disconnected before its end. A client that sent wait_ms or
// an idempotency key may disconnect, unless on_disconnect is cancel; that wait_ms elapses is no
// disconnect.
func leave(ctx context.Context, c *call.Call, wait waitParam, req *call.Request) {
	cancels := !wait.given && req.IdempotencyKey == nil
	switch req.OnDisconnect {
	case call.DisconnectContinue:
		cancels = false
	case call.DisconnectCancel:
		cancels = !wait.given || ctx.Err() != nil
	}
	if cancels {
		c.Leave(errClientGone)
	} else {
		c.Leave(nil)
	}
}

// checkResponseFormat refuses options that have no meaning for the format of the response.
func checkResponseFormat(format string, wait waitParam, s shape, req *call.Request) error {
	switch {
	case s != (shape{}) && format != mediaJSON:
		return invalid("", "view and brief cannot be used with a stream").
			WithHint("omit them, or send Accept: %s", mediaJSON)
	case wait.given && format != mediaJSON:
		return invalid("", "wait_ms cannot be used with a stream, which lasts until the call ends").
			WithHint("use on_disconnect: continue, and close the stream at any time")
	case req.OnSlowReader == call.SlowReaderWait && format == mediaJSON:
		return invalid("/on_slow_reader", "on_slow_reader: wait requires a response that is a stream").
			WithHint("send Accept: %s or %s, or omit on_slow_reader", mediaNDJSON, mediaSSE)
	}
	return nil
}

// waitAndReply responds when the call has ended, or with 202 when the wait is over. It waits in any
// case until the call is accepted, because its id is unknown before.
func waitAndReply(w http.ResponseWriter, r *http.Request, c *call.Call, wait waitParam, s shape,
) error {
	wait.forEnd(r.Context(), c)
	if err := waitAccepted(r.Context(), c); err != nil {
		return err
	}
	record, ended := c.Encoded()
	status := http.StatusOK
	if !ended {
		status = http.StatusAccepted
		w.Header().Set("Location", location(c.ID()))
	}
	record, err := s.of(record)
	if err != nil {
		return err
	}
	respond(w, status, mediaJSON, record)
	return nil
}

// waitAccepted waits until the call is accepted, and fails if it is rejected.
func waitAccepted(ctx context.Context, c *call.Call) error {
	select {
	case <-c.Accepted():
		return nil
	case <-c.Done():
		return c.Rejected()
	case <-ctx.Done():
		return notAcceptedError(context.Cause(ctx))
	}
}

// notAcceptedError returns why the wait for a call ended before it was accepted. net/http reports a
// client that closed only its sending side as disconnected; such a client still gets the response.
func notAcceptedError(cause error) error {
	if errors.Is(cause, executor.ErrShutdown) {
		return dray.Errorf(dray.CodeShuttingDown,
			"the daemon shut down before the call was recorded; nothing ran").WithHint("repeat the call")
	}
	return invalid("", "connection closed by the client before the call was accepted").
		WithHint("keep both directions of the connection open until the response arrives")
}

func location(id string) string { return "/v1/invocations/" + id }

// get responds with an invocation: at once, or with wait_ms when it has ended or the wait is over.
func (h *invocations) get(w http.ResponseWriter, r *http.Request) error {
	wait, err := parseWait(r)
	if err != nil {
		return err
	}
	shape, err := parseShape(r)
	if err != nil {
		return err
	}
	found, err := h.find(r)
	if err != nil {
		return err
	}
	if found.call != nil && wait.given {
		wait.forEnd(r.Context(), found.call)
	}
	return found.reply(w, shape)
}

// cancel cancels a call and responds like start. A call that has ended does not change.
func (h *invocations) cancel(w http.ResponseWriter, r *http.Request) error {
	wait, err := parseWait(r)
	if err != nil {
		return err
	}
	shape, err := parseShape(r)
	if err != nil {
		return err
	}
	if err := h.bodies.decodeOptional(w, r, &struct{}{}); err != nil {
		return err
	}
	found, err := h.find(r)
	if err != nil {
		return err
	}
	if found.call == nil {
		return found.reply(w, shape)
	}
	found.call.Cancel(executor.ErrCancelled)
	return waitAndReply(w, r, found.call, wait, shape)
}

// cancelSession cancels the caller's own calls of a session. The response is the calls when they
// have ended.
func (h *invocations) cancelSession(w http.ResponseWriter, r *http.Request) error {
	session := r.URL.Query().Get("session_id")
	if session == "" {
		return invalid("", "session_id is missing").WithHint("name the session whose calls to cancel")
	}
	if err := h.bodies.decodeOptional(w, r, &struct{}{}); err != nil {
		return err
	}
	all := cancelledReply{Items: []dray.Record{}}
	for _, c := range h.calls.CancelSession(r.Context(), principal(r), session) {
		all.Items = append(all.Items, c.Record())
	}
	return reply(w, all)
}

// cancelledReply has the calls that were cancelled together, oldest first.
type cancelledReply struct {
	Items []dray.Record `json:"items"`
}

// routeReply is the body of a route. If there is none it has the evaluated rules and the error.
type routeReply struct {
	Environment dray.EnvironmentKind `json:"environment"`
	Rule        string               `json:"rule"`
	Container   string               `json:"container"`
	Workspace   string               `json:"workspace"`
	Candidates  []dray.Candidate     `json:"candidates"`
	Error       *dray.Error          `json:"error,omitempty"`
}

// explain responds with the route that a call would get. Nothing runs.
func (h *invocations) explain(w http.ResponseWriter, r *http.Request) error {
	var req call.Request
	if err := h.decode(w, r, &req); err != nil {
		return err
	}
	route, routeErr, err := h.configured.Load().Intake.Explain(r.Context(), principal(r), &req)
	if err != nil {
		return err
	}
	return reply(w, routeReply{
		Environment: route.Environment, Rule: route.Rule, Container: route.Container,
		Workspace: route.Workspace, Candidates: route.Candidates, Error: dray.AsError(routeErr),
	})
}

// syncReply is the body of a sync that succeeded.
type syncReply struct {
	ID      string             `json:"id" doc:"The id of the invocation."`
	Files   []dray.SyncedFile  `json:"files"`
	Refused []dray.RefusedPath `json:"refused" doc:"The paths that were skipped, and why."`
	Omitted int                `json:"refused_omitted,omitzero" doc:"Skipped paths beyond 1 MiB."`
	Bytes   int64              `json:"bytes" doc:"Size of all files in bytes, written or unchanged."`
	DryRun  bool               `json:"dry_run,omitzero" doc:"Nothing was written."`
}

// sync runs a sync and responds with its report, or with its events. A sync that failed is an error
// with the id of the invocation. A client that disconnects cancels its sync.
func (h *invocations) sync(w http.ResponseWriter, r *http.Request) error {
	var req call.SyncRequest
	if err := h.decode(w, r, &req); err != nil {
		return err
	}
	prepared, err := h.configured.Load().Intake.PrepareSync(r.Context(), principal(r), &req)
	if err != nil {
		return err
	}
	c, err := h.calls.Start(r.Context(), prepared)
	if err != nil {
		return err
	}
	defer c.Cancel(errClientGone) // no effect on an ended call
	if format := responseFormat(r, mediaJSON); format != mediaJSON {
		return streamCall(w, r, c, format)
	}
	waitParam{}.forEnd(r.Context(), c)
	if err := waitAccepted(r.Context(), c); err != nil {
		return err
	}
	return replySync(w, c.Record())
}

// replySync responds with the report of a sync, or fails with its error.
func replySync(w http.ResponseWriter, rec dray.Record) error {
	report, err := call.SyncReport(rec)
	if err != nil {
		return syncError(rec.ID, report, err)
	}
	return reply(w, syncReply{
		ID: rec.ID, Files: report.Files, Refused: report.Refused,
		Omitted: report.RefusedOmitted, Bytes: report.Bytes, DryRun: report.DryRun,
	})
}

func syncError(id string, report *dray.SyncReport, err error) error {
	e := &httpError{err: err, id: id}
	if report != nil {
		e.refused = append([]dray.RefusedPath{}, report.Refused...)
		e.omitted = report.RefusedOmitted
	}
	switch dray.CodeOf(err) {
	case dray.CodeSyncRefused, dray.CodeDiskFull, dray.CodeLimitExceeded, dray.CodeTransferFailed:
		e.status = http.StatusUnprocessableEntity
	}
	return e
}

// finder finds the call that a request names.
type finder struct {
	calls  *call.Registry
	audit  AuditReader
	access call.Access
	record recordFunc
}

// foundCall is a call in memory, or one that only the audit log has.
type foundCall struct {
	call   *call.Call  // nil for a call that only the audit log has
	record dray.Record // of the audit log
}

// find returns the call of a request. It fails with not_found for an unknown id and for the call of
// another principal.
func (f *finder) find(r *http.Request) (foundCall, error) {
	id, caller := r.PathValue("id"), principal(r)
	viewer := f.access.Viewer(caller)
	if c, ok := f.calls.Find(id, viewer); ok {
		if owner := c.Principal(); r.Method == http.MethodPost && owner != caller {
			if err := f.record.onForeignCall(r, id, owner); err != nil {
				return foundCall{}, err
			}
		}
		return foundCall{call: c}, nil
	}
	if !isID(id) {
		return foundCall{}, noSuchInvocation(id)
	}
	rec, err := f.audit.Get(r.Context(), viewer, id)
	return foundCall{record: rec}, err
}

// isID reports whether s is a canonical UUID. Nothing else reaches the queries and files of the
// audit log.
func isID(s string) bool {
	u, err := uuid.Parse(s)
	return err == nil && u.String() == s
}

// endedAt returns the end of a call of the audit log, or the present time if the log has none.
func (f foundCall) endedAt() time.Time {
	if f.record.EndedAt == nil {
		return time.Now()
	}
	return *f.record.EndedAt
}

// encoded returns the invocation as JSON.
func (f foundCall) encoded() ([]byte, error) {
	if f.call != nil {
		record, _ := f.call.Encoded()
		return record, nil
	}
	return encode(f.record)
}

func (f foundCall) reply(w http.ResponseWriter, s shape) error {
	b, err := f.encoded()
	if err == nil {
		b, err = s.of(b)
	}
	if err == nil {
		respond(w, http.StatusOK, mediaJSON, b)
	}
	return err
}

// maxWait is the maximum of wait_ms.
const maxWait = 24 * time.Hour

// waitParam is the parameter wait_ms: how long a response may wait for the end of a call.
type waitParam struct {
	given bool
	d     time.Duration
}

// parseWait parses wait_ms.
func parseWait(r *http.Request) (waitParam, error) {
	text := r.URL.Query().Get("wait_ms")
	if text == "" {
		return waitParam{}, nil
	}
	ms, err := strconv.ParseUint(text, 10, 63)
	if err != nil || time.Duration(ms) > maxWait/time.Millisecond {
		return waitParam{}, invalid("", "invalid wait_ms %q", validate.Quote(text)).
			WithHint("use whole milliseconds from 0 to %d", maxWait.Milliseconds())
	}
	return waitParam{given: true, d: time.Duration(ms) * time.Millisecond}, nil
}

// forEnd waits until the call has ended, ctx ends or the wait is over.
func (w waitParam) forEnd(ctx context.Context, c *call.Call) {
	var timeout <-chan time.Time
	if w.given {
		timeout = time.After(w.d)
	}
	select {
	case <-c.Done():
	case <-timeout:
	case <-ctx.Done():
	}
}
