package dray

import (
	"encoding/json"
	"io"
	"time"
)

// EnvironmentChoice is the environment that a call asks for.
type EnvironmentChoice string

// The choices of a call. ChooseAuto leaves it to the routing rules.
const (
	ChooseAuto      EnvironmentChoice = "auto"
	ChooseHost      EnvironmentChoice = "host"
	ChooseContainer EnvironmentChoice = "container"
)

// MappingMode says how the strings of an input or output that are paths are told from those that
// are not.
type MappingMode string

// Mapping modes. The empty mode leaves it to the tool: schema where its schema marks any path, else
// heuristic.
const (
	MapDefault   MappingMode = ""
	MapSchema    MappingMode = "schema"
	MapHeuristic MappingMode = "heuristic"
	MapNone      MappingMode = "none"
)

// Leftovers says what becomes of processes that a tool leaves running when it exits.
type Leftovers string

// The two ways. Whatever the way, a call that is ended (timeout, cancel, shutdown) takes all that
// it started with it.
const (
	KillLeftovers Leftovers = "kill"
	KeepLeftovers Leftovers = "keep"
)

// Invocation is one call of a tool, as the caller sent it and after validation. It is never
// changed: layers that need another form of the input (mapped paths) work on a deep copy, and
// hashes are taken over this one.
type Invocation struct {
	// ID is a UUID of version 7, so ids sort by time.
	ID   string `json:"id"`
	Tool string `json:"tool"`
	// Input is a JSON object, at most 64 MiB.
	Input json.RawMessage `json:"input"`
	// Workspace is a cleaned absolute host folder, Container a name or id. Empty counts as absent.
	Workspace   string            `json:"workspace,omitempty"`
	Container   string            `json:"container,omitempty"`
	Environment EnvironmentChoice `json:"environment,omitempty"`
	// Cwd is relative to the workspace, or an absolute host path; cleaned, without "..".
	Cwd string            `json:"cwd,omitempty"`
	Env map[string]string `json:"env,omitempty"`
	// LocalEnv holds the caller's values of ${localEnv:X}. They may be secrets: they are neither
	// stored nor logged.
	LocalEnv map[string]string `json:"-"`
	// Timeout is the caller's own; zero means the tool's, then the configured default.
	Timeout time.Duration `json:"timeout,omitempty"`
	// IdleTimeout is the longest silence on both streams; zero means the configured default, which may
	// be none.
	IdleTimeout time.Duration `json:"idle_timeout,omitempty"`
	Mapping     MappingMode   `json:"mapping,omitempty"`
	// RewriteText has the paths in text output and in files that are read rewritten; nil leaves it to
	// the tool.
	RewriteText *bool `json:"rewrite_text,omitempty"`
	// Sync are paths to bring home when the call ends, in the caller's or the environment's form, or
	// relative to the working folder.
	Sync []string `json:"sync,omitempty"`
	// Terminal asks for a terminal of that size; nil is three pipes.
	Terminal *TerminalSize `json:"tty,omitempty"`
	// Leftovers says what becomes of the processes that the tool leaves running; empty is
	// KillLeftovers.
	Leftovers Leftovers   `json:"leftovers,omitempty"`
	Context   CallContext `json:"context"`
	Plan      PlanRouting `json:"plan"`
	Principal string      `json:"principal"`
}

// CallContext says on whose behalf a call is made. It is passed through and recorded, never
// interpreted.
type CallContext struct {
	PlanID    string            `json:"plan_id,omitempty"`
	SessionID string            `json:"session_id,omitempty"`
	SandboxID string            `json:"sandbox_id,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// PlanRouting is what the caller's plan says about routing: "host", or a container's or workspace's
// name.
type PlanRouting struct {
	Override string `json:"override,omitempty"`
	Fallback string `json:"fallback,omitempty"`
}

// Call is an invocation on its way down. Layers hand a changed copy on; what they add is below
// Stdin.
type Call struct {
	Invocation Invocation
	// Tool is the tool that the invocation names. Intake sets it, and no layer looks it up again.
	Tool *Tool
	// Stdin is what the process reads; nil is an empty stdin. Whoever made the call closes it.
	Stdin io.Reader
	// Control brings what whoever made the call wants done to its process; nil is nothing. It is
	// received from while the process runs, and at no other time: a sender waits for the start, and
	// has to watch for the end of the call itself.
	Control <-chan Control
	// Route is what the request was checked with, which the router keeps, or else set by the router.
	Route Route
	// Environment is set once the place to run is ready. It is the router's choice, never another.
	Environment Environment
	// MappedInput is the input in the environment's own paths, and Dir the working folder there; set
	// by the mapping layer.
	MappedInput json.RawMessage
	WorkDir     string
	// NewTextFilter makes a filter that turns the environment's paths in a text into the caller's, and
	// passes the text on. It is set by the mapping layer, and nil where text stays as it is.
	NewTextFilter func(to io.Writer) TextFilter
}

// TextFilter changes a text on its way. It serves one goroutine at a time.
type TextFilter interface {
	// Write passes on what can be decided of the text so far.
	io.Writer
	// Buffered is how many bytes wait for what follows them. Flush passes them on as they are.
	Buffered() int
	Flush() error
	// Close says that the text ends here, and passes on the rest. It does not close what is behind.
	Close() error
	// Replaced is how many places were changed.
	Replaced() int64
}

// Control is something done to a running process on its caller's behalf, such as sending it a
// signal. It is called once, must not wait for the process, and keeps no reference to it.
type Control func(Process)

// EnvironmentKind is where a call runs.
type EnvironmentKind string

// The kinds of environment.
const (
	KindHost      EnvironmentKind = "host"
	KindContainer EnvironmentKind = "container"
)

// Route is the decision where a call runs, and why.
type Route struct {
	Environment EnvironmentKind `json:"environment"`
	// Rule names the rule that decided, for instance "call.container" or "devcontainer.nearest".
	Rule string `json:"rule"`
	// Container is the configured name, or the name or id that the call gave; empty where the
	// workspace leads to it.
	Container string `json:"container,omitempty"`
	// Workspace is the host folder whose devcontainer is meant, or that a host tool works in.
	Workspace  string      `json:"workspace,omitempty"`
	Candidates []Candidate `json:"candidates"`
}

// Candidate is one rule that was looked at, in order of precedence.
type Candidate struct {
	Rule        string `json:"rule"`
	Environment string `json:"environment,omitempty"`
	Reason      string `json:"reason"`
}
