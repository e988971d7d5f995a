package dray

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// EnvironmentChoice is the environment that a call requests.
type EnvironmentChoice string

// The choices of a call. ChooseAuto leaves the decision to the routing rules.
const (
	ChooseAuto      EnvironmentChoice = "auto"
	ChooseHost      EnvironmentChoice = "host"
	ChooseContainer EnvironmentChoice = "container"
)

// MappingMode is how strings of an input or output are recognized as paths.
type MappingMode string

// The mapping modes. The empty mode leaves it to the tool: schema if a schema of it marks any path,
// else heuristic.
const (
	MapDefault   MappingMode = ""
	MapSchema    MappingMode = "schema"
	MapHeuristic MappingMode = "heuristic"
	MapNone      MappingMode = "none"
)

// PathsSide is the side whose paths a caller writes and reads.
type PathsSide string

// The values of PathsSide. With PathsOfContainer no path is mapped, and the call does not run on
// the host.
const (
	PathsOfHost      PathsSide = "host"
	PathsOfContainer PathsSide = "container"
)

// Leftovers is what happens to processes that are still running when the tool exits.
type Leftovers string

// The values of Leftovers. A call that is ended by a timeout, a cancel or a shutdown always ends
// all its processes.
const (
	KillLeftovers Leftovers = "kill"
	KeepLeftovers Leftovers = "keep"
)

// Invocation is a call of a tool as the caller sent it, after validation. It is never changed:
// layers that need another form of the input make a deep copy, and hashes are taken of this form.
type Invocation struct {
	// ID is a UUID of version 7, so ids sort by time.
	ID   string `json:"id"`
	Tool string `json:"tool"`
	// Input is a JSON object of at most 64 MiB.
	Input json.RawMessage `json:"input"`
	// Workspace is a clean absolute directory of the host, Container a name or id. Empty is absent.
	Workspace   string            `json:"workspace,omitempty"`
	Container   string            `json:"container,omitempty"`
	Environment EnvironmentChoice `json:"environment,omitempty"`
	// Cwd is relative to the workspace, or an absolute path of the host; clean, without "..".
	Cwd string `json:"cwd,omitempty"`
	// CwdIsDefault makes Cwd only the directory where a session of a shell begins.
	CwdIsDefault bool              `json:"cwd_is_default,omitempty"`
	Env          map[string]string `json:"env,omitempty"`
	// LocalEnv are the caller's values of ${localEnv:X}. They may be secrets, so they are neither
	// stored nor logged.
	LocalEnv map[string]string `json:"-"`
	// Timeout is zero for the timeout of the tool, else the configured default.
	Timeout time.Duration `json:"timeout,omitempty"`
	// IdleTimeout bounds the silence on both streams. Zero is the configured default, which may be
	// none.
	IdleTimeout time.Duration `json:"idle_timeout,omitempty"`
	Mapping     MappingMode   `json:"mapping,omitempty"`
	// Paths is the side whose paths the caller writes and reads. Empty is PathsOfHost.
	Paths PathsSide `json:"paths,omitempty"`
	// RewriteText reports whether paths in text output, in files that are read, and in
	// arguments and commands, are rewritten. Nil is true if Paths is PathsOfHost, else the default of
	// the tool.
	RewriteText *bool `json:"rewrite_text,omitempty"`
	// Sync are paths to fetch when the call ends: the caller's, the environment's, or relative to the
	// working directory.
	Sync []string `json:"sync,omitempty"`
	// Terminal is the size of the requested terminal. Nil is three pipes.
	Terminal *TerminalSize `json:"tty,omitempty"`
	// Leftovers is empty for KillLeftovers.
	Leftovers Leftovers   `json:"leftovers,omitempty"`
	Context   CallContext `json:"context"`
	Plan      PlanRouting `json:"plan"`
	Principal string      `json:"principal"`
}

// StartsInSessionCwd reports whether a command of a session of a shell starts in the directory that
// the command before has left.
func (inv Invocation) StartsInSessionCwd() bool { return inv.Cwd == "" || inv.CwdIsDefault }

// CallContext identifies on whose behalf a call is made. Its ids are variables of the process
// (EnvPlanID), and it is recorded. PlanID selects the configured routing and budget of a plan.
type CallContext struct {
	PlanID    string            `json:"plan_id,omitempty"`
	SessionID string            `json:"session_id,omitempty"`
	SandboxID string            `json:"sandbox_id,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// Variables returns the name and the value of each variable that a process gets from the context.
func (c CallContext) Variables() [][2]string {
	return slices.DeleteFunc([][2]string{
		{EnvPlanID, c.PlanID}, {EnvSessionID, c.SessionID}, {EnvSandboxID, c.SandboxID},
	}, func(v [2]string) bool { return v[1] == "" })
}

// PlanUsage is what the calls of a plan have used together, or may use.
type PlanUsage struct {
	Calls int64
	// Wall is the sum of the durations of the calls, Bytes that of their Result.Bytes.
	Wall  time.Duration
	Bytes int64
}

// PlanRouting is the routing of the caller's plan: "host", a container or a workspace.
type PlanRouting struct {
	Override string `json:"override,omitempty"`
	Fallback string `json:"fallback,omitempty"`
}

// Idempotency is a key that the principal of a call chose for its request, so that repeats of the
// request are the same call.
type Idempotency struct {
	// Key has 1 to 255 visible ASCII characters.
	Key string `json:"key"`
	// Request is a keyed hash of the request in hexadecimal. Another request cannot use the key.
	Request string `json:"request"`
}

// Call is an invocation while it is executed. Each layer passes a changed copy to the next.
type Call struct {
	Invocation Invocation
	// Tool is the tool that the invocation names. Intake sets it, and no layer looks it up again.
	Tool *Tool
	// Idempotency is the key that the audit log claims for the call. Nil is none.
	Idempotency *Idempotency
	// Stdin is what the process reads. Nil is an empty stdin. The creator of the call closes it.
	Stdin io.Reader
	// Control has functions to call with the running process. Nil is none. It is received from only
	// while the process runs, so a sender must also watch for the end of the call.
	Control <-chan Control
	// Route is where the call runs. Intake sets it.
	Route Route
	// Environment is the environment of Route. It is set once it is ready.
	Environment Environment
	// MappedInput is the input in the environment's paths, and WorkDir the working directory there.
	// RealDir is the path without symlinks that it must lead to, empty for any. The mapping layer sets
	// them.
	MappedInput json.RawMessage
	WorkDir     string
	RealDir     string
	// Approved is what the approval of the call is of and can change until the call starts. Nil is a
	// call without an approval.
	Approved *Approved
	// NewTextFilter returns a filter that rewrites the environment's paths in a text into the caller's
	// and writes to the given writer. The mapping layer sets it. Nil leaves text unchanged.
	NewTextFilter func(to io.Writer) TextFilter
	// NewRedaction returns a filter that replaces the secrets in an output stream. Intake sets it. Nil
	// leaves the streams unchanged.
	NewRedaction func(to RedactedWriter) TextFilter
}

// Approved is what a human has seen of a call that needs an approval. If it has changed, the call
// fails.
type Approved struct {
	// SessionDigest is [SessionState.Digest] of its session of a shell, empty without one.
	SessionDigest string
	// Directory is its working directory on the host without symlinks, empty if that is not known: of
	// a directory of a container that is not mapped.
	Directory string
}

// SessionState is what the commands before have left in a session of a shell (SS-01).
type SessionState struct {
	Name string `json:"name"`
	// Cwd is the working directory in the environment, empty for that of the call.
	Cwd   string            `json:"cwd,omitempty"`
	Set   map[string]string `json:"set,omitempty" doc:"The exported variables that the session sets."`
	Unset []string          `json:"unset,omitempty" doc:"The variables that it removes."`
	// Functions has the text of the functions by shell.
	Functions map[string]string `json:"functions,omitempty" doc:"The text of the functions, by shell."`
}

// Digest returns a hash that changes with the state.
func (s SessionState) Digest() string {
	functions := map[string]string{}
	for shell, text := range s.Functions {
		if text != "" {
			functions[shell] = text
		}
	}
	// Not JSON, which cannot tell bytes that are not UTF-8 apart.
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", s.Name, s.Cwd, s.Set, s.Unset, functions))
	return hex.EncodeToString(sum[:])
}

// NeedsNoSlot reports whether the call neither waits for a slot nor counts as running.
func (c Call) NeedsNoSlot() bool {
	return c.Tool != nil && c.Tool.NeedsNoSlot != nil && c.Tool.NeedsNoSlot(c.Invocation.Input)
}

// TextFilter rewrites a stream. It must not be used concurrently.
type TextFilter interface {
	// Write passes on as much of the text as can be decided.
	io.Writer
	// Buffered returns the number of bytes that wait for more text. Flush passes them on unchanged.
	Buffered() int
	Flush() error
	// Close ends the text and passes on the rest. It does not close the underlying writer.
	Close() error
	// Replaced returns the number of replacements.
	Replaced() int64
}

// RedactedWriter receives a stream in which secrets were replaced.
type RedactedWriter interface {
	// Write gets unchanged bytes of the stream.
	io.Writer
	// WriteMark gets a mark that replaces size bytes of the stream.
	WriteMark(mark []byte, size int64) error
}

// Control is called once with a running process, for instance to send it a signal. It must not
// block and must not keep the process.
type Control func(Process)

// EnvironmentKind is where a call runs.
type EnvironmentKind string

// The kinds of environment.
const (
	KindHost      EnvironmentKind = "host"
	KindContainer EnvironmentKind = "container"
)

// Route is where a call runs, and why.
type Route struct {
	Environment EnvironmentKind `json:"environment"`
	// Rule is the rule that decided, for instance "call.container" or "devcontainer.nearest".
	Rule string `json:"rule"`
	// Container is the configured name, or the name or id in the call. It is empty if the workspace
	// identifies the container.
	Container string `json:"container,omitempty"`
	// Workspace is the directory of the host that has the devcontainer, or that a host tool works in.
	Workspace  string      `json:"workspace,omitempty"`
	Candidates []Candidate `json:"candidates"`
}

// Candidate is a rule that was evaluated. Candidates are in order of precedence.
type Candidate struct {
	Rule        string `json:"rule"`
	Environment string `json:"environment,omitempty"`
	Reason      string `json:"reason"`
}
