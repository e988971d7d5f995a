package devcontainer

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// mustDo fails the test if a step of its preparation failed.
func mustDo(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// initRepository makes a repository with one commit.
func initRepository(t *testing.T, dir string, args ...string) {
	t.Helper()
	mustDo(t, os.MkdirAll(dir, 0o755))
	git(t, dir, append([]string{"init", "-q"}, args...)...)
	git(t, dir, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "m")
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
			git(t, dir, "checkout", "-q", "--detach")
		},
		"symlink as HEAD": func(t *testing.T, dir string) {
			initRepository(t, dir)
			mustDo(t, os.Remove(dir+"/.git/HEAD"), os.Symlink("refs/heads/master", dir+"/.git/HEAD"))
		},
		"dangling HEAD": func(t *testing.T, dir string) {
			initRepository(t, dir)
			mustDo(t, os.Remove(dir+"/.git/HEAD"), os.Symlink("nowhere", dir+"/.git/HEAD"))
		},
		"symlink to the repository": func(t *testing.T, dir string) {
			initRepository(t, dir)
			mustDo(t, os.Rename(dir+"/.git", dir+"/moved"), os.Symlink("moved", dir+"/.git"))
		},
		"worktree": func(t *testing.T, dir string) {
			initRepository(t, dir+"/main")
			git(t, dir+"/main", "worktree", "add", "-q", dir+"/ws/w")
			mustDo(t, os.Rename(dir+"/ws/w/.git", dir+"/ws/.git"))
		},
		"submodule": func(t *testing.T, dir string) {
			initRepository(t, dir+"/other")
			initRepository(t, dir+"/outer")
			git(t, dir+"/outer", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add",
				dir+"/other", "sub")
			mustDo(t, os.RemoveAll(dir+"/ws"), os.Symlink("outer/sub", dir+"/ws"))
		},
		"bare":            func(t *testing.T, dir string) { git(t, dir, "init", "-q", "--bare") },
		"bare below":      func(t *testing.T, dir string) { git(t, dir, "init", "-q", "--bare", "ws") },
		"empty .git":      func(t *testing.T, dir string) { initRepository(t, dir); write(t, dir, "ws/.git", "") },
		"odd .git":        func(t *testing.T, dir string) { initRepository(t, dir); write(t, dir, "ws/.git", "x") },
		"wrong .git":      func(t *testing.T, dir string) { initRepository(t, dir); write(t, dir, "ws/.git", "gitdir: x") },
		"empty directory": func(t *testing.T, dir string) { initRepository(t, dir); write(t, dir, "ws/.git/x", "") },
		"no objects": func(t *testing.T, dir string) {
			initRepository(t, dir)
			mustDo(t, os.RemoveAll(dir+"/.git/objects"))
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
			dir := filepath.Join(tempDir(t), "outer", "dir")
			mustDo(t, os.MkdirAll(dir+"/ws", 0o755))
			prepare(t, dir)
			workspace := dir + "/ws"
			want := workspace
			cmd := exec.CommandContext(t.Context(), "git", "rev-parse", "--show-cdup")
			cmd.Dir = workspace
			if out, err := cmd.Output(); err == nil {
				want = filepath.Join(workspace, strings.TrimSpace(string(out)))
			}
			if got, err := mountRoot(t.Context(), workspace); got != want || err != nil {
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
			mustDo(t, os.Remove(ws+"/.git/HEAD"))
			mkfifo(t, ws+"/.git/HEAD")
		},
		"device as HEAD": func(t *testing.T, ws string) {
			mustDo(t, os.Remove(ws+"/.git/HEAD"), os.Symlink("/dev/tty", ws+"/.git/HEAD"))
		},
		"kernel log as HEAD": func(t *testing.T, ws string) {
			mustDo(t, os.Remove(ws+"/.git/HEAD"), os.Symlink("/proc/kmsg", ws+"/.git/HEAD"))
		},
		"FIFO as .git": func(t *testing.T, ws string) {
			mustDo(t, os.RemoveAll(ws+"/.git"))
			mkfifo(t, ws+"/.git")
		},
		".git names a FIFO": func(t *testing.T, ws string) {
			mustDo(t, os.RemoveAll(ws+"/.git"))
			mkfifo(t, ws+"/fifo")
			write(t, ws, ".git", "gitdir: fifo\n")
		},
		".git names a process": func(t *testing.T, ws string) {
			mustDo(t, os.RemoveAll(ws+"/.git"))
			write(t, ws, ".git", "gitdir: /proc/self/cwd/.git\n")
		},
		"FIFO as commondir": func(t *testing.T, ws string) {
			mkfifo(t, ws+"/.git/commondir")
			mustDo(t, os.RemoveAll(ws+"/.git/objects"))
		},
		"huge commondir": func(t *testing.T, ws string) {
			write(t, ws, ".git/commondir", "")
			mustDo(t, os.Truncate(ws+"/.git/commondir", 2<<30), os.RemoveAll(ws+"/.git/objects"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			outer := tempDir(t)
			ws := filepath.Join(outer, "ws")
			initRepository(t, ws)
			prepare(t, ws)
			if got, err := mountRoot(t.Context(), ws); got != ws || err != nil {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}
