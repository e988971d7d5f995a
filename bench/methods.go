package main

import (
	"bytes"
	"context"
	"encoding/json"
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

// command is what every method runs. Its working directory is the workspace.
type command struct {
	name   string // as Markdown
	argv   []string
	stdout string
}

var (
	runTrue  = command{name: "`true`", argv: []string{"true"}}
	runSleep = command{
		name: "`sleep 0.05; echo`", argv: []string{"sh", "-c", "sleep 0.05; echo"}, stdout: "\n",
	}
)

// mostCallers is the largest number of callers at once.
const mostCallers = 256

// The loads, by part.
var (
	oneCaller     = load{1, &runTrue}
	manyCallers   = load{32, &runTrue}
	callLoads     = []load{oneCaller, manyCallers}
	parallelLoads = []load{{8, &runSleep}, {mostCallers, &runSleep}}
)

// runner runs a command to its end and checks its exit code and output: the time of a call that did
// not happen is worth nothing.
type runner func(ctx context.Context, c *command) error

// method is one way to run a command.
type method struct {
	name string
	// calls is the number of calls in a round by the number of callers. It depends on what a call
	// costs, so that no method takes most of the run. A method without calls for a load is left out.
	calls map[int]int
	slow  bool // three rounds are enough
	run   runner
	// floor is a mode of the floor program, which then makes the calls of a round itself.
	floor        string
	floorProgram *floorProgram
}

// The names of the methods.
const (
	methodHTTP         = "dray, HTTP"
	methodHostHTTP     = "dray, HTTP, tool on the host"
	methodCLI          = "`dray exec`"
	methodPlain        = "plain HTTP client, a process"
	methodSocket       = "dray, executor, socket"
	methodStdio        = "dray, executor, stdio"
	methodPool         = "dray, executor, host"
	methodEngine       = "engine API"
	methodDockerExec   = "`docker exec`"
	methodDevcontainer = "`devcontainer exec`"
	methodRex          = "SWE-ReX"
	methodHost         = "host, os/exec"
	floorExec          = "floor: fork and exec"
	floorSupervised    = "floor: through a supervisor"
	floorRecorded      = "floor: through a server with a log"
)

// The numbers of calls in a round, by the number of callers.
var (
	fast   = map[int]int{1: 50, 8: 160, 32: 320, mostCallers: 512}
	engine = map[int]int{1: 5, 8: 64, mostCallers: 256}
	five   = map[int]int{1: 5}
)

// newMethods returns all methods in the order of the tables.
func newMethods(b *testbed) []method {
	all := []method{
		{name: methodHTTP, calls: fast, run: b.daemon.call(b.workspace, dray.ChooseContainer)},
		{name: methodHostHTTP, calls: fast, run: b.daemon.call(b.workspace, dray.ChooseHost)},
		{name: methodCLI, calls: five, run: b.daemon.counted(b.program(b.dray, "exec", "--state",
			b.daemon.state, "--workspace", b.workspace, "--"))},
		{name: methodPlain, calls: five, run: b.daemon.counted(b.plainClient)},
	}
	for _, e := range b.environments {
		all = append(all, method{name: e.name, calls: fast, run: startAndWait(e.Environment)})
	}
	all = append(all,
		method{name: methodEngine, calls: engine, slow: true, run: b.engineAPI},
		method{name: methodDockerExec, calls: five, run: b.program(b.dockerExec()...)},
		method{
			name: methodDevcontainer, calls: map[int]int{1: 1},
			run: b.program(b.devcontainer, "exec", "--workspace-folder", b.workspace),
		})
	if b.rex != nil {
		all = append(all, method{name: methodRex, calls: map[int]int{1: 50, 32: 96}, run: b.rex.call})
	}
	all = append(all, method{name: methodHost, calls: fast, run: b.program()})
	for name, mode := range map[string]string{
		floorExec: "exec", floorSupervised: "supervised", floorRecorded: "recorded",
	} {
		all = append(all, method{
			name: name, calls: map[int]int{1: 50, 32: 320}, floor: mode, floorProgram: b.floor,
		})
	}
	slices.SortStableFunc(all, func(x, y method) int { return strings.Compare(x.floor, y.floor) })
	return all
}

// expect checks that a call did what it should.
func expect(c *command, code int, stdout string) error {
	if code != 0 || stdout != c.stdout {
		return fmt.Errorf("%q exited with %d and printed %q, want 0 and %q", c.argv, code, stdout,
			c.stdout)
	}
	return nil
}

func (b *testbed) dockerExec() []string {
	return []string{b.docker, "exec", "--user", remoteUser, "--workdir", b.folder, b.container.ID}
}

// program runs the command as a process of the host, as the last arguments of prefix if there is
// one. All three streams are pipes.
func (b *testbed) program(prefix ...string) runner {
	return func(ctx context.Context, c *command) error {
		return b.process(ctx, c, slices.Concat(prefix, c.argv))
	}
}

// plainClient makes the call of methodHTTP by a client that is a process.
func (b *testbed) plainClient(ctx context.Context, c *command) error {
	body, err := json.Marshal(newBody(b.workspace, dray.ChooseContainer, c.argv))
	if err != nil {
		return err
	}
	return b.process(ctx, c, []string{b.plain, b.daemon.socket, string(body)})
}

func (b *testbed) process(ctx context.Context, c *command, argv []string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // what is compared
	var stdout, stderr bytes.Buffer
	cmd.Dir = b.workspace
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(""), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return expect(c, 0, stdout.String())
}

// engineAPI is the least that the engine's own interface needs: create an exec, start it attached,
// read to the end of the stream, get the exit code.
func (b *testbed) engineAPI(ctx context.Context, c *command) error {
	var stdout bytes.Buffer
	code, err := b.engineExec(ctx, c.argv, &stdout)
	if err != nil {
		return err
	}
	return expect(c, code, stdout.String())
}

func (b *testbed) engineExec(ctx context.Context, argv []string, stdout io.Writer) (code int,
	err error,
) {
	created, err := b.api.ExecCreate(ctx, b.container.ID, client.ExecCreateOptions{
		User: remoteUser, WorkingDir: b.folder, Cmd: argv, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return 0, err
	}
	attached, err := b.api.ExecAttach(ctx, created.ID, client.ExecAttachOptions{})
	if err != nil {
		return 0, err
	}
	defer attached.Close()
	if _, err := stdcopy.StdCopy(stdout, io.Discard, attached.Reader); err != nil {
		return 0, err
	}
	ended, err := b.api.ExecInspect(ctx, created.ID, client.ExecInspectOptions{})
	return ended.ExitCode, err
}

// startAndWait runs a process in an environment without a request, an audit log or a capture.
func startAndWait(env dray.Environment) runner {
	return func(ctx context.Context, c *command) error {
		proc, err := env.Start(ctx, dray.ProcessSpec{Argv: c.argv})
		if err != nil {
			return err
		}
		var stdout bytes.Buffer
		var streams sync.WaitGroup
		var errs [2]error
		streams.Go(func() { _, errs[0] = io.Copy(&stdout, proc.Output(dray.Stdout)) })
		streams.Go(func() { _, errs[1] = io.Copy(io.Discard, proc.Output(dray.Stderr)) })
		_ = proc.Stdin().Close() // fails if the process has ended already
		exit, err := proc.Wait()
		streams.Wait()
		if err := errors.Join(err, errs[0], errs[1]); err != nil {
			return err
		}
		return expect(c, exit.Code, stdout.String())
	}
}
