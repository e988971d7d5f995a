package dray

import (
	"encoding/json"
	"time"
)

// Record is an invocation with its result. Its JSON is the form of every response, event and list,
// whether the call runs or has ended.
type Record struct {
	ID     string `json:"id"`
	Tool   string `json:"tool"`
	Status Status `json:"status"`
	// Reason is empty while the call runs.
	Reason    Reason          `json:"reason,omitempty"`
	ExitCode  *int            `json:"exit_code"`
	Signal    *Signal         `json:"signal"`
	Output    json.RawMessage `json:"output"`
	Stdout    StreamSummary   `json:"stdout"`
	Stderr    StreamSummary   `json:"stderr"`
	Error     *Error          `json:"error"`
	Route     Route           `json:"route"`
	Metadata  Metadata        `json:"metadata"`
	Principal string          `json:"principal"`
	Workspace string          `json:"workspace,omitempty"`
	Cwd       string          `json:"cwd,omitempty"`
	// Leftovers is the option of the call; empty is kill.
	Leftovers Leftovers `json:"leftovers,omitempty"`
	// RewriteText and Sync are options of the call.
	RewriteText *bool           `json:"rewrite_text,omitempty"`
	Sync        []string        `json:"sync,omitempty"`
	Context     CallContext     `json:"context"`
	Input       json.RawMessage `json:"input"`
	StartedAt   time.Time       `json:"started_at"`
	EndedAt     *time.Time      `json:"ended_at"`
	DurationMS  *float64        `json:"duration_ms"`
}

// NewRecord returns the record of a running call that started at the given time.
func NewRecord(inv Invocation, at time.Time) Record {
	return Record{
		ID: inv.ID, Tool: inv.Tool, Status: StatusRunning, Principal: inv.Principal,
		Workspace: inv.Workspace, Cwd: inv.Cwd, Leftovers: inv.Leftovers,
		RewriteText: inv.RewriteText, Sync: inv.Sync, Context: inv.Context, Input: inv.Input,
		StartedAt: at.UTC(), Stdout: emptyStream, Stderr: emptyStream,
	}
}

// emptyStream is the summary of a stream that was never written, with the digest of no bytes.
var emptyStream = StreamSummary{
	SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
}

// WithResult returns the record of the call with its result.
func (r Record) WithResult(res Result) Record {
	r.Status, r.Reason, r.ExitCode, r.Signal = res.Status, res.Reason, res.ExitCode, res.Signal
	r.Output, r.Stdout, r.Stderr, r.Error = res.Output, res.Stdout, res.Stderr, res.Error
	r.Route, r.Metadata = res.Route, res.Metadata
	ended := res.EndedAt.UTC()
	ms := float64(res.Duration.Microseconds()) / 1000
	r.EndedAt, r.DurationMS = &ended, &ms
	return r
}

// NormalizeResult returns the final result of an Executor's results. An error becomes a failed result
// with the reason that follows from its code. A result is succeeded exactly if its reason is exited,
// its exit code is 0 and it has no error. A failed result always has an error, whose message may be
// empty.
func NormalizeResult(res Result, err error) Result {
	if err != nil {
		res.Error = AsError(err)
		if res.Reason == "" {
			res.Reason = reasonForCode(res.Error.Code)
		}
	}
	for _, s := range []*StreamSummary{&res.Stdout, &res.Stderr} {
		if *s == (StreamSummary{}) {
			*s = emptyStream
		}
	}
	ok := res.Error == nil && res.Reason == ReasonExited && res.ExitCode != nil && *res.ExitCode == 0
	res.Status = StatusFailed
	if ok {
		res.Status = StatusSucceeded
	} else if res.Error == nil {
		res.Error = &Error{}
	}
	return res
}

// reasonForCode returns the reason of a call that failed with a code.
func reasonForCode(code Code) Reason {
	switch code {
	case CodeExecutableNotFound, CodeNotExecutable, CodeBadCwd, CodeBadUser, CodeLimitExceeded:
		return ReasonStartFailed
	case CodeDenied, CodeWorkspaceUntrusted:
		return ReasonDenied
	case CodeInvalidRequest, CodeInvalidInput, CodePathInvalid, CodePathTooDeep, CodeRouteConflict,
		CodeUnknownTool, CodeSyncRefused, CodeConflict:
		return ReasonInvalid
	default:
		return ReasonUnavailable
	}
}
