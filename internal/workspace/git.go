package workspace

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// maxGit bounds what git may say.
const maxGit = 64 << 10

// Git gives the function that internal/devcontainer asks git with. It runs on the host, under supervision, with the variables that git
// itself needs: its answers must be those that the reference gets.
func Git(pool *process.Pool) devcontainer.GitFunc {
	return func(ctx context.Context, dir string, args ...string) (string, error) {
		return runGit(ctx, pool, dir, args)
	}
}

func runGit(ctx context.Context, pool *process.Pool, dir string, args []string) (string, error) {
	proc, err := pool.Start(ctx, process.Spec{
		Argv: append([]string{"git"}, args...), Dir: dir,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "GIT_TERMINAL_PROMPT=0", "LC_ALL=C"},
	})
	if err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { proc.Stop(0) })
	defer stop()
	_ = proc.Stdin().Close()
	go func() { _, _ = io.Copy(io.Discard, proc.Stderr()) }() // ends with the process, which is waited for below
	out, _ := io.ReadAll(io.LimitReader(proc.Stdout(), maxGit))
	_, _ = io.Copy(io.Discard, proc.Stdout())
	exit, err := proc.Wait()
	if err == nil && (exit.Code != 0 || exit.Signal != 0) {
		err = errors.New("git says that this is no work tree")
	}
	return string(out), err
}
