package devcontainer

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// write puts a file into a folder, with the folders above it.
func write(t testing.TB, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tempDir gives a folder whose path holds no link.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// workspace makes a workspace with a configuration and locates it.
func workspace(t testing.TB, config string) Location {
	t.Helper()
	dir := filepath.Join(tempDir(t), "app")
	write(t, dir, ".devcontainer/devcontainer.json", config)
	return locate(t, dir)
}

func locate(t testing.TB, dir string) Location {
	t.Helper()
	loc, err := Locate(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// git runs git in a directory.
func git(t testing.TB, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

// locals is a LocalEnv over a map.
func locals(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

func mkfifo(t testing.TB, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}
