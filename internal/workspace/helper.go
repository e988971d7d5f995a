package workspace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/devcontainer/compose"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
)

// startHelper starts a program on the host, supervised like a tool.
func (u *upRunner) startHelper(ctx context.Context, cmd helper.Command,
) (helper.Running, error) {
	proc, err := u.pool.Start(ctx, process.Spec{Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir})
	if err != nil {
		return nil, process.WrapStartError(err, cmd.Dir)
	}
	_ = proc.Stdin().Close()
	return helperProcess{proc}, nil
}

// helperProcess is a program on the host. It implements helper.Running.
type helperProcess struct{ proc *process.Process }

func (h helperProcess) Stdout() io.Reader { return h.proc.Stdout() }
func (h helperProcess) Stderr() io.Reader { return h.proc.Stderr() }
func (h helperProcess) Stop()             { h.proc.Stop(0) }

func (h helperProcess) Wait() (int, error) {
	exit, err := h.proc.Wait()
	if exit.Signal != 0 {
		return 128 + int(exit.Signal), err
	}
	return exit.Code, err
}

// composeTimeout bounds one run of docker compose for a project that is not trusted, and
// composeMemory its address space in bytes: a project can make both long.
const (
	composeTimeout = 30 * time.Second
	composeMemory  = 2 << 30
)

// NewCompose returns a Compose that runs docker compose supervised, with the environment of `up`
// and with copies of projects in the state directory. engine and local are as in upEnv.
func NewCompose(pool *process.Pool, state string, engine []string, local map[string]string,
) compose.Options {
	return compose.Options{
		Env:   func(workspace string) []string { return upEnv(engine, local, workspace) },
		State: state,
		Run: func(ctx context.Context, cmd helper.Command) (string, error) {
			ctx, cancel := context.WithTimeoutCause(ctx, composeTimeout,
				fmt.Errorf("it took longer than %v", composeTimeout))
			defer cancel()
			return runHelper(ctx, pool, process.Spec{
				Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir, Memory: composeMemory,
			})
		},
	}
}

// Limits of the output of a program, in bytes: of its stdout, and of its stderr in an error.
const (
	maxHelperOutput = 16 << 20
	maxHelperError  = 500
)

// runHelper runs a program with an empty stdin and returns its stdout. The error of a program that
// fails has the end of its stderr.
func runHelper(ctx context.Context, pool *process.Pool, spec process.Spec) (string, error) {
	proc, err := pool.Start(ctx, spec)
	if err != nil {
		return "", err
	}
	defer context.AfterFunc(ctx, func() { proc.Stop(0) })()
	_ = proc.Stdin().Close()
	stderr := make(chan []byte, 1)
	go func() { // ends with the process
		stderr <- helper.ReadTail(proc.Stderr(), maxHelperError)
	}()
	out, _ := io.ReadAll(io.LimitReader(proc.Stdout(), maxHelperOutput+1))
	_, _ = io.Copy(io.Discard, proc.Stdout())
	exit, err := proc.Wait()
	text := <-stderr
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s was stopped: %w", spec.Argv[0], context.Cause(ctx))
	case err != nil:
		return "", err
	case exit.Code != 0 || exit.Signal != 0:
		return "", fmt.Errorf("%s failed: %s", spec.Argv[0], bytes.TrimSpace(text))
	case len(out) > maxHelperOutput:
		return "", fmt.Errorf("%s printed more than %d MiB", spec.Argv[0], maxHelperOutput>>20)
	}
	return string(out), nil
}
