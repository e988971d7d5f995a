package dray

import (
	"errors"
	"fmt"
	"strings"
)

// Code is the kind of an error. The list is closed: callers switch on it, and HTTP and the CLI each
// have one table from codes to statuses.
type Code string

// Codes of requests that are refused before a call is accepted.
const (
	CodeInvalidRequest       Code = "invalid_request"
	CodeInvalidInput         Code = "invalid_input"
	CodeUnauthorized         Code = "unauthorized"
	CodeDenied               Code = "denied"
	CodeForbiddenHost        Code = "forbidden_host"
	CodeForbiddenOrigin      Code = "forbidden_origin"
	CodeUnknownTool          Code = "unknown_tool"
	CodeNotFound             Code = "not_found"
	CodeMethodNotAllowed     Code = "method_not_allowed"
	CodeConflict             Code = "conflict"
	CodeTooLarge             Code = "too_large"
	CodeUnsupportedMediaType Code = "unsupported_media_type"
	CodeSyncRefused          Code = "sync_refused"
	CodeRouteConflict        Code = "route_conflict"
	CodeIdempotencyMismatch  Code = "idempotency_mismatch"
	CodeBusy                 Code = "busy"
	CodeBudgetExceeded       Code = "budget_exceeded"
	CodeInternal             Code = "internal"
	CodeAuditUnavailable     Code = "audit_unavailable"
	CodeShuttingDown         Code = "shutting_down"
)

// Codes of accepted calls that could not run, or whose output violates the schema of the tool.
const (
	CodeContainerNotFound    Code = "container_not_found"
	CodeContainerUnavailable Code = "container_unavailable"
	CodeContainerFailed      Code = "container_failed"
	CodeWorkspaceNotFound    Code = "workspace_not_found"
	CodeNoDevcontainer       Code = "no_devcontainer"
	CodeWorkspaceUntrusted   Code = "workspace_untrusted"
	CodeEngineUnavailable    Code = "engine_unavailable"
	CodeHelperMissing        Code = "helper_missing"
	CodeExecutableNotFound   Code = "executable_not_found"
	CodeNotExecutable        Code = "not_executable"
	CodeBadCwd               Code = "bad_cwd"
	CodeBadUser              Code = "bad_user"
	CodePathInvalid          Code = "path_invalid"
	CodePathTooDeep          Code = "path_too_deep"
	CodeOutputInvalid        Code = "output_invalid"
	CodeApprovalRequired     Code = "approval_required"
	CodeLimitExceeded        Code = "limit_exceeded"
	CodeDiskFull             Code = "disk_full"
	CodeAgentLost            Code = "agent_lost"
	CodeTransferFailed       Code = "transfer_failed"
	CodeUnsupported          Code = "unsupported"
)

// Codes returns all codes.
func Codes() []Code {
	return []Code{
		CodeInvalidRequest, CodeInvalidInput, CodeUnauthorized, CodeDenied, CodeForbiddenHost,
		CodeForbiddenOrigin, CodeUnknownTool, CodeNotFound, CodeMethodNotAllowed, CodeConflict,
		CodeTooLarge, CodeUnsupportedMediaType, CodeSyncRefused, CodeRouteConflict,
		CodeIdempotencyMismatch, CodeBusy, CodeBudgetExceeded, CodeInternal, CodeAuditUnavailable,
		CodeShuttingDown, CodeContainerNotFound, CodeContainerUnavailable, CodeContainerFailed,
		CodeWorkspaceNotFound, CodeNoDevcontainer, CodeWorkspaceUntrusted, CodeEngineUnavailable,
		CodeHelperMissing, CodeExecutableNotFound, CodeNotExecutable, CodeBadCwd, CodeBadUser,
		CodePathInvalid, CodePathTooDeep, CodeOutputInvalid, CodeApprovalRequired, CodeLimitExceeded,
		CodeDiskFull, CodeAgentLost, CodeTransferFailed, CodeUnsupported,
	}
}

// Error is an error that a caller sees. Message is what happened and Hint what to do next, for
// people; Code is for programs. Code is empty only if the tool itself failed (a non-zero exit, a
// signal, a timeout): then the reason of the result has the cause.
type Error struct {
	Code    Code   `json:"code,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	// Details point into the caller's JSON, one for each violation.
	Details []Detail `json:"errors,omitempty"`
	cause   error
}

// Detail is one violation: Pointer is an RFC 6901 JSON pointer into what the caller sent.
type Detail struct {
	Pointer string `json:"pointer"`
	Message string `json:"message"`
}

// JSONPointer returns the RFC 6901 pointer that leads from prefix, a pointer itself, through the
// given members and indices.
func JSONPointer(prefix string, tokens ...string) string {
	for _, t := range tokens {
		prefix += "/" + strings.ReplaceAll(strings.ReplaceAll(t, "~", "~0"), "/", "~1")
	}
	return prefix
}

// Errorf returns an Error with a formatted message. It wraps the errors of %w verbs.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	cause := errors.Unwrap(err)
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		cause = errors.Join(several.Unwrap()...)
	}
	return &Error{Code: code, Message: err.Error(), cause: cause}
}

// InternalError returns the error of a recovered panic, which the caller has logged with the id.
func InternalError(code Code, id, format string, args ...any) *Error {
	return Errorf(code, format+" failed: internal error", args...).
		WithHint("report this; search the daemon's log for the id %s", id)
}

// WithHint returns a copy of e with a hint.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// Error returns the message without code and hint.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the wrapped error, or nil.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf returns the code of the first Error in a chain: internal for a chain without one, and ""
// for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return AsError(err).Code
}

// AsError returns the first Error in a chain with the message of the whole chain, an internal Error
// for a chain without one, and nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		return &Error{
			Code: CodeInternal, Message: err.Error(),
			Hint: "report this; see the daemon's log", cause: err,
		}
	}
	c := *e
	c.Message = err.Error()
	return &c
}
