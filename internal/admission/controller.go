package admission

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
)

// Limits are the maximum numbers of calls. Concurrent and PerContainer are at least 1. With a Queue
// of 0 no call waits. Clients that have less than their share of the queue may exceed Queue, all of
// them together by another Queue.
type Limits struct{ Concurrent, PerContainer, Queue int }

// Controller admits calls and grants them slots. It is safe for concurrent use.
type Controller struct {
	limits Limits

	mu       sync.Mutex
	closed   bool
	last     uint64 // number of the last admitted call
	admitted int    // calls that have not ended
	// runnable is the number of admitted calls that could run at once if only their containers limited
	// them.
	runnable int
	running  int
	waiting  int
	queues   map[string]*targetQueue
	clients  clientTable
	targets  map[routeKey]*routeTarget
	pace     durationEstimator
}

// New returns a controller without calls.
func New(limits Limits) *Controller {
	return &Controller{
		limits: limits, queues: map[string]*targetQueue{}, clients: newClientTable(),
		targets: map[routeKey]*routeTarget{}, pace: durationEstimator{since: time.Now()},
	}
}

// targetQueue is the queue of an environment: a container, or the host, which has no limit of its
// own.
type targetQueue struct {
	id       string
	limit    int
	expected int       // admitted calls of this environment
	running  int       // calls with a slot
	queue    []*waiter // by number
}

// hostID is the id of the host's queue.
const hostID = ""

// queueFor returns the queue of an environment by its id.
func (g *Controller) queueFor(id string) *targetQueue {
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

func (g *Controller) removeIfIdle(b *targetQueue) {
	if b.expected == 0 && b.running == 0 && len(b.queue) == 0 {
		delete(g.queues, b.id)
	}
}

// addExpected changes the number of calls that are expected in a queue.
func (g *Controller) addExpected(b *targetQueue, change int) {
	g.admitted += change
	g.runnable -= min(b.expected, b.limit)
	b.expected += change
	g.runnable += min(b.expected, b.limit)
	g.removeIfIdle(b)
}

// routeKey is the part of a route that identifies its environment.
type routeKey struct{ container, workspace string }

// routeTarget is a route with the number of its calls, and the queue that it last led to.
type routeTarget struct {
	queueID string
	calls   int
}

// maxRouteTargets bounds the cached routes without calls.
const maxRouteTargets = 1024

// targetOf returns the target of a route. Until a call of the route has reached its container, the
// route has a queue of its own.
func (g *Controller) targetOf(r dray.Route) *routeTarget {
	key := routeKey{r.Container, r.Workspace}
	if r.Environment != dray.KindContainer {
		key = routeKey{} // the host, or no route
	}
	if w := g.targets[key]; w != nil {
		return w
	}
	if len(g.targets) >= maxRouteTargets {
		maps.DeleteFunc(g.targets, func(_ routeKey, t *routeTarget) bool { return t.calls == 0 })
	}
	w := &routeTarget{queueID: hostID}
	if key != (routeKey{}) {
		w.queueID = "route to " + key.container + "\x00" + key.workspace // no container's id
	}
	g.targets[key] = w
	return w
}

// bindRoute binds a route and its calls to the queue of a container.
func (g *Controller) bindRoute(w *routeTarget, id string) {
	if w.queueID == id {
		return
	}
	old := g.queueFor(w.queueID)
	w.queueID = id
	g.addExpected(g.queueFor(id), w.calls)
	g.addExpected(old, -w.calls)
}

type ticket struct {
	number uint64
	target *routeTarget
	client clientRef
}

type ticketKey struct{}

// Executor admits calls before anything about them is recorded, and refuses those above the limits
// with the code busy. It must be outside the audit log's. The call has the route that intake set,
// if any. A call that needs no slot is always admitted until Close.
func (g *Controller) Executor(next dray.Executor) dray.Executor {
	admitted := func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
		if call.NeedsNoSlot() {
			if g.isClosed() {
				return dray.Result{}, errClosed()
			}
			return next.Execute(ctx, call, sink)
		}
		t, err := g.admit(call)
		if err != nil {
			return dray.Result{}, err
		}
		defer g.release(t)
		return next.Execute(context.WithValue(ctx, ticketKey{}, t), call, sink)
	}
	return dray.ExecutorFunc(admitted)
}

func (g *Controller) admit(call dray.Call) (*ticket, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errClosed()
	}
	w := g.targetOf(call.Route)
	b := g.queueFor(w.queueID)
	c := g.clients.enter(call)
	w.calls++
	g.addExpected(b, 1)
	excess := g.admitted - min(g.runnable, g.limits.Concurrent)
	if excess > g.limits.Queue+g.clients.reserve(c, g.limits.Queue) {
		err := g.busy(b)
		w.calls--
		g.addExpected(b, -1)
		g.clients.leave(c)
		return nil, err
	}
	g.last++
	return &ticket{number: g.last, target: w, client: c}, nil
}

func errClosed() error {
	return dray.Errorf(dray.CodeShuttingDown, "the daemon is shutting down and accepts no calls").
		WithHint("repeat the call when the daemon runs again")
}

func (g *Controller) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *Controller) release(t *ticket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.target.calls--
	g.clients.leave(t.client)
	g.addExpected(g.queueFor(t.target.queueID), -1)
}

// Close refuses new calls and fails the queued ones with shutting_down. Nothing of them has run.
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
		"%w while the call was queued: nothing of it ran", executor.ErrShutdown).
		WithHint("repeat the call when the daemon runs again")
}
