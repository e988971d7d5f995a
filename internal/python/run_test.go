package python

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/internal/soakreport"
)

// sessionEnvironment is what the tool gives the executor; see the package comment.
type sessionEnvironment struct {
	dray.Environment
	start func(context.Context) (*Run, error)
	run   *Run
}

func (e *sessionEnvironment) Start(ctx context.Context, _ dray.ProcessSpec) (dray.Process, error) {
	run, err := e.start(ctx)
	if err != nil {
		return nil, err
	}
	e.run = run
	return run, nil
}

// runnerOf returns the executor of every call of a process.
func runnerOf(t *testing.T) *executor.Runner {
	t.Helper()
	store, err := capture.NewStore(capture.Options{Dir: t.TempDir(), Limit: 1 << 20, SummaryBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return &executor.Runner{Captures: store, Grace: 5 * time.Second}
}

// runCall runs a call as the tool does, and returns how it ended and whether files were committed.
func runCall(t *testing.T, r *executor.Runner, s *Sessions, timeout time.Duration,
) (dray.Result, bool) {
	t.Helper()
	env := &sessionEnvironment{start: func(ctx context.Context) (*Run, error) {
		return s.Start(ctx, keyOf("a"), nil, CallSpec{})
	}}
	committed := false
	inner := dray.ExecutorFunc(func(ctx context.Context, _ dray.Call, sink dray.Sink,
	) (dray.Result, error) {
		defer func() { env.run.Release() }()
		out, err := r.Run(ctx, env, dray.ProcessSpec{}, executor.Options{ID: "x"}, sink)
		defer out.Release()
		if err == nil && out.Result.Reason == dray.ReasonExited {
			changes, err := env.run.Commit(context.WithoutCancel(ctx))
			committed = err == nil && len(changes.Created) > 0
		}
		return out.Result, err
	})
	call := dray.Call{Tool: &dray.Tool{}, Invocation: dray.Invocation{Timeout: timeout}}
	res, err := executor.Deadline(inner, executor.Timeouts{}).Execute(t.Context(), call, noSink{})
	if err != nil {
		t.Fatal(err)
	}
	return res, committed
}

type noSink struct{ dray.Sink }

func (noSink) Started()                   {}
func (noSink) Output(dray.Stream, []byte) {}

// A call whose end races with its deadline is either a timeout without committed files, or ended
// with them. The next call works (PY-06, PY-18, PY-21).
func TestRun_DeadlineAndEndAreDecidedOnce(t *testing.T) {
	rnd := soakreport.Rand(t)
	runner := runnerOf(t)
	ended := map[dray.Reason]int{}
	for range soakreport.Count(1000, 1000) {
		synctest.Test(t, func(t *testing.T) {
			res, committed := raceWithDeadline(t, runner, rnd)
			ended[res.Reason]++
			if committed != (res.Reason == dray.ReasonExited) {
				t.Errorf("reason %s, committed %t", res.Reason, committed)
			}
		})
		if t.Failed() {
			return
		}
	}
	if ended[dray.ReasonExited] == 0 || ended[dray.ReasonTimeout] == 0 {
		t.Errorf("there was no race: %v", ended)
	}
}

// raceWithDeadline runs code that ends at its deadline, or a nanosecond before or after it.
func raceWithDeadline(t *testing.T, runner *executor.Runner, rnd *rand.Rand) (dray.Result, bool) {
	t.Helper()
	const deadline = time.Second
	work := deadline + time.Duration(rnd.IntN(3)-1)
	f := &fakeRuntime{holdsFiles: true, execute: func(_ *fakeWorker, e *fakeExecution) {
		time.Sleep(work)
		e.reply(0)
	}}
	s := newSessions(t, f)
	defer s.Close()
	res, committed := runCall(t, runner, s, deadline)
	f.behave(answer)
	call(t, s, "a")
	return res, committed
}

// The runner reports the end of a call by its cause: its own code, its timeout, a crash (PY-21).
func TestRun_Reasons(t *testing.T) {
	runner := runnerOf(t)
	tests := map[string]struct {
		execute behaviour
		reason  dray.Reason
	}{
		"exit":                {func(_ *fakeWorker, e *fakeExecution) { e.reply(3) }, dray.ReasonExited},
		"timeout":             {ignoreInterrupts, dray.ReasonTimeout},
		"interrupted in time": {untilStopped, dray.ReasonTimeout},
		"crash": {func(w *fakeWorker, _ *fakeExecution) {
			w.stop(dray.Exit{Signal: syscall.SIGSEGV}, errWorkerEnded)
		}, dray.ReasonSignalled},
		"out of memory": {func(w *fakeWorker, _ *fakeExecution) {
			w.stop(dray.Exit{Signal: syscall.SIGKILL, OOM: dray.OOMCertain}, errWorkerEnded)
		}, dray.ReasonOOM},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSessions(t, &fakeRuntime{execute: test.execute, holdsFiles: true})
				began := time.Now()
				res, committed := runCall(t, runner, s, time.Minute)
				if res.Reason != test.reason || committed != (name == "exit") {
					t.Fatalf("reason %s, committed %t", res.Reason, committed)
				}
				if d := time.Since(began); d > time.Minute+2500*time.Millisecond {
					t.Fatalf("it took %v", d)
				}
			})
		})
	}
}

// An interrupted session keeps its worker if the runtime says that its globals survive, and else
// does not (PY-06).
func TestRun_InterruptKeepsState(t *testing.T) {
	for _, keeps := range []bool{true, false} {
		f := &fakeRuntime{execute: untilStopped, capabilities: Capabilities{InterruptKeepsState: keeps}}
		s := newSessions(t, f)
		run := start(t, s, "a")
		run.Stop(time.Hour)
		if exit, err := run.Wait(); exit.Code != 1 || err != nil {
			t.Fatalf("%+v, %v", exit, err)
		}
		run.Release()
		f.behave(answer)
		if got := call(t, s, "a"); got.DiscardedState == keeps {
			t.Errorf("keeps state: %t; %+v", keeps, got)
		}
	}
}

// Files are committed or dropped before the next call of the session starts (PY-18).
func TestRun_SessionIsHeldUntilFilesAreDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions(t, &fakeRuntime{holdsFiles: true})
		run := start(t, s, "a")
		if _, err := run.Wait(); err != nil {
			t.Fatal(err)
		}
		next := make(chan SessionInfo, 1)
		go func() { next <- call(t, s, "a") }()
		synctest.Wait()
		if len(next) != 0 {
			t.Fatal("the next call ran before the files were decided")
		}
		run.Release()
		run.Release()
		<-next
		files, ok := run.execution.(*filesExecution)
		if !ok || files.commits.Load() != 0 || files.discards.Load() == 0 {
			t.Fatal("the files were not dropped")
		}
	})
}

// A worker that violates the protocol ends the call with its error, and one that exits by itself
// with agent_lost (PY-08).
func TestRun_WorkerIsLost(t *testing.T) {
	breach := protocolError("test")
	for name, stop := range map[string]behaviour{
		"breach": func(w *fakeWorker, _ *fakeExecution) { w.stop(dray.Exit{Signal: syscall.SIGKILL}, breach) },
		"exit":   func(w *fakeWorker, _ *fakeExecution) { w.stop(dray.Exit{Code: 0}, errWorkerEnded) },
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeRuntime{execute: stop}
			s := newSessions(t, f)
			run := start(t, s, "a")
			defer run.Release()
			if _, err := run.Wait(); dray.CodeOf(err) != dray.CodeAgentLost || dray.AsError(err).Hint == "" {
				t.Fatalf("%v", err)
			}
			if _, ok := run.Reply(); ok {
				t.Fatal("there is a reply")
			}
			if _, err := run.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A worker that ended while it was idle is replaced before the request runs. One that refuses the
// request keeps its state (PY-07).
func TestRun_WorkerEndsWhileIdle(t *testing.T) {
	f := &fakeRuntime{}
	s := newSessions(t, f)
	call(t, s, "a")
	f.worker(0).Kill()
	if got := call(t, s, "a"); got.Generation != 2 || !got.DiscardedState {
		t.Fatalf("%+v", got)
	}
	f.refuse(dray.Errorf(dray.CodeUnsupported, "no"))
	if _, err := s.Start(t.Context(), keyOf("a"), nil, CallSpec{}); dray.CodeOf(err) != dray.CodeUnsupported {
		t.Fatal(err)
	}
	f.refuse(nil)
	if got := call(t, s, "a"); got.Generation != 2 || got.DiscardedState {
		t.Fatalf("%+v", got)
	}
}

// A worker that used more memory than the mark ends after its call (PY-23).
func TestRun_RetiresLargeWorkers(t *testing.T) {
	used := int64(0)
	f := &fakeRuntime{execute: func(_ *fakeWorker, e *fakeExecution) {
		e.end(Reply{OK: true, Usage: Usage{MemoryBytes: used}}, nil)
	}}
	s := newSessions(t, f, func(o *Options) { o.RetireAbove = 100 })
	used = 100
	call(t, s, "a")
	used = 101
	call(t, s, "a")
	if got := call(t, s, "a"); got.Generation != 2 || !got.DiscardedState {
		t.Fatalf("%+v", got)
	}
}

// A signal interrupts the code or kills its worker; others are refused.
func TestRun_Signals(t *testing.T) {
	f := &fakeRuntime{execute: untilStopped}
	s := newSessions(t, f)
	run := start(t, s, "a")
	if err := run.Signal(syscall.SIGUSR1); dray.CodeOf(err) != dray.CodeUnsupported {
		t.Fatal(err)
	}
	if err := run.Resize(dray.TerminalSize{}); !errors.Is(err, dray.ErrNoTerminal) {
		t.Fatal(err)
	}
	if err := run.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if exit, err := run.Wait(); exit.Code != 1 || err != nil {
		t.Fatalf("%+v, %v", exit, err)
	}
	run.Release()
	f.behave(ignoreInterrupts)
	run = start(t, s, "a")
	_ = run.Signal(syscall.SIGKILL)
	if exit, err := run.Wait(); exit.Signal != syscall.SIGKILL || err != nil {
		t.Fatalf("%+v, %v", exit, err)
	}
	run.Release()
}
