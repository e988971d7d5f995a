package python

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/python/assets"
)

const (
	// pyodideHello bounds the wait for the hello of Deno, and preloadTimeout the wait for the import
	// of the packages that are loaded before it.
	pyodideHello   = 30 * time.Second
	preloadTimeout = 2 * time.Minute
	// denoMemory is the resident memory in bytes that Deno and Pyodide need besides that of Python.
	// denoData is their private writable memory, most of which is never touched.
	denoMemory = 128 << 20
	denoData   = 1 << 30
	// MinPyodideMemory is the smallest budget in bytes that Python itself fits into. The configuration
	// refuses a smaller one where the runtime is configured.
	MinPyodideMemory = 192 << 20
)

// PyodideConfig is what the runtime pyodide needs.
type PyodideConfig struct {
	// Start starts a supervised process: [process.Pool.Start] of the daemon's pool.
	Start func(ctx context.Context, spec process.Spec) (*process.Process, error)
	// Assets verifies Deno and Pyodide: [assets.Store.Open].
	Assets func(ctx context.Context) (assets.Assets, error)
	// Dir is a private directory for the runner, the memory snapshot and what workers need while they
	// live. It belongs to this daemon alone.
	Dir string
	// Preload are packages of the asset folder that each worker imports before it is ready.
	Preload []string
	// Bwrap is the absolute path of bubblewrap. Deno runs in it if a test shows that it works here.
	// Empty is none.
	Bwrap string
	// Log receives the stderr of workers. Nil is none.
	Log *zap.Logger

	fetcher  *fetcher // nil is one that reaches public addresses only
	unlocked bool     // no lock-down: tests of what Deno's permissions alone deny
}

// Pyodide is the runtime pyodide: CPython in WebAssembly, in a Deno process on the host with no
// permission but to read its own programs.
type Pyodide struct {
	cfg         PyodideConfig
	snapshot    snapshotFolder
	confinement confinementCache
}

// NewPyodide returns the runtime. It starts nothing.
func NewPyodide(cfg PyodideConfig) *Pyodide {
	if cfg.fetcher == nil {
		cfg.fetcher = newFetcher(nil)
	}
	return &Pyodide{cfg: cfg, snapshot: snapshotFolder{dir: cfg.Dir}}
}

// Name implements Runtime.
func (*Pyodide) Name() string { return RuntimePyodide }

// Capabilities implements Runtime.
func (*Pyodide) Capabilities() Capabilities {
	return Capabilities{
		Transactional: true, ReadOnly: true, Permissions: true, Broker: true,
		InterruptKeepsState: true, MemoryLimit: true, CPULimit: true,
	}
}

// Start implements Runtime. The first start of an installation makes the memory snapshot.
func (p *Pyodide) Start(ctx context.Context, spec WorkerSpec) (Worker, error) {
	if err := p.check(spec); err != nil {
		return nil, err
	}
	started := time.Now()
	found, err := p.cfg.Assets(ctx)
	if err != nil {
		return nil, err
	}
	if err := CheckPreload(p.cfg.Preload, found.Packages); err != nil {
		return nil, err
	}
	folder, err := p.snapshot.open(ctx, found, func(ctx context.Context, dir string) error {
		return p.makeSnapshot(ctx, found, dir)
	})
	if err != nil {
		return nil, err
	}
	w, err := p.startWorker(ctx, found, folder, spec)
	if err != nil {
		return nil, err
	}
	w.hello.StartMS = float64(time.Since(started).Microseconds()) / 1000
	return w, nil
}

// check fails with unsupported for what this runtime cannot do, and with limit_exceeded for too
// little memory.
func (p *Pyodide) check(spec WorkerSpec) error {
	switch {
	case spec.Executable != "":
		return dray.Errorf(dray.CodeUnsupported, "the Python runtime %s has no other interpreter",
			RuntimePyodide).WithHint("use the runtime %s", RuntimeContainer)
	case spec.Memory > 0 && spec.Memory < MinPyodideMemory:
		return dray.Errorf(dray.CodeLimitExceeded,
			"the Python runtime %s does not fit into %d MiB", RuntimePyodide, spec.Memory>>20).
			WithHint("set python.memory to at least %d MiB", MinPyodideMemory>>20)
	default:
		return nil
	}
}

// pythonMemory returns the bound of Python's memory for a budget, in bytes.
func pythonMemory(budget int64) int64 {
	const most = 4<<30 - 64<<10 // the maximum of 32-bit WebAssembly, in whole pages
	if budget == 0 {
		return most
	}
	return min(budget-denoMemory, most)
}

// pyodideWorker is a worker of the runtime pyodide.
type pyodideWorker struct {
	*workerProcess
	pid         int // of Deno
	spec        process.Spec
	permissions *Permissions // complete; nil permits nothing
	work        *workDir
	files       workerFiles
	done        chan struct{} // closed when the process has ended and work was removed
}

// startWorker starts a process and waits for its hello. If it fails, nothing is left.
func (p *Pyodide) startWorker(ctx context.Context, found assets.Assets, folder string,
	spec WorkerSpec,
) (*pyodideWorker, error) {
	work, err := p.newWorkDir(ctx, found, folder)
	if err != nil {
		return nil, err
	}
	w, err := p.launch(ctx, work, runnerOptions{
		Mode: "run", Snapshot: true, Generation: spec.Generation,
		Memory: pythonMemory(spec.Memory), Lockdown: !p.cfg.unlocked, Preload: p.cfg.Preload,
	})
	if err != nil {
		work.remove()
		return nil, err
	}
	w.permissions = spec.Permissions
	w.conn.newBroker = func(e *execution, req Request) *broker { //nolint:contextcheck // of a request
		return newBroker(e, req, spec.Permissions, p.cfg.fetcher)
	}
	timeout := pyodideHello
	if len(p.cfg.Preload) > 0 {
		timeout += preloadTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errNoPyodideHello)
	defer cancel()
	if w.hello, err = w.conn.hello(ctx); err != nil {
		w.Kill()
		<-w.done
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errNoPyodideHello) {
			return nil, cause
		}
		return nil, w.helloError(err)
	}
	if work.confinement.Bwrap != "" {
		if w.pid, err = confined(w.pid, w.spec); err != nil {
			w.Kill()
			<-w.done
			return nil, w.helloError(err)
		}
	}
	return w, nil
}

var errNoPyodideHello = errors.New("it was not ready in time")

func (p *Pyodide) launch(ctx context.Context, work *workDir, opts runnerOptions,
) (*pyodideWorker, error) {
	spec, err := p.spec(work, opts)
	if err != nil {
		return nil, err
	}
	proc, err := p.cfg.Start(ctx, spec)
	if err != nil {
		return nil, process.WrapStartError(err, spec.Dir)
	}
	w := &pyodideWorker{
		//nolint:contextcheck // it outlives ctx
		workerProcess: newWorkerProcess(process.Adapt(proc), opts.Generation, p.cfg.Log),
		pid:           proc.Pid, spec: spec, work: work, done: make(chan struct{}),
	}
	go func() {
		defer close(w.done)
		<-w.workerProcess.done
		w.work.remove()
	}()
	return w, nil
}

// helloError returns the error of a worker without a hello. Its process has ended.
func (w *pyodideWorker) helloError(err error) error {
	if w.err != nil {
		return w.err
	}
	if text := w.stderr.String(); strings.Contains(text, preloadKey+": ") {
		return dray.Errorf(dray.CodeHelperMissing, "%s", strings.TrimSpace(text)).
			WithHint("correct %s, or the wheels: `dray python fetch --from DIR`", preloadKey)
	}
	if errors.Is(err, errWorkerEnded) {
		err = fmt.Errorf("it ended (%s): %q", describeExit(w.exit), w.stderr.String())
	}
	return dray.Errorf(dray.CodeHelperMissing, "Deno cannot run as a Python worker: %w", err).
		WithHint("run `dray doctor`; `dray python fetch` installs the Deno and Pyodide of this release")
}

// Done implements Worker.
func (w *pyodideWorker) Done() <-chan struct{} { return w.done }

// Execute implements Worker.
func (w *pyodideWorker) Execute(ctx context.Context, req Request, files Workspace) (Execution,
	error,
) {
	run := &pyodideExecution{worker: w}
	var received *changes
	if w.permissions != nil && fsPermits(w.permissions.FS, FSRead) {
		var err error
		if run.files, err = w.stage(ctx, req, files); err != nil {
			return nil, err
		}
		received = newChanges(w.work.dir)
	} else if req.File != "" {
		return nil, dray.Errorf(dray.CodeDenied, "the session may not read files, so it cannot run %s",
			req.File).WithHint("pass the code itself, or use a session with the permission fs read: " +
			"python.permissions.fs in the configuration is the most that a call may ask for")
	}
	req.Env = w.permissions.environ(req.Env)
	e, err := w.conn.execute(req, received)
	if err != nil {
		if received != nil {
			received.close()
			run.files.close()
			run.files.forget()
		}
		return nil, err
	}
	run.execution = e
	if req.CPU > 0 {
		go run.watchCPU(req.CPU) // ends with the request
	}
	return run, nil
}

// pyodideExecution adds to an execution what the worker cannot do while code uses its only thread:
// to receive interrupts, and to watch the processor time.
type pyodideExecution struct {
	*execution
	worker *pyodideWorker
	files  *staged // nil if the session may not read files
	// discarded says that the worker's changes were committed or forgotten.
	discarded bool

	mu        sync.Mutex
	cpuUsedUp bool
}

// Warnings returns what of the working directory was not staged.
func (e *pyodideExecution) Warnings() []string {
	if e.files == nil {
		return nil
	}
	return e.files.warnings
}

// Interrupt implements Execution. The worker polls the file while Python code runs, and receives
// the frame while the code waits for stdin. If it does neither, the caller kills it after a grace.
func (e *pyodideExecution) Interrupt() {
	e.broker.interrupt(func() {
		_, _ = e.worker.work.interrupts.Write(binary.BigEndian.AppendUint32(nil, e.request))
	})
	e.execution.Interrupt()
}

// Stdin implements Execution.
func (e *pyodideExecution) Stdin() io.WriteCloser {
	return heldStdin{e.execution.Stdin(), e.execution}
}

// Fetches returns the requests to hosts so far, and how many more there were.
func (e *pyodideExecution) Fetches() (fetches []dray.Fetch, omitted int) {
	return e.broker.recorded()
}

// Reply implements Execution. It ends what the code asked the daemon for, and waits for that.
func (e *pyodideExecution) Reply() (Reply, error) {
	if e.broker != nil {
		e.broker.close()
	}
	reply, err := e.execution.Reply()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cpuUsedUp {
		return Reply{
			Code: exitTimeout, Error: &Failure{Message: "CPU time limit exceeded"}, Usage: reply.Usage,
			CPULimit: true,
		}, nil
	}
	reply.CPULimit = false // code can forge the frame
	return reply, err
}

// exitTimeout is the exit code of a request whose budget is used up.
const exitTimeout = 124

// minCPUPoll is the minimum interval between two readings of a worker's processor time.
const minCPUPoll = 10 * time.Millisecond

// cpuGrace is the time between the interrupt of code that has used its budget and the kill.
const cpuGrace = time.Second

// watchCPU interrupts the code when the request has used its budget of processor time, and kills
// the worker if it does not end within cpuGrace.
func (e *pyodideExecution) watchCPU(budget time.Duration) {
	used, err := cpuTime(e.worker.pid)
	end := used + budget
	for err == nil && used < end {
		if !e.runsFor(max(end-used, minCPUPoll)) {
			return
		}
		used, err = cpuTime(e.worker.pid)
	}
	if err != nil { // the process has ended
		return
	}
	e.mu.Lock()
	e.cpuUsedUp = true
	e.mu.Unlock()
	e.Interrupt()
	if e.runsFor(cpuGrace) {
		e.worker.Kill()
	}
}

// runsFor waits for d or the end of the request, and reports whether the request still runs.
func (e *pyodideExecution) runsFor(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-e.done:
		return false
	case <-timer.C:
		return true
	}
}

// cpuTime returns the processor time that all threads of a process have used.
func cpuTime(pid int) (time.Duration, error) {
	const schedClock = 2 // CPUCLOCK_SCHED of a process; the other bits of the clock id are ^pid
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil { //nolint:gosec // a pid
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}
