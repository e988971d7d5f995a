package admission

import (
	"context"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
)

// Limits say how many calls there may be. Concurrent and PerContainer are at least 1; with a Queue of 0 no call waits.
type Limits struct{ Concurrent, PerContainer, Queue int }

// Gate lets calls in and gives them their turns. Its methods may be called from several goroutines.
type Gate struct {
	limits Limits

	mu     sync.Mutex
	closed bool
	last   uint64 // the number of the last call that was let in
	inside int    // calls that were let in and are not over
	// able is how many of those could run side by side if only their containers limited them.
	able    int
	running int
	waiting int
	boxes   map[string]*box
	ways    map[route]*way
	pace    pace
}

// New makes a gate that nobody has passed.
func New(limits Limits) *Gate {
	return &Gate{limits: limits, boxes: map[string]*box{}, ways: map[route]*way{}, pace: pace{since: time.Now()}}
}

// box is a place where calls run, as far as it has any: a container, or the host, which has no limit of its own.
type box struct {
	id      string
	limit   int
	inside  int       // calls that were let in and are expected here
	running int       // calls that run here
	queue   []*waiter // by number
}

// onHost is the id of the host's box.
const onHost = ""

// box gives a place by its id.
func (g *Gate) box(id string) *box {
	b := g.boxes[id]
	if b == nil {
		b = &box{id: id, limit: g.limits.PerContainer}
		if id == onHost {
			b.limit = g.limits.Concurrent
		}
		g.boxes[id] = b
	}
	return b
}

// tidy forgets a place without calls.
func (g *Gate) tidy(b *box) {
	if b.inside == 0 && b.running == 0 && len(b.queue) == 0 {
		delete(g.boxes, b.id)
	}
}

// expect changes how many calls are expected in a place.
func (g *Gate) expect(b *box, change int) {
	g.inside += change
	g.able -= min(b.inside, b.limit)
	b.inside += change
	g.able += min(b.inside, b.limit)
	g.tidy(b)
}

// route is where a call goes, as far as its route says it.
type route struct{ container, workspace string }

// way is a route with the calls that take it, and the place that it led to the last time.
type way struct {
	to     string
	inside int
}

// maxWays bounds how many routes are remembered that no call takes.
const maxWays = 1024

// way gives the way of a route. Until a call has been to its end, it leads to a place of its own.
func (g *Gate) way(r dray.Route) *way {
	key := route{r.Container, r.Workspace}
	if r.Environment != dray.Container {
		key = route{} // the host, or nowhere
	}
	w := g.ways[key]
	if w != nil {
		return w
	}
	if len(g.ways) >= maxWays {
		for k, old := range g.ways {
			if old.inside == 0 {
				delete(g.ways, k)
			}
		}
	}
	w = &way{to: onHost}
	if key != (route{}) {
		w.to = "way to " + key.container + "\x00" + key.workspace // no container's id
	}
	g.ways[key] = w
	return w
}

// leads makes it known where a way leads, with all who take it.
func (g *Gate) leads(w *way, id string) {
	if w.to == id {
		return
	}
	old := g.box(w.to)
	w.to = id
	g.expect(g.box(id), w.inside)
	g.expect(old, -w.inside)
}

// ticket is a call that was let in.
type ticket struct {
	number uint64
	way    *way
}

type ticketKey struct{}

// Executor lets calls in and refuses what is too much, with busy, before anything of it is accepted. It belongs outside the trail's. The call has
// the route that its request was checked with, if there is one.
func (g *Gate) Executor(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result, error) {
		t, err := g.enter(call.Route)
		if err != nil {
			return dray.Result{}, err
		}
		defer g.exit(t)
		return next.Execute(context.WithValue(ctx, ticketKey{}, t), call, sink)
	})
}

func (g *Gate) enter(r dray.Route) (*ticket, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, dray.Errorf(dray.CodeShuttingDown, "the daemon is ending and takes no new calls").WithHint("repeat the call when it runs again")
	}
	w := g.way(r)
	b := g.box(w.to)
	w.inside++
	g.expect(b, 1)
	if g.inside-min(g.able, g.limits.Concurrent) > g.limits.Queue {
		err := g.busy(b)
		w.inside--
		g.expect(b, -1)
		return nil, err
	}
	g.last++
	return &ticket{number: g.last, way: w}, nil
}

func (g *Gate) exit(t *ticket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.way.inside--
	g.expect(g.box(t.way.to), -1)
}

// Close takes no more calls in, and ends the waiting of those that have no slot: they fail with shutting_down, and nothing of them has run.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, b := range g.boxes {
		for _, w := range b.queue {
			w.err = errEnding()
			close(w.over)
		}
		g.waiting -= len(b.queue)
		b.queue = nil
	}
}

func errEnding() error {
	return dray.Errorf(dray.CodeShuttingDown, "%w while the call waited for its turn: nothing of it ran", executor.ErrShutdown).
		WithHint("repeat the call when it runs again")
}
