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

// Config is what a Syncer works by.
type Config struct {
	// Root is the sandbox root, an absolute and clean path; empty is none, and then every sync to the
	// host is refused.
	Root string
	// Sources are folders of containers, absolute and clean, that files may come from beside the
	// workspace folder, bind mounts and /tmp.
	Sources []string
	// Limits bound one sync. Zero is no limit.
	Limits dray.TreeLimits
	// Timeout bounds one sync; above 0.
	Timeout time.Duration
	// Deny are names refused beside the built-in ones: a name without a slash at any depth, one with
	// slashes as a sequence of names.
	Deny []string
	// Executable gives files with an x bit mode 0700 instead of 0600.
	Executable bool
	// OnRecovered is told how many syncs, which an earlier daemon had committed and not finished, were
	// finished at the start, and what could not be put in order; nil is nobody. Later syncs try it
	// again.
	OnRecovered func(finished int, err error)
	// HostRoots are folders of the host that files may be pushed from.
	HostRoots []string
	// Trusted says whether a workspace folder is trusted, so that its files may be pushed; nil trusts
	// none.
	Trusted func(ctx context.Context, folder string) bool
}

// Syncer moves files between the host and containers. It may be used from several goroutines.
type Syncer struct {
	cfg  Config
	deny denyList
	// root are the files beneath the sandbox root, opened once; nil without one.
	root *files.Local
	// rootInfo is the folder that root is open at.
	rootInfo fs.FileInfo
	// the syncer's own, which ends what still runs when the daemon does
	ctx  context.Context //nolint:containedctx
	stop context.CancelCauseFunc
}

// Open opens the sandbox root, for as long as the syncer lives, and finishes what an earlier daemon
// left there (SY-04, SY-06). A root that does not exist is made, with mode 0700, where the folder
// around it is there. It fails with invalid_request, and what to do, for a root that is not an
// absolute clean path, is "/", a link or no folder, belongs to another user, or is open to group or
// world.
func Open(ctx context.Context, cfg Config) (*Syncer, error) {
	deny, err := newDenied(cfg.Deny)
	if err != nil {
		return nil, err
	}
	s := &Syncer{cfg: cfg, deny: deny}
	if cfg.Root != "" {
		if s.root, s.rootInfo, err = openRoot(cfg.Root); err != nil {
			return nil, err
		}
		finished, err := s.root.Recover(ctx)
		if cfg.OnRecovered != nil && (finished > 0 || err != nil) {
			cfg.OnRecovered(finished, err)
		}
	}
	s.ctx, s.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	return s, nil
}

// Check says of a sandbox root what Open would, and makes and changes nothing. One that is not
// there is fine where Open would make it.
func Check(root string) error {
	if root == "" {
		return nil
	}
	if err := checkRootName(root); err != nil {
		return err
	}
	dir, err := openFolder(root)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(root)); err == nil {
			return nil
		}
	}
	if err != nil {
		return unusableRootError(root, err)
	}
	defer func() { _ = dir.Close() }()
	return checkRoot(root, dir)
}

// errStopped ends the syncs that run when the daemon does.
var errStopped = errors.New("the daemon shuts down")

// Stop ends the syncs that run, with nothing written, and refuses new ones.
func (s *Syncer) Stop() { s.stop(errStopped) }

// Close lets go of the root. No sync may run any more.
func (s *Syncer) Close() error {
	s.Stop()
	if s.root == nil {
		return nil
	}
	return s.root.Close()
}

func openRoot(root string) (*files.Local, fs.FileInfo, error) {
	if err := checkRootName(root); err != nil {
		return nil, nil, err
	}
	dir, err := openFolder(root)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeRoot(root); err == nil {
			dir, err = openFolder(root)
		}
	}
	if err != nil {
		return nil, nil, unusableRootError(root, err)
	}
	defer func() { _ = dir.Close() }()
	if err := checkRoot(root, dir); err != nil {
		return nil, nil, err
	}
	info, err := dir.Stat()
	if err != nil {
		return nil, nil, unusableRootError(root, err)
	}
	local, err := openFiles(root, dir)
	return local, info, err
}

// verifyRoot makes sure that the root is still what its name leads to, and still this user's alone:
// files that come to a folder which somebody moved away, removed or unmounted could not be opened
// by the paths that the caller is given.
func (s *Syncer) verifyRoot() error {
	dir, err := openFolder(s.cfg.Root)
	if err == nil {
		defer func() { _ = dir.Close() }()
		var now fs.FileInfo
		if now, err = dir.Stat(); err == nil && os.SameFile(now, s.rootInfo) {
			if err := checkRoot(s.cfg.Root, dir); err != nil {
				return dray.Errorf(dray.CodeSyncRefused, "%w", err).WithHint("%s", dray.AsError(err).Hint)
			}
			return nil
		}
	}
	what := "another folder than the one that was opened when the daemon started"
	if err != nil {
		what = "not the folder any more that was opened when the daemon started"
	}
	return dray.Errorf(dray.CodeSyncRefused, "sandbox.root: %s is %s", quote(s.cfg.Root), what).
		WithHint("put the folder back to where it was, or restart the daemon to use what is there now")
}

func checkRootName(root string) error {
	switch {
	case strings.IndexByte(root, 0) >= 0, !filepath.IsAbs(root), filepath.Clean(root) != root:
		return rootError(root, "is not an absolute, clean path").
			WithHint("write the folder from / on, without . and .. and a slash at the end")
	case root == "/":
		return rootError(root, "is the whole file system").
			WithHint("set sandbox.root to a folder of its own")
	}
	return nil
}

// openFolder opens a folder that is no link.
func openFolder(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

// makeRoot makes the root alone: a folder around it that is missing is rather a slip of the pen.
func makeRoot(root string) error {
	if err := os.Mkdir(root, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func unusableRootError(root string, err error) error {
	info, statErr := os.Lstat(root)
	switch {
	case statErr == nil && info.Mode()&fs.ModeSymlink != 0:
		return rootError(root, "is a link").
			WithHint("set sandbox.root to the folder itself: %s", target(root))
	case statErr == nil && !info.IsDir():
		return rootError(root, "is not a folder").
			WithHint("remove the file, or set sandbox.root to a folder")
	case errors.Is(err, fs.ErrNotExist):
		return rootError(root, "does not exist, nor does the folder around it").
			WithHint("make it: mkdir -p -m 700 %s", quote(root))
	default:
		return dray.Errorf(dray.CodeInvalidRequest, "sandbox.root: %s cannot be opened: %w", root, err).
			WithHint("set sandbox.root to a folder of the daemon's user")
	}
}

func target(link string) string {
	if to, err := filepath.EvalSymlinks(link); err == nil {
		return to
	}
	return "its target is not there"
}

// checkRoot looks at the open folder: whoever else could write there could replace what dray wrote,
// or have it written elsewhere.
func checkRoot(root string, dir *os.File) error {
	info, err := dir.Stat()
	if err != nil {
		return fmt.Errorf("sandbox.root: looking at it: %w", err)
	}
	// what Stat of a file has on Linux
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() { //nolint:forcetypeassert,errcheck
		return rootError(root, fmt.Sprintf("belongs to user %d, and dray runs as user %d", owner,
			os.Geteuid())).
			WithHint("take it over with: chown %d %s", os.Geteuid(), quote(root))
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return rootError(root, fmt.Sprintf("is open to others: its mode is %04o", mode)).
			WithHint("close it with: chmod 700 %s", quote(root))
	}
	return nil
}

// openFiles opens the very folder that was checked, whatever stands at its path by now.
func openFiles(root string, dir *os.File) (*files.Local, error) {
	local, err := files.Open(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return nil, fmt.Errorf("sandbox.root: opening %s: %w", root, err)
	}
	return local, nil
}

func rootError(root, what string) *dray.Error {
	return dray.Errorf(dray.CodeInvalidRequest, "sandbox.root: %s %s", quote(root), what)
}
