package python

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

// fakeRuntime starts workers that behave as a test says. It injects the faults that no real worker
// has at the right moment.
type fakeRuntime struct {
	name         string
	capabilities Capabilities
	// startErr is the error of the next starts. startGate blocks starts until it is closed, killGate
	// the end of killed workers. Nil does neither.
	startErr, refuseErr error
	startGate, killGate chan struct{}
	// execute is how a worker answers; nil is at once with okReply.
	execute behaviour
	// holdsFiles makes executions a Committer.
	holdsFiles bool

	mu        sync.Mutex
	workers   []*fakeWorker
	alive     atomic.Int64 // workers that were started and are not gone
	mostAlive atomic.Int64
	wg        sync.WaitGroup
}

type behaviour func(w *fakeWorker, e *fakeExecution)

func (f *fakeRuntime) Name() string {
	if f.name != "" {
		return f.name
	}
	return RuntimeContainer
}

func (f *fakeRuntime) Capabilities() Capabilities { return f.capabilities }

func (f *fakeRuntime) Start(ctx context.Context, spec WorkerSpec) (Worker, error) {
	n := f.alive.Add(1)
	for most := f.mostAlive.Load(); n > most && !f.mostAlive.CompareAndSwap(most, n); {
		most = f.mostAlive.Load()
	}
	select {
	case <-f.startGate:
	case <-ctx.Done():
		f.alive.Add(-1)
		return nil, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.startErr != nil {
		f.alive.Add(-1)
		return nil, f.startErr
	}
	w := &fakeWorker{
		runtime: f, spec: spec, killed: make(chan struct{}), done: make(chan struct{}),
	}
	f.workers = append(f.workers, w)
	f.wg.Go(w.live)
	return w, nil
}

// behave sets how workers answer from now on, unless it is nil, and returns how they do.
func (f *fakeRuntime) behave(execute behaviour) behaviour {
	f.mu.Lock()
	defer f.mu.Unlock()
	if execute != nil {
		f.execute = execute
	}
	return f.execute
}

// refuse makes workers refuse requests with an error, unless it is nil.
func (f *fakeRuntime) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuseErr = err
}

func (f *fakeRuntime) refusal() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refuseErr
}

// answer answers at once.
func answer(_ *fakeWorker, e *fakeExecution) { e.reply(0) }

// worker returns the nth worker that was started.
func (f *fakeRuntime) worker(n int) *fakeWorker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.workers[n]
}

type fakeWorker struct {
	runtime  *fakeRuntime
	spec     WorkerSpec
	killOnce sync.Once
	killed   chan struct{} // closed by Kill and crash
	done     chan struct{}
	exit     dray.Exit

	mu      sync.Mutex
	running *fakeExecution
	err     error // of the execution that runs when the worker ends
}

func (w *fakeWorker) live() {
	<-w.killed
	w.mu.Lock()
	e, err := w.running, w.err
	w.mu.Unlock()
	if e != nil {
		e.end(Reply{}, err)
	}
	if w.runtime.killGate != nil {
		<-w.runtime.killGate
	}
	w.runtime.alive.Add(-1)
	close(w.done)
}

func (w *fakeWorker) Hello() Hello {
	return Hello{Python: "3.11.2", Executable: w.spec.Executable}
}

func (w *fakeWorker) Kill() { w.stop(dray.Exit{Signal: syscall.SIGKILL}, errWorkerEnded) }

// stop ends the worker with an exit, and what it runs with an error.
func (w *fakeWorker) stop(exit dray.Exit, err error) {
	w.killOnce.Do(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.exit, w.err = exit, err
		close(w.killed)
	})
}

func (w *fakeWorker) Done() <-chan struct{} { return w.done }

func (w *fakeWorker) Exit() (dray.Exit, error) { return w.exit, nil }

func (w *fakeWorker) Execute(_ context.Context, req Request, _ Workspace) (Execution, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.killed:
		return nil, errWorkerEnded
	default:
	}
	if err := w.runtime.refusal(); err != nil {
		return nil, err
	}
	if w.running != nil && !w.running.isDone() {
		return nil, errors.New("two requests at a time")
	}
	e := &fakeExecution{
		req: req, worker: w, done: make(chan struct{}), interrupted: make(chan struct{}),
	}
	w.running = e
	if execute := w.runtime.behave(nil); execute == nil {
		e.reply(0)
	} else {
		w.runtime.wg.Go(func() { execute(w, e) })
	}
	if w.runtime.holdsFiles {
		return &filesExecution{e}, nil
	}
	return e, nil
}

type fakeExecution struct {
	req         Request
	worker      *fakeWorker
	once, intr  sync.Once
	interrupted chan struct{}
	commits     atomic.Int64
	discards    atomic.Int64
	done        chan struct{}
	result      Reply
	err         error
}

func (e *fakeExecution) isDone() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

func (e *fakeExecution) end(reply Reply, err error) {
	e.once.Do(func() {
		e.result, e.err = reply, err
		close(e.done)
	})
}

// filesExecution counts what happens to its files.
type filesExecution struct{ *fakeExecution }

func (e *filesExecution) Commit(context.Context) (FileChanges, error) {
	e.commits.Add(1)
	return FileChanges{Created: []string{"out.xlsx"}}, nil
}

func (e *filesExecution) Discard() { e.discards.Add(1) }

// reply ends the request with a code.
func (e *fakeExecution) reply(code int) { e.end(Reply{OK: code == 0, Code: code}, nil) }

type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }

func (e *fakeExecution) Stdin() io.WriteCloser { return nopWriteCloser{io.Discard} }

// Output ends with the request, as that of every worker.
func (e *fakeExecution) Output(dray.Stream) io.Reader { return &endReader{e.done} }

type endReader struct{ done <-chan struct{} }

func (r *endReader) Read([]byte) (int, error) {
	<-r.done
	return 0, io.EOF
}

func (e *fakeExecution) Interrupt()            { e.intr.Do(func() { close(e.interrupted) }) }
func (e *fakeExecution) Done() <-chan struct{} { return e.done }
func (e *fakeExecution) Reply() (Reply, error) { return e.result, e.err }

// untilStopped runs until it is interrupted, or its worker ends.
func untilStopped(_ *fakeWorker, e *fakeExecution) {
	select {
	case <-e.interrupted:
		e.reply(1)
	case <-e.done:
	}
}

// ignoreInterrupts runs until its worker ends.
func ignoreInterrupts(_ *fakeWorker, e *fakeExecution) { <-e.done }

// newSessions returns sessions of one fake runtime, with two workers and a queue for ten calls.
func newSessions(t *testing.T, f *fakeRuntime, change ...func(*Options)) *Sessions {
	t.Helper()
	if f.startGate == nil {
		f.startGate = make(chan struct{})
		close(f.startGate)
	}
	opts := Options{
		Runtimes: []Runtime{f}, Resident: map[string]int{f.Name(): 2}, Queue: 10,
		QueueWait: 30 * time.Second, Log: zap.NewNop(),
	}
	for _, c := range change {
		c(&opts)
	}
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		f.wg.Wait()
		if n := f.alive.Load(); n != 0 {
			t.Errorf("%d workers are left", n)
		}
	})
	return s
}

func keyOf(name string) Key {
	return Key{Principal: "alice", Environment: "c1", Runtime: RuntimeContainer, Name: name}
}

// start starts a call that must start.
func start(t *testing.T, s *Sessions, name string) *Run {
	t.Helper()
	run, err := s.Start(t.Context(), keyOf(name), nil, CallSpec{})
	if err != nil {
		t.Fatalf("start in %s: %v", name, err)
	}
	return run
}

// call runs code to its end and returns what the reply says of the session.
func call(t *testing.T, s *Sessions, name string) SessionInfo {
	t.Helper()
	run := start(t, s, name)
	defer run.Release()
	if exit, err := run.Wait(); err != nil || exit.Code != 0 {
		t.Fatalf("call in %s: %+v, %v", name, exit, err)
	}
	return run.Session()
}

// states returns the states of all sessions, "name=state" each.
func states(s *Sessions) string {
	list := []string{}
	for _, st := range s.List("") {
		list = append(list, st.Name+"="+string(st.State))
	}
	return strings.Join(list, " ")
}
