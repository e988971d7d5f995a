package python

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dray-dev/dray"
)

// A session starts lazily, keeps its worker between calls, and goes through its states (PY-07).
func TestSessions_States(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRuntime{startGate: make(chan struct{}), killGate: make(chan struct{}), execute: untilStopped}
		s := newSessions(t, f, func(o *Options) { o.Idle = time.Minute })
		if got := states(s); got != "" {
			t.Fatalf("before the first call: %s", got)
		}
		ended := make(chan *Run)
		go func() { ended <- start(t, s, "a") }()
		want := func(state string) {
			t.Helper()
			synctest.Wait()
			if got := states(s); got != state {
				t.Fatalf("the sessions are %q, not %q", got, state)
			}
		}
		want("a=starting")
		close(f.startGate)
		run := <-ended
		want("a=busy")
		if ok, err := s.Interrupt(keyOf("a")); !ok || err != nil {
			t.Fatalf("interrupt: %v, %v", ok, err)
		}
		exit, err := run.Wait()
		run.Release()
		if exit.Code != 1 || err != nil {
			t.Fatalf("exit: %+v, %v", exit, err)
		}
		want("a=idle")
		time.Sleep(time.Minute - 1)
		want("a=idle")
		time.Sleep(time.Nanosecond)
		want("a=terminating")
		close(f.killGate)
		want("a=cold")
		run = start(t, s, "a")
		f.worker(1).stop(dray.Exit{Code: 3}, errWorkerEnded)
		if _, err := run.Wait(); dray.CodeOf(err) != dray.CodeAgentLost {
			t.Fatalf("a worker that exits: %v", err)
		}
		run.Release()
		want("a=dead")
	})
}

// Calls of a session run one after the other, in their order (PY-07).
func TestSessions_CallsAreSerialised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRuntime{execute: untilStopped}
		s := newSessions(t, f)
		first := start(t, s, "a")
		order := make(chan int, 3)
		for i := range 3 {
			go func() {
				run := start(t, s, "a")
				order <- i
				run.Stop(time.Second)
				run.Release()
			}()
			synctest.Wait()
		}
		if st, _ := s.Status(keyOf("a")); st.Waiting != 3 || len(order) != 0 {
			t.Fatalf("%d calls wait, %d run", st.Waiting, len(order))
		}
		first.Stop(time.Second)
		first.Release()
		synctest.Wait()
		for want := range 3 {
			if got := <-order; got != want {
				t.Fatalf("call %d ran in place of %d", got, want)
			}
		}
	})
}

// The least recently used idle session loses its worker; busy ones do not. It comes back
// with a new worker, and its reply says so once (PY-07, PY-25).
func TestSessions_Eviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions(t, &fakeRuntime{})
		for _, name := range []string{"a", "b"} {
			call(t, s, name)
			time.Sleep(time.Second)
		}
		call(t, s, "a")
		if got := call(t, s, "c"); got.Restarted || got.Generation != 1 {
			t.Fatalf("a new session: %+v", got)
		}
		if got := states(s); got != "a=idle b=cold c=idle" {
			t.Fatal(got)
		}
		if got := call(t, s, "b"); !got.Restarted || !got.DiscardedState || got.Generation != 2 {
			t.Fatalf("after its eviction: %+v", got)
		}
		if got := call(t, s, "b"); got.Restarted || got.DiscardedState || got.Generation != 2 {
			t.Fatalf("the loss was reported twice: %+v", got)
		}
	})
}

// With all workers busy a call waits, and is refused after the limit with advice. Calls above the
// queue are refused at once (PY-25).
func TestSessions_QueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRuntime{execute: ignoreInterrupts}
		s := newSessions(t, f, func(o *Options) { o.Queue = 1 })
		a, b := start(t, s, "a"), start(t, s, "b")
		waited := make(chan error)
		go func() {
			_, err := s.Start(t.Context(), keyOf("c"), nil, CallSpec{})
			waited <- err
		}()
		synctest.Wait()
		for name, says := range map[string]string{"a": `session "a"`, "d": "all workers"} {
			_, err := s.Start(t.Context(), keyOf(name), nil, CallSpec{})
			var retry interface{ RetryAfter() time.Duration }
			if dray.CodeOf(err) != dray.CodeBusy || !errors.As(err, &retry) ||
				!strings.Contains(err.Error(), says) {
				t.Fatalf("a call above the queue: %v", err)
			}
		}
		began := time.Now()
		if err := <-waited; dray.CodeOf(err) != dray.CodeBusy || time.Since(began) != 30*time.Second {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		if got := states(s); got != "a=busy b=busy" {
			t.Fatal(got)
		}
		a.Stop(0)
		b.Stop(0)
		a.Release()
		b.Release()
	})
}

// The hint of a call without a worker names the keys of its runtime (PY-25).
func TestSessions_BusyNamesKeys(t *testing.T) {
	for runtime, want := range map[string]string{
		RuntimeContainer: "raise python.resident, python.queue", RuntimePyodide: "raise python.pyodide.resident,",
	} {
		f := &fakeRuntime{name: runtime, execute: ignoreInterrupts}
		s := newSessions(t, f, func(o *Options) { o.Queue, o.Resident[runtime] = 0, 1 })
		run, err := s.Start(t.Context(), Key{Runtime: runtime, Name: "a"}, nil, CallSpec{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Start(t.Context(), Key{Runtime: runtime, Name: "b"}, nil, CallSpec{})
		e := dray.AsError(err)
		if e == nil || e.Code != dray.CodeBusy || !strings.Contains(e.Hint, want) {
			t.Errorf("%s: %+v", runtime, e)
		}
		run.Stop(0)
		run.Release()
	}
}

// A slot is free only when the process is gone (PY-25).
func TestSessions_SlotIsFreeWhenTheProcessIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRuntime{killGate: make(chan struct{})}
		s := newSessions(t, f, func(o *Options) { o.Resident[RuntimeContainer] = 1 })
		call(t, s, "a")
		done := make(chan SessionInfo)
		go func() { done <- call(t, s, "b") }()
		synctest.Wait()
		if got := states(s); got != "a=terminating b=cold" || f.alive.Load() != 1 {
			t.Fatalf("%s, %d alive", got, f.alive.Load())
		}
		close(f.killGate)
		<-done
		if f.mostAlive.Load() != 1 {
			t.Fatalf("%d workers at a time", f.mostAlive.Load())
		}
	})
}

// A stopped call is interrupted, and killed with its worker after the grace. Its session is dead,
// and the next call has a new worker and reports the loss (PY-06).
func TestRun_StopKillsWhatIgnoresInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRuntime{execute: ignoreInterrupts}
		s := newSessions(t, f)
		run := start(t, s, "a")
		began := time.Now()
		run.Stop(time.Minute)
		exit, err := run.Wait()
		run.Release()
		if err != nil || exit.Signal != syscall.SIGKILL || time.Since(began) != maxGrace {
			t.Fatalf("after %v: %+v, %v", time.Since(began), exit, err)
		}
		if got := states(s); got != "a=dead" {
			t.Fatal(got)
		}
		f.behave(answer)
		if got := call(t, s, "a"); !got.DiscardedState || got.Generation != 2 {
			t.Fatalf("%+v", got)
		}
	})
}

// Reset acts at once, while a call runs and others wait. The call fails with conflict; the others
// run in the next worker, whose reply does not repeat what reset has reported (PY-25).
func TestSessions_ResetActsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRuntime{execute: ignoreInterrupts}
		s := newSessions(t, f)
		run := start(t, s, "a")
		next := make(chan SessionInfo)
		f.behave(answer)
		go func() { next <- call(t, s, "a") }()
		synctest.Wait()
		discarded, err := s.Reset(context.Background(), keyOf("a"))
		if err != nil || !discarded {
			t.Fatalf("reset: %v, %v", discarded, err)
		}
		if _, err := run.Wait(); dray.CodeOf(err) != dray.CodeConflict {
			t.Fatalf("the call that ran: %v", err)
		}
		run.Release()
		if got := <-next; !got.Restarted || got.DiscardedState || got.Generation != 2 {
			t.Fatalf("the call that waited: %+v", got)
		}
	})
}
