package worktree_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dray-dev/dray/internal/devcontainer/internal/devtest"
	"github.com/dray-dev/dray/internal/devcontainer/worktree"
)

// initRepository makes a repository with one commit.
func initRepository(t *testing.T, dir string, args ...string) {
	t.Helper()
	devtest.Must(t, os.MkdirAll(dir, 0o755))
	devtest.Git(t, dir, append([]string{"init", "-q"}, args...)...)
	devtest.Git(t, dir, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "m")
}

// The directory that is mounted is the one that git, and so the reference, finds (EX-07).
func TestMountRootAgreesWithGit(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, dir string){
		"nothing":    func(*testing.T, string) {},
		"top":        func(t *testing.T, dir string) { initRepository(t, dir+"/ws") },
		"above":      func(t *testing.T, dir string) { initRepository(t, dir) },
		"two levels": func(t *testing.T, dir string) { initRepository(t, filepath.Dir(dir)) },
		"SHA-256":    func(t *testing.T, dir string) { initRepository(t, dir, "--object-format=sha256") },
		"separate": func(t *testing.T, dir string) {
			initRepository(t, dir, "--separate-git-dir", dir+"/elsewhere")
		},
		"detached": func(t *testing.T, dir string) {
			initRepository(t, dir)
			devtest.Git(t, dir, "checkout", "-q", "--detach")
		},
		"symlink as HEAD": func(t *testing.T, dir string) {
			initRepository(t, dir)
			devtest.Must(t, os.Remove(dir+"/.git/HEAD"), os.Symlink("refs/heads/master", dir+"/.git/HEAD"))
		},
		"dangling HEAD": func(t *testing.T, dir string) {
			initRepository(t, dir)
			devtest.Must(t, os.Remove(dir+"/.git/HEAD"), os.Symlink("nowhere", dir+"/.git/HEAD"))
		},
		"symlink to the repository": func(t *testing.T, dir string) {
			initRepository(t, dir)
			devtest.Must(t, os.Rename(dir+"/.git", dir+"/moved"), os.Symlink("moved", dir+"/.git"))
		},
		"worktree": func(t *testing.T, dir string) {
			initRepository(t, dir+"/main")
			devtest.Git(t, dir+"/main", "worktree", "add", "-q", dir+"/ws/w")
			devtest.Must(t, os.Rename(dir+"/ws/w/.git", dir+"/ws/.git"))
		},
		"submodule": func(t *testing.T, dir string) {
			initRepository(t, dir+"/other")
			initRepository(t, dir+"/outer")
			devtest.Git(t, dir+"/outer", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add",
				dir+"/other", "sub")
			devtest.Must(t, os.RemoveAll(dir+"/ws"), os.Symlink("outer/sub", dir+"/ws"))
		},
		"bare":            func(t *testing.T, dir string) { devtest.Git(t, dir, "init", "-q", "--bare") },
		"bare below":      func(t *testing.T, dir string) { devtest.Git(t, dir, "init", "-q", "--bare", "ws") },
		"empty .git":      func(t *testing.T, dir string) { initRepository(t, dir); devtest.Write(t, dir, "ws/.git", "") },
		"odd .git":        func(t *testing.T, dir string) { initRepository(t, dir); devtest.Write(t, dir, "ws/.git", "x") },
		"wrong .git":      func(t *testing.T, dir string) { initRepository(t, dir); devtest.Write(t, dir, "ws/.git", "gitdir: x") },
		"empty directory": func(t *testing.T, dir string) { initRepository(t, dir); devtest.Write(t, dir, "ws/.git/x", "") },
		"no objects": func(t *testing.T, dir string) {
			initRepository(t, dir)
			devtest.Must(t, os.RemoveAll(dir+"/.git/objects"))
		},
		"of another user": func(t *testing.T, dir string) {
			initRepository(t, filepath.Dir(dir))
			initRepository(t, dir)
			if err := os.Chown(dir+"/.git", 12345, 12345); err != nil {
				t.Skip(err)
			}
		},
		"directory of another user": func(t *testing.T, dir string) {
			initRepository(t, dir)
			if err := os.Chown(dir, 12345, 12345); err != nil {
				t.Skip(err)
			}
		},
		"across a mount": func(t *testing.T, dir string) {
			initRepository(t, dir)
			if err := syscall.Mount("none", dir+"/ws", "tmpfs", 0, ""); err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { _ = syscall.Unmount(dir+"/ws", 0) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
			t.Setenv("GIT_CONFIG_SYSTEM", os.DevNull)
			dir := filepath.Join(devtest.TempDir(t), "outer", "dir")
			devtest.Must(t, os.MkdirAll(dir+"/ws", 0o755))
			prepare(t, dir)
			workspace := dir + "/ws"
			want := workspace
			cmd := exec.CommandContext(t.Context(), "git", "rev-parse", "--show-cdup")
			cmd.Dir = workspace
			if out, err := cmd.Output(); err == nil {
				want = filepath.Join(workspace, strings.TrimSpace(string(out)))
			}
			if got, err := worktree.Root(t.Context(), workspace); got != want || err != nil {
				t.Errorf("got %s, %v; git finds %s", got, err, want)
			}
		})
	}
}

// A repository that names a FIFO or a device is none. Nothing of it is opened, so that no call
// hangs (RT-09).
func TestMountRootOfHostileRepository(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, ws string){
		"FIFO as HEAD": func(t *testing.T, ws string) {
			devtest.Must(t, os.Remove(ws+"/.git/HEAD"))
			devtest.Mkfifo(t, ws+"/.git/HEAD")
		},
		"device as HEAD": func(t *testing.T, ws string) {
			devtest.Must(t, os.Remove(ws+"/.git/HEAD"), os.Symlink("/dev/tty", ws+"/.git/HEAD"))
		},
		"kernel log as HEAD": func(t *testing.T, ws string) {
			devtest.Must(t, os.Remove(ws+"/.git/HEAD"), os.Symlink("/proc/kmsg", ws+"/.git/HEAD"))
		},
		"FIFO as .git": func(t *testing.T, ws string) {
			devtest.Must(t, os.RemoveAll(ws+"/.git"))
			devtest.Mkfifo(t, ws+"/.git")
		},
		".git names a FIFO": func(t *testing.T, ws string) {
			devtest.Must(t, os.RemoveAll(ws+"/.git"))
			devtest.Mkfifo(t, ws+"/fifo")
			devtest.Write(t, ws, ".git", "gitdir: fifo\n")
		},
		".git names a process": func(t *testing.T, ws string) {
			devtest.Must(t, os.RemoveAll(ws+"/.git"))
			devtest.Write(t, ws, ".git", "gitdir: /proc/self/cwd/.git\n")
		},
		"FIFO as commondir": func(t *testing.T, ws string) {
			devtest.Mkfifo(t, ws+"/.git/commondir")
			devtest.Must(t, os.RemoveAll(ws+"/.git/objects"))
		},
		"huge commondir": func(t *testing.T, ws string) {
			devtest.Write(t, ws, ".git/commondir", "")
			devtest.Must(t, os.Truncate(ws+"/.git/commondir", 2<<30), os.RemoveAll(ws+"/.git/objects"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			outer := devtest.TempDir(t)
			ws := filepath.Join(outer, "ws")
			initRepository(t, ws)
			prepare(t, ws)
			if got, err := worktree.Root(t.Context(), ws); got != ws || err != nil {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}
