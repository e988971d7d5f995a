package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
)

// Config is the configuration of a Syncer.
type Config struct {
	// Root is the sandbox root, an absolute and clean path. Without one, every sync to the host is
	// refused.
	Root string
	// Sources are directories of containers, absolute and clean, from which files may be copied, in
	// addition to the workspace folder, bind mounts and /tmp.
	Sources []string
	// Limits bound one sync. Zero is unlimited.
	Limits dray.TreeLimits
	// Timeout bounds one sync. It must be positive.
	Timeout time.Duration
	// Deny has names that are refused in addition to the built-in ones: a name without a slash at any
	// depth, or a sequence of names.
	Deny []string
	// Executable gives files with an x bit the mode 0700 instead of 0600.
	Executable bool
	// Record records which files of the sandbox root an invocation is about to change, before the
	// first of them is changed. If it fails, none is. Nil records nothing.
	Record func(ctx context.Context, invocation string, planned []dray.FileChange) error
	// ConfigFile is the configuration file, for hints.
	ConfigFile string
	// HostRoots are directories of the host from which files may be pushed.
	HostRoots []string
	// Trusted reports whether a workspace folder is trusted, so that its files may be pushed; nil
	// trusts none.
	Trusted func(ctx context.Context, dir string) bool
}

// Syncer copies files between the host and containers. It is safe for concurrent use.
type Syncer struct {
	cfg      Config
	deny     denyList
	root     *files.Local // nil without a sandbox root
	rootInfo fs.FileInfo  // of the directory that root has open
	declared declarations
	// ends running syncs when the daemon shuts down
	ctx  context.Context //nolint:containedctx // it ends syncs, not one call
	stop context.CancelCauseFunc
}

// Open opens the sandbox root until Close. It creates a missing root with mode 0700 if its parent
// exists. It fails with invalid_request and a hint if the root is not an absolute clean path, is
// "/", a symlink or no directory, belongs to another user, or is accessible to group or others.
func Open(ctx context.Context, cfg Config) (*Syncer, error) {
	deny, err := newDenyList(cfg.Deny)
	if err != nil {
		return nil, err
	}
	s := &Syncer{cfg: cfg, deny: deny}
	if cfg.Root != "" {
		if s.root, s.rootInfo, err = openRoot(cfg.Root); err != nil {
			return nil, err
		}
	}
	s.ctx, s.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	return s, nil
}

// Recover completes the syncs beneath a sandbox root that were interrupted when their daemon was
// killed, or removes what they left (SY-04, SY-06). It returns how many it completed, and the error
// of those that it could not. It fails like [Open], and does nothing without a root.
func Recover(ctx context.Context, root string) (completed int, err error) {
	if root == "" {
		return 0, nil
	}
	local, _, err := openRoot(root)
	if err != nil {
		return 0, err
	}
	completed, err = local.Recover(ctx, dray.WriteTreeOptions{RefuseRepositories: true})
	return completed, errors.Join(err, local.Close())
}

// Check returns the error with which Open would fail for a sandbox root. It changes nothing.
func Check(root string) error {
	if root == "" {
		return nil
	}
	if err := checkRootName(root); err != nil {
		return err
	}
	if _, err := os.Lstat(root); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(root)); err == nil {
			return nil
		}
	}
	dir, _, err := openChecked(root, false)
	if err == nil {
		_ = dir.Close()
	}
	return err
}

var errStopped = errors.New("the daemon shuts down")

// Stop cancels the running syncs, which write nothing then, and makes new ones fail.
func (s *Syncer) Stop() { s.stop(errStopped) }

// Close closes the sandbox root. No sync may be running.
func (s *Syncer) Close() error {
	s.Stop()
	if s.root == nil {
		return nil
	}
	return s.root.Close()
}

// openChecked opens a root that passes all checks. With create it creates a missing one.
func openChecked(root string, create bool) (*os.File, fs.FileInfo, error) {
	if err := checkRootName(root); err != nil {
		return nil, nil, err
	}
	dir, err := openDir(root)
	if create && errors.Is(err, fs.ErrNotExist) {
		// only the root itself: a missing parent is more likely a typing error
		if err = os.Mkdir(root, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			dir, err = openDir(root)
		}
	}
	if err != nil {
		return nil, nil, unusableRootError(root, err)
	}
	info, err := checkRoot(root, dir)
	if err != nil {
		_ = dir.Close()
	}
	return dir, info, err
}

func openRoot(root string) (*files.Local, fs.FileInfo, error) {
	dir, info, err := openChecked(root, true)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = dir.Close() }()
	// the directory that was checked, whatever has its name by now
	local, err := files.Open(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return nil, nil, fmt.Errorf("sandbox.root: open %s: %w", root, err)
	}
	return local, info, nil
}

// verifyRoot fails if the root is not at its name any more, or not private. The caller could not
// open the files by the paths in the report.
func (s *Syncer) verifyRoot() error {
	dir, err := openDir(s.cfg.Root)
	what := "not the directory any more that was opened when the daemon started"
	if err == nil {
		defer func() { _ = dir.Close() }()
		now, err := checkRoot(s.cfg.Root, dir)
		switch {
		case now == nil || !os.SameFile(now, s.rootInfo):
			what = "another directory than the one that was opened when the daemon started"
		case err != nil:
			return dray.Errorf(dray.CodeSyncRefused, "%w", err).WithHint("%s", dray.AsError(err).Hint)
		default:
			return nil
		}
	}
	return dray.Errorf(dray.CodeSyncRefused, "sandbox.root: %s is %s", quote(s.cfg.Root), what).
		WithHint("move the directory back, or restart the daemon to use the one that is there now")
}

func checkRootName(root string) error {
	switch {
	case strings.IndexByte(root, 0) >= 0, !filepath.IsAbs(root), filepath.Clean(root) != root:
		return rootError(root, "is not an absolute, clean path").
			WithHint("use an absolute path without . and .., and without a slash at the end")
	case root == "/":
		return rootError(root, "is the whole file system").
			WithHint("set sandbox.root to a directory of its own")
	}
	return nil
}

// openDir opens a directory that is not a symlink.
func openDir(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

func unusableRootError(root string, err error) error {
	info, statErr := os.Lstat(root)
	switch {
	case statErr == nil && info.Mode()&fs.ModeSymlink != 0:
		target, err := filepath.EvalSymlinks(root)
		if err != nil {
			target = "its target does not exist"
		}
		return rootError(root, "is a symlink").
			WithHint("set sandbox.root to the directory itself: %s", target)
	case statErr == nil && !info.IsDir():
		return rootError(root, "is not a directory").
			WithHint("remove the file, or set sandbox.root to a directory")
	case errors.Is(err, fs.ErrNotExist):
		return rootError(root, "does not exist, nor does its parent directory").
			WithHint("create it: mkdir -p -m 700 %s", quote(root))
	default:
		return dray.Errorf(dray.CodeInvalidRequest, "sandbox.root: open %s: %w", root, err).
			WithHint("set sandbox.root to a directory of the daemon's user")
	}
}

// checkRoot describes an open root. It fails if another user could write there, and so replace or
// redirect files.
func checkRoot(root string, dir *os.File) (fs.FileInfo, error) {
	info, err := dir.Stat()
	if err != nil {
		return nil, fmt.Errorf("sandbox.root: stat %s: %w", root, err)
	}
	//nolint:forcetypeassert,errcheck // on Linux always a Stat_t
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		what := fmt.Sprintf("belongs to user %d, and dray runs as user %d", owner, os.Geteuid())
		return info, rootError(root, what).
			WithHint("change its owner: chown %d %s", os.Geteuid(), quote(root))
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return info, rootError(root, fmt.Sprintf("is open to others: its mode is %04o", mode)).
			WithHint("close it with: chmod 700 %s", quote(root))
	}
	return info, nil
}

func rootError(root, what string) *dray.Error {
	return dray.Errorf(dray.CodeInvalidRequest, "sandbox.root: %s %s", quote(root), what)
}

// Request is one sync.
type Request struct {
	// ID is the invocation's. Declared outputs are written to a directory of that name.
	ID string
	// Paths are the sources as the caller wrote them: for Fetch the caller's own paths or the
	// container's, absolute or relative to Dir; for Push paths of the host.
	Paths []string
	// ContainerPaths reports that absolute paths of a Fetch are the container's, never the host's.
	ContainerPaths bool
	// Dir is the call's working directory in the container; empty if the call has no workspace.
	Dir string
	// Workspace is the host's path of the call's workspace folder; empty if it has none.
	Workspace string
	// Destination is a directory relative to the sandbox root, or for Push to the container's
	// workspace folder. If it is empty, the paths decide.
	Destination string
	// Declaration is that of the call's Paths, for FetchDeclared; nil for none.
	Declaration *Declaration
	// ResultsDir is the directory in which the call left result files, for FetchDeclared: a path of
	// the environment whose parent tools cannot change. Empty is none.
	ResultsDir string
	// DryRun writes nothing and returns the same report.
	DryRun bool
	// SkipRefused omits what is refused instead of ending the sync.
	SkipRefused bool
	// Progress is called from time to time; nil for none.
	Progress func(Progress)
}

// Progress is the number of files and bytes that a sync has read.
type Progress struct {
	Files int
	Bytes int64
}

// Direction is the direction of a sync.
type Direction string

// The directions. The empty one is ToHost.
const (
	ToHost      Direction = "to_host"
	ToContainer Direction = "to_container"
)

// Changes returns the created and replaced files of a report for the audit log (AU-11). A dry run
// has none.
func Changes(report dray.SyncReport, side dray.EnvironmentKind) []dray.FileChange {
	if report.DryRun {
		return nil
	}
	var changes []dray.FileChange
	for _, f := range report.Files {
		if f.Action == dray.FileCreated || f.Action == dray.FileReplaced {
			changes = append(changes, dray.FileChange{
				Environment: side, Path: f.Path, Action: f.Action,
				SHA256Before: f.SHA256Before, SHA256After: f.SHA256,
			})
		}
	}
	return changes
}
