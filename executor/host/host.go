package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/cgroup"
	"github.com/dray-dev/dray/executor/files"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/lexical"
)

// Config is what the host is allowed.
type Config struct {
	// Roots are the folders where tools may work; clean, absolute. None: no process is started on the
	// host.
	Roots []string
	// Env names variables of the daemon that tools get too.
	Env []string
	// Homes is the folder for the private HOME of each workspace.
	Homes string
}

// Host makes environments for folders on this machine.
type Host struct {
	cfg  Config
	pool *process.Pool
}

// New makes a host on a pool of processes, which stays the caller's.
func New(cfg Config, pool *process.Pool) *Host { return &Host{cfg: cfg, pool: pool} }

// Environment is the host as seen by calls in a folder, the workspace or the working folder of a
// call. Empty means the first root.
func (h *Host) Environment(folder string) dray.Environment {
	if folder == "" && len(h.cfg.Roots) > 0 {
		folder = h.cfg.Roots[0]
	}
	return &environment{host: h, folder: folder}
}

type environment struct {
	host   *Host
	folder string
}

// Capabilities of the host: paths are the caller's own.
func (e *environment) Capabilities() dray.Capabilities {
	return dray.Capabilities{
		Kind: dray.KindHost, ExactSurvivors: true,
		BestEffortKill: os.Geteuid() != 0, TracksLeftovers: true, Signals: true, NativeTerminals: true, WorkspaceFolder: e.folder,
	}
}

// Start runs a process in an allowed folder.
func (e *environment) Start(ctx context.Context, spec dray.ProcessSpec) (dray.Process, error) {
	dir := spec.Dir
	if dir == "" {
		dir = e.folder
	}
	folder, err := e.host.enter(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	env, err := e.variables(dir, spec)
	if err != nil {
		return nil, err
	}
	proc, err := e.host.pool.Start(ctx, process.Spec{
		Argv: spec.Argv, Env: env, Dir: procFDPath(folder), Grace: spec.Grace, Keep: spec.KeepLeftovers, Terminal: spec.Terminal,
	})
	if err != nil {
		return nil, process.WrapStartError(err, dir)
	}
	return process.Adapt(proc), nil
}

// procFDPath names an open folder so that the supervisor, another process, enters this very folder,
// whatever stands at its path by then.
func procFDPath(f *os.File) string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
}

// enter opens a working folder that lies, links followed, beneath a root.
func (h *Host) enter(dir string) (*os.File, error) {
	if dir == "" {
		return nil, denied("the call names no folder on the host")
	}
	var failure error
	for _, root := range h.cfg.Roots {
		rel, ok := lexical.Rel(root, dir)
		if !ok {
			continue
		}
		f, err := openBeneath(root, rel)
		if err == nil {
			return f, nil
		}
		failure = err
	}
	switch {
	case failure == nil:
		return nil, denied("no tool may run on the host in %s: it lies outside host.roots", dir)
	case errors.Is(failure, fs.ErrNotExist):
		return nil, dray.Errorf(dray.CodeBadCwd, "the working folder %s does not exist", dir).
			WithHint("give a cwd that exists")
	default:
		return nil, dray.Errorf(dray.CodeBadCwd, "the working folder %s cannot be entered: %w", dir,
			failure).
			WithHint("give a folder whose links stay beneath host.roots")
	}
}

func denied(format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeDenied, format, args...).
		WithHint("add the folder to host.roots in the configuration, or run the tool in a container")
}

func openBeneath(root, rel string) (*os.File, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	// a FIFO in its place must not hold us
	return r.OpenFile(rel, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
}

// Check says whether a process may be started in a folder, without starting one. Empty means the
// first root.
func (h *Host) Check(dir string) error {
	if dir == "" && len(h.cfg.Roots) > 0 {
		dir = h.cfg.Roots[0]
	}
	f, err := h.enter(dir)
	if err != nil {
		return err
	}
	return f.Close()
}

// Files opens a folder: to be changed if it lies beneath a root, else for reading alone. What may
// be changed is the very folder that was found beneath a root, whatever stands at its path by then.
func (e *environment) Files(_ context.Context, root string) (dray.Files, error) {
	if f, err := e.host.enter(root); err == nil {
		defer func() { _ = f.Close() }()
		return openFiles(procFDPath(f), root)
	}
	local, err := openFiles(root, root)
	if err != nil {
		return nil, err
	}
	return readOnly{local, root}, nil
}

// openFiles opens a folder that callers know by another name.
func openFiles(path, name string) (*files.Local, error) {
	local, err := files.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, dray.Errorf(dray.CodeBadCwd, "the folder %s does not exist", name).
			WithHint("give a workspace or cwd that exists")
	case err != nil:
		return nil, dray.Errorf(dray.CodeBadCwd, "the folder %s cannot be opened: %w", name, err).
			WithHint("give a folder that the daemon's user may enter")
	}
	return local, nil
}

// variables builds the environment of a host tool: nothing of the daemon's but what configuration
// names.
func (e *environment) variables(dir string, spec dray.ProcessSpec) ([]string, error) {
	home, err := e.host.home(e.folder)
	if err != nil {
		return nil, err
	}
	vars := map[string]string{
		"PATH": fixedPath, "HOME": home, "PWD": dir, "LANG": "C.UTF-8",
		"TERM": "dumb",
	}
	passed := []string{"LANG", "TERM", "TZ"}
	if spec.Terminal != nil { // the tool's terminal is not the one that the daemon was started from
		vars["TERM"], passed = "xterm", []string{"LANG", "TZ"}
	}
	for _, name := range append(passed, e.host.cfg.Env...) {
		if v, ok := os.LookupEnv(name); ok {
			vars[name] = v
		}
	}
	for name, value := range spec.Env {
		if isForbiddenEnv(name) {
			return nil, dray.Errorf(dray.CodeDenied, "the variable %s may not be set for a tool on the host",
				name).
				WithHint("it could run code or redirect tools there; leave it out, or run the tool in a container")
		}
		vars[name] = value
	}
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	return env, nil
}

// fixedPath is where host tools are looked up, whatever the daemon's own PATH; host.env may name
// PATH to pass that one on.
const fixedPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// isForbiddenEnv are variables through which a caller could run code on the host or redirect its
// tools (EX-06). PATH and HOME are among them: the one is fixed and the other private, and both
// decide what a configured tool really runs.
func isForbiddenEnv(name string) bool {
	switch name {
	case "", "BASH_ENV", "ENV", "PAGER", "PATH", "HOME":
		return true
	}
	for _, prefix := range []string{"LD_", "GIT_", "DOCKER_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return strings.ContainsAny(name, "=\x00")
}

// home is the private HOME of a workspace: 0700, under the state folder, never the daemon's own.
func (h *Host) home(folder string) (string, error) {
	sum := sha256.Sum256([]byte(folder))
	dir := filepath.Join(h.cfg.Homes, hex.EncodeToString(sum[:])[:16])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("making the private home: %w", err)
	}
	return dir, nil
}

// WithCgroups has every supervisor of a pool on this machine live in a group of the unified
// hierarchy, beneath this program's own: a host tool runs as the daemon's user and can kill its
// supervisor, and what it leaves then is ended through the group, with proof. Where this program
// may make no groups the launch is as it was, the error says why, and such an end proves nothing.
// The function gives the groups up; it is called, and may be, whatever the error, after the pool
// was closed.
func WithCgroups(launch process.SupervisorConfig) (process.SupervisorConfig, func(), error) {
	folder, err := cgroup.SelfPath()
	if err != nil {
		return launch, func() {}, fmt.Errorf("finding the daemon's own group: %w", err)
	}
	tree, err := cgroup.NewManager(folder)
	if err != nil {
		return launch, func() {}, err
	}
	launch.Cgroup = func() *process.Cgroup {
		g, err := tree.NewGroup()
		if err != nil {
			return nil // such a supervisor has none, and what its loss leaves is not proved to be gone
		}
		return g
	}
	// what cannot be removed goes with the next daemon's sweep
	return launch, func() { _ = tree.Close() }, nil
}

// readFiles are the operations of dray.Files that change nothing. Others are not had by embedding
// it, so that one that is new has to be refused here before this compiles.
type readFiles interface {
	Stat(name string) (dray.FileInfo, error)
	Open(name string, offset int64) (io.ReadCloser, dray.FileInfo, error)
	List(name string, limit int) ([]dray.FileInfo, bool, error)
	ReadTree(ctx context.Context, what dray.ReadTreeOptions) (dray.Tree, error)
	Walk(ctx context.Context, name string, visit func(string, dray.FileInfo) error) error
	Close() error
}

// readOnly are the files of a folder outside every root: they may be looked at.
type readOnly struct {
	readFiles
	root string
}

func (r readOnly) denyWrite() error {
	return denied("nothing may be changed on the host in %s: it lies outside host.roots", r.root)
}

// Create is denied.
func (r readOnly) Create(string, fs.FileMode) (io.WriteCloser, error) { return nil, r.denyWrite() }

// Rename is denied.
func (r readOnly) Rename(string, string) error { return r.denyWrite() }

// Remove is denied.
func (r readOnly) Remove(string) error { return r.denyWrite() }

// WriteTree is denied, also when it would write nothing.
func (r readOnly) WriteTree(context.Context, dray.Tree, dray.WriteTreeOptions) ([]dray.WrittenFile,
	error,
) {
	return nil, r.denyWrite()
}
