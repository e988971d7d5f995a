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

// command is what every way runs. Its working folder is the workspace.
type command struct {
	name   string // as Markdown
	argv   []string
	stdout string
}

// The commands. The tool of the bench is the same file on the host and in the container, and as
// small as a program can be.
var (
	runTrue  = command{name: "`true`", argv: []string{"true"}}
	runTool  = command{name: "a static program", argv: []string{"./" + toolName}, stdout: "hi\n"}
	runSleep = command{name: "`sleep 0.05; echo`", argv: []string{"sh", "-c", "sleep 0.05; echo"}, stdout: "\n"}
)

// runner runs a command to its end and proves that it did run.
type runner func(ctx context.Context, c command) error

// method is one way to run a command. A call that did not print what it should, or did not end with
// 0, is an error, and ends the bench: a time of something that did not happen is no time.
type method struct {
	name string
	// calls is how many calls of one command a round has. It follows from the cost of one, so that no
	// way takes most of the run.
	calls int
	// concurrentCalls is how many calls a round has in all that are made by so many callers at once. A
	// way takes no part where it names none.
	concurrentCalls map[int]int
	// singleRound keeps a slow way to one round of calls at once.
	singleRound bool
	run         runner
}

// The names by which targets and tables know the ways.
const (
	wayDray         = "dray, HTTP"
	waySocket       = "dray, executor, socket"
	wayStdio        = "dray, executor, stdio"
	wayPool         = "dray, executor, host"
	wayCLI          = "dray, `dray exec`"
	wayEngine       = "engine API"
	wayDockerExec   = "`docker exec`"
	wayDevcontainer = "`devcontainer exec`"
	wayRex          = "SWE-ReX"
	wayHost         = "host, os/exec"
	wayHostHTTP     = "host, dray, HTTP"
)

// expect proves that a call did what it should.
func expect(c command, code int, stdout string) error {
	if code != 0 || stdout != c.stdout {
		return fmt.Errorf("%q ended with %d and printed %q, and should have ended with 0 and printed %q",
			c.argv, code, stdout, c.stdout)
	}
	return nil
}

// How many calls a round of calls at once has, by number of callers.
var (
	fastCrowd   = map[int]int{8: 160, 32: 320, 64: 320, mostCallers: 512}
	engineCrowd = map[int]int{8: 64, 64: 64, mostCallers: 256}
	dockerCrowd = map[int]int{32: 64}
	rexCrowd    = map[int]int{32: 96}
)

// ways are all that is compared, in the order of the tables.
func ways(r *testbed) []method {
	all := []method{
		{
			name: wayDray, calls: 50, concurrentCalls: fastCrowd,
			run: r.daemon.call(r.workspace, dray.ChooseContainer),
		},
		{name: wayCLI, calls: 5, run: r.daemon.counted(r.program(r.dray, "exec", "--state",
			r.daemon.state, "--workspace", r.workspace, "--"))},
	}
	for _, e := range r.environments {
		all = append(all, method{
			name: e.name, calls: 50, concurrentCalls: fastCrowd,
			run: executorAlone(e.Environment),
		})
	}
	all = append(all,
		method{
			name: wayEngine, calls: 5, concurrentCalls: engineCrowd, singleRound: true,
			run: engineAPI(r),
		},
		method{
			name: wayDockerExec, calls: 5, concurrentCalls: dockerCrowd, singleRound: true,
			run: r.program(r.dockerExec()...),
		},
		method{
			name: wayDevcontainer, calls: 1,
			run: r.program(r.devcontainer, "exec", "--workspace-folder", r.workspace),
		},
	)
	if r.rex != nil {
		all = append(all, method{name: wayRex, calls: 50, concurrentCalls: rexCrowd, run: r.rex.call})
	}
	return append(all,
		method{name: wayHost, calls: 50, concurrentCalls: fastCrowd, run: r.program()},
		method{
			name: wayHostHTTP, calls: 50, concurrentCalls: fastCrowd,
			run: r.daemon.call(r.workspace, dray.ChooseHost),
		},
	)
}

func (r *testbed) dockerExec() []string {
	return []string{r.docker, "exec", "--user", remoteUser, "--workdir", r.folder, r.container.ID}
}

// program runs the command through a program that takes it as its last arguments, or by itself,
// with all three streams as pipes.
func (r *testbed) program(prefix ...string) runner {
	return func(ctx context.Context, c command) error {
		argv := slices.Concat(prefix, c.argv)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // what is compared
		var stdout, stderr bytes.Buffer
		cmd.Dir = r.workspace
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(""), &stdout, &stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
		}
		return expect(c, 0, stdout.String())
	}
}

// engineAPI is the least that the engine's own interface needs: create, start and attach, the end
// of the stream, the exit code.
func engineAPI(r *testbed) runner {
	return func(ctx context.Context, c command) error {
		var stdout bytes.Buffer
		code, err := r.engineExec(ctx, c.argv, &stdout)
		if err != nil {
			return err
		}
		return expect(c, code, stdout.String())
	}
}

func (r *testbed) engineExec(ctx context.Context, argv []string, stdout io.Writer) (code int,
	err error,
) {
	created, err := r.api.ExecCreate(ctx, r.container.ID, client.ExecCreateOptions{
		User: remoteUser, WorkingDir: r.folder, Cmd: argv, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return 0, err
	}
	attached, err := r.api.ExecAttach(ctx, created.ID, client.ExecAttachOptions{})
	if err != nil {
		return 0, err
	}
	defer attached.Close()
	if _, err := stdcopy.StdCopy(stdout, io.Discard, attached.Reader); err != nil {
		return 0, err
	}
	ended, err := r.api.ExecInspect(ctx, created.ID, client.ExecInspectOptions{})
	return ended.ExitCode, err
}

// executorAlone is a process of an environment, and nothing around it: no request, no trail, no
// capture.
func executorAlone(env dray.Environment) runner {
	return func(ctx context.Context, c command) error {
		proc, err := env.Start(ctx, dray.ProcessSpec{Argv: c.argv})
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
