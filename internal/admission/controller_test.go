package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// in is the route of a call for the container with that name.
func in(name string) dray.Route {
	return dray.Route{
		Environment: dray.KindContainer,
		Container:   name,
	}
}

var host = dray.Route{Environment: dray.KindHost}

// fixture is a controller with calls that run until they are released. It is used within synctest,
// where Wait returns when every call is blocked.
type fixture struct {
	t    *testing.T
	gate *Controller

	mu    sync.Mutex
	order []string // who got a turn, in order
}

// fakeCall is one call.
type fakeCall struct {
	name    string
	let     chan struct{} // closed to end it
	cancel  context.CancelCauseFunc
	done    chan struct{}
	waited  time.Duration
	err     error
	queued  []bool
	mu      sync.Mutex
	running bool
}

func (a *fakeCall) Started()                       {}
func (a *fakeCall) Progress(_, _ string)           {}
func (a *fakeCall) Output(_ dray.Stream, _ []byte) {}
func (a *fakeCall) Queued(waiting bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queued = append(a.queued, waiting)
}
func (a *fakeCall) set(running bool) { a.mu.Lock(); defer a.mu.Unlock(); a.running = running }
func (a *fakeCall) now() (running bool, told []bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running, a.queued
}

func newFixture(t *testing.T, limits Limits) *fixture { return &fixture{t: t, gate: New(limits)} }

// call starts a call for the container with that id and waits until it runs, is queued or has
// ended.
func (s *fixture) call(name string, r dray.Route, id string) *fakeCall {
	ctx, cancel := context.WithCancelCause(s.t.Context())
	a := &fakeCall{name: name, let: make(chan struct{}), cancel: cancel, done: make(chan struct{})}
	inner := dray.ExecutorFunc(func(ctx context.Context, _ dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		leave, waited, err := s.gate.Acquire(ctx, id, sink)
		a.waited = waited
		if err != nil {
			return dray.Result{}, err
		}
		defer leave()
		s.mu.Lock()
		s.order = append(s.order, name)
		s.mu.Unlock()
		a.set(true)
		defer a.set(false)
		select {
		case <-a.let:
		case <-ctx.Done():
		}
		return dray.Result{}, context.Cause(ctx)
	})
	go func() {
		defer close(a.done)
		defer cancel(nil)
		_, a.err = s.gate.Executor(executor.Deadline(inner, executor.Timeouts{Default: time.Minute})).
			Execute(ctx, dray.Call{Tool: &dray.Tool{}, Route: r}, a)
	}()
	synctest.Wait()
	return a
}

func (s *fixture) end(a *fakeCall) {
	close(a.let)
	synctest.Wait()
	<-a.done
}

// ran returns the calls that got a slot, in order.
func (s *fixture) ran() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.order, " ")
}

// empty checks that no state of any call is left.
func (s *fixture) empty() {
	s.t.Helper()
	g := s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.clients.principals) != 0 || len(g.clients.workspaces) != 0 {
		s.t.Errorf("left: %d principals, %d workspaces", len(g.clients.principals),
			len(g.clients.workspaces))
	}
	if g.admitted != 0 || g.runnable != 0 || g.running != 0 || g.waiting != 0 || len(g.queues) != 0 {
		s.t.Errorf("left: %d inside, %d able, %d running, %d waiting, %d places", g.admitted, g.runnable,
			g.running, g.waiting, len(g.queues))
	}
	if g.pace.begins > 1e-6 || g.pace.begins < -1e-6 {
		s.t.Errorf("the pace still counts %v s", g.pace.begins)
	}
	for _, w := range g.targets {
		if w.calls != 0 {
			s.t.Errorf("%d calls are still on a way", w.calls)
		}
	}
}

// Calls beyond the limits wait in their order, and a busy container delays no call for another one
// (EX-13).
func TestSlotOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, Limits{Concurrent: 3, PerContainer: 2, Queue: 10})
		a1, a2 := s.call("a1", in("a"), "A"), s.call("a2", in("a"), "A")
		a3, a4 := s.call("a3", in("a"), "A"), s.call("a4", in("a"), "A")
		b1 := s.call("b1", in("b"), "B") // passes those that wait for A
		h1 := s.call("h1", host, hostID)
		b2 := s.call("b2", in("b"), "B")
		if got := s.ran(); got != "a1 a2 b1" {
			t.Fatalf("running: %s", got)
		}
		s.end(b1) // the slot goes to the oldest call whose environment has a free one
		if got := s.ran(); got != "a1 a2 b1 h1" {
			t.Fatalf("then: %s", got)
		}
		s.end(a1)
		s.end(a2)
		if got := s.ran(); got != "a1 a2 b1 h1 a3 a4" {
			t.Fatalf("then: %s", got)
		}
		for _, a := range []*fakeCall{h1, a3, a4, b2} {
			s.end(a)
		}
		if got := s.ran(); got != "a1 a2 b1 h1 a3 a4 b2" {
			t.Fatalf("at last: %s", got)
		}
		if _, told := b2.now(); !slices.Equal(told, []bool{true, false}) {
			t.Errorf("b2 was told %v", told)
		}
		if _, told := a1.now(); told != nil {
			t.Errorf("a1, which waited for nobody, was told %v", told)
		}
		s.empty()
	})
}

// A full queue refuses calls before anything is recorded, with a Retry-After estimated from the
// durations of calls, and admits the next call as soon as a slot is free (EX-13).
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, Limits{Concurrent: 2, PerContainer: 1, Queue: 1})
		run, wait := s.call("run", in("a"), "A"), s.call("wait", in("a"), "A")
		time.Sleep(20 * time.Second) // virtual: the calls that run are 20 s old
		over := s.call("over", in("a"), "A")
		if dray.CodeOf(over.err) != dray.CodeBusy {
			t.Fatalf("the third call of a container that takes one, with one place to wait: %v", over.err)
		}
		retry, ok := errors.AsType[interface {
			error
			RetryAfter() time.Duration
		}](over.err)
		if !ok || retry.RetryAfter() != 20*time.Second {
			t.Errorf("the advice after 20 s of running is %v", retry)
		}
		// there is a slot for this call, so the full queue does not matter
		other := s.call("other", in("b"), "B")
		if running, _ := other.now(); !running {
			t.Errorf("a call for a container that is idle: %v", other.err)
		}
		s.end(run)
		if running, _ := wait.now(); !running {
			t.Error("who waited does not run")
		}
		if wait.waited < 19*time.Second {
			t.Errorf("it says that it waited %v", wait.waited)
		}
		next := s.call("next", in("a"), "A")
		s.end(other)
		s.end(wait)
		s.end(next)
		s.empty()
	})
}

// With a queue of 0 no call waits, and Retry-After is at least a second (EX-13).
func TestNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, Limits{Concurrent: 1, PerContainer: 1, Queue: 0})
		run := s.call("run", host, hostID)
		over := s.call("over", in("a"), "A")
		if retry, ok := errors.AsType[retryAfterError](over.err); !ok || retry.after != time.Second {
			t.Errorf("refused with %v", over.err)
		}
		s.end(run)
		s.end(s.call("again", host, hostID))
		s.empty()
	})
}

// A call that needs no slot runs while all slots and the queue are taken, and not after a shutdown
// (PY-25).
func TestCallWithoutSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, Limits{Concurrent: 1, PerContainer: 1, Queue: 0})
		run := s.call("run", in("a"), "A")
		ran := 0
		reset := s.gate.Executor(dray.ExecutorFunc(
			func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
				ran++
				return dray.Result{}, nil
			}))
		call := dray.Call{Route: in("a"), Tool: &dray.Tool{
			NeedsNoSlot: func(input json.RawMessage) bool { return string(input) == "reset" },
		}}
		_, err := reset.Execute(t.Context(), call, dray.Discard)
		if dray.CodeOf(err) != dray.CodeBusy || ran != 0 {
			t.Errorf("a call that needs a slot ended with %v", err)
		}
		call.Invocation.Input = json.RawMessage("reset")
		if _, err := reset.Execute(t.Context(), call, dray.Discard); err != nil || ran != 1 {
			t.Errorf("a call that needs none ended with %v", err)
		}
		s.end(run)
		s.empty()
		s.gate.Close()
		_, err = reset.Execute(t.Context(), call, dray.Discard)
		if dray.CodeOf(err) != dray.CodeShuttingDown || ran != 1 {
			t.Errorf("after a shutdown it ended with %v", err)
		}
	})
}

// Several routes to one container count as one container, even if the calls were admitted before
// that was known (EX-13).
func TestSlots_SeveralRoutesOfOneContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, Limits{Concurrent: 9, PerContainer: 1, Queue: 2})
		folder := dray.Route{Environment: dray.KindContainer, Workspace: "/srv/app"}
		run := s.call("run", in("name"), "A")
		byFolder, byID := s.call("folder", folder, "A"), s.call("id", in("A"), "A")
		if got := s.ran(); got != "run" {
			t.Fatalf("side by side in a container that takes one: %s", got)
		}
		for _, r := range []dray.Route{in("name"), folder, in("A")} {
			if over := s.call("over", r, "A"); dray.CodeOf(over.err) != dray.CodeBusy {
				t.Errorf("%+v: %v", r, over.err)
			}
		}
		s.end(run)
		s.end(byFolder)
		s.end(byID)
		s.empty()
	})
}

// Time in the queue does not count: a deadline of a minute survives five minutes of waiting, and
// then lasts its minute (EX-08, EX-13).
func TestAcquirePausesDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, Limits{Concurrent: 1, PerContainer: 1, Queue: 1})
		first := s.call("first", host, hostID)
		second := s.call("second", host, hostID)
		time.Sleep(50 * time.Second)
		s.end(first)
		begun := time.Now()
		<-second.done
		if second.err != nil || time.Since(begun) != time.Minute {
			t.Errorf("it ended %v after its turn began: %v", time.Since(begun), second.err)
		}
		s.empty()
	})
}

// The error of a refused call counts the calls that prepare their container (EX-13).
func TestBusyCountsPreparingCalls(t *testing.T) {
	g := New(Limits{Concurrent: 1, PerContainer: 1})
	var refused error
	_, err := g.Executor(dray.ExecutorFunc(func(ctx context.Context, call dray.Call,
		sink dray.Sink,
	) (dray.Result, error) {
		_, refused = g.Executor(dray.ExecutorFunc(nil)).Execute(ctx, call, sink)
		return dray.Result{}, nil
	})).Execute(t.Context(), dray.Call{Route: in("a")}, dray.Discard)
	if err != nil || dray.CodeOf(refused) != dray.CodeBusy ||
		!strings.Contains(refused.Error(),
			"0 calls running, 0 queued, 1 waiting for their container") {
		t.Errorf("%v, %v", err, refused)
	}
}

// A call that is cancelled in the queue leaves it, and no other call loses its position (EX-13).
func TestWithdraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, Limits{Concurrent: 1, PerContainer: 1, Queue: 2})
		run := s.call("run", host, hostID)
		gone, stays := s.call("gone", host, hostID), s.call("stays", host, hostID)
		gone.cancel(executor.ErrCancelled)
		<-gone.done
		synctest.Wait()
		if gone.err != nil {
			t.Errorf("Deadline tells a cancelled call by its result, and it gave %v", gone.err)
		}
		if _, told := gone.now(); !slices.Equal(told, []bool{true}) {
			t.Errorf("who never had a turn was told %v", told)
		}
		late := s.call("late", host, hostID)
		s.end(run)
		s.end(stays)
		s.end(late)
		if got := s.ran(); got != "run stays late" {
			t.Errorf("ran: %s", got)
		}
		s.empty()
	})
}

// A shutdown fails the queued calls with a code, leaves the running ones alone and admits none
// (EX-13, OP-01).
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, Limits{Concurrent: 1, PerContainer: 1, Queue: 5})
		run, wait := s.call("run", in("a"), "A"), s.call("wait", in("a"), "A")
		s.gate.Close()
		<-wait.done
		if dray.CodeOf(wait.err) != dray.CodeShuttingDown {
			t.Errorf("error of the queued call: %v", wait.err)
		}
		if late := s.call("late", host, hostID); dray.CodeOf(late.err) != dray.CodeShuttingDown {
			t.Errorf("error of a later call: %v", late.err)
		}
		s.end(run)
		if got := s.ran(); got != "run" || run.err != nil {
			t.Errorf("ran: %s, and ended with %v", got, run.err)
		}
		s.empty()
	})
}

// A panic of the work or of a sink releases the slot (EX-13, EX-18).
func TestPanicReleasesSlot(t *testing.T) {
	for _, where := range []string{"work", "queued", "served"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFixture(t, Limits{Concurrent: 1, PerContainer: 1, Queue: 5})
				run := s.call("run", host, hostID)
				raised := make(chan any)
				go func() {
					defer func() { raised <- recover() }()
					_, _ = s.gate.Executor(dray.ExecutorFunc(func(ctx context.Context, _ dray.Call,
						sink dray.Sink,
					) (dray.Result, error) {
						leave, _, err := s.gate.Acquire(ctx, hostID, sink)
						if err != nil {
							return dray.Result{}, err
						}
						defer leave()
						panic("planted in the work")
					})).Execute(t.Context(), dray.Call{Route: host}, panicSink{where})
				}()
				synctest.Wait()
				next := s.call("next", host, hostID)
				close(run.let)
				if p := fmt.Sprint(<-raised); !strings.HasPrefix(p, "planted in") {
					t.Errorf("raised: %s", p)
				}
				synctest.Wait()
				if running, _ := next.now(); !running {
					t.Error("the slot is lost")
				}
				s.end(next)
				s.empty()
			})
		})
	}
}

// panicSink is a sink that panics in Queued.
type panicSink struct{ where string }

func (panicSink) Started()                       {}
func (panicSink) Progress(_, _ string)           {}
func (panicSink) Output(_ dray.Stream, _ []byte) {}
func (p panicSink) Queued(waiting bool) {
	if p.where == "queued" && waiting || p.where == "served" && !waiting {
		panic("planted in the sink")
	}
}

// A call that was not admitted gets no slot, since it would not be counted.
func TestAcquireRequiresAdmission(t *testing.T) {
	_, _, err := New(Limits{Concurrent: 1, PerContainer: 1}).Acquire(t.Context(), hostID, dray.Discard)
	if dray.CodeOf(err) != dray.CodeInternal {
		t.Errorf("%v", err)
	}
}
