package config

import (
	"encoding/json"
	"reflect"
	"time"
)

// Config is the configuration of a daemon. It is read-only after [Load].
type Config struct {
	// State is the state directory, absolute and clean. MakeState creates it.
	State State
	// File is the configuration file that was read, empty if there was none.
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
	// Tools are the command tools: those of the file, then those of ToolDirs.
	Tools []Tool
	// ToolDirs are directories whose files *.yaml have more tools, absolute and clean.
	ToolDirs []string
	Trust    Trust
	Retry    Retry
	Breaker  Breaker
	Policy   Policy
	Audit    Audit
	Python   Python
	MCP      MCP

	origins map[string]Origin
	options Options
}

// Reload loads the configuration again, with the same flags and environment variables. c does not
// change.
func (c *Config) Reload() (*Config, error) { return Load(c.options) }

// Changed returns the keys whose values differ, also those of secrets.
func (c *Config) Changed(other *Config) []string {
	var keys []string
	for _, s := range settings {
		if s.supported() && !reflect.DeepEqual(fieldOf(reflect.ValueOf(*c), s.key).Interface(),
			fieldOf(reflect.ValueOf(*other), s.key).Interface()) {
			keys = append(keys, s.key)
		}
	}
	return keys
}

// Origin returns where the value of a key was set; the zero Origin for a default. Elements are
// named as in errors: "limits.timeout", "containers.db.mappings[0].host", "tools[2].input_schema".
func (c *Config) Origin(key string) Origin { return c.origins[key] }

// DefaultToken is the name of the token in the state directory.
const DefaultToken = "default"

// Server configures the HTTP server.
type Server struct {
	// Socket is an absolute path that fits into a socket address; default STATE/dray.sock.
	Socket string
	// Users are names or uids of other users who may connect to the socket.
	Users []string
	// TCP is an address to listen on as well, HOST:PORT; empty for none.
	TCP string
	// Tokens are the files of tokens, by name. The token [DefaultToken] is not among them.
	Tokens map[string]string
	// AllowedHosts and AllowedOrigins are the values of the headers Host and Origin that requests over
	// TCP may have, in lower case. A host without a port allows any.
	AllowedHosts   []string
	AllowedOrigins []string
	// MaxBody is the maximum size of a request body in bytes, above 0.
	MaxBody int64
}

// Engine selects the container engine by at most one of its fields. With neither it is found as the
// docker CLI finds it.
type Engine struct {
	// Host is an address as in DOCKER_HOST.
	Host string
	// Context is the name of a docker context.
	Context string
}

// Devcontainer configures the reference CLI, which starts devcontainers.
type Devcontainer struct {
	// CLI is a name or an absolute path; empty is the program "devcontainer".
	CLI string
	// UpArgs are passed to `up` after the arguments of dray.
	UpArgs []string
	// LocalEnv has the values of ${localEnv:X} for calls over HTTP. They may be secrets.
	LocalEnv map[string]string
	// UpTimeout bounds one `up`; it is above 0.
	UpTimeout time.Duration
}

// Transport is the channel between daemon and agent.
type Transport string

// The transports. Auto uses an agent by its socket, else by its stdio, else the engine's own exec.
const (
	TransportAuto   Transport = "auto"
	TransportSocket Transport = "socket"
	TransportStdio  Transport = "stdio"
	TransportEngine Transport = "engine"
)

// Agent configures the program inside the container.
type Agent struct {
	// Lease is how long an agent keeps calls running without contact to the daemon; at least 1 s.
	Lease     time.Duration
	Transport Transport
}

// Limits bound calls. Timeout and IdleTimeout are at most MaxTimeout.
type Limits struct {
	// Timeout applies to calls and tools without their own; it is above 0. Its default is lowered to
	// MaxTimeout.
	Timeout time.Duration
	// MaxTimeout is the maximum timeout of a call or tool, above 0.
	MaxTimeout time.Duration
	// IdleTimeout is the maximum time without output; 0 is no limit.
	IdleTimeout time.Duration
	// Grace is the time between TERM and KILL; 0 is KILL at once.
	Grace time.Duration
	// Concurrent is the maximum number of concurrent calls, at least 1.
	Concurrent int
	// PerContainer is their maximum number in one container, from 1 to MaxPerContainer.
	PerContainer int
	// Queue is the maximum number of queued calls; 0 queues none.
	Queue int
	// Drain is how long a daemon that shuts down waits for its calls; 0 cancels them at once.
	Drain time.Duration
	// Capture is the number of bytes captured of each output stream, above 0.
	Capture int64
	// View is the size in bytes of the head, and of the tail, that a result contains of each output
	// stream. It must be positive.
	View int64
	// CapturesDisk is the maximum size in bytes of the captured output of all calls, above 0.
	CapturesDisk int64
	// CapturesKeep is how long output is retained after its last byte, above 0.
	CapturesKeep time.Duration
}

// MaxPerContainer is the capacity of one connection to an agent, in calls.
const MaxPerContainer = 4096

// Maximums that detect a mistyped number. Each running or queued call costs memory and descriptors.
const (
	maxConcurrent = 65536
	maxQueue      = 1000000
)

// Sandbox configures syncs from containers to the host.
type Sandbox struct {
	// Root is the directory that synced files are written to, absolute and clean; empty refuses every
	// sync. It is neither "/" nor inside the state directory, and it contains neither the state
	// directory, the configuration file nor the socket, which a tool could replace. Its owner and mode
	// are checked when it is opened.
	Root string
	// Sources are directories in containers that files may be fetched from, besides the workspace, its
	// bind mounts and /tmp: absolute and clean.
	Sources []string
	// MaxFile and MaxTotal are the maximum bytes of one file and of one sync, above 0.
	MaxFile, MaxTotal int64
	// MaxFiles is the maximum number of files and directories of one sync, from 1 to MaxSyncFiles;
	// MaxDepth that of directories between a file and the named path.
	MaxFiles, MaxDepth int
	// Timeout bounds one sync; it is above 0.
	Timeout time.Duration
	// Deny are additional names that are never written to Root: a name at any depth, or a sequence of
	// names separated by slashes.
	Deny []string
	// Executable keeps the executable bit of files.
	Executable bool
}

// MaxSyncFiles is the maximum of Sandbox.MaxFiles, because the record of a call names each file.
const MaxSyncFiles = 100000

// maxSyncDepth is more than a path of the kernel's maximum length can have.
const maxSyncDepth = 4096

// Host configures tools on the host.
type Host struct {
	// Env are names of variables of the daemon that host tools get too.
	Env []string
	// Roots are the directories where host tools may work, absolute and clean. They need not exist.
	Roots []string
}

// Routing is where calls run that do not say it themselves: "host", the name of a container, the
// name or the absolute directory of a workspace, or empty for no rule.
type Routing struct {
	Override string
	Fallback string
	// Plans are the rules of single plans, by plan id.
	Plans map[string]Plan
}

// Plan is the routing of one plan, as in Routing, and what its calls may use.
type Plan struct {
	Override string
	Fallback string
	Budget   Budget
}

// Budget is what the calls of a plan may use in total. Zero is unlimited.
type Budget struct {
	Calls int
	// Wall is the sum of the durations of the calls.
	Wall time.Duration
	// Bytes is the sum of what dray.Result.Bytes counts.
	Bytes int64
}

// maxBudgetCalls detects a mistyped number.
const maxBudgetCalls = 1_000_000_000

// Container is a named container. It has exactly one of Workspace, ID and Label.
type Container struct {
	// Workspace is an absolute, clean host directory.
	Workspace string
	// Config is the devcontainer.json of the workspace: absolute, or relative to the workspace; clean,
	// without "..".
	Config string
	// Service is a compose service of the workspace.
	Service string
	// ID is a full id or a name.
	ID string
	// Label is key=value.
	Label string
	// User and Folder, if not empty, replace the user and the working directory of calls.
	User   string
	Folder string
	// Mappings take precedence over those of the container's mounts.
	Mappings []Mapping
}

// Mapping maps a host directory to its path in the container. Both are absolute and clean, neither
// is "/", and neither contains the other; they may be equal.
type Mapping struct {
	Host      string
	Container string
}

// Environment is where a tool may run.
type Environment string

// The environments of a tool. "container" in the file means required.
const (
	EnvironmentAuto      Environment = "auto"
	EnvironmentHost      Environment = "host"
	EnvironmentRequired  Environment = "required"
	EnvironmentPreferred Environment = "preferred"
	EnvironmentSpecific  Environment = "specific"
)

// Tool is a command tool: a program that receives its input as arguments or as JSON on stdin.
type Tool struct {
	Name        string
	Description string
	// Argv has at least one element; the first is not empty. Elements may contain ${input.NAME}, which
	// may be invalid.
	Argv []string
	// Stdin is "input", "none", or empty: none if Argv takes a value of the input, else input.
	Stdin string
	// Env are variables of the process. They may be secrets.
	Env map[string]string
	// Cwd is "workspace", or "caller" or empty for the working directory of the call.
	Cwd string
	// SuccessCodes are the exit codes of a call that succeeded, from 0 to 255; empty is 0.
	SuccessCodes []int
	Capabilities Capabilities
	// Idempotent says that repeating a call has no further effect.
	Idempotent bool
	// InputSchema and OutputSchema are JSON objects with the keys and numbers of the file; nil if the
	// file has none. They may be invalid as schemas.
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage
	Environment  Environment
	// Container is the name for EnvironmentSpecific, else empty.
	Container string
	// Timeout is at most Limits.MaxTimeout; 0 means Limits.Timeout.
	Timeout time.Duration
	// Output is "text" or "json".
	Output string
	// Mapping is "schema", "heuristic", "none", or empty: schema if the schema marks a path, else
	// heuristic.
	Mapping string
	// Results are paths that are fetched when a call ends, clean, without "..": absolute, or relative
	// to the working directory of the call.
	Results []string
	// RewriteText is the default of rewrite_text for calls of the tool.
	RewriteText bool
}

// Capabilities are what a tool declares about its effects. ReadOnly excludes Unsafe and Writes.
type Capabilities struct {
	ReadOnly, Network, Unsafe, HumanApprovalRequired bool
	// Writes are patterns of the files that the tool writes.
	Writes []string
}

// Redact says what is a secret: matches of Patterns, which are regular expressions or names of
// built-in patterns, and values of the variables that Env names, with "*" for any characters.
type Redact struct {
	Patterns []string
	Env      []string
}

// Retry configures the attempts of calls of idempotent tools.
type Retry struct {
	// Attempts is the maximum number, from 1 to 10.
	Attempts int
	// Budget is the maximum time from the first failure until a later attempt has started, above 0.
	Budget time.Duration
}

// OnFailure is what becomes of calls while the audit log cannot be written.
type OnFailure string

// Refuse and degrade: with the latter calls run, and their records wait in memory.
const (
	OnFailureRefuse  OnFailure = "refuse"
	OnFailureDegrade OnFailure = "degrade"
)

// Audit configures the audit log.
type Audit struct {
	// Keep is how long records are retained after their call has ended; 0 is for ever.
	Keep      time.Duration
	Redact    Redact
	OnFailure OnFailure
	// DiskLow and DiskReserve are free space of the disk of the state directory, in bytes: below the
	// first a warning is logged, below the second new calls are refused.
	DiskLow, DiskReserve int64
}

// Policy configures which calls may run.
type Policy struct {
	// Files are policy files: absolute paths, or "builtin:default".
	Files []string
	// ApprovalLifetime is how long an approval can be decided and used, above 0.
	ApprovalLifetime time.Duration
}

// Breaker configures the circuit breakers of containers.
type Breaker struct {
	// Failures is the number of calls in a row that fail before a breaker opens, at least 1.
	Failures int
	// Open is how long calls are refused then, above 0.
	Open time.Duration
}

// Maximums that detect a mistyped number.
const (
	maxRetryAttempts   = 10
	maxBreakerFailures = 1_000_000
)

// Trust lists what may be built without asking.
type Trust struct {
	// Workspaces are trusted with any configuration: absolute, clean host directories.
	Workspaces []string
}

// MCP configures the Model Context Protocol.
type MCP struct {
	// View is the maximum size in bytes of each output stream in the result of a call.
	View int64
	// Servers are the MCP servers whose tools can be called, by name. A name neither contains two
	// underscores in a row nor ends with one, so the name of a tool shows its server.
	Servers map[string]MCPServer
}

// maxMCPServerName is the longest name of an MCP server in bytes.
const maxMCPServerName = 64

// MCPServer is an MCP server that speaks over its stdin and stdout.
type MCPServer struct {
	// Argv has at least one element; the first is not empty.
	Argv []string
	// Environment is EnvironmentHost, or EnvironmentRequired for the container of Workspace.
	Environment Environment
	// Workspace is an absolute, clean host directory.
	Workspace string
	// Env are variables of the process. They may be secrets.
	Env map[string]string
	// Capabilities are those of all its tools.
	Capabilities Capabilities
}
