package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
)

// ways are all that is compared, in the order of the tables.
func ways(r *rig) []way {
	web := newHTTP(r.daemon.socket)
	return []way{
		{name: wayDray, calls: 50, together: 960, run: r.counted(web.call(r.workspace, dray.ChooseContainer))},
		{name: "dray, executor alone", calls: 50, together: 960, run: executorAlone(r)},
		{name: "dray, `dray exec`", calls: 5, run: r.counted(program(r.dray, "exec", "--state", r.daemon.state, "--workspace", r.workspace, "--"))},
		{name: "engine API", calls: 5, together: 64, run: engineAPI(r)},
		{name: wayDockerExec, calls: 5, together: 64, run: program(r.docker, "exec", "--user", remoteUser, "--workdir", r.folder, r.container.ID)},
		{name: wayDevcontainer, calls: 1, together: 8, run: program(r.devcontainer, "exec", "--workspace-folder", r.workspace)},
		{name: "host, os/exec", calls: 50, together: 960, run: program()},
		{name: "host, dray, HTTP", calls: 50, together: 960, run: r.counted(web.call(r.workspace, dray.ChooseHost))},
	}
}

// counted counts the calls that went through the daemon and ended well: so many must be in its trail.
func (r *rig) counted(run func(context.Context, command) error) func(context.Context, command) error {
	return func(ctx context.Context, c command) error {
		err := run(ctx, c)
		if err == nil {
			r.calls.Add(1)
		}
		return err
	}
}

// program runs the command through a program that takes it as its last arguments, or by itself.
func program(prefix ...string) func(context.Context, command) error {
	return func(ctx context.Context, c command) error {
		argv := slices.Concat(prefix, c.argv)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // what is compared
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
		}
		return expect(c, 0, stdout.String())
	}
}

// engineAPI is the least that the engine's own interface needs: create, start and attach, the end of the stream, the exit code.
func engineAPI(r *rig) func(context.Context, command) error {
	return func(ctx context.Context, c command) error {
		created, err := r.api.ExecCreate(ctx, r.container.ID, client.ExecCreateOptions{
			User: remoteUser, WorkingDir: r.folder, Cmd: c.argv, AttachStdout: true, AttachStderr: true,
		})
		if err != nil {
			return err
		}
		attached, err := r.api.ExecAttach(ctx, created.ID, client.ExecAttachOptions{})
		if err != nil {
			return err
		}
		defer attached.Close()
		var stdout bytes.Buffer
		if _, err := stdcopy.StdCopy(&stdout, io.Discard, attached.Reader); err != nil {
			return err
		}
		ended, err := r.api.ExecInspect(ctx, created.ID, client.ExecInspectOptions{})
		if err != nil {
			return err
		}
		return expect(c, ended.ExitCode, stdout.String())
	}
}

// executorAlone is a process in the container through the agent, and nothing around it: no request, no trail, no capture.
func executorAlone(r *rig) func(context.Context, command) error {
	return func(ctx context.Context, c command) error {
		proc, err := r.env.Start(ctx, dray.Spec{Argv: c.argv})
		if err != nil {
			return err
		}
		var stdout bytes.Buffer
		var streams sync.WaitGroup
		var errs [2]error
		streams.Go(func() { _, errs[0] = io.Copy(&stdout, proc.Output(dray.Stdout)) })
		streams.Go(func() { _, errs[1] = io.Copy(io.Discard, proc.Output(dray.Stderr)) })
		_ = proc.Stdin().Close() // a process that is over needs no end of file
		exit, err := proc.Wait()
		streams.Wait()
		if err := errors.Join(err, errs[0], errs[1]); err != nil {
			return err
		}
		return expect(c, exit.Code, stdout.String())
	}
}
