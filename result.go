package dray

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Status is the state of an invocation.
type Status string

// The statuses. A call is succeeded exactly if its reason is exited, its exit code means success
// (0, unless the tool names others), and its output is valid.
const (
	StatusQueued    Status = "queued"
	StatusRunning   Status = "running"
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
)

// Reason is why an invocation ended. A failure of the container or the engine is never reported as
// an exit of the tool.
type Reason string

// The reasons.
const (
	ReasonExited      Reason = "exited"
	ReasonSignalled   Reason = "signalled"
	ReasonTimeout     Reason = "timeout"
	ReasonIdleTimeout Reason = "idle_timeout"
	ReasonCancelled   Reason = "cancelled"
	ReasonOutputLimit Reason = "output_limit"
	ReasonOOM         Reason = "oom"
	ReasonStartFailed Reason = "start_failed"
	ReasonDenied      Reason = "denied"
	ReasonInvalid     Reason = "invalid"
	ReasonUnavailable Reason = "unavailable"
	ReasonInterrupted Reason = "interrupted"
)

// Result is how a call ended. The layers fill it from the inside out; the zero Result is that of a
// call that could not run.
type Result struct {
	Status Status
	Reason Reason
	// ExitCode is set exactly if Reason is exited.
	ExitCode *int
	// ExitAccepted reports that the tool declares the exit code as success, although it is not 0.
	ExitAccepted bool
	// Signal is set exactly if Reason is signalled.
	Signal *Signal
	// Output is the tool's structured result; exec and shell have none.
	Output   json.RawMessage
	Stdout   StreamSummary
	Stderr   StreamSummary
	Error    *Error
	Route    Route
	Metadata Metadata
	// Results is the directory in which the process left result files, until they are fetched; nil
	// for none. Records do not have it.
	Results *ResultsDir
	// StartedAt and EndedAt are UTC. Duration is measured on the monotonic clock.
	StartedAt time.Time
	EndedAt   time.Time
	Duration  time.Duration
	// ExecDuration is the part of Duration in which the process existed.
	ExecDuration time.Duration
}

// Bytes returns what the call counts towards the budget of its plan: the bytes of stdout and
// stderr, or of the structured output if that is longer, and the bytes that its sync wrote.
func (r Result) Bytes() int64 {
	n := max(r.Stdout.TotalBytes+r.Stderr.TotalBytes, int64(len(r.Output)))
	if r.Metadata.Sync != nil {
		n += r.Metadata.Sync.Bytes
	}
	return n
}

// Signal is a signal by name ("SIGKILL") and by its Linux number.
type Signal struct {
	Name   string `json:"name"`
	Number int    `json:"number"`
}

// StreamSummary is the head and tail of an output stream with its size. HeadBytes+OmittedBytes+
// TailBytes is always TotalBytes.
type StreamSummary struct {
	// Text is valid UTF-8: the head, a line with the number of omitted bytes, and the tail.
	Text         string `json:"text"`
	HeadBytes    int64  `json:"head_bytes"`
	TailBytes    int64  `json:"tail_bytes"`
	OmittedBytes int64  `json:"omitted_bytes"`
	// TotalBytes, HeadBytes, OmittedBytes and TailBytes count what the tool wrote. KeptBytes is the
	// length of what was captured of its beginning, after redaction.
	TotalBytes int64 `json:"total_bytes"`
	KeptBytes  int64 `json:"kept_bytes"`
	Truncated  bool  `json:"truncated"`
	// SHA256 is the hexadecimal digest of the captured bytes.
	SHA256 string `json:"sha256"`
	// Rewritten is set if the paths of the stream were rewritten. Text is then that of the rewritten
	// stream, and all other members are those of the raw stream.
	Rewritten *RewrittenSummary `json:"rewritten,omitempty"`
}

// Whole returns the text if its digest proves that it is the whole captured stream: with rewritten
// the rewritten one, if there is one, else the raw one.
func (s StreamSummary) Whole(rewritten bool) (text []byte, ok bool) {
	size, digest := s.KeptBytes, s.SHA256
	if s.Rewritten != nil && rewritten {
		size, digest = s.Rewritten.KeptBytes, s.Rewritten.SHA256
	}
	text = []byte(s.Text)
	sum := sha256.Sum256(text)
	if size > 0 && hex.EncodeToString(sum[:]) != digest {
		return nil, false
	}
	return text[:size], true
}

// RewrittenSummary describes a stream with rewritten paths.
type RewrittenSummary struct {
	// Paths counts the rewritten paths.
	Paths int64 `json:"paths"`
	// TotalBytes, KeptBytes and SHA256 are those of the rewritten stream.
	TotalBytes int64  `json:"total_bytes"`
	KeptBytes  int64  `json:"kept_bytes"`
	SHA256     string `json:"sha256"`
}

// Metadata is what dray records about a call besides the output of the tool. Its paths are those of
// the environment.
type Metadata struct {
	Container *ContainerMetadata `json:"container,omitempty"`
	Mapping   *MappingReport     `json:"mapping,omitempty"`
	Kill      *KillReport        `json:"kill,omitempty"`
	Sync      *SyncReport        `json:"sync,omitempty"`
	// Changes are the files that dray itself changed for this call. A list of calls omits all but the
	// first; ChangesOmitted counts the others.
	Changes        []FileChange `json:"changes,omitempty"`
	ChangesOmitted int          `json:"changes_omitted,omitzero"`
	// QueuedMS is how long the call waited for a slot, in milliseconds. It is a part of the duration,
	// but does not count towards the timeout.
	QueuedMS float64 `json:"queued_ms,omitzero"`
	// Retries are the attempts before the last one, which failed because of the container or engine.
	Retries []FailedAttempt `json:"retries,omitempty"`
	// Fetches are the requests to hosts that code of a Python session sent, or was refused, at most
	// 100; FetchesOmitted counts the others.
	Fetches        []Fetch `json:"fetches,omitempty"`
	FetchesOmitted int     `json:"fetches_omitted,omitzero"`
	// Approval is set for a call that policy asked about.
	Approval *ApprovalReport `json:"approval,omitempty"`
	// Session is set for a call in a session of a shell.
	Session *SessionReport `json:"session,omitempty"`
	// Warnings are deviations from what the caller may expect.
	Warnings []string `json:"warnings,omitempty"`
}

// ApprovalReport is the approval that a call used, or asked for and did not get (SE-04).
type ApprovalReport struct {
	ID string `json:"id"`
	// DecidedBy is who approved or denied the call. Empty is nobody until the call ended.
	DecidedBy string `json:"decided_by,omitempty"`
}

// SessionReport is what a call did to its session (SS-01).
type SessionReport struct {
	Name string `json:"name"`
	// New says that the call began the session.
	New bool `json:"new,omitzero"`
	// Cwd is the working directory of the next call, in the environment.
	Cwd string `json:"cwd,omitempty"`
	// Lost says what of the session's state was lost, and why. Empty is nothing.
	Lost string `json:"lost,omitempty"`
	// Ended says that the session has ended with the call.
	Ended bool `json:"ended,omitzero"`
}

// Fetch is a request of code in a Python session to a host. A redirect is a request of its own.
type Fetch struct {
	Method string `json:"method"`
	// Host has the port if the URL has one.
	Host string `json:"host"`
	// Status is that of the response, 0 if there is none. Bytes is the length of its body.
	Status int   `json:"status,omitzero"`
	Bytes  int64 `json:"bytes,omitzero"`
	// Error is the name of the errno that the code got, such as EACCES; empty is none.
	Error string `json:"error,omitempty"`
}

// FailedAttempt is an attempt of a call that was repeated.
type FailedAttempt struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// ContainerMetadata describes the container that a call ran in. The audit log stores it as JSON.
type ContainerMetadata struct {
	ID              string  `json:"id"`
	Name            string  `json:"name"`
	Image           string  `json:"image"`
	ImageDigest     string  `json:"image_digest"`
	Engine          string  `json:"engine"`
	WorkspaceFolder string  `json:"workspace_folder"`
	User            string  `json:"user"`
	ConfigHash      string  `json:"config_hash"`
	ExecMS          float64 `json:"exec_ms"`
	ExitCode        *int    `json:"exit_code"`
	// Transport is "agent" or "engine". Channel carries the frames of the agent: "socket" or "stdio".
	Transport string `json:"transport"`
	Channel   string `json:"channel,omitempty"`
}

// MappingReport lists every path of a call, rewritten or not, by JSON pointer. Pointers begin with
// "/input", "/output" or "/cwd".
type MappingReport struct {
	Mapped   []MappedPath   `json:"mapped"`
	Unmapped []UnmappedPath `json:"unmapped"`
	Errors   []Detail       `json:"errors"`
}

// MappedPath is a path that was rewritten.
type MappedPath struct {
	Pointer string `json:"pointer"`
	From    string `json:"from"`
	To      string `json:"to"`
}

// UnmappedPath is a path that was not rewritten.
type UnmappedPath struct {
	Pointer string `json:"pointer"`
	Path    string `json:"path"`
	Reason  string `json:"reason"`
}

// KillReport lists the processes that a call left.
type KillReport struct {
	Survivors Survivors `json:"survivors"`
	// Leftover counts the processes that still ran when the leader exited. They were killed, except
	// those in Kept.
	Leftover int `json:"leftover"`
	// Kept are the pids, as the environment numbers them, that a call with leftovers "keep" left
	// running.
	Kept []int `json:"kept,omitempty"`
}

// Survivors are the processes of a call that still run after it was killed. In JSON it is 0, a list
// of pids, or null if they are unknown.
type Survivors struct {
	Proven bool
	PIDs   []int
}

// MarshalJSON encodes 0, the pids, or null.
func (s Survivors) MarshalJSON() ([]byte, error) {
	switch {
	case !s.Proven:
		return []byte("null"), nil
	case len(s.PIDs) == 0:
		return []byte("0"), nil
	default:
		return json.Marshal(s.PIDs)
	}
}

// UnmarshalJSON decodes the forms of MarshalJSON.
func (s *Survivors) UnmarshalJSON(b []byte) error {
	*s = Survivors{Proven: string(b) != "null"}
	if !s.Proven || string(b) == "0" {
		return nil
	}
	return json.Unmarshal(b, &s.PIDs)
}

// Record is an invocation with its result. Its JSON is the form of every response, event and list,
// whether the call runs or has ended.
type Record struct {
	ID     string `json:"id"`
	Tool   string `json:"tool"`
	Status Status `json:"status"`
	// Approval is the id of the approval that the call waits for. Its status is queued.
	Approval string `json:"approval,omitempty"`
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

// NormalizeResult returns the final result of an Executor's results. An error becomes a failed
// result with the reason that follows from its code. A result is succeeded exactly if its reason is
// exited, its exit code is 0 or accepted, and it has no error. A failed result always has an error,
// whose message may be empty.
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
	ok := res.Error == nil && res.Reason == ReasonExited && res.ExitCode != nil &&
		(*res.ExitCode == 0 || res.ExitAccepted)
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
	case CodeDenied, CodeWorkspaceUntrusted, CodeApprovalRequired:
		return ReasonDenied
	case CodeInvalidRequest, CodeInvalidInput, CodePathInvalid, CodePathTooDeep, CodeRouteConflict,
		CodeUnknownTool, CodeSyncRefused, CodeConflict, CodeUnsupported:
		return ReasonInvalid
	default:
		return ReasonUnavailable
	}
}

// Stat are the statistics of the calls in the audit log that have one key in common.
type Stat struct {
	// Key is empty for calls that have none, such as the reason of calls that run.
	Key string `json:"key"`
	// Calls counts the calls, Failed those of them that failed.
	Calls  int64 `json:"calls"`
	Failed int64 `json:"failed"`
	// P50MS and P99MS are durations in milliseconds: at least half of the calls that have a duration,
	// and 99 of 100, took no longer. They are nil if none has one.
	P50MS *float64 `json:"p50_ms"`
	P99MS *float64 `json:"p99_ms"`
	// Bytes is the sum of [Result.Bytes].
	Bytes int64 `json:"bytes"`
}
