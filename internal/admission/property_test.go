package admission

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/soakreport"
)

// Many calls run, are cancelled in the queue or while they run, panic, and use several routes to
// one container. The limits are never exceeded, every admitted call gets a slot, and no slot is
// lost (EX-13).
func TestSlots_ManyCalls(t *testing.T) {
	r := soakreport.Rand(t)
	for range soakreport.Count(1000, 20) {
		runLoad(t, r)
		if t.Failed() {
			return
		}
	}
}

// loadTest counts the calls of one round.
type loadTest struct {
	limits  Limits
	total   atomic.Int64
	inside  atomic.Int64
	in      [4]atomic.Int64 // by container; the first is the host
	refused atomic.Int64
	faults  chan string
}

func (c *loadTest) fault(format string, args ...any) {
	select {
	case c.faults <- fmt.Sprintf(format, args...):
	default: // one is enough
	}
}

func runLoad(t *testing.T, rnd *rand.Rand) {
	c := &loadTest{limits: Limits{
		Concurrent: 1 + rnd.IntN(8), PerContainer: 1 + rnd.IntN(4),
		Queue: rnd.IntN(60),
	}, faults: make(chan string, 1)}
	g := New(c.limits)
	var calls sync.WaitGroup
	for range 120 {
		plan := callPlan{
			place: rnd.IntN(4), name: rnd.IntN(2), steps: rnd.IntN(20),
			cancel: rnd.IntN(4) == 0, panics: rnd.IntN(8) == 0,
		}
		calls.Go(func() { c.one(t.Context(), g, plan) })
		if rnd.IntN(3) == 0 {
			g.check(c)
		}
	}
	done := make(chan struct{})
	go func() { calls.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		g.mu.Lock()
		t.Errorf("calls wait for ever: %d running, %d waiting", g.running, g.waiting)
		g.mu.Unlock()
		return
	}
	select {
	case f := <-c.faults:
		t.Errorf("%+v: %s", c.limits, f)
	default:
	}
	(&fixture{t: t, gate: g}).empty()
}

// callPlan is what one call does.
type callPlan struct {
	place, name, steps int
	cancel, panics     bool
}

func (c *loadTest) one(ctx context.Context, g *Controller, p callPlan) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if p.cancel {
		go func() { runtime.Gosched(); cancel(executor.ErrCancelled) }() // at any moment of the call
	}
	defer func() {
		if v := recover(); v != nil && v != "planted" {
			panic(v)
		}
	}()
	route, id := host, hostID
	if p.place > 0 {
		route, id = in(fmt.Sprintf("%d-%d", p.place, p.name)), fmt.Sprint("id", p.place)
	}
	_, err := g.Executor(dray.ExecutorFunc(func(ctx context.Context, _ dray.Call,
		sink dray.Sink,
	) (dray.Result, error) {
		if n := c.inside.Add(1); n > int64(c.limits.Concurrent+c.limits.Queue) {
			c.fault("%d calls were let in", n)
		}
		defer c.inside.Add(-1)
		leave, _, err := g.Acquire(ctx, id, sink)
		if err != nil {
			return dray.Result{}, err
		}
		defer leave()
		c.work(p)
		return dray.Result{}, nil
	})).Execute(ctx, dray.Call{Route: route}, dray.Discard)
	switch {
	case dray.CodeOf(err) == dray.CodeBusy:
		c.refused.Add(1)
	case err != nil && context.Cause(ctx) == nil:
		c.fault("a call that nobody cancelled failed: %v", err)
	}
}

func (c *loadTest) work(p callPlan) {
	defer c.total.Add(-1)
	defer c.in[p.place].Add(-1)
	if n := c.total.Add(1); n > int64(c.limits.Concurrent) {
		c.fault("%d calls run at once", n)
	}
	if n := c.in[p.place].Add(1); p.place > 0 && n > int64(c.limits.PerContainer) {
		c.fault("%d calls run in one container", n)
	}
	for range p.steps {
		runtime.Gosched()
	}
	if p.panics {
		panic("planted")
	}
}

// check compares the counters of the controller with each other, and checks that no call waits that
// could run.
func (g *Controller) check(c *loadTest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	running, inside, able, waiting := 0, 0, 0, 0
	for id, b := range g.queues {
		running, inside, able, waiting = running+b.running, inside+b.expected, able+min(b.expected,
			b.limit), waiting+len(b.queue)
		if !slices.IsSortedFunc(b.queue, func(x, y *waiter) int { return byNumber(x, y.number) }) {
			c.fault("the queue of %s is out of order", id)
		}
		if len(b.queue) > 0 && b.running < b.limit && g.running < g.limits.Concurrent {
			c.fault("%d wait for %q, where %d run of %d, and %d in all", len(b.queue), id, b.running,
				b.limit, g.running)
		}
	}
	if running != g.running || inside != g.admitted || able != g.runnable || waiting != g.waiting {
		c.fault("counted %d running, %d inside, %d able, %d waiting; known %d, %d, %d, %d", running,
			inside, able, waiting, g.running, g.admitted, g.runnable, g.waiting)
	}
}
