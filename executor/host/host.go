// Package host is the host environment: allowed directories, a built environment, and supervised
// processes.
//
// A tool on the host runs as the daemon's user. It is restricted to directories beneath host.roots
// as working directories, it gets none of the daemon's variables, and it can be stopped with all
// its descendants. It is not sandboxed.
package host

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/cgroup"
	"github.com/dray-dev/dray/executor/files"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/lexical"
)

// Config is the configuration of the host environment.
type Config struct {
	// Roots are the directories where tools may work, clean and absolute. Without roots no process is
	// started on the host.
	Roots []string
	// Env has the names of variables of the daemon that are passed to tools.
	Env []string
	// Homes is the directory of the private HOME of each workspace, and of the directories for result
	// files of calls.
	Homes string
	// Commits is the directory that records commits with expectations; see [files.Commits]. Empty
	// records none.
	Commits string
	// ConfigFile is the configuration file, for hints.
	ConfigFile string
}

// Host is this machine. It is safe for concurrent use.
type Host struct {
	cfg     Config
	pool    *process.Pool
	results func() (*files.ResultsDirs, error) // opens them once
}

// New returns a host that starts processes in a pool. The caller closes the pool, then the host.
func New(cfg Config, pool *process.Pool) *Host {
	return &Host{cfg: cfg, pool: pool, results: sync.OnceValues(func() (*files.ResultsDirs, error) {
		if err := os.MkdirAll(cfg.Homes, 0o700); err != nil {
			return nil, err
		}
		return files.OpenResultsDirs(cfg.Homes)
	})}
}

// Close removes the directories for result files.
func (h *Host) Close() error {
	results, err := h.results()
	if err != nil {
		return nil //nolint:nilerr // there are none
	}
	return results.Close()
}

// Environment returns the host as the environment of calls in a directory: the workspace or working
// directory. Empty means the first root.
func (h *Host) Environment(dir string) dray.Environment {
	return &environment{host: h, dir: h.orFirstRoot(dir)}
}

func (h *Host) orFirstRoot(dir string) string {
	if dir == "" && len(h.cfg.Roots) > 0 {
		return h.cfg.Roots[0]
	}
	return dir
}

type environment struct {
	host *Host
	dir  string
}

// Capabilities implements dray.Environment.
func (e *environment) Capabilities() dray.Capabilities {
	return dray.Capabilities{
		Kind: dray.KindHost, ExactSurvivors: true, BestEffortKill: os.Geteuid() != 0,
		TracksLeftovers: true, Signals: true, NativeTerminals: true, WorkspaceFolder: e.dir,
		RefusesVariable: isForbiddenEnv,
	}
}

// Start runs a process in a directory beneath a root.
func (e *environment) Start(ctx context.Context, spec dray.ProcessSpec) (dray.Process, error) {
	dir := cmp.Or(spec.Dir, e.dir)
	opened, err := e.host.enter(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.Close() }()
	env, err := e.variables(dir, spec)
	if err != nil {
		return nil, err
	}
	results, warnings := e.host.makeResults(spec)
	proc, err := e.host.pool.Start(ctx, process.Spec{
		Argv: spec.Argv, Env: process.CallEnv(env, spec.CallID, results), Dir: procFDPath(opened),
		RealDir: spec.RealDir, Grace: spec.Grace, Keep: spec.KeepLeftovers, Terminal: spec.Terminal,
	})
	if err != nil {
		e.host.removeResults(results)
		return nil, process.WrapStartError(err, dir)
	}
	return &hostProcess{process.Adapt(proc), e.host, results, warnings}, nil
}

// hostProcess is a process with a directory for result files; results is empty for none.
type hostProcess struct {
	dray.Process
	host     *Host
	results  string
	warnings []string
}

// Warnings reports that the process has no DRAY_RESULTS.
func (p *hostProcess) Warnings() []string { return p.warnings }

// Wait removes the directory for result files if it is empty.
func (p *hostProcess) Wait() (dray.Exit, error) {
	exit, err := p.Process.Wait()
	if p.results == "" {
		return exit, err
	}
	dirs, _ := p.host.results() // it did not fail at the start
	var empty bool
	if exit.SessionState, empty = dirs.TakeSessionState(p.results); !empty {
		exit.Results = &dray.ResultsDir{
			Path: p.results, Remove: func() { p.host.removeResults(p.results) },
		}
	}
	return exit, err
}

// makeResults makes the directory for the result files of a call.
func (h *Host) makeResults(spec dray.ProcessSpec) (dir string, warnings []string) {
	if spec.CallID == "" {
		return "", nil
	}
	dirs, err := h.results()
	if err == nil {
		dir, err = dirs.Make(os.Geteuid(), os.Getegid())
	}
	if err != nil {
		return "", []string{"the tool has no DRAY_RESULTS: " + err.Error()}
	}
	return dir, nil
}

func (h *Host) removeResults(dir string) {
	if dirs, err := h.results(); err == nil && dir != "" {
		_ = dirs.Remove(dir) // the end of the daemon, or the next one, removes the rest
	}
}

// procFDPath returns a path by which the supervisor, another process, enters exactly this open
// directory.
func procFDPath(f *os.File) string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
}

// enter opens a working directory. It must be beneath a root after symlinks are resolved.
func (h *Host) enter(dir string) (*os.File, error) {
	if dir == "" {
		return nil, h.denied("the call names no directory on the host")
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
		return nil, h.denied("no tool may run on the host in %s: it is outside host.roots", dir)
	case process.IsResourceLimit(failure):
		return nil, resourceLimit("enter the working directory "+dir, failure)
	case errors.Is(failure, fs.ErrNotExist):
		return nil, dray.Errorf(dray.CodeBadCwd, "the working directory %s does not exist", dir).
			WithHint("use a cwd that exists")
	default:
		return nil, dray.Errorf(dray.CodeBadCwd, "enter the working directory %s: %w", dir, failure).
			WithHint("use a directory whose symlinks stay beneath host.roots")
	}
}

func (h *Host) denied(format string, args ...any) *dray.Error {
	return dray.Errorf(dray.CodeDenied, format, args...).
		WithHint("add the directory to host.roots in %s and run `dray stop`, or run the tool in a "+
			"container", cmp.Or(h.cfg.ConfigFile, "the configuration"))
}

func resourceLimit(doing string, err error) *dray.Error {
	return dray.Errorf(dray.CodeLimitExceeded, "%s: %w", doing, err).
		WithHint("the daemon has no more file descriptors: run fewer calls at once, or raise its " +
			"limit (ulimit -n)")
}

func openBeneath(root, rel string) (*os.File, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	// a FIFO must not block
	return r.OpenFile(rel, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
}

// Check returns the error with which Start would fail for a directory. Empty means the first root.
func (h *Host) Check(dir string) error {
	f, err := h.enter(h.orFirstRoot(dir))
	if err != nil {
		return err
	}
	return f.Close()
}

// Files opens a directory: writable if it is beneath a root, else read-only. Writable files are
// opened through the fd that was found beneath the root.
func (e *environment) Files(_ context.Context, root string) (dray.Files, error) {
	if f, err := e.host.enter(root); err == nil {
		defer func() { _ = f.Close() }()
		local, err := openFiles(procFDPath(f), root)
		if err != nil {
			return nil, err // a nil *Local is no nil Files
		}
		if e.host.cfg.Commits == "" {
			return beneathRoots{local}, nil
		}
		return beneathRoots{files.NewCommits(e.host.cfg.Commits).Files(local)}, nil
	}
	local, err := openFiles(root, root)
	if err != nil {
		return nil, err
	}
	return readOnly{local, e.host, root}, nil
}

// openFiles opens a directory that callers know by another name.
func openFiles(path, name string) (*files.Local, error) {
	local, err := files.Open(path)
	switch {
	case process.IsResourceLimit(err):
		return nil, resourceLimit("open the directory "+name, err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, dray.Errorf(dray.CodeBadCwd, "the directory %s does not exist", name).
			WithHint("use a workspace or cwd that exists")
	case err != nil:
		return nil, dray.Errorf(dray.CodeBadCwd, "open the directory %s: %w", name, err).
			WithHint("use a directory that the daemon's user may enter")
	}
	return local, nil
}

// variables returns the environment variables of a tool: those of the daemon, PATH too, only if the
// configuration names them.
func (e *environment) variables(dir string, spec dray.ProcessSpec) ([]string, error) {
	home, err := e.host.home(e.dir)
	if err != nil {
		return nil, err
	}
	vars := map[string]string{
		"PATH": process.DefaultPath, "HOME": home, "PWD": dir, "LANG": "C.UTF-8", "TERM": "dumb",
	}
	passed := []string{"LANG", "TERM", "TZ"}
	if spec.Terminal != nil { // not the terminal of the daemon
		vars["TERM"], passed = "xterm", []string{"LANG", "TZ"}
	}
	for _, name := range append(passed, e.host.cfg.Env...) {
		if v, ok := os.LookupEnv(name); ok {
			vars[name] = v
		}
	}
	for name, value := range spec.Env {
		if isForbiddenEnv(name) {
			return nil, dray.Errorf(dray.CodeDenied,
				"the variable %s must not be set for a tool on the host", name).
				WithHint("omit it, since it could run code or redirect tools there; or run the tool in a " +
					"container")
		}
		vars[name] = value
	}
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	return env, nil
}

// home returns the private HOME of a workspace, which it creates with mode 0700.
func (h *Host) home(dir string) (string, error) {
	sum := sha256.Sum256([]byte(dir))
	home := filepath.Join(h.cfg.Homes, hex.EncodeToString(sum[:])[:16])
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", fmt.Errorf("create the private home: %w", err)
	}
	return home, nil
}

// WithCgroups returns config with a cgroup for each supervisor, beneath the cgroup of this program.
// A tool on the host runs as the daemon's user and can kill its supervisor; its leftovers are then
// killed through the cgroup, and verified. If no cgroups can be created, config is returned
// unchanged with an error. The caller calls the function after it closed the pool, also after an
// error.
func WithCgroups(config process.SupervisorConfig) (process.SupervisorConfig, func(), error) {
	path, err := cgroup.SelfPath()
	if err != nil {
		return config, func() {}, fmt.Errorf("find the daemon's cgroup: %w", err)
	}
	manager, err := cgroup.NewManager(path)
	if err != nil {
		return config, func() {}, err
	}
	config.Cgroup = func() *process.Cgroup {
		g, err := manager.NewGroup()
		if err != nil {
			return nil // leftovers of this supervisor cannot be verified
		}
		return g
	}
	return config, func() { _ = manager.Close() }, nil // the next daemon removes what remains
}

// readFiles has the operations of files that change nothing. It makes the compiler report new
// operations, which readOnly must deny.
type readFiles interface {
	Stat(name string) (dray.FileInfo, error)
	Open(name string, offset int64) (io.ReadCloser, dray.FileInfo, error)
	List(name string, limit int) ([]dray.FileInfo, bool, error)
	ReadTree(ctx context.Context, what dray.ReadTreeOptions) (dray.Tree, error)
	Walk(ctx context.Context, name string, visit func(string, dray.FileInfo) error) error
	RealPath() (string, error)
	Close() error
}

// hostFiles have a real path too, which is read from the open directory.
type hostFiles interface {
	dray.Files
	RealPath() (string, error)
}

// beneathRoots has the files of a directory beneath a root.
type beneathRoots struct{ hostFiles }

// OutsideRoots returns nil: host.roots permits all uses.
func (beneathRoots) OutsideRoots() error { return nil }

// readOnly has the files of a directory outside all roots.
type readOnly struct {
	readFiles
	host *Host
	root string
}

// OutsideRoots returns the error for uses that host.roots bounds for reading too.
func (r readOnly) OutsideRoots() error {
	return r.host.denied("nothing may be read on the host in %s: it is outside host.roots", r.root)
}

func (r readOnly) denyWrite() error {
	return r.host.denied("nothing may be changed on the host in %s: it is outside host.roots", r.root)
}

func (r readOnly) Create(string, fs.FileMode) (io.WriteCloser, error) { return nil, r.denyWrite() }

func (r readOnly) Rename(string, string) error { return r.denyWrite() }

func (r readOnly) Remove(string) error { return r.denyWrite() }

func (r readOnly) WriteTree(context.Context, dray.Tree, dray.WriteTreeOptions,
) ([]dray.WrittenFile, error) {
	return nil, r.denyWrite()
}
