package config

import (
	"encoding/json"
	"time"
)

// Config is the configuration of one daemon. It is never changed after [Load]: share it, and write
// to none of its maps and slices.
type Config struct {
	// State is the state folder, absolute and clean. Load does not make it; MakeState does.
	State State
	// File is the file that was read, empty if there was none.
	File         string
	Server       Server
	Engine       Engine
	Devcontainer Devcontainer
	Agent        Agent
	Limits       Limits
	Sandbox      Sandbox
	Host         Host
	Routing      Routing
	// Containers are the named containers, by name.
	Containers map[string]Container
	// Tools are the command tools, in the order of the file.
	Tools []Tool
	Trust Trust

	origins map[string]Origin
}

// Origin says where the value of a key was set, for errors that are found later than here. Elements
// are named as in errors: "limits.timeout", "containers.db.mappings[0].host",
// "tools[2].input_schema". It is the zero Origin for defaults.
func (c *Config) Origin(key string) Origin { return c.origins[key] }

// Server is how callers reach the daemon.
type Server struct {
	// Socket is an absolute path that fits into a socket address; STATE/dray.sock unless configured.
	Socket string
	// MaxBody is the longest request body in bytes, above 0.
	MaxBody int64
}

// Engine is which container engine to use. At most one of the two is set; with neither it is found
// as the docker CLI finds it.
type Engine struct {
	// Host is an address as in DOCKER_HOST.
	Host string
	// Context is the name of a docker context.
	Context string
}

// Devcontainer is about the reference CLI, which brings containers up.
type Devcontainer struct {
	// CLI is a bare name or an absolute path; empty means that the program "devcontainer" is looked
	// for.
	CLI string
	// UpArgs are passed to `up` after our own arguments.
	UpArgs []string
	// LocalEnv holds the values of ${localEnv:X} for calls over HTTP. They may be secrets.
	LocalEnv map[string]string
	// UpTimeout is how long one `up` may take, above 0.
	UpTimeout time.Duration
}

// Transport is how daemon and agent talk.
type Transport string

// The transports. Auto takes the agent by a socket, else by its stdio, and, where it cannot be
// placed, the engine's own exec.
const (
	TransportAuto   Transport = "auto"
	TransportSocket Transport = "socket"
	TransportStdio  Transport = "stdio"
	TransportEngine Transport = "engine"
)

// Agent is about the program inside the container.
type Agent struct {
	// Lease is how long an agent that hears nothing lets its calls live, at least 1 s.
	Lease     time.Duration
	Transport Transport
}

// Limits bound calls. Timeout and IdleTimeout are at most MaxTimeout.
type Limits struct {
	// Timeout holds for calls and tools that state none, above 0. Its default gives way to a lower
	// MaxTimeout.
	Timeout time.Duration
	// MaxTimeout is the longest timeout that a call or tool may state, above 0.
	MaxTimeout time.Duration
	// IdleTimeout is the longest silence of a call; 0 means that silence is no reason to end one.
	IdleTimeout time.Duration
	// Grace is the time between TERM and KILL; 0 is KILL at once.
	Grace time.Duration
	// Concurrent is how many calls run at once, at least 1.
	Concurrent int
	// PerContainer is how many of them run in one container, from 1 to MaxPerContainer.
	PerContainer int
	// Queue is how many calls wait for their turn besides; 0 lets none wait.
	Queue int
	// Drain is how long a daemon that was told to end waits for its calls; 0 cancels them at once.
	Drain time.Duration
	// Capture is how many bytes are kept of each output stream, above 0.
	Capture int64
	// View is how many bytes of head, and as many of tail, a result shows of each stream, above 0.
	View int64
	// CapturesDisk is how many bytes the kept output of all calls takes together, above 0.
	CapturesDisk int64
	// CapturesKeep is how long kept output stays after its last byte, above 0.
	CapturesKeep time.Duration
}

// MaxPerContainer is how many calls one connection to an agent carries. A call beyond it would be
// refused in the middle of its way.
const MaxPerContainer = 4096

// Bounds of counts, so that a number that was mistyped is told. Each call that runs or waits costs
// memory and descriptors.
const (
	maxConcurrent = 65536
	maxQueue      = 1000000
)

// Host is what tools on the host may see.
type Host struct {
	// Env names variables of the daemon that host tools get, too.
	Env []string
	// Roots are the folders where host tools may work, absolute and clean, whether they exist or not.
	Roots []string
}

// Routing is where calls go that do not say it themselves: "host", the name of a container, the
// name or the absolute folder of a workspace, or empty for no rule.
type Routing struct {
	Override string
	Fallback string
	// Plans hold what is said for single plans, by plan id.
	Plans map[string]Plan
}

// Plan is the routing of one plan, in the terms of Routing.
type Plan struct {
	Override string
	Fallback string
}

// Container is a container by name. It has a Workspace, an ID or a Label; with a Workspace and one
// of the others, the workspace supplies the configuration and the container must belong to it.
type Container struct {
	// Workspace is an absolute, clean host folder.
	Workspace string
	// Config is the devcontainer.json of the workspace to use: absolute, or relative to the workspace;
	// clean, without "..".
	Config string
	// Service is the compose service, where the workspace has several.
	Service string
	// ID is a full id or a name.
	ID string
	// Label is key=value.
	Label string
	// Mappings are laid over those that follow from the container's own mounts.
	Mappings []Mapping
}

// Mapping says that a host folder has another name in the container. Both are absolute and clean,
// neither is "/", and neither lies in the other; they may be equal.
type Mapping struct {
	Host      string
	Container string
}

// Environment is where a tool may run.
type Environment string

// The environments of a tool. "container" in the file reads as required.
const (
	EnvironmentAuto      Environment = "auto"
	EnvironmentHost      Environment = "host"
	EnvironmentRequired  Environment = "required"
	EnvironmentPreferred Environment = "preferred"
	EnvironmentSpecific  Environment = "specific"
)

// Tool is a command tool: a program that gets its input as JSON on stdin.
type Tool struct {
	Name        string
	Description string
	// Argv has at least one element; the first is not empty.
	Argv []string
	// InputSchema and OutputSchema are JSON objects with keys and numbers as the file writes them; nil
	// if the file has none. Whether they are schemas is for the reader of JSON Schema to say.
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage
	Environment  Environment
	// Container is the name that goes with EnvironmentSpecific, else empty.
	Container string
	// Timeout is at most Limits.MaxTimeout; 0 means Limits.Timeout.
	Timeout time.Duration
	// Output is "text" or "json".
	Output string
	// Mapping is "schema", "heuristic", "none", or empty for schema where the schema marks a path,
	// else heuristic.
	Mapping string
	// Results are paths that come home when a call ends, clean, without "..": absolute, or relative to
	// the call's working folder.
	Results []string
	// RewriteText has the paths in its text output rewritten, for calls that do not say otherwise.
	RewriteText bool
}

// Trust names what may be built without asking.
type Trust struct {
	// Workspaces are trusted whatever configuration stands in them: absolute, clean host folders.
	Workspaces []string
}
