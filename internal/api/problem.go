package api

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/strictjson"
)

// problem is RFC 9457 with the members that the contract adds.
type problem struct {
	Type   string        `json:"type" doc:"Always about:blank: the code says what happened."`
	Title  string        `json:"title" doc:"The name of the status."`
	Status int           `json:"status"`
	Detail string        `json:"detail" doc:"What happened, for people."`
	Code   dray.Code     `json:"code" doc:"What happened, for programs; from a closed list."`
	Hint   string        `json:"hint" doc:"What to do next."`
	Errors []dray.Detail `json:"errors,omitempty" doc:"One for each violation, with a JSON pointer into the request's body."`
	// Accepted is what stdin has taken so far, where a write to it was refused.
	Accepted *int64 `json:"accepted,omitempty" doc:"For stdin: how many bytes were taken in all."`
	// ID is that of the invocation which the request became before it failed.
	ID string `json:"id,omitempty" doc:"For a sync: the invocation's."`
	// Refused are the paths for which a sync was not done.
	Refused []dray.RefusedPath `json:"refused,omitzero" doc:"For a sync: the paths that were refused."`
}

// statusByCode is the one table from codes to HTTP statuses. The first part is the contract's; the
// second holds codes that usually end a call, for the few requests that meet them directly, such as
// bringing up a workspace.
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
	dray.CodeBusy:                 http.StatusTooManyRequests,
	dray.CodeInternal:             http.StatusInternalServerError,
	dray.CodeAuditUnavailable:     http.StatusServiceUnavailable,
	dray.CodeShuttingDown:         http.StatusServiceUnavailable,

	dray.CodeContainerNotFound:    http.StatusNotFound,
	dray.CodeWorkspaceNotFound:    http.StatusNotFound,
	dray.CodeNoDevcontainer:       http.StatusNotFound,
	dray.CodePathInvalid:          http.StatusBadRequest,
	dray.CodePathTooDeep:          http.StatusBadRequest,
	dray.CodeWorkspaceUntrusted:   http.StatusForbidden,
	dray.CodeContainerFailed:      http.StatusBadGateway,
	dray.CodeContainerUnavailable: http.StatusServiceUnavailable,
	dray.CodeEngineUnavailable:    http.StatusServiceUnavailable,
	dray.CodeHelperMissing:        http.StatusServiceUnavailable,
	dray.CodeAgentLost:            http.StatusServiceUnavailable,
	dray.CodeDiskFull:             http.StatusInsufficientStorage,
	dray.CodeTransferFailed:       http.StatusUnprocessableEntity,
	dray.CodeLimitExceeded:        http.StatusUnprocessableEntity,
}

// statusOf gives the HTTP status of a code; one that is in no table is a defect of ours.
func statusOf(code dray.Code) int {
	if s, ok := statusByCode[code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// httpError is an error whose answer has more than its code says.
type httpError struct {
	err      error
	status   int    // zero: by the code
	allow    string // of a 405
	accepted *int64
	id       string // of the invocation that failed
	refused  []dray.RefusedPath
}

func (e *httpError) Error() string { return e.err.Error() }
func (e *httpError) Unwrap() error { return e.err }

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, err error) {
	e := dray.AsError(err)
	p := problem{
		Type: "about:blank", Status: statusOf(e.Code), Detail: e.Message, Code: e.Code,
		Hint: e.Hint, Errors: e.Details,
	}
	if more, ok := errors.AsType[*httpError](err); ok {
		p.Accepted, p.ID, p.Refused = more.accepted, more.id, more.refused
		if more.status != 0 {
			p.Status = more.status
		}
		if more.allow != "" {
			w.Header().Set("Allow", more.allow)
		}
	}
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfter(err))
	}
	if e.Code == dray.CodeInternal {
		s.cfg.Log.Error("request failed", zap.Error(err))
	}
	p.Title = http.StatusText(p.Status)
	b, err := strictjson.Encode(p)
	if err != nil {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	answer(w, p.Status, "application/problem+json", b)
}

// retryAfterError is an error that knows when it makes sense to try again.
type retryAfterError interface {
	error
	RetryAfter() time.Duration
}

// retryAfter gives the header's value in seconds: 1 where nobody knows better.
func retryAfter(err error) string {
	if known, ok := errors.AsType[retryAfterError](err); ok {
		return strconv.Itoa(max(int(known.RetryAfter()/time.Second), 1))
	}
	return "1"
}

// reply answers 200 with a JSON value.
func reply(w http.ResponseWriter, v any) error {
	b, err := strictjson.Encode(v)
	if err != nil {
		return dray.Errorf(dray.CodeInternal, "writing the answer: %w", err).
			WithHint("the daemon's log has more")
	}
	answer(w, http.StatusOK, mediaJSON, b)
	return nil
}

// answer writes a whole answer. A client that is gone does not get it, and nobody can be told.
func answer(w http.ResponseWriter, status int, mediaType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func notFound(format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeNotFound, format, args...)
}

func invalid(pointer, format string, args ...any) *dray.Error {
	e := dray.Errorf(dray.CodeInvalidRequest, format, args...)
	if pointer != "" {
		e.Details = []dray.Detail{{Pointer: pointer, Message: e.Message}}
	}
	return e
}
