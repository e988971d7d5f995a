package dray

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Tool is a tool that calls can name: what callers read about it, what intake and the layers above
// the environment need to know, and the functions that check an input and run a call. A Tool must
// not be changed after it is registered and is safe for concurrent use.
type Tool struct {
	Name        string
	Description string
	// Workspace is the folder of the project that declares the tool, which runs only in a container of
	// it. It is empty for the tools of the daemon.
	Workspace string
	// InputSchema and OutputSchema are JSON Schemas of objects. OutputSchema is nil for a tool whose
	// output has no schema.
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage
	// Environment is the environment that the tool needs, for calls of which [Tool.Needs] says
	// nothing else.
	Environment Requirement
	// Timeout bounds a call that names no timeout of its own. Zero is the configured default.
	Timeout time.Duration
	// Mapping is the default of calls that name no mode. Empty is schema if a schema of the tool marks
	// a path, else heuristic.
	Mapping MappingMode
	// RewriteText is the default of calls that do not say whether paths in text are rewritten.
	RewriteText bool
	// Results are the files and directories that are fetched when a call ends: absolute, or relative
	// to the working directory of the call.
	Results []string
	// InWorkspace makes the workspace folder the working directory of every call.
	InWorkspace bool
	// Capabilities are what the tool declares about its effects.
	Capabilities ToolCapabilities
	// Idempotent reports whether repeating a call has no further effect.
	Idempotent bool
	// AcceptsStdin reports whether a call may bring a stdin or a terminal.
	AcceptsStdin bool
	// StartsProcess reports whether a call starts a process. Other tools work on files.
	StartsProcess bool

	// CheckInput checks an input in the caller's form. It fails with invalid_input and at most 50
	// details, each with a JSON pointer that begins with /input.
	CheckInput func(input json.RawMessage) error
	// SecretFields returns the JSON pointers of the values in an input that the schema marks as secret
	// (writeOnly, x-secret), with SecretName before those of members whose name is one. Nil if it
	// marks none.
	SecretFields func(input json.RawMessage) []string
	// Definition is a digest of what the tool runs beyond its input, for instance its argv. An
	// approval is of one definition. Empty is a built-in tool.
	Definition string
	// Program returns the argv that a valid input makes of a command tool, and the names of the
	// variables that the tool sets. Nil is a tool without a program of its own.
	Program func(input json.RawMessage) (argv, variables []string)
	// NeedsNoSlot reports whether a call with the given valid input ends at once, so that it neither
	// waits for a slot nor counts as running: for instance an interrupt of a call that runs. Nil is
	// never.
	NeedsNoSlot func(input json.RawMessage) bool
	// SessionOf returns the name of the session that a valid input is for, or "". It is the session_id
	// of a call that names none. Nil is none for every input.
	SessionOf func(input json.RawMessage) string
	// NeedsOf returns what a call with the given input needs. The input is valid or empty. Nil is
	// Environment and StartsProcess of the tool for every input; [Tool.Needs] decides.
	NeedsOf func(input json.RawMessage) Needs
	// Run executes a call in call.Environment.
	Run ExecutorFunc
}

// Needs are what a call needs of the environment that it runs in.
type Needs struct {
	Environment Requirement
	// StartsProcess reports whether a process starts in the working directory of the call. On the host
	// that directory must then be beneath host.roots.
	StartsProcess bool
	// OnHost is the error with which the call ends if its route is the host. Nil accepts the host.
	OnHost error
}

// Needs returns what a call with an input needs of its environment. The input is valid or empty.
func (t *Tool) Needs(input json.RawMessage) Needs {
	if t.NeedsOf != nil {
		return t.NeedsOf(input)
	}
	return Needs{Environment: t.Environment, StartsProcess: t.StartsProcess}
}

// CheckRoute returns OnHost for a route to the host.
func (n Needs) CheckRoute(route Route) error {
	if route.Environment == KindHost {
		return n.OnHost
	}
	return nil
}

// ToolCapabilities are what a tool declares about its effects (RT-05). dray reports them, and
// denies calls of tools that need an approval; it does not restrict what a process does.
type ToolCapabilities struct {
	// ReadOnly says that the tool changes nothing, Network that it uses the network, Unsafe that it
	// can do anything that its user can.
	ReadOnly, Network, Unsafe bool
	// HumanApprovalRequired denies each call that no human has approved.
	HumanApprovalRequired bool
	// Writes are patterns of the files that the tool writes.
	Writes []string
}

// MarshalJSON encodes the form of the configuration: a list of words and of {"writes": [...]}.
func (c ToolCapabilities) MarshalJSON() ([]byte, error) {
	list := []any{}
	for _, word := range []struct {
		name string
		set  bool
	}{
		{"read_only", c.ReadOnly},
		{"network", c.Network},
		{"unsafe", c.Unsafe},
		{"human_approval_required", c.HumanApprovalRequired},
	} {
		if word.set {
			list = append(list, word.name)
		}
	}
	if len(c.Writes) > 0 {
		list = append(list, map[string][]string{"writes": c.Writes})
	}
	return json.Marshal(list)
}

// RunTool is the innermost Executor: it runs the tool of a call.
var RunTool Executor = ExecutorFunc(
	func(ctx context.Context, call Call, sink Sink) (Result, error) {
		return call.Tool.Run(ctx, call, sink)
	})

// RequirementKind is what a tool needs of the environment that it runs in.
type RequirementKind string

// The kinds of requirement, as the configuration writes them. The empty kind is RequireAny.
const (
	RequireAny       RequirementKind = "auto"
	RequireHost      RequirementKind = "host"
	RequireContainer RequirementKind = "required"
	PreferContainer  RequirementKind = "preferred"
	RequireSpecific  RequirementKind = "specific"
)

// Requirement is the environment that a tool needs. For RequireSpecific Container is the configured
// name of a container, or the absolute directory of a workspace; else it is empty. Hint is the hint
// of the error of a call whose route contradicts the requirement; empty is a general one.
type Requirement struct {
	Kind      RequirementKind
	Container string
	Hint      string
}

// MarshalJSON encodes the form of the configuration: a word, or {"specific": NAME}.
func (r Requirement) MarshalJSON() ([]byte, error) {
	switch r.Kind {
	case RequireSpecific:
		return json.Marshal(map[string]string{string(RequireSpecific): r.Container})
	case "":
		return json.Marshal(RequireAny)
	default:
		return json.Marshal(r.Kind)
	}
}

// String returns the requirement as a phrase for reasons and errors.
func (r Requirement) String() string {
	switch r.Kind {
	case RequireHost:
		return "the host"
	case RequireContainer:
		return "a container"
	case RequireSpecific:
		return fmt.Sprintf("container %q", r.Container)
	default:
		return "no environment"
	}
}

// SecretName precedes the JSON pointer of a member whose name is a secret, not its value.
const SecretName = "name:"
