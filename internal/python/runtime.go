package python

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/dray-dev/dray"
)

// The names of the runtimes.
const (
	RuntimeContainer = "container"
	RuntimePyodide   = "pyodide"
)

// Runtime starts workers. It is safe for concurrent use.
type Runtime interface {
	Name() string
	Capabilities() Capabilities
	// Start starts a worker and returns once its hello was checked. It fails with helper_missing, with
	// a hint, if a program that it needs is missing, else with the codes of [dray.Environment]. If ctx
	// ends first, nothing is left of the worker.
	Start(ctx context.Context, spec WorkerSpec) (Worker, error)
}

// Capabilities is what a runtime can do. They are published in the description of the tool and by
// operation status. The tool refuses read_only, permissions and prepare with unsupported where they
// are missing.
type Capabilities struct {
	// Transactional says that files are changed if a run ends by itself, and not at all otherwise.
	Transactional bool `json:"transactional"`
	// ReadOnly says that read_only is supported. Permissions says that sessions have permissions, at
	// most those of the configuration; else they have those of their environment.
	ReadOnly    bool `json:"read_only"`
	Permissions bool `json:"permissions"`
	// InterruptKeepsState says that an interrupted session keeps its globals.
	InterruptKeepsState bool `json:"interrupt_keeps_state"`
	// Modules says that `python -m` works, Prepare that operation prepare does.
	Modules bool `json:"modules"`
	Prepare bool `json:"prepare"`
	// Broker says that `import dray` has read_text_file, fetch and call_tool.
	Broker bool `json:"broker"`
	// MemoryLimit and CPULimit say that the budgets are enforced.
	MemoryLimit bool `json:"memory_limit"`
	CPULimit    bool `json:"cpu_limit"`
}

// WorkerSpec is a worker to start.
type WorkerSpec struct {
	// Environment is where the runtime container runs. The runtime pyodide ignores it.
	Environment dray.Environment
	// Executable is the interpreter in the environment: absolute, or empty for python3 of the PATH.
	Executable string
	// Generation counts the workers of the session from 1.
	Generation uint32
	// Memory is the budget of the worker in bytes. Zero is no limit.
	Memory int64
	// Permissions are those of the session, complete. Nil means those of the environment.
	Permissions *Permissions
}

// Worker is one process of a session. It runs one request at a time.
type Worker interface {
	// Hello returns what the worker sent when it was ready.
	Hello() Hello
	// Execute starts a request, after the files of the workspace are staged if the runtime does that.
	// It fails if the worker has ended or runs one already, with the cause of ctx if ctx ends first,
	// and with the errors of staging: denied, limit_exceeded, bad_cwd, transfer_failed.
	Execute(ctx context.Context, req Request, files Workspace) (Execution, error)
	// Kill ends the worker with all its processes. It does not block.
	Kill()
	// Done is closed when the process and its descendants have ended. Exit then returns how.
	Done() <-chan struct{}
	Exit() (dray.Exit, error)
}

// Execution is a request that runs.
type Execution interface {
	// Stdin returns the stdin of the code, and Output what it writes to a stream. The caller must read
	// both streams to their ends, which come before the reply.
	Stdin() io.WriteCloser
	Output(stream dray.Stream) io.Reader
	// Interrupt raises KeyboardInterrupt in the code. It does not block.
	Interrupt()
	// Done is closed when the request has ended, by its reply or with the worker. Then Reply returns
	// the checked reply, or an error if there is none because the worker has ended.
	Done() <-chan struct{}
	Reply() (Reply, error)
}

// Committer is an Execution that changes files only by Commit.
// Sessions calls Commit at most once, after Done with a reply, and then Discard, once or more;
// until then the session runs nothing else.
type Committer interface {
	// Commit changes all files or, with an error, none.
	Commit(ctx context.Context) (FileChanges, error)
	// Discard drops what was not committed.
	Discard()
}

// FileChanges are the paths of files that a run changed, sorted, relative to the directory of the
// run.
type FileChanges struct {
	Created  []string `json:"created"`
	Modified []string `json:"modified"`
	Deleted  []string `json:"deleted"`
	// Audit has the same files for the audit log.
	Audit []dray.FileChange `json:"-"`
}

// Hello is what a worker reports about itself, checked.
type Hello struct {
	Python     string `json:"python"` // "3.11.2"
	Executable string `json:"executable"`
	Prefix     string `json:"prefix"`
	// StartMS is how long the worker took to be ready; the daemon measures it.
	StartMS float64 `json:"-"`
}

// State is whether a request uses the globals of the session.
type State string

// The states. Fresh globals are dropped after the call; loaded modules stay.
const (
	Persistent State = "persistent"
	Fresh      State = "fresh"
)

// Request is one run of code, as the worker gets it.
type Request struct {
	// Code is source text, File the absolute path of a file in the environment, and Module the name of
	// a module: exactly one of them is set. Name is what tracebacks call Code.
	Code   string `json:"code,omitempty"`
	File   string `json:"file,omitempty"`
	Module string `json:"module,omitempty"`
	Name   string `json:"name,omitempty"`
	// Argv is sys.argv without its first element.
	Argv []string `json:"argv"`
	// Inputs are variables that the code gets, Globals the names of those to return.
	Inputs  map[string]json.RawMessage `json:"inputs,omitempty"`
	Globals []string                   `json:"globals,omitempty"`
	State   State                      `json:"state"`
	// Cwd is absolute, in the environment. Env are variables for this call.
	Cwd string            `json:"cwd"`
	Env map[string]string `json:"env,omitempty"`
	// CPU is the budget of processor time. Zero is no limit.
	CPU      time.Duration `json:"cpu_ns,omitempty"`
	ReadOnly bool          `json:"read_only,omitempty"`
	// Services are those of the module dray, for runtimes with the capability Broker.
	Services Services `json:"-"`
}

// Reply is how a request ended, after [checkReply].
type Reply struct {
	OK   bool `json:"ok"`
	Code int  `json:"code"`
	// Value and Globals are JSON or tagged values, within the limits of PY-05.
	Value   json.RawMessage            `json:"value,omitempty"`
	Globals map[string]json.RawMessage `json:"globals,omitempty"`
	// Missing are the names in Request.Globals that have no value.
	Missing []string `json:"missing,omitempty"`
	Error   *Failure `json:"error,omitempty"`
	Usage   Usage    `json:"usage"`
	// CPULimit says that the code was ended because it used up Request.CPU. The runtime sets it, not
	// the process that runs the code.
	CPULimit bool `json:"-"`
}

// Failure is an exception, or the reason why the code was not run.
type Failure struct {
	// Code is a code of the closed list or one of those of Python alone (PY-05, PY-12). It is empty
	// for an exception.
	Code      string `json:"code,omitempty"`
	Message   string `json:"message"`
	Traceback string `json:"traceback,omitempty"`
}

// Usage is what a call used. The worker reports it, and user code can forge it.
type Usage struct {
	WallMS      float64 `json:"wall_ms"`
	CPUMS       float64 `json:"cpu_ms"`
	MemoryBytes int64   `json:"memory_bytes"`
}
