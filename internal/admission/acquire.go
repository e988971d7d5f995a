package admission

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
)

// QueueSink is a [dray.Sink] that shows, too, that a call waits for its turn, and that it has it. A
// call that ends while it waits never has it.
type QueueSink interface {
	Queued(waiting bool)
}

// waiter is a call that waits for a slot.
type waiter struct {
	number  uint64
	box     *targetQueue
	ready   chan struct{} // closed when it has its slot, or err is set
	err     error
	granted bool // it has its slot
	since   time.Time
}

// Acquire gives the call of the context, which passed Executor, a slot in a place: a container's
// id, or empty for the host. It waits where there is none, and says how long; the clock of the
// call's deadline stands meanwhile. Leave gives the slot back; only its first call does anything.
// It fails with the context's cause, or with shutting_down once the gate is closed; then the call
// holds no slot.
func (g *Controller) Acquire(ctx context.Context, container string, sink dray.Sink) (leave func(),
	waited time.Duration, err error,
) {
	t, ok := ctx.Value(ticketKey{}).(*ticket)
	if !ok {
		return nil, 0, dray.Errorf(dray.CodeInternal, "a call that was not let in asks for its turn")
	}
	w, before, err := g.acquireOrQueue(t, container)
	if err != nil {
		return nil, 0, err
	}
	select {
	case <-w.ready: // it has its slot already
	default:
		begun := time.Now()
		err = g.wait(ctx, w, before, sink)
		waited = time.Since(begun)
	}
	if err != nil {
		return nil, waited, err
	}
	return sync.OnceFunc(func() { g.finishCall(w) }), waited, nil
}

// acquireOrQueue takes a slot, or puts the call into the queue and says how many wait before it.
func (g *Controller) acquireOrQueue(t *ticket, container string) (w *waiter, before int,
	err error,
) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if container != hostID && t.way.queueID != hostID {
		g.bindRoute(t.way, container)
	}
	b := g.box(container)
	w = &waiter{number: t.number, box: b, ready: make(chan struct{})}
	if g.running < g.limits.Concurrent && b.running < b.limit {
		g.grant(w) // whoever waits cannot run: else he would have been given his turn
		return w, 0, nil
	}
	if g.closed {
		g.removeIfIdle(b)
		return nil, 0, errShuttingDown()
	}
	at, _ := slices.BinarySearchFunc(b.queue, w.number, byNumber)
	b.queue = slices.Insert(b.queue, at, w)
	g.waiting++
	return w, g.queuePosition(w), nil
}

// queuePosition counts who is given a slot earlier, as things are.
func (g *Controller) queuePosition(w *waiter) int {
	n := 0
	for _, b := range g.queues {
		at, _ := slices.BinarySearchFunc(b.queue, w.number, byNumber)
		// the queue of a container that is full delays its own calls alone
		if b == w.box || b.running < b.limit {
			n += at
		}
	}
	return n
}

func byNumber(w *waiter, number uint64) int { return cmp.Compare(w.number, number) }

// wait waits for a slot. However that ends, the call is in no queue then, and holds a slot exactly
// if there is no error.
func (g *Controller) wait(ctx context.Context, w *waiter, before int, sink dray.Sink) error {
	served := false
	defer func() {
		if !served {
			g.withdraw(w)
		}
	}()
	err := waitPaused(ctx, w, before, sink)
	served = err == nil
	return err
}

// waitPaused waits, with everybody told and the clock of the deadline standing. Who leaves the
// queue without a slot is told nothing: the call ends, and until then it is one that nothing ran
// of.
func waitPaused(ctx context.Context, w *waiter, before int, sink dray.Sink) error {
	defer executor.PauseDeadline(ctx)()
	q, shows := sink.(QueueSink)
	if shows {
		q.Queued(true)
	}
	sink.Progress("queue", queueMessage(before))
	if err := waitReady(ctx, w); err != nil {
		return err
	}
	if shows {
		q.Queued(false)
	}
	return nil
}

func waitReady(ctx context.Context, w *waiter) error {
	select {
	case <-w.ready:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func queueMessage(before int) string {
	switch before {
	case 0:
		return "waiting for its turn: it is the next"
	case 1:
		return "waiting for its turn: 1 call is before it"
	default:
		return fmt.Sprintf("waiting for its turn: %d calls are before it", before)
	}
}

// withdraw takes a call out of the queue. A slot that it was given meanwhile is for the next.
func (g *Controller) withdraw(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.granted {
		g.releaseSlot(w)
		return
	}
	if at, found := slices.BinarySearchFunc(w.box.queue, w.number, byNumber); found {
		w.box.queue = slices.Delete(w.box.queue, at, at+1)
		g.waiting--
	}
	g.removeIfIdle(w.box)
}

// grant gives a call its slot.
func (g *Controller) grant(w *waiter) {
	w.granted, w.since = true, time.Now()
	g.running++
	w.box.running++
	g.pace.began(w.since)
	close(w.ready)
}

// finishCall takes a slot back from a call that ran.
func (g *Controller) finishCall(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pace.ran(time.Since(w.since))
	g.releaseSlot(w)
}

// releaseSlot takes a slot back and gives out what there is.
func (g *Controller) releaseSlot(w *waiter) {
	g.running--
	w.box.running--
	g.pace.left(w.since)
	for next := g.nextRunnable(); next != nil; next = g.nextRunnable() {
		next.box.queue = slices.Delete(next.box.queue, 0, 1)
		g.waiting--
		g.grant(next)
	}
	g.removeIfIdle(w.box)
}

// nextRunnable gives whoever came first of those who can run now.
func (g *Controller) nextRunnable() *waiter {
	if g.running >= g.limits.Concurrent {
		return nil
	}
	var first *waiter
	for _, b := range g.queues {
		if len(b.queue) > 0 && b.running < b.limit && (first == nil || b.queue[0].number < first.number) {
			first = b.queue[0]
		}
	}
	return first
}
