package dray

import (
	"errors"
	"fmt"
	"strings"
)

// Code names what went wrong. The list is closed: callers switch on it, and every edge (HTTP
// status, CLI exit code) has one table over it.
type Code string

// Codes of requests that are refused before anything is accepted.
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
	CodeBusy                 Code = "busy"
	CodeInternal             Code = "internal"
	CodeAuditUnavailable     Code = "audit_unavailable"
	CodeShuttingDown         Code = "shutting_down"
)

// Codes of calls that were accepted and could not run, or whose output is not what the tool
// promised.
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
	CodeLimitExceeded        Code = "limit_exceeded"
	CodeDiskFull             Code = "disk_full"
	CodeAgentLost            Code = "agent_lost"
	CodeTransferFailed       Code = "transfer_failed"
)

// Error is every error that a caller may see. Message says what happened, Hint what to do next;
// both are for people, Code is for programs. Code is empty in exactly one case: the tool itself
// ended badly (a non-zero exit, a signal, a timeout), and then the result's reason says how.
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

// Errorf makes an Error whose message is formatted; %w verbs keep the causes for errors.Is and
// errors.As.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	cause := errors.Unwrap(err)
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		cause = errors.Join(several.Unwrap()...)
	}
	return &Error{Code: code, Message: err.Error(), cause: cause}
}

// InternalError says that something failed inside dray, and that the log has more under an id: for
// panics, which whoever catches them logs.
func InternalError(code Code, id, format string, args ...any) *Error {
	return Errorf(code, format+" failed inside dray", args...).
		WithHint("this is a defect of dray: the daemon's log has more under the id %s", id)
}

// WithHint returns a copy of e that says what to do next.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// Error gives the message alone, so that wrapping reads as one sentence; the edges print code and
// hint beside it.
func (e *Error) Error() string { return e.Message }

// Unwrap gives the cause, if the error was made from one.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf finds the code in a chain of errors. An error without one is a defect of ours and reads as
// internal; nil has none.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return AsError(err).Code
}

// AsError finds the Error in a chain and gives it the message of the whole chain, or makes an
// internal one. It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		return &Error{
			Code: CodeInternal, Message: err.Error(),
			Hint: "this is a defect of dray: the daemon's log has more", cause: err,
		}
	}
	c := *e
	c.Message = err.Error()
	return &c
}
