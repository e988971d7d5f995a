package admission

import (
	"context"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
)

// Limits say how many calls there may be. Concurrent and PerContainer are at least 1; with a Queue
// of 0 no call waits.
type Limits struct{ Concurrent, PerContainer, Queue int }

// Controller lets calls in and gives them their turns. Its methods may be called from several
// goroutines.
type Controller struct {
	limits Limits

	mu       sync.Mutex
	closed   bool
	last     uint64 // the number of the last call that was let in
	admitted int    // calls that were let in and are not over
	// runnable is how many of those could run side by side if only their containers limited them.
	runnable int
	running  int
	waiting  int
	queues   map[string]*targetQueue
	targets  map[routeKey]*routeTarget
	pace     durationEstimator
}

// New makes a gate that nobody has passed.
func New(limits Limits) *Controller {
	return &Controller{
		limits: limits, queues: map[string]*targetQueue{},
		targets: map[routeKey]*routeTarget{}, pace: durationEstimator{since: time.Now()},
	}
}

// targetQueue is a place where calls run, as far as it has any: a container, or the host, which has
// no limit of its own.
type targetQueue struct {
	id       string
	limit    int
	expected int       // calls that were let in and are expected here
	running  int       // calls that run here
	queue    []*waiter // by number
}

// hostID is the id of the host's box.
const hostID = ""

// box gives a place by its id.
func (g *Controller) box(id string) *targetQueue {
	b := g.queues[id]
	if b == nil {
		b = &targetQueue{id: id, limit: g.limits.PerContainer}
		if id == hostID {
			b.limit = g.limits.Concurrent
		}
		g.queues[id] = b
	}
	return b
}

// removeIfIdle forgets a place without calls.
func (g *Controller) removeIfIdle(b *targetQueue) {
	if b.expected == 0 && b.running == 0 && len(b.queue) == 0 {
		delete(g.queues, b.id)
	}
}

// addExpected changes how many calls are expected in a place.
func (g *Controller) addExpected(b *targetQueue, change int) {
	g.admitted += change
	g.runnable -= min(b.expected, b.limit)
	b.expected += change
	g.runnable += min(b.expected, b.limit)
	g.removeIfIdle(b)
}

// routeKey is where a call goes, as far as its route says it.
type routeKey struct{ container, workspace string }

// routeTarget is a route with the calls that take it, and the place that it led to the last time.
type routeTarget struct {
	queueID string
	calls   int
}

// maxRouteTargets bounds how many routes are remembered that no call takes.
const maxRouteTargets = 1024

// way gives the way of a route. Until a call has been to its end, it leads to a place of its own.
func (g *Controller) way(r dray.Route) *routeTarget {
	key := routeKey{r.Container, r.Workspace}
	if r.Environment != dray.KindContainer {
		key = routeKey{} // the host, or nowhere
	}
	w := g.targets[key]
	if w != nil {
		return w
	}
	if len(g.targets) >= maxRouteTargets {
		for k, old := range g.targets {
			if old.calls == 0 {
				delete(g.targets, k)
			}
		}
	}
	w = &routeTarget{queueID: hostID}
	if key != (routeKey{}) {
		w.queueID = "way to " + key.container + "\x00" + key.workspace // no container's id
	}
	g.targets[key] = w
	return w
}

// bindRoute makes it known where a way leads, with all who take it.
func (g *Controller) bindRoute(w *routeTarget, id string) {
	if w.queueID == id {
		return
	}
	old := g.box(w.queueID)
	w.queueID = id
	g.addExpected(g.box(id), w.calls)
	g.addExpected(old, -w.calls)
}

// ticket is a call that was let in.
type ticket struct {
	number uint64
	way    *routeTarget
}

type ticketKey struct{}

// Executor lets calls in and refuses what is too much, with busy, before anything of it is
// accepted. It belongs outside the trail's. The call has the route that its request was checked
// with, if there is one.
func (g *Controller) Executor(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		t, err := g.admit(call.Route)
		if err != nil {
			return dray.Result{}, err
		}
		defer g.release(t)
		return next.Execute(context.WithValue(ctx, ticketKey{}, t), call, sink)
	})
}

func (g *Controller) admit(r dray.Route) (*ticket, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, dray.Errorf(dray.CodeShuttingDown, "the daemon is ending and takes no new calls").
			WithHint("repeat the call when it runs again")
	}
	w := g.way(r)
	b := g.box(w.queueID)
	w.calls++
	g.addExpected(b, 1)
	if g.admitted-min(g.runnable, g.limits.Concurrent) > g.limits.Queue {
		err := g.busy(b)
		w.calls--
		g.addExpected(b, -1)
		return nil, err
	}
	g.last++
	return &ticket{number: g.last, way: w}, nil
}

func (g *Controller) release(t *ticket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.way.calls--
	g.addExpected(g.box(t.way.queueID), -1)
}

// Close takes no more calls in, and ends the waiting of those that have no slot: they fail with
// shutting_down, and nothing of them has run.
func (g *Controller) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, b := range g.queues {
		for _, w := range b.queue {
			w.err = errShuttingDown()
			close(w.ready)
		}
		g.waiting -= len(b.queue)
		b.queue = nil
	}
}

func errShuttingDown() error {
	return dray.Errorf(dray.CodeShuttingDown,
		"%w while the call waited for its turn: nothing of it ran", executor.ErrShutdown).
		WithHint("repeat the call when it runs again")
}
