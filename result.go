package dray

import (
	"encoding/json"
	"time"
)

// Status is how far an invocation has come.
type Status string

// The statuses. Succeeded holds exactly if the reason is exited, the exit code 0 and the output
// valid.
const (
	StatusQueued    Status = "queued"
	StatusRunning   Status = "running"
	StatusSucceeded Status = "succeeded"
	StatusFailed    Status = "failed"
)

// Reason is why an invocation ended. There is exactly one, and trouble of container or engine is
// never told as the tool's exit.
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

// Result is how a call ended. Executors fill it from the inside out; the zero Result belongs to a
// call that could not run.
type Result struct {
	Status Status
	Reason Reason
	// ExitCode is set exactly if Reason is exited.
	ExitCode *int
	// Signal is set exactly if Reason is signalled.
	Signal *Signal
	// Output is the tool's structured result; exec and shell have none.
	Output   json.RawMessage
	Stdout   StreamSummary
	Stderr   StreamSummary
	Error    *Error
	Route    Route
	Metadata Metadata
	// StartedAt and EndedAt are UTC. Duration is their distance on the monotonic clock.
	StartedAt time.Time
	EndedAt   time.Time
	Duration  time.Duration
	// ExecDuration is the part of it in which the process existed.
	ExecDuration time.Duration
}

// Signal is a signal by name ("SIGKILL") and by its Linux number.
type Signal struct {
	Name   string `json:"name"`
	Number int    `json:"number"`
}

// StreamSummary is what is known of one output stream. HeadBytes+OmittedBytes+TailBytes is
// TotalBytes, always.
type StreamSummary struct {
	// Text is UTF-8 with replacement: the head, a line that counts what is omitted, the tail.
	Text         string `json:"text"`
	HeadBytes    int64  `json:"head_bytes"`
	TailBytes    int64  `json:"tail_bytes"`
	OmittedBytes int64  `json:"omitted_bytes"`
	// TotalBytes is what the tool wrote; KeptBytes is how much of its beginning can be read again.
	TotalBytes int64 `json:"total_bytes"`
	KeptBytes  int64 `json:"kept_bytes"`
	Truncated  bool  `json:"truncated"`
	// SHA256 is the hexadecimal digest of the kept bytes.
	SHA256 string `json:"sha256"`
	// Rewritten is set where the stream's paths were rewritten: Text is then the view of the rewritten
	// stream, and all other figures are those of what the tool wrote.
	Rewritten *RewrittenSummary `json:"rewritten,omitempty"`
}

// RewrittenSummary is what is known of a stream after its paths were rewritten.
type RewrittenSummary struct {
	// Paths counts the rewrites.
	Paths int64 `json:"paths"`
	// TotalBytes, KeptBytes and SHA256 are those of the rewritten stream.
	TotalBytes int64  `json:"total_bytes"`
	KeptBytes  int64  `json:"kept_bytes"`
	SHA256     string `json:"sha256"`
}

// Metadata is what dray knows of a call beside the tool's own output. Paths in it are the
// environment's own.
type Metadata struct {
	Container *ContainerMetadata `json:"container,omitempty"`
	Mapping   *MappingReport     `json:"mapping,omitempty"`
	Kill      *KillReport        `json:"kill,omitempty"`
	Sync      *SyncReport        `json:"sync,omitempty"`
	// Changes are the files that dray itself changed for this call. ChangesOmitted counts those that a
	// list of calls leaves out.
	Changes        []FileChange `json:"changes,omitempty"`
	ChangesOmitted int          `json:"changes_omitted,omitzero"`
	// QueuedMS is how long the call waited for its turn, in milliseconds. It is a part of the
	// duration, and no part of the timeout.
	QueuedMS float64 `json:"queued_ms,omitzero"`
	// Warnings say what was done differently from what the caller may expect.
	Warnings []string `json:"warnings,omitempty"`
}

// ContainerMetadata names the container that a call ran in. The audit trail keeps it as a JSON
// column.
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
	// Transport is "agent" or "engine"; Channel says what carries the agent's frames ("socket" or
	// "stdio").
	Transport string `json:"transport"`
	Channel   string `json:"channel,omitempty"`
}

// MappingReport lists every path that was rewritten, and every one that was not, by JSON pointer.
// Pointers begin with "/input", "/output" or "/cwd".
type MappingReport struct {
	Mapped   []MappedPath   `json:"mapped"`
	Unmapped []UnmappedPath `json:"unmapped"`
	Errors   []Detail       `json:"errors"`
}

// MappedPath is one rewrite.
type MappedPath struct {
	Pointer string `json:"pointer"`
	From    string `json:"from"`
	To      string `json:"to"`
}

// UnmappedPath is a path that stayed as it was.
type UnmappedPath struct {
	Pointer string `json:"pointer"`
	Path    string `json:"path"`
	Reason  string `json:"reason"`
}

// KillReport says what was left of a call when it was over.
type KillReport struct {
	Survivors Survivors `json:"survivors"`
	// Leftover counts the processes that the leader left running when it exited. They were ended, but
	// for those in Kept.
	Leftover int `json:"leftover"`
	// Kept are the pids, in the environment's own numbers, that a call with leftovers "keep" left to
	// its environment.
	Kept []int `json:"kept,omitempty"`
}

// Survivors are the processes of a call that are still there. In JSON it is 0, a list of pids, or
// null where it cannot be proved.
type Survivors struct {
	Proven bool
	PIDs   []int
}

// MarshalJSON writes 0, the pids, or null.
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

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Survivors) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "null":
		*s = Survivors{}
		return nil
	case "0":
		*s = Survivors{Proven: true}
		return nil
	}
	*s = Survivors{Proven: true}
	return json.Unmarshal(b, &s.PIDs)
}
