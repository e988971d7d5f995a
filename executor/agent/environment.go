package agent

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/wire"
)

// environment runs processes through the agent of a container. It implements dray.Environment.
type environment struct {
	pool *Pool
	conn connector
	caps dray.Capabilities
	base wire.Start // what every start has in common

	remoteEnv map[string]string
}

// sameUserWarning is given where root in the container lacks CAP_SETUID, CAP_SETGID or CAP_KILL.
const sameUserWarning = "root in this container cannot change users, so the agent runs as the " +
	"tool's user: stopping calls is best effort, and processes of other users cannot be stopped"

// Environment connects to the agent of a container and returns an environment for calls that run as
// spec says. It fails with *PlacementError if the container cannot run an agent, with
// container_unavailable or engine_unavailable.
func (p *Pool) Environment(ctx context.Context, c Container, spec Spec) (dray.Environment, error) {
	spec.User = cmp.Or(spec.User, c.User)
	e := &environment{pool: p, conn: p.connector(c), remoteEnv: spec.RemoteEnv}
	e.base = wire.Start{
		User: spec.User, Groups: c.Groups, Dir: spec.WorkspaceFolder,
		Env: EngineEnv(c, false), RemoteEnv: Assignments(spec.RemoteEnv),
		Probe: wire.Probe{Kind: spec.Probe, Shell: Lookup(c.Env, "SHELL"), Dir: c.Workdir},
	}
	a, err := p.get(ctx, e.conn, spec.User)
	if err != nil {
		return nil, err
	}
	e.caps = spec.Capabilities(c, "agent", string(a.channel))
	e.caps.ExactSurvivors, e.caps.TracksLeftovers = true, true
	e.caps.Signals, e.caps.NativeTerminals = true, true
	if !a.hello.SwitchUser {
		e.caps.BestEffortKill = true
		e.caps.Warnings = append(slices.Clip(e.caps.Warnings), sameUserWarning)
	}
	return e, nil
}

func (e *environment) Capabilities() dray.Capabilities { return e.caps }

// Start runs a process as `devcontainer exec` would.
func (e *environment) Start(ctx context.Context, spec dray.ProcessSpec) (dray.Process, error) {
	req := e.base
	req.Argv, req.CallEnv, req.Grace = spec.Argv, Assignments(spec.Env), spec.Grace
	req.KeepLeftovers, req.Terminal = spec.KeepLeftovers, spec.Terminal
	req.Call = spec.CallID
	req.Dir, req.RealDir = cmp.Or(spec.Dir, req.Dir), spec.RealDir
	if spec.Terminal != nil {
		req.Env = EngineEnv(e.conn.c, true)
	}
	p, err := e.start(ctx, req)
	if err != nil {
		return nil, err
	}
	p.warnings = append(p.warnings, OverriddenWarning(spec.Env, e.remoteEnv)...)
	return p, nil
}

// start sends a request to the agent. If the agent is lost before the request was sent, it is
// started again, once.
func (e *environment) start(ctx context.Context, req wire.Start) (*agentProcess, error) {
	for retried := false; ; retried = true {
		a, err := e.pool.get(ctx, e.conn, req.User)
		if _, ok := errors.AsType[*PlacementError](err); ok || errors.Is(err, errClosed) {
			err = e.conn.lossError(err) //nolint:contextcheck // the call may be over
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		p, err := e.open(a, req)
		if err == nil {
			return p.awaitStart(ctx)
		}
		if err := rejectedStart(err, req); err != nil {
			return nil, err
		}
		if retried {
			return nil, e.conn.lossError(err) //nolint:contextcheck // the call may be over
		}
	}
}

// open sends a request. On a socket the process gets pipes whose other ends are here. Otherwise,
// and with a terminal, the stream carries its input and output.
func (e *environment) open(a *agent, req wire.Start) (*agentProcess, error) {
	p := &agentProcess{
		env: e, agent: a, terminal: req.Terminal != nil, keepLeftovers: req.KeepLeftovers,
		done: make(chan struct{}),
	}
	passed, err := p.newFiles(a.mux.CanPassFDs())
	if err == nil {
		req.PassedFDs = p.pipes != nil
		p.stream, err = a.mux.Open(&req, passed...)
	}
	if p.pipes != nil {
		p.pipes.Child.Close()
	}
	if err != nil {
		p.closeFiles()
		return nil, err
	}
	return p, nil
}

// newFiles creates the pipes and the permit of a process if fds can be passed, and returns what is
// passed of them.
func (p *agentProcess) newFiles(canPass bool) (passed []*os.File, err error) {
	if !canPass {
		return nil, nil
	}
	if !p.terminal {
		if p.pipes, err = process.NewPipes(); err != nil {
			return nil, err
		}
		passed = []*os.File{p.pipes.Child.Stdin, p.pipes.Child.Stdout, p.pipes.Child.Stderr}
		makeAccessible(passed)
	}
	p.permit, err = process.NewPermit()
	return append(passed, p.permit), err
}

// closeFiles closes the files of a process that was not started.
func (p *agentProcess) closeFiles() {
	if p.pipes != nil {
		p.pipes.Close()
	}
	if p.permit != nil {
		_ = p.permit.Close()
	}
}

// makeAccessible lets the tool open /dev/stdout and the like by name. The agent gives the pipes to
// the tool's user, but cannot without CAP_CHOWN or in another user namespace. A pipe has no name
// except in /proc/PID/fd, where the kernel shows it only to processes that may trace that one.
func makeAccessible(pipes []*os.File) {
	for _, f := range pipes {
		_ = f.Chmod(0o666) // on failure only such opens fail
	}
}

// rejectedStart returns the error of a request that was not sent because of its content, nil if the
// connection is lost.
func rejectedStart(err error, req wire.Start) error {
	_, failed := errors.AsType[*process.StartError](err)
	switch {
	case errors.Is(err, wire.ErrTooMany):
		return dray.Errorf(dray.CodeBusy, "too many processes of dray run in the container: %w", err).
			WithHint("wait until some of them have ended")
	case errors.Is(err, wire.ErrTooLarge):
		return process.WrapStartError(&process.StartError{
			Step: process.StepExec, Err: syscall.E2BIG,
			Path: strings.Join(req.Argv[:min(1, len(req.Argv))], ""),
		}, "")
	case failed:
		return process.WrapStartError(err, "")
	default:
		return nil
	}
}

// Files opens a directory of the container through a helper process that runs as the call's user.
func (e *environment) Files(ctx context.Context, root string) (dray.Files, error) {
	helper, err := e.start(ctx, wire.Start{
		Helper: []string{"files", root}, User: e.base.User, Groups: e.base.Groups, Dir: "/",
		Env: e.base.Env,
	})
	if err != nil {
		return nil, err
	}
	go func() { // ends with the helper, which Close stops
		_, _ = io.Copy(io.Discard, helper.Output(dray.Stderr))
	}()
	cancelStop := context.AfterFunc(ctx, func() { helper.Stop(0) })
	out := helper.Output(dray.Stdout)
	client := files.NewClient(helper.Stdin(), out, func() error {
		cancelStop()
		helper.Stop(0)
		if c, ok := out.(io.Closer); ok {
			_ = c.Close() // the unread rest of a tree must not delay the end
		}
		_, _ = helper.Wait()
		return nil
	})
	return &containerFiles{client, helper}, nil
}

// containerFiles are the files that a helper process serves.
type containerFiles struct {
	*files.Client
	helper *agentProcess
}

// ReadTree returns a tree that the helper streams.
func (f *containerFiles) ReadTree(ctx context.Context, what dray.ReadTreeOptions,
) (dray.Tree, error) {
	t, err := f.Client.ReadTree(ctx, what)
	if err != nil {
		return nil, err
	}
	return &lossTree{t, f.helper}, nil
}

// lossTree is a tree whose stream may break off because its agent was lost.
type lossTree struct {
	dray.Tree
	helper *agentProcess
}

func (t *lossTree) Next() (dray.TreeEntry, error) {
	e, err := t.Tree.Next()
	return e, t.explain(err)
}

func (t *lossTree) Read(p []byte) (int, error) {
	n, err := t.Tree.Read(p)
	return n, t.explain(err)
}

func (t *lossTree) explain(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // a tree's end is never wrapped
		return err
	}
	cause := t.helper.agent.mux.Err()
	if cause == nil || !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return t.helper.env.conn.lossError(cause)
}

// EngineEnv returns the variables that a Docker-compatible engine gives every exec, except HOME,
// which depends on the user.
func EngineEnv(c Container, terminal bool) []string {
	env := []string{"PATH=" + process.DefaultPath, "HOSTNAME=" + c.Hostname}
	if terminal {
		env = append(env, "TERM=xterm")
	}
	return append(env, c.Env...)
}

// Lookup returns the value of the first assignment of name in env, empty if there is none.
func Lookup(env []string, name string) string {
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// Assignments returns NAME=VALUE for each variable, in any order.
func Assignments(vars map[string]string) []string {
	out := make([]string, 0, len(vars))
	for name, value := range vars {
		out = append(out, name+"="+value)
	}
	return out
}

// OverriddenWarning warns of the variables of a call whose values remoteEnv replaces. It returns
// nil if there are none.
func OverriddenWarning(callEnv, remoteEnv map[string]string) []string {
	var names []string
	for name, value := range callEnv {
		if remote, ok := remoteEnv[name]; ok && remote != value {
			names = append(names, name)
		}
	}
	if names == nil {
		return nil
	}
	slices.Sort(names)
	return []string{"remoteEnv of the devcontainer takes precedence over these variables " +
		"of the call: " + strings.Join(names, ", ")}
}
