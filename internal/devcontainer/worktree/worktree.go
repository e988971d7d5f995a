// Package worktree finds the directory that `devcontainer up` mounts for a workspace.
package worktree

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/linux"
)

// Root returns the directory that `up` mounts for a workspace: the top of its git work tree
// with symlinks kept, else the workspace itself.
//
// It finds what `git rev-parse --show-cdup` finds for the reference, and does not run git: the
// repository belongs to the workspace, and git opens whatever its files name, a FIFO too. Two
// settings of git are not used: core.worktree, by which a tool could have any directory of the host
// mounted, and safe.directory. It fails if the directories cannot be examined.
func Root(ctx context.Context, workspace string) (string, error) {
	dir := linux.UntrustedDir(workspace)
	resolved, err := dir.RealPath(ctx, workspace)
	if err != nil {
		return "", err
	}
	device, err := deviceOf(ctx, dir, resolved)
	if err != nil {
		return "", err
	}
	g := gitFinder{ctx: ctx, dir: dir}
	for root := workspace; ; {
		state, err := g.examine(resolved)
		switch {
		case err != nil:
			return "", err
		case state == workTree:
			return root, nil
		case state == noWorkTree, resolved == "/":
			return workspace, nil
		}
		root, resolved = filepath.Join(root, ".."), filepath.Dir(resolved)
		if d, err := deviceOf(ctx, dir, resolved); err != nil || d != device {
			return workspace, err // git does not cross file systems either
		}
	}
}

func deviceOf(ctx context.Context, dir linux.UntrustedDir, name string) (uint64, error) {
	stats, err := dir.StatAll(ctx, []string{name})
	if err != nil {
		return 0, err
	}
	return stats[0].Dev, nil
}

// gitState is what a directory is for git.
type gitState int

const (
	noRepository gitState = iota
	workTree              // the top of a work tree
	noWorkTree            // a bare or invalid repository, or one of another user: git looks no further
)

// Limits of git for the files that lead to a repository.
const (
	maxGitFile = 1 << 20
	maxGitHead = 4 << 10
)

// gitFinder examines directories as git does.
type gitFinder struct {
	ctx context.Context //nolint:containedctx // lives for one Root
	dir linux.UntrustedDir
}

func (g gitFinder) examine(top string) (gitState, error) {
	gitDir := filepath.Join(top, ".git")
	text, err := g.read(gitDir, maxGitFile)
	if err != nil {
		return noRepository, err
	}
	if text != nil { // a file of a worktree or a submodule
		return g.examineFile(top, string(text))
	}
	if ok, err := g.isRepository(gitDir); ok || err != nil {
		return g.owned(workTree, err, top, gitDir)
	}
	ok, err := g.isRepository(top)
	if ok && err == nil {
		return noWorkTree, nil
	}
	return noRepository, err
}

// examineFile examines a directory whose .git is a file that names the repository.
func (g gitFinder) examineFile(top, text string) (gitState, error) {
	name, ok := strings.CutPrefix(strings.TrimRight(text, "\r\n"), "gitdir: ")
	if !ok || name == "" {
		return noWorkTree, nil
	}
	gitDir := lexical.Resolve(top, name)
	if ok, err := g.isRepository(gitDir); !ok || err != nil {
		return noWorkTree, err
	}
	return g.owned(workTree, nil, top, gitDir, filepath.Join(top, ".git"))
}

// owned returns state if the daemon's user owns the files, else noWorkTree. Another user could
// otherwise choose the mount of a workspace by a repository in a directory above it.
func (g gitFinder) owned(state gitState, err error, files ...string) (gitState, error) {
	for _, name := range files {
		if err != nil {
			return noRepository, err
		}
		var info fs.FileInfo
		if info, err = g.dir.Lstat(g.ctx, name); err == nil && !isOwn(info) {
			return noWorkTree, nil
		}
	}
	return state, err
}

// isOwn reports whether a file belongs to the daemon's user. Like for git, root owns the files of
// the user of sudo too.
func isOwn(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (int(st.Uid) == os.Geteuid() ||
		os.Geteuid() == 0 && os.Getenv("SUDO_UID") == strconv.Itoa(int(st.Uid)))
}

// isRepository reports whether a directory has what git requires of a repository.
func (g gitFinder) isRepository(gitDir string) (bool, error) {
	if ok, err := g.isHead(filepath.Join(gitDir, "HEAD")); !ok || err != nil {
		return false, err
	}
	common, err := g.read(filepath.Join(gitDir, "commondir"), maxGitFile)
	if err != nil {
		return false, err
	}
	if name := strings.TrimRight(string(common), "\r\n"); name != "" {
		gitDir = lexical.Resolve(gitDir, name)
	}
	for _, name := range []string{"objects", "refs"} {
		info, err := g.dir.Stat(g.ctx, filepath.Join(gitDir, name))
		if err != nil || !info.IsDir() {
			return false, g.failure(err)
		}
	}
	return true, nil
}

// isHead reports whether a file is a HEAD: a symlink or a reference to a branch, or a hash.
func (g gitFinder) isHead(name string) (bool, error) {
	if target, err := g.dir.Readlink(g.ctx, name); err == nil {
		return strings.HasPrefix(target, "refs/"), nil
	}
	content, err := g.read(name, maxGitHead)
	text := strings.TrimSpace(string(content))
	if ref, ok := strings.CutPrefix(text, "ref:"); ok {
		return strings.HasPrefix(strings.TrimSpace(ref), "refs/"), err
	}
	return len(text) >= 40 && strings.Trim(text, "0123456789abcdef") == "", err
}

// read returns the content of a file, nil if it is not a readable regular file.
func (g gitFinder) read(name string, limit int64) ([]byte, error) {
	content, err := g.dir.ReadFile(g.ctx, name, limit)
	return content, g.failure(err)
}

// failure returns nil for an error that depends on the workspace alone: there is no such file, or
// none that git could read. Others may be gone at the next try.
func (g gitFinder) failure(err error) error {
	for _, known := range []error{
		fs.ErrNotExist, fs.ErrPermission, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG,
		linux.ErrNotRegular, linux.ErrFileSystem, linux.ErrTooLarge,
	} {
		if errors.Is(err, known) {
			return nil
		}
	}
	return err
}
