package dray

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"syscall"
	"time"
)

// Environment is where processes run: the host, a container, later a Kubernetes pod. Every
// implementation passes the suite of executor/executortest.
type Environment interface {
	// Start starts a process and returns once the kernel has accepted its program. It fails with
	// executable_not_found, not_executable, bad_cwd, bad_user or denied, or with
	// container_unavailable, agent_lost or engine_unavailable if the environment itself is not
	// available; then nothing was started. ctx bounds the start, not the process.
	Start(ctx context.Context, spec ProcessSpec) (Process, error)
	// Files opens the files beneath one directory, as the user that processes run as.
	Files(ctx context.Context, root string) (Files, error)
	// Capabilities returns what the environment can do and where its directories are on the host. The
	// result does not change.
	Capabilities() Capabilities
}

// Capabilities describe an environment.
type Capabilities struct {
	Kind EnvironmentKind
	// ExactSurvivors reports whether the survivors of Process.Stop are known rather than guessed.
	ExactSurvivors bool
	// BestEffortKill reports whether Process.Stop may be unable to end every process. The agent then
	// runs as the user of the tool: it cannot signal the processes of other users, and the tool can
	// kill it. Survivors are reported by pid.
	BestEffortKill bool
	// TracksLeftovers reports whether leftover processes are found: killed and counted, or with
	// ProcessSpec.KeepLeftovers listed. Otherwise all of them keep running, and none is reported.
	TracksLeftovers bool
	// Signals reports whether Process.Signal reaches the process.
	Signals bool
	// NativeTerminals reports whether a terminal has its size before the process starts, and whether
	// its end of file and last output arrive. Otherwise the terminal is the engine's, which gets its
	// size shortly after the start.
	NativeTerminals bool
	// WorkspaceFolder is the working directory of calls that name none: an absolute path in the
	// environment.
	WorkspaceFolder string
	// Mounts lead from directories of the host to those of the environment. They are empty on the
	// host, whose paths are the caller's.
	Mounts []Mount
	// Container is set for containers, without the figures of a single call.
	Container *ContainerMetadata
	// RefusesVariable reports whether a process here must not get a variable from its caller (EX-06).
	// Nil refuses none.
	RefusesVariable func(name string) bool
	// Warnings hold for every call in this environment.
	Warnings []string
}

// Mount is a directory of the host that has another path in the environment. Both paths are
// absolute and clean. An empty Host means that no directory of the host corresponds to Container,
// which is a volume or a tmpfs; it hides what is mounted around it.
type Mount struct {
	Host      string `json:"host"`
	Container string `json:"container"`
	// Configured means that the configuration declares the mount, so the files may differ.
	Configured bool `json:"configured,omitempty"`
}

// ProcessSpec is a process to start.
type ProcessSpec struct {
	// Argv is passed to the kernel byte for byte. Argv[0] without a slash is looked up in the PATH of
	// the process.
	Argv []string
	// Env overrides the variables of the environment, except those that the configuration sets for
	// every tool.
	Env map[string]string
	// Dir is an absolute path in the environment. Empty is Capabilities.WorkspaceFolder.
	Dir string
	// RealDir is the path without symlinks that Dir must lead to. If it leads elsewhere, the start
	// fails with bad_cwd. Empty is anywhere. The engine's exec, without an agent, does not check it.
	RealDir string
	// Grace is the time between TERM and KILL for leftover processes. Zero sends KILL at once.
	Grace time.Duration
	// KeepLeftovers lets leftover processes run on when the leader exits by itself.
	KeepLeftovers bool
	// CallID is the id of the call that the process belongs to. The process gets it as DRAY_CALL_ID,
	// and an empty directory of its own as DRAY_RESULTS (EX-23). Empty is a process of no call.
	CallID string
	// Terminal is the size of the terminal that the process gets in place of three pipes. Nil is
	// pipes. With a terminal all output is on Stdout, and closing Stdin sends the end-of-file
	// character.
	Terminal *TerminalSize
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Columns uint16 `json:"columns"`
	Rows    uint16 `json:"rows"`
}

// ErrNoTerminal is returned by Process.Resize for a process without a terminal.
var ErrNoTerminal = errors.New("the process has no terminal")

// Process is a started process with all its descendants. It is safe for concurrent use.
type Process interface {
	// Stdin returns the stdin of the process; Close is end of file. Write blocks while the process
	// does not read, and fails once the process has exited, which is not an error of the call.
	Stdin() io.WriteCloser
	// Output returns one of the two streams. The caller must read it to its end, because an unread
	// stream blocks the process. The stream ends shortly after Wait can return at the latest, even if
	// another process still holds it open.
	Output(stream Stream) io.Reader
	// Signal sends a signal to the process, not to its descendants.
	Signal(sig syscall.Signal) error
	// Resize changes the size of the terminal, which sends SIGWINCH. Without a terminal it fails with
	// ErrNoTerminal.
	Resize(size TerminalSize) error
	// Stop ends the process and every descendant with TERM, and after grace with KILL. It does not
	// block; Wait returns the outcome.
	Stop(grace time.Duration)
	// Wait blocks until the process and its descendants have exited, or have survived KILL. An error
	// means that the exit status is unknown: the agent, the container or the engine was lost.
	Wait() (Exit, error)
}

// Exit is how a process ended.
type Exit struct {
	// Code is the exit code if Signal is zero.
	Code   int
	Signal syscall.Signal
	// Leftover is the number of descendants that were alive when the leader exited.
	Leftover int
	// KeptPIDs are the pids of the descendants that ProcessSpec.KeepLeftovers left running. Leftover
	// includes them.
	KeptPIDs  []int
	Survivors Survivors
	// OOM reports whether the kernel killed the process because memory ran out.
	OOM OOM
	// Results is the directory of ProcessSpec.CallID. It is nil if there is nothing in it; then it is
	// removed already.
	Results *ResultsDir
	// SessionState is the content of the file SessionStateName in that directory, which is removed. It
	// is empty if there was none, or none of at most MaxSessionState bytes.
	SessionState []byte
}

const (
	// SessionStateName is the name of the file in DRAY_RESULTS in which the shell of a session leaves
	// its working directory and variables when it exits (SS-01).
	SessionStateName = ".dray-session"
	// MaxSessionState bounds that file, in bytes.
	MaxSessionState = 192 << 10
)

// The variables of a process that belongs to a call (EX-23). Those of the context are set if it has
// the id. The dray command reads them, so that a nested call has the same context (RT-10).
const (
	EnvCallID    = "DRAY_CALL_ID"
	EnvResults   = "DRAY_RESULTS"
	EnvPlanID    = "DRAY_PLAN_ID"
	EnvSessionID = "DRAY_SESSION_ID"
	EnvSandboxID = "DRAY_SANDBOX_ID"
)

// ResultsDir is a directory with the result files of one process, which has ended.
type ResultsDir struct {
	// Path is absolute, in the environment of the process. Its parent can only be changed by dray.
	Path string
	// Remove removes the directory with its content. It does not fail: what cannot be removed now is
	// removed when the agent or the daemon starts again.
	Remove func()
}

// OOM is what is known about the kernel's out-of-memory killer at the exit of a process.
type OOM int

// The values of OOM. OOMLikely is a KILL that dray did not send, while the kernel's counter rose
// and other calls ran beside this one: the counter may have risen for one of them.
const (
	OOMNo OOM = iota
	OOMLikely
	OOMCertain
)

// Files are the files of an environment beneath one root. Names are slash-separated and relative to
// the root. A symlink or ".." that leads out of the root fails with path_invalid, even if another
// process swaps symlinks meanwhile. Errors match fs.ErrNotExist, fs.ErrExist and fs.ErrPermission.
type Files interface {
	// Stat describes name and does not follow a symlink at its end.
	Stat(name string) (FileInfo, error)
	// Open opens a regular file for reading at an offset in bytes. It refuses a FIFO and a device.
	Open(name string, offset int64) (io.ReadCloser, FileInfo, error)
	// Create creates a file. It fails if the name exists.
	Create(name string, mode fs.FileMode) (io.WriteCloser, error)
	// Rename atomically replaces newName by oldName.
	Rename(oldName, newName string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// List returns at most limit entries of a directory by name, and whether there are more.
	List(name string, limit int) (entries []FileInfo, more bool, err error)
	// ReadTree reads files and directories as a tree. Only regular files and directories are read, as
	// found on the opened file; every other entry is refused. It fails with path_invalid for a name
	// that is not a clean relative path. The tree ends with the cause of ctx when ctx ends. The caller
	// closes the tree.
	ReadTree(ctx context.Context, what ReadTreeOptions) (Tree, error)
	// Walk visits name and everything beneath it: a directory before its entries, names in byte order.
	// It follows a symlink at name and none beneath it, and leaves Target empty. Entries that vanish
	// meanwhile are skipped. FileInfo.Refused is set for a directory whose entries are not visited:
	// unreadable, deeper than 128, with over a million entries, or of a kernel file system (/proc,
	// /sys). visit may return fs.SkipDir and fs.SkipAll as for fs.WalkDir, and may use the Files. Any
	// other error ends the walk and is returned, as is the cause of ctx.
	Walk(ctx context.Context, name string, visit func(name string, info FileInfo) error) error
	// WriteTree writes a tree beneath the root: all of it or, with an error, nothing. Files get mode
	// 0600 or as WriteTreeOptions says, new directories 0700; set-id bits and attributes are dropped.
	// It returns the files in the order of the tree, then the deleted ones. It replaces what is at the
	// name of a file, except a directory. A name that leads out of the root, through a symlink or into
	// another file system, and a file in place of a directory or the reverse, fail with path_invalid.
	// Other codes are denied, disk_full, limit_exceeded, transfer_failed, those of the tree, and for
	// WriteTreeOptions.Expect conflict and unsupported. The end of ctx ends it until it is committed.
	WriteTree(ctx context.Context, tree Tree, how WriteTreeOptions) ([]WrittenFile, error)
	// Close ends the access.
	Close() error
}

// FileInfo describes one file.
type FileInfo struct {
	Name string `json:"name"`
	// Type is "file", "directory", "symlink" or "other".
	Type     string      `json:"type"`
	Size     int64       `json:"size"` // in bytes
	Mode     fs.FileMode `json:"mode"`
	Modified time.Time   `json:"modified"`
	Target   string      `json:"target,omitempty"` // of a symlink
	// Refused is set by Walk for a directory whose entries are not visited, and says why.
	Refused *Error `json:"-"`
}
