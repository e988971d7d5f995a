package python

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

const (
	// containerHello bounds the wait for the hello of python3.
	containerHello = 30 * time.Second
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
	//nolint:contextcheck // it outlives ctx
	w := &containerWorker{newWorkerProcess(proc, spec.Generation, c.Log)}
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

// containerWorker is a worker of the runtime container.
type containerWorker struct{ *workerProcess }

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
