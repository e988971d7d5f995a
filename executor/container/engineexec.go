package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/shellprobe"
)

// engineExec runs processes through the engine's own exec. It knows exit codes, and no more: a
// signal is 128+n, nothing can be signalled or ended, and what is left behind is not known.
// Capabilities and results say so.
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
		warnings = append(warnings,
			"no agent could be placed in the container, so the engine's exec is used; a call that is ended early may leave processes behind: "+e.fallbackReason)
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
		p.warnings = append(p.warnings,
			"the engine's exec leaves alone whatever a call leaves running, and does not tell what that is")
	}
	if spec.Terminal != nil {
		// it has a bound of its own; one that is over already has no size
		_ = p.Resize(*spec.Terminal) //nolint:contextcheck
	}
	return p, nil
}

// disabledDetachKeys is typed by nobody: by default the engine would keep every Ctrl-P of a
// terminal for itself.
const disabledDetachKeys = "ctrl-_,ctrl-^,ctrl-],ctrl-_,ctrl-^,ctrl-]"

func (e *engineExec) exec(ctx context.Context, argv []string, dir string, env []string,
	terminal bool,
) (*execProcess, error) {
	c := e.target.Container
	a, err := e.engine.openExec(ctx, c.ID, client.ExecCreateOptions{
		User: e.target.User, Cmd: argv, WorkingDir: dir, Env: env, TTY: terminal, DetachKeys: disabledDetachKeys,
	})
	if err != nil {
		return nil, e.engine.containerError(c.Name, "starting a process", err)
	}
	// the call may be over; afterLoss has a bound of its own
	p := newExecProcess(e.engine, c, a) //nolint:contextcheck
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
		hint = "use exec with the image's own programs; the agent could not be placed: " +
			e.fallbackReason
	}
	return nil, dray.Errorf(dray.CodeContainerUnavailable,
		"files in container %s need the agent, which is not there", e.target.Container.Name).
		WithHint("%s", hint)
}

// shellEnvironment is what the user's shell makes of the environment. It is asked once for each
// environment; a question that failed is put again by the next call.
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
	out, _ := io.ReadAll(io.LimitReader(p.Output(dray.Stdout), shellprobe.MaxOutput))
	p.Stop(0)
	quiet.Wait()
	<-p.done
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return question.ParseOutput(out)
}

var errProbeTimeout = fmt.Errorf("it took longer than %s", shellprobe.Timeout)

// execProcess is one exec of the engine.
type execProcess struct {
	engine    *Engine
	container Container
	conn      *execStream
	out, err  *io.PipeReader
	warnings  []string
	done      chan struct{}
	stop      sync.Once
	stopped   chan struct{}
	exit      dray.Exit
	failure   error
}

func newExecProcess(e *Engine, c Container, a *execStream) *execProcess {
	p := &execProcess{
		engine: e, container: c, conn: a, done: make(chan struct{}),
		stopped: make(chan struct{}),
	}
	var out, errOut *io.PipeWriter
	p.out, out = io.Pipe()
	p.err, errOut = io.Pipe()
	go func() { // ends with the stream, which Stop ends at the latest
		defer close(p.done)
		defer func() { _ = a.Close() }()
		defect := e.recoverPanics("following an exec", func() {
			err := demultiplex(a, out, errOut)
			_, _ = out.Close(), errOut.Close()
			p.exit, p.failure = p.exitStatus(err)
		})
		if defect != nil {
			_, _ = out.CloseWithError(defect), errOut.CloseWithError(defect)
			p.exit, p.failure = dray.Exit{}, defect
		}
	}()
	return p
}

func demultiplex(a *execStream, out, errOut io.Writer) error {
	buf := make([]byte, 64<<10)
	for {
		stream, n, err := a.read(buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		to := out
		if stream == engineStderr {
			to = errOut
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return err
		}
	}
}

// poll is how often the engine is asked about an exec.
const poll = 10 * time.Millisecond

// started waits for the word that the process runs or has run. The engine reports a program that
// cannot be executed as an exit code of a process that never had a pid.
func (p *execProcess) started(ctx context.Context) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		state, err := p.engine.api.ExecInspect(ctx, p.conn.id, client.ExecInspectOptions{})
		switch {
		case err != nil:
			return p.engine.containerError(p.container.Name, "starting a process", err)
		case state.PID != 0:
			return nil
		case state.ExitCode == 126, state.ExitCode == 127, state.ExitCode == 255:
			return p.startFailure()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.done:
			if p.failure != nil {
				return p.failure
			}
			return nil
		}
	}
}

// startFailure reads the runtime's words, which the engine prints where the tool's output would be.
func (p *execProcess) startFailure() error {
	go func() { _, _ = io.Copy(io.Discard, p.err) }() // ends with the stream, as the next line does
	b, _ := io.ReadAll(io.LimitReader(p.out, 4<<10))
	text := strings.TrimSpace(string(b))
	code := dray.CodeNotExecutable
	switch {
	case strings.Contains(text, "chdir") || strings.Contains(text, "cwd"):
		code = dray.CodeBadCwd
	case strings.Contains(text, "unable to find user"), strings.Contains(text, "unable to find group"):
		code = dray.CodeBadUser
	case strings.Contains(text, "no such file"), strings.Contains(text, "not found in $PATH"):
		code = dray.CodeExecutableNotFound
	}
	return dray.Errorf(code, "the engine could not start the process: %s", text).
		WithHint("%s", process.Hint(code))
}

// exitStatus asks how the process ended, once its stream has.
func (p *execProcess) exitStatus(streamErr error) (dray.Exit, error) {
	select {
	case <-p.stopped:
		return dray.Exit{}, nil // we let go of it: nothing is known of its end
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		state, err := p.engine.api.ExecInspect(ctx, p.conn.id, client.ExecInspectOptions{})
		if err != nil {
			return dray.Exit{}, p.engine.lossError(p.container, errors.Join(streamErr, err))
		}
		if !state.Running {
			if c, err := p.engine.Inspect(ctx, p.container.ID); err != nil || !c.Running() {
				return dray.Exit{}, p.engine.lossError(p.container, fmt.Errorf("the container went down"))
			}
			return dray.Exit{Code: state.ExitCode}, nil
		}
		select {
		case <-tick.C:
		case <-p.stopped:
			return dray.Exit{}, nil
		case <-ctx.Done():
			return dray.Exit{}, p.engine.lossError(p.container,
				errors.New("its stream ended and it runs on"))
		}
	}
}

// Warnings are what went wrong before the start.
func (p *execProcess) Warnings() []string { return p.warnings }

// Stdin is the exec's stdin; Close half-closes the connection.
func (p *execProcess) Stdin() io.WriteCloser { return execStdin{p.conn} }

type execStdin struct{ *execStream }

func (s execStdin) Close() error {
	if s.raw { // a terminal has no end but the character that means it
		_, err := s.Write([]byte{ctrlD})
		return err
	}
	return s.hijack.CloseWrite()
}

// ctrlD is Ctrl-D.
const ctrlD = 4

// Output is one of the two streams.
func (p *execProcess) Output(stream dray.Stream) io.Reader {
	if stream == dray.Stderr {
		return p.err
	}
	return p.out
}

// Signal cannot be done: the engine has no call for it.
func (p *execProcess) Signal(syscall.Signal) error {
	return dray.Errorf(dray.CodeContainerUnavailable, "the engine's exec takes no signals")
}

// resizeTimeout bounds the engine's answer to a new size.
const resizeTimeout = 5 * time.Second

// Resize asks the engine for another size of the terminal.
func (p *execProcess) Resize(size dray.TerminalSize) error {
	if !p.conn.raw {
		return dray.ErrNoTerminal
	}
	ctx, cancel := context.WithTimeout(context.Background(), resizeTimeout)
	defer cancel()
	_, err := p.engine.api.ExecResize(ctx, p.conn.id,
		client.ExecResizeOptions{Height: uint(size.Rows), Width: uint(size.Columns)})
	if err != nil {
		return p.engine.containerError(p.container.Name, "resizing a terminal", err)
	}
	return nil
}

// Stop lets go of the process. The engine has no call that ends an exec, so what becomes of it is
// not known.
func (p *execProcess) Stop(time.Duration) {
	p.stop.Do(func() {
		close(p.stopped)
		_ = p.conn.Close()
		_, _ = p.out.Close(), p.err.Close()
	})
}

// Wait tells the exit code, or nothing after Stop.
func (p *execProcess) Wait() (dray.Exit, error) {
	<-p.done
	return p.exit, p.failure
}
