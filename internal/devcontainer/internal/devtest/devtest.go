// Package devtest has what the tests of several packages below internal/devcontainer share.
package devtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/compose"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
)

// Write writes a file in a directory, with the directories above it, and returns its path.
func Write(tb testing.TB, dir, name, content string) string {
	tb.Helper()
	path := filepath.Join(dir, name)
	Must(tb, os.MkdirAll(filepath.Dir(path), 0o755)) //nolint:gosec // as in a workspace
	Must(tb, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// Must fails the test if a step of its preparation failed.
func Must(tb testing.TB, errs ...error) {
	tb.Helper()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}

// TempDir returns a directory of the test whose path has no symlinks.
func TempDir(tb testing.TB) string {
	tb.Helper()
	dir, err := filepath.EvalSymlinks(tb.TempDir())
	Must(tb, err)
	return dir
}

// Workspace makes a workspace with a configuration and locates it.
func Workspace(tb testing.TB, config string) devcontainer.Location {
	tb.Helper()
	dir := filepath.Join(TempDir(tb), "app")
	Write(tb, dir, ".devcontainer/devcontainer.json", config)
	return Locate(tb, dir)
}

// Locate finds the configuration of a workspace.
func Locate(tb testing.TB, dir string) devcontainer.Location {
	tb.Helper()
	loc, err := devcontainer.Locate(tb.Context(), dir, "")
	Must(tb, err)
	return loc
}

// Git runs git in a directory.
func Git(tb testing.TB, dir string, args ...string) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "git", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("git %v: %v: %s", args, err, out)
	}
}

// Mkfifo creates a FIFO.
func Mkfifo(tb testing.TB, path string) {
	tb.Helper()
	Must(tb, syscall.Mkfifo(path, 0o600))
}

// Compose runs docker compose itself, with the environment env.
func Compose(tb testing.TB, env []string) compose.Options {
	tb.Helper()
	run := func(ctx context.Context, c helper.Command) (string, error) {
		cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
		cmd.Env, cmd.Dir = c.Env, c.Dir
		out, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = errors.New(string(exit.Stderr))
		}
		return string(out), err
	}
	return compose.Options{Run: run, Env: func(string) []string { return env }, State: tb.TempDir()}
}
