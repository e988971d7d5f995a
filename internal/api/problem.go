package api

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/strictjson"
	"github.com/dray-dev/dray/internal/validate"
)

// problem is the body of an error: RFC 9457 with the members that the contract adds.
type problem struct {
	Type   string        `json:"type" doc:"Always about:blank: see code."`
	Title  string        `json:"title" doc:"The name of the status."`
	Status int           `json:"status"`
	Detail string        `json:"detail" doc:"What happened, for people."`
	Code   dray.Code     `json:"code" doc:"What happened, for programs; from a closed list."`
	Hint   string        `json:"hint" doc:"What to do next."`
	Errors []dray.Detail `json:"errors,omitempty" doc:"One for each violation, with a JSON pointer into the request's body."`
	// Accepted is set when a write to stdin fails.
	Accepted *int64 `json:"accepted,omitempty" doc:"For stdin: the number of bytes written so far."`
	// ID and Refused are set when a sync fails after it was accepted.
	ID      string             `json:"id,omitempty" doc:"For a sync: the id of its invocation."`
	Refused []dray.RefusedPath `json:"refused,omitzero" doc:"For a sync: the paths that were refused."`
	// RefusedOmitted counts refused paths beyond 1 MiB.
	RefusedOmitted int `json:"refused_omitted,omitzero" doc:"Refused paths that are not listed."`
}

// statusByCode maps codes to HTTP statuses. The codes of the second part usually end a call; some
// requests, such as those for workspaces, fail with them directly.
var statusByCode = map[dray.Code]int{
	dray.CodeInvalidRequest:       http.StatusBadRequest,
	dray.CodeInvalidInput:         http.StatusBadRequest,
	dray.CodeUnauthorized:         http.StatusUnauthorized,
	dray.CodeDenied:               http.StatusForbidden,
	dray.CodeForbiddenHost:        http.StatusForbidden,
	dray.CodeForbiddenOrigin:      http.StatusForbidden,
	dray.CodeUnknownTool:          http.StatusNotFound,
	dray.CodeNotFound:             http.StatusNotFound,
	dray.CodeMethodNotAllowed:     http.StatusMethodNotAllowed,
	dray.CodeConflict:             http.StatusConflict,
	dray.CodeTooLarge:             http.StatusRequestEntityTooLarge,
	dray.CodeUnsupportedMediaType: http.StatusUnsupportedMediaType,
	dray.CodeRouteConflict:        http.StatusUnprocessableEntity,
	dray.CodeSyncRefused:          http.StatusUnprocessableEntity,
	dray.CodeIdempotencyMismatch:  http.StatusUnprocessableEntity,
	dray.CodeBusy:                 http.StatusTooManyRequests,
	dray.CodeBudgetExceeded:       http.StatusTooManyRequests,
	dray.CodeInternal:             http.StatusInternalServerError,
	dray.CodeAuditUnavailable:     http.StatusServiceUnavailable,
	dray.CodeShuttingDown:         http.StatusServiceUnavailable,

	dray.CodeContainerNotFound:    http.StatusNotFound,
	dray.CodeWorkspaceNotFound:    http.StatusNotFound,
	dray.CodeNoDevcontainer:       http.StatusNotFound,
	dray.CodePathInvalid:          http.StatusBadRequest,
	dray.CodePathTooDeep:          http.StatusBadRequest,
	dray.CodeWorkspaceUntrusted:   http.StatusForbidden,
	dray.CodeApprovalRequired:     http.StatusForbidden,
	dray.CodeContainerFailed:      http.StatusBadGateway,
	dray.CodeContainerUnavailable: http.StatusServiceUnavailable,
	dray.CodeEngineUnavailable:    http.StatusServiceUnavailable,
	dray.CodeHelperMissing:        http.StatusServiceUnavailable,
	dray.CodeAgentLost:            http.StatusServiceUnavailable,
	dray.CodeDiskFull:             http.StatusInsufficientStorage,
	dray.CodeTransferFailed:       http.StatusUnprocessableEntity,
	dray.CodeLimitExceeded:        http.StatusUnprocessableEntity,
	dray.CodeUnsupported:          http.StatusUnprocessableEntity,
}

// statusOf returns the HTTP status of a code: 500 for one that is not in the table.
func statusOf(code dray.Code) int {
	if s, ok := statusByCode[code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// httpError is an error with members of its response that do not follow from its code.
type httpError struct {
	err      error
	status   int    // zero: that of the code
	allow    string // the Allow header of a 405
	accepted *int64
	id       string // of the failed invocation
	refused  []dray.RefusedPath
	omitted  int // of refused
}

func (e *httpError) Error() string { return e.err.Error() }
func (e *httpError) Unwrap() error { return e.err }

// newProblem returns the body of an error's response.
func newProblem(err error) problem {
	e := dray.AsError(err)
	p := problem{
		Type: "about:blank", Status: statusOf(e.Code), Detail: e.Message, Code: e.Code,
		Hint: e.Hint, Errors: e.Details,
	}
	if more, ok := errors.AsType[*httpError](err); ok {
		p.Accepted, p.ID, p.Refused = more.accepted, more.id, more.refused
		p.RefusedOmitted = more.omitted
		p.Status = cmp.Or(more.status, p.Status)
	}
	p.Title = http.StatusText(p.Status)
	return p
}

func (p problem) encode() []byte {
	b, _ := strictjson.Encode(p) // all of its members can always be encoded
	return b
}

// fail writes the response of an error.
func (s *Server) fail(w http.ResponseWriter, err error) {
	p := newProblem(err)
	if more, ok := errors.AsType[*httpError](err); ok && more.allow != "" {
		w.Header().Set("Allow", more.allow)
	}
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfter(err))
	}
	if p.Code == dray.CodeInternal {
		s.cfg.Log.Error("request failed", zap.Error(err))
	}
	if t, ok := w.(*responseTracker); ok && isRejected(p) {
		t.rejected = p.Code
	}
	respond(w, p.Status, mediaProblem, p.encode())
}

// isRejected reports whether an error means that its request had no effect. A sync that failed was
// accepted, and a write to stdin is repeated when the tool reads.
func isRejected(p problem) bool {
	return (p.Status < 500 || p.Status == http.StatusServiceUnavailable) && p.ID == "" &&
		p.Accepted == nil
}

// retryAfterError is an error that estimates when a retry may succeed.
type retryAfterError interface {
	error
	RetryAfter() time.Duration
}

// retryAfter returns the value of the Retry-After header in seconds: 1 without an estimate.
func retryAfter(err error) string {
	if e, ok := errors.AsType[retryAfterError](err); ok {
		return strconv.Itoa(max(int(e.RetryAfter()/time.Second), 1))
	}
	return "1"
}

// encode returns a response body as JSON.
func encode(v any) ([]byte, error) {
	b, err := strictjson.Encode(v)
	if err != nil {
		return nil, dray.Errorf(dray.CodeInternal, "encode the response: %w", err).
			WithHint("see the daemon's log")
	}
	return b, nil
}

// reply writes a response 200 with a JSON value.
func reply(w http.ResponseWriter, v any) error {
	b, err := encode(v)
	if err == nil {
		respond(w, http.StatusOK, mediaJSON, b)
	}
	return err
}

// respond writes a whole response. A write error means that the client has disconnected.
func respond(w http.ResponseWriter, status int, mediaType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // G705: JSON or a stream, which nosniff keeps from being HTML
}

func notFound(format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeNotFound, format, args...)
}

func noSuchInvocation(id string) *dray.Error {
	return notFound("no such invocation: %s", validate.Quote(id)).
		WithHint("use a whole id of yours: dray audit list and GET /v1/invocations list them")
}

func invalid(pointer, format string, args ...any) *dray.Error {
	e := dray.Errorf(dray.CodeInvalidRequest, format, args...)
	if pointer != "" {
		e.Details = []dray.Detail{{Pointer: pointer, Message: e.Message}}
	}
	return e
}
