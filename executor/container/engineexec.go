package container

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/shellprobe"
)

// engineExec runs processes through the engine's own exec. It knows exit codes, and no more: a signal is 128+n, nothing can be signalled
// or ended, and what is left behind is not known. Capabilities and results say so.
type engineExec struct {
	*environment
	fallbackReason string

	mu        sync.Mutex // one probe at a time
	probeDone bool
	probeEnv  []string
}

func newEngineExec(e *environment, why string) *engineExec {
	return &engineExec{environment: e, fallbackReason: why}
}

// Capabilities of the engine's exec.
func (e *engineExec) Capabilities() dray.Capabilities {
	warnings := append([]string(nil), e.target.Warnings...)
	if e.fallbackReason != "" {
		warnings = append(warnings, "no agent could be placed in the container, so the engine's exec is used; a call that is ended early may leave processes behind: "+e.fallbackReason)
	}
	return dray.Capabilities{
		Kind: dray.KindContainer, WorkspaceFolder: e.target.WorkspaceFolder, Mounts: e.target.Mounts,
		Container: e.metadata("engine", ""), Warnings: warnings,
	}
}

// Start creates an exec and waits until the engine says that it runs, or that it never will.
func (e *engineExec) Start(ctx context.Context, spec dray.ProcessSpec) (dray.Process, error) {
	probed, warnings := e.shellEnvironment(ctx)
	vars := append([]string(nil), probed...)
	for name, value := range spec.Env {
		vars = append(vars, name+"="+value)
	}
	for name, value := range e.target.RemoteEnv {
		vars = append(vars, name+"="+value)
	}
	dir := e.dir(spec.Dir)
	if dir == "" {
		dir, _ = lookup(probed, "HOME") // without a shell that knows it, the image's own folder
	}
	p, err := e.exec(ctx, spec.Argv, dir, vars, spec.Terminal != nil)
	if err != nil {
		return nil, err
	}
	p.warnings = slices.Concat(warnings, e.engine.dirt.warningsFor(e.key()))
	if spec.KeepLeftovers {
		p.warnings = append(p.warnings, "the engine's exec leaves alone whatever a call leaves running, and does not tell what that is")
	}
	if spec.Terminal != nil {
		_ = p.Resize(*spec.Terminal) //nolint:contextcheck // it has a bound of its own; one that is over already has no size
	}
	return p, nil
}

// disabledDetachKeys is typed by nobody: by default the engine would keep every Ctrl-P of a terminal for itself.
const disabledDetachKeys = "ctrl-_,ctrl-^,ctrl-],ctrl-_,ctrl-^,ctrl-]"

func (e *engineExec) exec(ctx context.Context, argv []string, dir string, env []string, terminal bool) (*execProcess, error) {
	c := e.target.Container
	a, err := e.engine.openExec(ctx, c.ID, client.ExecCreateOptions{
		User: e.target.User, Cmd: argv, WorkingDir: dir, Env: env, TTY: terminal, DetachKeys: disabledDetachKeys,
	})
	if err != nil {
		return nil, e.engine.containerError(c.Name, "starting a process", err)
	}
	p := newExecProcess(e.engine, c, a) //nolint:contextcheck // the call may be over; afterLoss has a bound of its own
	if err := p.started(ctx); err != nil {
		p.Stop(0)
		<-p.done
		return nil, err
	}
	return p, nil
}

// Files need a helper in the container, which only the agent can start.
func (e *engineExec) Files(context.Context, string) (dray.Files, error) {
	hint := "use exec with the image's own programs; agent.transport is engine, so no agent is placed"
	if e.fallbackReason != "" {
		hint = "use exec with the image's own programs; the agent could not be placed: " + e.fallbackReason
	}
	return nil, dray.Errorf(dray.CodeContainerUnavailable, "files in container %s need the agent, which is not there", e.target.Container.Name).
		WithHint("%s", hint)
}

// shellEnvironment is what the user's shell makes of the environment. It is asked once for each environment; a question that failed is
// put again by the next call.
func (e *engineExec) shellEnvironment(ctx context.Context) (env, warnings []string) {
	question, ok := shellprobe.New(e.target.Probe)
	if !ok {
		return nil, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.probeDone {
		return e.probeEnv, nil
	}
	probed, err := e.probe(ctx, question)
	if err != nil {
		return nil, []string{"the user's shell could not be asked for its environment: " + err.Error()}
	}
	e.probeDone, e.probeEnv = true, probed
	return probed, nil
}

func (e *engineExec) probe(ctx context.Context, question shellprobe.Probe) ([]string, error) {
	shell, ok := lookup(e.target.Container.Env, "SHELL")
	if !ok {
		shell = shellprobe.DefaultShell
	}
	ctx, cancel := context.WithTimeoutCause(ctx, shellprobe.Timeout, errProbeTimeout)
	defer cancel()
	p, err := e.exec(ctx, question.Argv(shell, ""), "", nil, false)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { p.Stop(0) })
	defer stop()
	var quiet sync.WaitGroup
	quiet.Go(func() { _, _ = io.Copy(io.Discard, p.Output(dray.Stderr)) })
	out, _ := io.ReadAll(io.LimitReader(p.Output(dray.Stdout), shellprobe.MaxAnswer))
	p.Stop(0)
	quiet.Wait()
	<-p.done
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return question.ParseOutput(out)
}

var errProbeTimeout = fmt.Errorf("it took longer than %s", shellprobe.Timeout)
