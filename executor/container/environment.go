package container

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/wire"
)

// EnvironmentSpec is a container together with how calls run in it: what devcontainer exec would
// do.
type EnvironmentSpec struct {
	Container Container
	// User is verbatim as the engine takes it; empty is the image's, which is root's where it names
	// none.
	User string
	// WorkspaceFolder is where calls run that name no folder; empty is the user's home folder.
	WorkspaceFolder string
	RemoteEnv       map[string]string
	// Probe is a userEnvProbe.
	Probe      string
	ConfigHash string
	Mounts     []dray.Mount
	Warnings   []string
}

// agentFailure remembers for a while that a container takes no agent.
type agentFailure struct {
	reason string
	until  time.Time
}

// agentRetryDelay is how long a container that takes no agent is not tried again.
const agentRetryDelay = time.Minute

// Environment makes a running container ready for calls: its agent answers, or the engine's exec
// stands in for it. Errors: container_unavailable, engine_unavailable.
func (e *Engine) Environment(ctx context.Context, t EnvironmentSpec) (dray.Environment, error) {
	if !t.Container.Running() {
		return nil, t.Container.NotRunning()
	}
	if t.User == "" {
		t.User = t.Container.User
	}
	name, err := e.Name(ctx)
	if err != nil {
		return nil, err
	}
	env := &environment{engine: e, target: t, engineName: name}
	if e.opts.Transport == TransportEngine {
		return newEngineExec(env, ""), nil
	}
	if reason, refused := e.recentFailure(env.key()); refused {
		return newEngineExec(env, reason), nil
	}
	a, err := e.agents.get(ctx, t.Container, t.User)
	if placement, ok := errors.AsType[*placementError](err); ok {
		if e.opts.Transport != TransportAuto {
			return nil, dray.Errorf(dray.CodeContainerUnavailable,
				"no agent can be placed in container %s: %w", t.Container.Name, err).
				WithHint("set agent.transport to auto to use whatever works there, at the last the engine's own exec")
		}
		e.recordFailure(env.key(), placement.Error())
		return newEngineExec(env, placement.Error()), nil
	}
	if err != nil {
		return nil, err
	}
	env.channel, env.sameUser = a.channel, !a.hello.SwitchUser
	return env, nil
}

func (e *Engine) recentFailure(key agentKey) (string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, ok := e.refusal[key]
	if ok && time.Now().After(r.until) {
		delete(e.refusal, key)
		ok = false
	}
	return r.reason, ok
}

func (e *Engine) recordFailure(key agentKey, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refusal[key] = agentFailure{reason, time.Now().Add(agentRetryDelay)}
}

// environment runs processes through the agent.
type environment struct {
	engine     *Engine
	target     EnvironmentSpec
	engineName string
	channel    string // that carried when it was made ready
	sameUser   bool   // the agent is the call's user, and no other can be had
}

func (e *environment) key() agentKey {
	return agentKey{e.target.Container.ID, e.target.Container.StartedAt, e.target.User}
}

// Capabilities of a container with an agent.
func (e *environment) Capabilities() dray.Capabilities {
	return dray.Capabilities{
		Kind: dray.KindContainer, ExactSurvivors: true, BestEffortKill: e.sameUser, TracksLeftovers: true, Signals: true, NativeTerminals: true, WorkspaceFolder: e.target.WorkspaceFolder,
		Mounts: e.target.Mounts, Container: e.metadata("agent", e.channel), Warnings: e.warnings(),
	}
}

// warnings say what holds for every call.
func (e *environment) warnings() []string {
	if !e.sameUser {
		return e.target.Warnings
	}
	return append(slices.Clip(e.target.Warnings),
		"root in the container may not switch users, so dray's agent runs as the tool's own user there: "+
			"what a call is ended by is best effort, since a tool can end the agent, and what became another user cannot be ended")
}

func (e *environment) metadata(transport, channel string) *dray.ContainerMetadata {
	c := e.target.Container
	return &dray.ContainerMetadata{
		ID: c.ID, Name: c.Name, Image: c.Image, ImageDigest: c.ImageDigest, Engine: e.engineName, WorkspaceFolder: e.target.WorkspaceFolder,
		User: e.target.User, ConfigHash: e.target.ConfigHash, Transport: transport, Channel: channel,
	}
}

// Start runs a process as devcontainer exec would.
func (e *environment) Start(ctx context.Context, spec dray.ProcessSpec) (dray.Process, error) {
	return e.start(ctx, wire.Start{
		Argv: spec.Argv, User: e.target.User, Groups: e.target.Container.Groups, Dir: e.dir(spec.Dir), Grace: spec.Grace,
		KeepLeftovers: spec.KeepLeftovers, Terminal: spec.Terminal,
		Env: e.engineEnv(spec.Terminal != nil), CallEnv: assignments(spec.Env), RemoteEnv: assignments(e.target.RemoteEnv),
		Probe: wire.Probe{
			Kind: e.target.Probe, Shell: shellOf(e.target.Container.Env),
			Dir: e.target.Container.Workdir,
		},
	})
}

func (e *environment) dir(dir string) string {
	if dir == "" {
		return e.target.WorkspaceFolder
	}
	return dir
}

// start asks the agent; one that died before it took the request is started again, once.
func (e *environment) start(ctx context.Context, req wire.Start) (*agentProcess, error) {
	for again := false; ; again = true {
		a, err := e.engine.agents.get(ctx, e.target.Container, e.target.User)
		if err != nil {
			// the call may be over; afterLoss has a bound of its own
			return nil, e.agentError(err) //nolint:contextcheck
		}
		p, err := a.openStream(e, req)
		if err == nil {
			return p.accepted(ctx)
		}
		if err := openStreamError(err, req); err != nil {
			return nil, err
		}
		if again {
			// the call may be over; afterLoss has a bound of its own
			return nil, e.engine.lossError(e.target.Container, err) //nolint:contextcheck
		}
		// nothing was sent
	}
}

// openStream sends a request. On a socket the process gets pipes that end here; elsewhere, and with
// a terminal, its streams are framed.
func (a *agent) openStream(e *environment, req wire.Start) (*agentProcess, error) {
	if !a.mux.CanPassFDs() || req.Terminal != nil {
		stream, err := a.mux.Open(&req)
		if err != nil {
			return nil, err
		}
		return newProcess(e, a, stream, nil, req), nil
	}
	pipes, err := process.NewPipes()
	if err != nil {
		return nil, err
	}
	defer pipes.Child.Close()
	req.PassedFDs = true
	ends := []*os.File{pipes.Child.Stdin, pipes.Child.Stdout, pipes.Child.Stderr}
	chownPipes(ends)
	stream, err := a.mux.Open(&req, ends...)
	if err != nil {
		pipes.Close()
		return nil, err
	}
	return newProcess(e, a, stream, pipes, req), nil
}

// chownPipes lets the tool open /dev/stdout and its kin by name. The agent makes its user their
// owner, which it may not without CAP_CHOWN, nor in a user namespace that does not know us. A pipe
// has no name but in /proc/PID/fd, which the kernel shows to who may trace that process.
func chownPipes(ends []*os.File) {
	for _, f := range ends {
		_ = f.Chmod(0o666) // without it only such opens fail
	}
}

// openStreamError is a start that would have broken the connection, and so was not sent.
func openStreamError(err error, req wire.Start) error {
	switch {
	case errors.Is(err, wire.ErrTooMany):
		return dray.Errorf(dray.CodeBusy, "too many processes of dray run in the container: %w", err).
			WithHint("wait until some of them have ended")
	case errors.Is(err, wire.ErrTooLarge):
		return process.WrapStartError(&process.StartError{
			Step: process.StepExec,
			Path: strings.Join(req.Argv[:min(1, len(req.Argv))], ""), Err: syscall.E2BIG,
		}, "")
	default:
		if _, ok := errors.AsType[*process.StartError](err); ok {
			return process.WrapStartError(err, "")
		}
		return nil
	}
}

func (e *environment) agentError(err error) error {
	if _, ok := errors.AsType[*placementError](err); ok || errors.Is(err, errClosing) {
		return e.engine.lossError(e.target.Container, err)
	}
	return err
}

// Bounds of what an agent may say in words: it may be anybody's.
const (
	maxMessageBytes = 4 << 10
	maxWarnings     = 8
)

func truncateMessages(words []string) []string {
	list := make([]string, 0, maxWarnings)
	for _, w := range words[:min(len(words), maxWarnings)] {
		list = append(list, strings.ToValidUTF8(w[:min(len(w), maxMessageBytes)], "\uFFFD"))
	}
	return list
}

// startCodes are the codes with which an agent may refuse a start; any other is not its to give.
var startCodes = []dray.Code{
	dray.CodeExecutableNotFound, dray.CodeNotExecutable, dray.CodeBadCwd, dray.CodeBadUser, dray.CodeLimitExceeded, dray.CodeAgentLost,
}

func failedStart(f *wire.Failed) error {
	code := f.Code
	if !slices.Contains(startCodes, code) {
		code = dray.CodeAgentLost
	}
	return dray.Errorf(code, "%s", truncateMessages([]string{f.Message})[0]).
		WithHint("%s", process.Hint(code))
}

// Files opens a folder of the container through a helper process that runs as the call's user.
func (e *environment) Files(ctx context.Context, root string) (dray.Files, error) {
	proc, err := e.start(ctx, wire.Start{
		Helper: []string{
			"files",
			root,
		}, User: e.target.User, Groups: e.target.Container.Groups, Dir: "/", Env: e.engineEnv(false),
	})
	if err != nil {
		return nil, err
	}
	// ends with the process, which closeHelper ends
	go func() { _, _ = io.Copy(io.Discard, proc.Output(dray.Stderr)) }()
	stop := context.AfterFunc(ctx, func() { proc.Stop(0) })
	out := proc.Output(dray.Stdout)
	client := files.NewClient(proc.Stdin(), out, func() error {
		stop()
		proc.Stop(0)
		if c, ok := out.(io.Closer); ok {
			_ = c.Close() // what was not read of a tree must not hold up the end
		}
		_, _ = proc.Wait()
		return nil
	})
	return &containerFiles{Client: client, env: e, helper: proc}, nil
}

// defaultPath is what the engine gives an exec in an image that sets no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// engineEnv is the environment that the engine gives every exec, HOME aside, which depends on the
// user.
func (e *environment) engineEnv(terminal bool) []string {
	c := e.target.Container
	env := []string{"PATH=" + defaultPath, "HOSTNAME=" + c.Hostname}
	if terminal {
		env = append(env, "TERM=xterm")
	}
	return append(env, c.Env...)
}

func shellOf(env []string) string {
	shell, _ := lookup(env, "SHELL")
	return shell
}

func lookup(env []string, name string) (string, bool) {
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value, true
		}
	}
	return "", false
}
