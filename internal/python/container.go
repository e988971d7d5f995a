package python

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

const (
	// containerHello bounds the wait for the hello of python3.
	containerHello = 30 * time.Second
	// maxStderr is how many bytes of the stderr of a worker's process are kept, from its beginning.
	maxStderr = 4 << 10
	// exitTooOld is the exit code of the bootstrap for a Python before 3.9.
	exitTooOld = 87
)

// Container is the runtime container: CPython in the environment of the call. It starts the python3
// of the environment, the keeper, which reads its program from stdin and forks the worker
// (source/container.py). Nothing is written to the environment. The container is the boundary of
// the code; this runtime adds none.
type Container struct {
	// Log receives the stderr of workers. Nil means no log.
	Log *zap.Logger
}

// Name implements Runtime.
func (*Container) Name() string { return RuntimeContainer }

// Capabilities implements Runtime. Files are written where they are, so nothing is transactional.
func (*Container) Capabilities() Capabilities {
	return Capabilities{
		InterruptKeepsState: true, Modules: true, Prepare: true, MemoryLimit: true, CPULimit: true,
	}
}

// Start implements Runtime.
func (c *Container) Start(ctx context.Context, spec WorkerSpec) (Worker, error) {
	if spec.Permissions != nil {
		return nil, dray.Errorf(dray.CodeUnsupported,
			"the Python runtime %s has the permissions of its environment", RuntimeContainer).
			WithHint("leave permissions out, or use the runtime %s", RuntimePyodide)
	}
	program := cmp.Or(spec.Executable, "python3")
	started := time.Now()
	// -I keeps the working directory, the variables of Python and the user's packages out of the
	// keeper. Its worker adds the last two.
	proc, err := spec.Environment.Start(ctx, dray.ProcessSpec{
		Argv: []string{program, "-I", "-c", string(source("bootstrap.py"))},
	})
	if err != nil {
		return nil, startError(err, program)
	}
	w := newContainerWorker(proc, spec.Generation, c.Log) //nolint:contextcheck // it outlives ctx
	if err := w.start(ctx, spec); err != nil {
		w.Kill()
		<-w.done
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, w.helloError(err, program)
	}
	w.hello.StartMS = float64(time.Since(started).Microseconds()) / 1000
	return w, nil
}

// startError returns helper_missing if there is no interpreter, else err.
func startError(err error, program string) error {
	code := dray.CodeOf(err)
	if code != dray.CodeExecutableNotFound && code != dray.CodeNotExecutable {
		return err
	}
	return dray.Errorf(dray.CodeHelperMissing, "%s cannot be started: %w", program, err).
		WithHint("%s", installHint)
}

const installHint = "install Python 3.9 or later in the image (`apt-get install python3`, or the " +
	"devcontainer feature ghcr.io/devcontainers/features/python:1), or use the runtime pyodide"

// containerWorker is a worker of the runtime container, and the base of pyodideWorker.
type containerWorker struct {
	proc   dray.Process
	conn   *conn
	hello  Hello
	stderr stderrTail

	done chan struct{} // closed when exit and err are set
	exit dray.Exit
	err  error
}

// newContainerWorker returns the worker of a process, and starts to read its streams.
func newContainerWorker(proc dray.Process, generation uint32, log *zap.Logger) *containerWorker {
	w := &containerWorker{
		proc: proc, done: make(chan struct{}),
		conn: newConn(proc.Output(dray.Stdout), proc.Stdin(), generation),
	}
	w.conn.kill = w.Kill
	var streams sync.WaitGroup
	streams.Go(func() { _ = w.conn.run() }) // its error is that of hello and of the request
	streams.Go(func() { _, _ = io.Copy(&w.stderr, proc.Output(dray.Stderr)) })
	go func() {
		defer close(w.done)
		w.exit, w.err = proc.Wait()
		streams.Wait()
		if text := w.stderr.String(); text != "" && log != nil {
			log.Warn("python worker failed", zap.String("exit", describeExit(w.exit)),
				zap.String("stderr", text))
		}
	}()
	return w
}

// start sends the program and its configuration, and waits for the hello.
func (w *containerWorker) start(ctx context.Context, spec WorkerSpec) error {
	ctx, cancel := context.WithTimeoutCause(ctx, containerHello, errNoHello)
	defer cancel()
	defer context.AfterFunc(ctx, w.Kill)() // ends a write that blocks
	payload, err := containerPayload(spec)
	if err != nil {
		return err
	}
	// An error of the write means that the process has ended, which hello reports.
	_, _ = w.proc.Stdin().Write(payload)
	w.hello, err = w.conn.hello(ctx)
	return cmp.Or(context.Cause(ctx), err)
}

var errNoHello = errors.New("it did not answer in " + containerHello.String())

// containerPayload returns the modules of the worker as bootstrap.py reads them: pairs of name and
// text. The last pair has no name, and the configuration as its text.
func containerPayload(spec WorkerSpec) ([]byte, error) {
	config, err := json.Marshal(map[string]any{"generation": spec.Generation, "memory": spec.Memory})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	part := func(text []byte) { fmt.Fprintf(&b, "%8d%s", len(text), text) }
	for _, name := range []string{"values", "core", "threads", "container"} {
		part([]byte(name))
		part(source(name + ".py"))
	}
	part(nil)
	part(config)
	return b.Bytes(), nil
}

var oldVersion = regexp.MustCompile(`(?m)^python ([0-9.]{1,16})`)

// helloError returns the error of a worker without a hello. Its process has ended.
func (w *containerWorker) helloError(err error, program string) error {
	if w.err != nil {
		return w.err
	}
	stderr := w.stderr.String()
	if found := oldVersion.FindStringSubmatch(stderr); w.exit.Code == exitTooOld && found != nil {
		return dray.Errorf(dray.CodeHelperMissing, "%s is Python %s, which is older than 3.9", program,
			found[1]).WithHint("%s", installHint)
	}
	if errors.Is(err, errWorkerEnded) {
		err = fmt.Errorf("it ended (%s): %q", describeExit(w.exit), stderr)
	}
	return dray.Errorf(dray.CodeHelperMissing, "%s cannot run as a Python worker: %w", program, err).
		WithHint("run `%s -I -c pass` there: it must be CPython 3.9 or later", program)
}

func describeExit(exit dray.Exit) string {
	if exit.Signal != 0 {
		return exit.Signal.String()
	}
	return fmt.Sprintf("exit code %d", exit.Code)
}

// Hello implements Worker.
func (w *containerWorker) Hello() Hello { return w.hello }

// Execute implements Worker. The code reads and writes the files of its environment, so none are
// staged.
func (w *containerWorker) Execute(_ context.Context, req Request, _ Workspace) (Execution,
	error,
) {
	if req.ReadOnly {
		return nil, dray.Errorf(dray.CodeUnsupported,
			"the Python runtime %s cannot run code read-only", RuntimeContainer).
			WithHint("leave read_only out, or use the runtime %s", RuntimePyodide)
	}
	e, err := w.conn.execute(req, nil)
	if err != nil {
		return nil, err
	}
	return containerExecution{e}, nil
}

// containerExecution is an execution whose code may start processes.
type containerExecution struct{ *execution }

// Stop implements stopper.
func (e containerExecution) Stop() {
	e.conn.out.interrupt(message{request: e.request, last: kindStop, until: e.done})
}

// Kill implements Worker.
func (w *containerWorker) Kill() { w.proc.Stop(0) }

// Done implements Worker.
func (w *containerWorker) Done() <-chan struct{} { return w.done }

// Exit implements Worker.
func (w *containerWorker) Exit() (dray.Exit, error) { return w.exit, w.err }

// stderrTail keeps the first bytes of the stderr of a worker's process, which writes there only if
// it fails.
type stderrTail struct {
	mu   sync.Mutex
	kept []byte
}

// Write never fails, so the stream is read to its end.
func (s *stderrTail) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, p[:min(len(p), maxStderr-len(s.kept))]...)
	return len(p), nil
}

func (s *stderrTail) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(bytes.TrimSpace(s.kept))
}
