package dray

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"syscall"
	"time"
)

// Environment is a place where processes run: the host, a container; later a remote engine or
// Kubernetes. Every implementation passes the suite of executor/executortest.
type Environment interface {
	// Start runs a process and returns once the kernel has accepted its program. It fails with
	// executable_not_found, not_executable, bad_cwd, bad_user, denied, or, where the place itself is
	// in trouble, container_unavailable, agent_lost or engine_unavailable; then nothing was started.
	// The context bounds the start alone, not the process.
	Start(ctx context.Context, spec ProcessSpec) (Process, error)
	// Files opens the environment's files beneath one folder, as the user that processes run as.
	Files(ctx context.Context, root string) (Files, error)
	// Capabilities say what this place can do and where its folders are on the host. They do not
	// change.
	Capabilities() Capabilities
}

// Capabilities describe an environment.
type Capabilities struct {
	Kind EnvironmentKind
	// ExactSurvivors says that after Process.Stop the survivors are known, not guessed.
	ExactSurvivors bool
	// BestEffortKill says that Process.Stop may have to leave something alive, which is then told by
	// its pid: who ends the processes has no right to signal those that became another user, and runs
	// as the tool's own, which can end it.
	BestEffortKill bool
	// TracksLeftovers says that what a process leaves running is found: ended and counted, or with
	// ProcessSpec.KeepLeftovers kept and named. Where it is not, all of it is kept, and nothing of it
	// known.
	TracksLeftovers bool
	// Signals says that Process.Signal reaches the process.
	Signals bool
	// NativeTerminals says that a terminal has its size before the process sees it, and that its end
	// of file and its last output arrive. Where it is not so, the terminal is the engine's own, which
	// gets its size a moment after the start.
	NativeTerminals bool
	// WorkspaceFolder is where calls run that name no folder: an absolute path in the environment.
	WorkspaceFolder string
	// Mounts lead from host folders to the environment's; empty on the host, where the paths are the
	// caller's own.
	Mounts []Mount
	// Container is filled for containers, without the figures of a single call.
	Container *ContainerMetadata
	// Warnings hold for every call in this environment.
	Warnings []string
}

// Mount is a host folder that the environment sees under another name. Both are absolute and clean.
// An empty Host is a folder of the environment that no host folder leads to (a volume, a tmpfs); it
// hides what is mounted around it.
type Mount struct {
	Host      string `json:"host"`
	Container string `json:"container"`
	// Configured says that configuration joins the two names, so that the files may be others.
	Configured bool `json:"configured,omitempty"`
}

// ProcessSpec is a process to start.
type ProcessSpec struct {
	// Argv is passed to the kernel byte for byte; Argv[0] without a slash is looked up in the
	// process's own PATH.
	Argv []string
	// Env is laid over the environment's own variables, below those that its configuration sets for
	// every tool.
	Env map[string]string
	// Dir is an absolute path in the environment; empty means Capabilities.WorkspaceFolder.
	Dir string
	// Grace is the time between TERM and KILL for what the leader leaves running; zero means KILL at
	// once.
	Grace time.Duration
	// KeepLeftovers leaves what the leader leaves running to the environment instead of ending it,
	// when the leader ends by itself.
	KeepLeftovers bool
	// Terminal gives the process a terminal of that size instead of three pipes; nil is none. What it
	// prints is one stream then, Stdout; closing Stdin is the terminal's end-of-file character.
	Terminal *TerminalSize
}

// TerminalSize is the size of a terminal, in characters.
type TerminalSize struct {
	Columns uint16 `json:"columns"`
	Rows    uint16 `json:"rows"`
}

// ErrNoTerminal is a Resize of a process without a terminal.
var ErrNoTerminal = errors.New("the process has no terminal")

// Process is a started process and all that descends from it. All methods may be used from several
// goroutines.
type Process interface {
	// Stdin is the process's stdin; Close is end of file. A process that does not read makes Write
	// wait; one that has ended makes it fail, which is no fault of the call.
	Stdin() io.WriteCloser
	// Output is one of the two streams. It must be read to its end: the process waits for its reader.
	// The end comes with the process's, at the latest shortly after Wait can return, whoever still
	// holds the stream open.
	Output(stream Stream) io.Reader
	// Signal sends one signal to the process itself.
	Signal(sig syscall.Signal) error
	// Resize changes the size of the process's terminal, and tells it by SIGWINCH. Without a terminal
	// it fails with ErrNoTerminal.
	Resize(size TerminalSize) error
	// Stop ends the process and every descendant: TERM, the grace, KILL. It returns at once; Wait
	// tells the outcome.
	Stop(grace time.Duration)
	// Wait waits until the process and its descendants are over, or are known not to go. An error
	// means that the end is not known: the agent, the container or the engine was lost.
	Wait() (Exit, error)
}

// Exit is how a process ended.
type Exit struct {
	// Code is the exit code if Signal is zero.
	Code   int
	Signal syscall.Signal
	// Leftover counts descendants that were alive when the leader ended and that were ended then.
	Leftover int
	// KeptPIDs are the pids of those descendants where ProcessSpec.KeepLeftovers left them running;
	// Leftover counts them.
	KeptPIDs  []int
	Survivors Survivors
	// OOM says whether the kernel killed the process because memory ran out.
	OOM OOM
}

// OOM is what is known of the kernel's out-of-memory killer at the end of a process.
type OOM int

// The answers. OOMLikely is a KILL that was not ours while the kernel's counter rose and other
// calls ran beside this one, so that it may have risen for one of them.
const (
	OOMNo OOM = iota
	OOMLikely
	OOMCertain
)

// Files are the files of an environment beneath one root. Names are slash-separated and relative to
// the root; links and ".." that lead out of it are refused with path_invalid, whoever swaps them
// meanwhile. Errors match fs.ErrNotExist and its kin.
type Files interface {
	// Stat describes what name is, without following a link at its end.
	Stat(name string) (FileInfo, error)
	// Open reads a regular file from an offset; a FIFO or device is refused.
	Open(name string, offset int64) (io.ReadCloser, FileInfo, error)
	// Create makes a new file, failing if the name exists.
	Create(name string, mode fs.FileMode) (io.WriteCloser, error)
	// Rename replaces newName by oldName in one step.
	Rename(oldName, newName string) error
	// Remove removes one file or empty folder.
	Remove(name string) error
	// List gives the entries of a folder by name, at most limit, and whether there were more.
	List(name string, limit int) (entries []FileInfo, more bool, err error)
	// ReadTree gives files and folders as a tree: regular files and folders only, decided on what was
	// opened; everything else comes as an entry that is refused. Names that are no clean relative
	// paths fail with path_invalid. The tree ends with the context, with the cause of that; it has to
	// be closed.
	ReadTree(ctx context.Context, what ReadTreeOptions) (Tree, error)
	// Walk visits name and all that lies beneath it: a folder before what it holds, names in the order
	// of their bytes. A link to name itself is followed, none beneath it is. A folder whose content
	// does not come has FileInfo.Refused: one that the user may not read, one deeper than 128, one of
	// over a million entries, and a file system of the kernel's own (/proc, /sys). A link's Target is
	// not told. What goes while the walk is under way is left out. visit may answer fs.SkipDir and
	// fs.SkipAll as for fs.WalkDir, and may use the Files; any other error ends the walk and is given
	// back, and so is the cause of the context's end.
	Walk(ctx context.Context, name string, visit func(name string, info FileInfo) error) error
	// WriteTree writes a tree beneath the root, all of it or, with an error, nothing: files 0600 or as
	// Placement says, new folders 0700, no set-id bits and no attributes. It gives the files in the
	// tree's order. Names that lead out, or through a link or another file system, and a file where a
	// folder is or the reverse, fail with path_invalid; else it is denied, disk_full, limit_exceeded,
	// transfer_failed, or what the tree ended with. What lies at a file's name and is no folder is
	// replaced. The end of the context ends it until it is committed.
	WriteTree(ctx context.Context, tree Tree, how WriteTreeOptions) ([]WrittenFile, error)
	// Close ends the access.
	Close() error
}

// FileInfo is one file as Files sees it.
type FileInfo struct {
	Name string `json:"name"`
	// Type is "file", "directory", "symlink" or "other".
	Type     string      `json:"type"`
	Size     int64       `json:"size"`
	Mode     fs.FileMode `json:"mode"`
	Modified time.Time   `json:"modified"`
	Target   string      `json:"target,omitempty"`
	// Refused is set by Walk alone, for a folder whose content does not come, and says why.
	Refused *Error `json:"-"`
}
