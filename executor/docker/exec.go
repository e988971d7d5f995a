package docker

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
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
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/logging"
	"github.com/dray-dev/dray/internal/shellprobe"
)

// execEnv runs processes by the engine's own exec. Only exit codes are known: a signal is 128+n, no
// process can be signalled or stopped, and leftover processes are not known. Capabilities and
// results say so.
type execEnv struct {
	engine         *Engine
	container      agent.Container
	spec           agent.Spec
	fallbackReason string // why the agent is not used; empty if the configuration says so
	caps           dray.Capabilities
	dialect        dialect

	mu        sync.Mutex // one probe at a time
	probeDone bool
	probeEnv  []string
}

func newExecEnv(e *Engine, c agent.Container, spec agent.Spec, reason string) *execEnv {
	env := &execEnv{
		engine: e, container: c, spec: spec, fallbackReason: reason,
		caps: spec.Capabilities(c, "engine", ""), dialect: e.knownServer().dialect,
	}
	if reason != "" {
		env.caps.Warnings = append(slices.Clip(env.caps.Warnings),
			"the agent could not be installed in the container, so the engine's exec is used; "+
				"a call that is stopped early may leave processes running: "+reason)
	}
	return env
}

func (e *execEnv) Capabilities() dray.Capabilities { return e.caps }

// Start creates an exec and waits until the engine reports that its process runs or cannot run.
func (e *execEnv) Start(ctx context.Context, spec dray.ProcessSpec) (dray.Process, error) {
	probed, warnings := e.shellEnvironment(ctx)
	vars := slices.Concat(e.dialect.missingInExec(e.container.Env), probed,
		agent.Assignments(spec.Env), agent.Assignments(e.spec.RemoteEnv))
	vars = process.CallEnv(vars, spec.CallID, "")
	if spec.CallID != "" {
		warnings = append(slices.Clip(warnings),
			"the tool has no DRAY_RESULTS: the engine's exec cannot make a directory for each call")
	}
	// The engine cannot check RealDir, so it gets RealDir itself: a symlink that was exchanged has no
	// effect. If no directory is known, the engine uses the image's working directory.
	dir := cmp.Or(spec.RealDir, spec.Dir, e.spec.WorkspaceFolder, agent.Lookup(probed, "HOME"))
	p, err := e.exec(ctx, spec.Argv, dir, vars, spec.Terminal != nil)
	if err != nil {
		return nil, err
	}
	p.warnings = slices.Concat(warnings, e.engine.agents.Warnings(e.container),
		agent.OverriddenWarning(spec.Env, e.spec.RemoteEnv))
	if spec.KeepLeftovers {
		p.warnings = append(p.warnings,
			"the engine's exec does not track leftover processes: they keep running and are not reported")
	}
	if spec.Terminal != nil {
		// a process that has ended has no size
		_ = p.Resize(*spec.Terminal) //nolint:contextcheck // bounded by resizeTimeout
	}
	return p, nil
}

func (e *execEnv) exec(ctx context.Context, argv []string, dir string, env []string, terminal bool,
) (*execProcess, error) {
	stream, err := e.engine.openExec(ctx, e.container.ID, client.ExecCreateOptions{
		User: e.spec.User, Cmd: argv, WorkingDir: dir, Env: env, TTY: terminal,
		DetachKeys: e.dialect.detachKeys,
	})
	if err != nil {
		err = e.engine.containerError(e.container.Metadata.Name, "start a process", err)
		if ctx.Err() != nil {
			err = &process.UnconfirmedError{Err: err} // the engine may have received the request
		}
		return nil, err
	}
	p := newExecProcess(e, stream) //nolint:contextcheck // outlives the start
	if err := p.started(ctx); err != nil {
		p.Stop(0)
		<-p.done
		if ctx.Err() != nil { // the engine starts it nevertheless
			err = &process.UnconfirmedError{Err: err}
		}
		return nil, err
	}
	return p, nil
}

// Files fails: it needs a helper process of the agent.
func (e *execEnv) Files(context.Context, string) (dray.Files, error) {
	reason := "agent.transport is engine, so the agent is not installed"
	if e.fallbackReason != "" {
		reason = "the agent could not be installed: " + e.fallbackReason
	}
	return nil, dray.Errorf(dray.CodeContainerUnavailable,
		"file access in container %s needs the agent", e.container.Metadata.Name).
		WithHint("use exec with programs of the image; %s", reason)
}

// shellEnvironment returns the environment that the user's shell makes. It is probed once; a failed
// probe is repeated by the next call.
func (e *execEnv) shellEnvironment(ctx context.Context) (env, warnings []string) {
	probe, ok := shellprobe.New(e.spec.Probe)
	if !ok {
		return nil, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.probeDone {
		return e.probeEnv, nil
	}
	probed, err := e.probe(ctx, probe)
	if err != nil {
		return nil, []string{"could not get the environment from the user's shell: " + err.Error()}
	}
	e.probeDone, e.probeEnv = true, probed
	return probed, nil
}

func (e *execEnv) probe(ctx context.Context, probe shellprobe.Probe) ([]string, error) {
	shell := cmp.Or(agent.Lookup(e.container.Env, "SHELL"), shellprobe.DefaultShell)
	ctx, cancel := context.WithTimeoutCause(ctx, shellprobe.Timeout, errProbeTimeout)
	defer cancel()
	p, err := e.exec(ctx, probe.Argv(shell, ""), "", nil, false)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { p.Stop(0) })()
	var stderr sync.WaitGroup
	stderr.Go(func() { _, _ = io.Copy(io.Discard, p.Output(dray.Stderr)) })
	out, _ := io.ReadAll(io.LimitReader(p.Output(dray.Stdout), shellprobe.MaxOutput))
	p.Stop(0)
	stderr.Wait()
	<-p.done
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return probe.ParseOutput(out)
}

var errProbeTimeout = fmt.Errorf("it took longer than %s", shellprobe.Timeout)

// execProcess is the process of an exec. It implements dray.Process.
type execProcess struct {
	engine    *Engine
	container agent.Container
	stream    *execStream
	out, err  *io.PipeReader
	// begun is closed when the first output has been read, or there is none. beginsWithError reports
	// whether it can be the runtime's error.
	begun           chan struct{}
	beginsWithError bool
	startError      startError
	warnings        []string
	done            chan struct{} // closed when exit and failure are set
	stop            sync.Once
	stopped         chan struct{}
	exit            dray.Exit
	failure         error
}

func newExecProcess(e *execEnv, s *execStream) *execProcess {
	p := &execProcess{
		engine: e.engine, container: e.container, stream: s, startError: e.dialect.startError,
		begun: make(chan struct{}), done: make(chan struct{}), stopped: make(chan struct{}),
	}
	var out, errOut *io.PipeWriter
	p.out, out = io.Pipe()
	p.err, errOut = io.Pipe()
	go func() { // ends with the stream, which Stop closes
		defer close(p.done)
		defer func() { _ = s.Close() }()
		panicked := logging.RecoverPanics(e.engine.log, "reading the output of an exec", func() {
			err := p.demultiplex(out, errOut)
			_, _ = out.Close(), errOut.Close()
			p.exit, p.failure = p.exitStatus(err)
		})
		if panicked != nil {
			_, _ = out.CloseWithError(panicked), errOut.CloseWithError(panicked)
			p.exit, p.failure = dray.Exit{}, panicked
		}
	}()
	return p
}

func (p *execProcess) demultiplex(out, errOut io.Writer) error {
	buf := make([]byte, 64<<10)
	begun := sync.OnceFunc(func() { close(p.begun) })
	defer begun()
	for first := true; ; first = false {
		stream, n, err := p.stream.read(buf)
		if err == io.EOF { //nolint:errorlint // the end between two frames
			return nil
		}
		if err != nil {
			return err
		}
		if first {
			p.beginsWithError = stream == p.startError.stream &&
				bytes.HasPrefix(buf[:n], []byte(p.startError.prefix))
			begun()
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

// pollInterval is how often an exec is inspected.
const pollInterval = 10 * time.Millisecond

// started waits until the process runs or has ended. The engine reports a program that it cannot
// start as an exit code of a process without a pid.
func (p *execProcess) started(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		state, err := p.engine.api.ExecInspect(ctx, p.stream.id, client.ExecInspectOptions{})
		switch {
		case err != nil:
			return p.engine.containerError(p.container.Metadata.Name, "start a process", err)
		case state.PID != 0:
			return nil
		case slices.Contains(p.startError.codes, state.ExitCode):
			return p.startFailure(ctx)
		}
		select {
		case <-p.begun:
			if !p.beginsWithError {
				return nil // a process that has ended has no pid with Podman
			}
		default:
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.done:
			return p.failure
		}
	}
}

// startFailure reads the runtime's error, which the engine writes to a stream of the process. It
// returns nil if the process ran and ended with that exit code.
func (p *execProcess) startFailure(ctx context.Context) error {
	select {
	case <-p.begun:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !p.beginsWithError && p.startError.prefix != "" {
		return nil
	}
	with, without := p.out, p.err
	if p.startError.stream == engineStderr {
		with, without = without, with
	}
	go func() { _, _ = io.Copy(io.Discard, without) }() // ends with the stream, as ReadAll does
	b, _ := io.ReadAll(io.LimitReader(with, 4<<10))
	text := strings.TrimSpace(string(b))
	code := startErrorCode(text)
	return dray.Errorf(code, "the engine could not start the process: %s", text).
		WithHint("%s", process.Hint(code))
}

// exitTimeout bounds the wait for the exit code after the stream has ended.
const exitTimeout = 10 * time.Second

// exitStatus returns how the process ended, nothing after Stop. A stream that breaks off or is
// invalid is a failure. Podman resets one whose process has left stdin unread.
func (p *execProcess) exitStatus(streamErr error) (dray.Exit, error) {
	ctx, cancel := context.WithTimeout(context.Background(), exitTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.stopped:
			return dray.Exit{}, nil
		default:
		}
		state, err := p.engine.api.ExecInspect(ctx, p.stream.id, client.ExecInspectOptions{})
		if err != nil {
			return dray.Exit{}, p.loss(errors.Join(streamErr, err))
		}
		if !state.Running {
			if errors.Is(streamErr, errEngineFrame) || errors.Is(streamErr, io.ErrUnexpectedEOF) {
				return dray.Exit{}, p.loss(fmt.Errorf("read the process's output: %w", streamErr))
			}
			if c, err := p.engine.Inspect(ctx, p.container.ID); err != nil || !c.Running() {
				return dray.Exit{}, p.loss(errors.New("the container stopped"))
			}
			return dray.Exit{Code: state.ExitCode}, nil
		}
		select {
		case <-tick.C:
		case <-p.stopped:
		case <-ctx.Done():
			return dray.Exit{}, p.loss(errors.New("the output ended and the process still runs"))
		}
	}
}

func (p *execProcess) loss(cause error) error { return p.engine.agents.Loss(p.container, cause) }

// Warnings returns what failed before the start.
func (p *execProcess) Warnings() []string { return p.warnings }

// Stdin returns the exec's stdin. Close half-closes the connection.
func (p *execProcess) Stdin() io.WriteCloser { return execStdin{p.stream} }

type execStdin struct{ *execStream }

func (s execStdin) Close() error {
	if s.raw { // a terminal ends with the character that means it
		_, err := s.Write([]byte{ctrlD})
		return err
	}
	return s.hijack.CloseWrite()
}

// ctrlD is the end-of-file character of a terminal.
const ctrlD = 4

func (p *execProcess) Output(stream dray.Stream) io.Reader {
	if stream == dray.Stderr {
		return p.err
	}
	return p.out
}

// Signal fails: the engine has no request for it.
func (p *execProcess) Signal(syscall.Signal) error {
	return dray.Errorf(dray.CodeContainerUnavailable, "the engine's exec does not support signals")
}

// resizeTimeout bounds Resize.
const resizeTimeout = 5 * time.Second

func (p *execProcess) Resize(size dray.TerminalSize) error {
	if !p.stream.raw {
		return dray.ErrNoTerminal
	}
	ctx, cancel := context.WithTimeout(context.Background(), resizeTimeout)
	defer cancel()
	_, err := p.engine.api.ExecResize(ctx, p.stream.id,
		client.ExecResizeOptions{Height: uint(size.Rows), Width: uint(size.Columns)})
	if err != nil {
		return p.engine.containerError(p.container.Metadata.Name, "resize a terminal", err)
	}
	return nil
}

// Stop closes the streams of the process. The engine has no request that ends an exec, so the
// process may go on.
func (p *execProcess) Stop(time.Duration) {
	p.stop.Do(func() {
		close(p.stopped)
		_ = p.stream.Close()
		_, _ = p.out.Close(), p.err.Close()
	})
}

// Wait returns the exit code, nothing after Stop.
func (p *execProcess) Wait() (dray.Exit, error) {
	<-p.done
	return p.exit, p.failure
}

// The engine's frames of an exec without a terminal: stream, three zero bytes, length, payload.
const (
	engineHeader = 8
	engineStdout = 1
	engineStderr = 2
	// maxEngineFrame is far more than engines send in one frame: Docker 32 KiB, Podman 8 KiB.
	maxEngineFrame = 1 << 20
)

var errEngineFrame = errors.New("invalid frame in the engine's stream")

// execStream is the stdio of one exec.
type execStream struct {
	engine *Engine
	id     string
	hijack client.HijackedResponse
	r      *bufio.Reader

	raw    bool   // of a terminal: one stream without frames
	left   uint32 // bytes of the current frame
	stream byte

	mu     sync.Mutex
	stderr []byte // its beginning, for error texts
}

// openExec creates and starts an exec.
func (e *Engine) openExec(ctx context.Context, id string, opts client.ExecCreateOptions,
) (*execStream, error) {
	opts.AttachStdin, opts.AttachStdout, opts.AttachStderr = true, true, true
	created, err := e.api.ExecCreate(ctx, id, opts)
	if err != nil {
		return nil, err
	}
	res, err := e.api.ExecAttach(ctx, created.ID, client.ExecAttachOptions{TTY: opts.TTY})
	if err != nil {
		return nil, err
	}
	return &execStream{
		engine: e, id: created.ID, hijack: res.HijackedResponse,
		r: bufio.NewReaderSize(res.Reader, readAhead), raw: opts.TTY,
	}, nil
}

// nextFrame reads the header of the next frame if the current one was read.
func (s *execStream) nextFrame() error {
	for s.left == 0 {
		var h [engineHeader]byte
		if _, err := io.ReadFull(s.r, h[:]); err != nil {
			return err
		}
		s.stream, s.left = h[0], binary.BigEndian.Uint32(h[4:])
		if s.stream != engineStdout && s.stream != engineStderr || h[1]|h[2]|h[3] != 0 ||
			s.left > maxEngineFrame {
			return fmt.Errorf("%w: %q", errEngineFrame, h)
		}
	}
	return nil
}

// read reads a part of a frame and returns the stream that it belongs to.
func (s *execStream) read(p []byte) (stream byte, n int, err error) {
	if s.raw {
		n, err = s.r.Read(p)
		return engineStdout, n, err
	}
	if err := s.nextFrame(); err != nil {
		return 0, 0, err
	}
	n, err = s.r.Read(p[:min(len(p), int(s.left))])
	s.left -= uint32(n) //nolint:gosec // at most left
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return s.stream, n, err
}

// readAhead holds several of the engine's frames of 32 KiB. The library's own reader would read
// each in several parts.
const readAhead = 128 << 10

// maxStderr bounds the part of stderr that is kept for error texts.
const maxStderr = 4 << 10

// Read reads stdout. It keeps the beginning of stderr.
func (s *execStream) Read(p []byte) (int, error) {
	for {
		stream, n, err := s.read(p)
		if stream != engineStderr || err != nil {
			return n, err
		}
		s.mu.Lock()
		s.stderr = append(s.stderr, p[:min(n, maxStderr-len(s.stderr))]...)
		s.mu.Unlock()
	}
}

func (s *execStream) Stderr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.stderr)
}

// PID blocks until the engine has the pid of the exec's process, which it sets when the process
// runs already.
func (s *execStream) PID(ctx context.Context) (int, error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		state, err := s.engine.api.ExecInspect(ctx, s.id, client.ExecInspectOptions{})
		if err != nil || state.PID != 0 {
			return state.PID, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (s *execStream) Write(p []byte) (int, error) { return s.hijack.Conn.Write(p) }

// Close closes the connection. The process of the exec goes on.
func (s *execStream) Close() error { return s.hijack.Conn.Close() }
