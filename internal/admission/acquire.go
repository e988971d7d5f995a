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

// QueueSink is a [dray.Sink] that also shows that a call is queued, and that it has left the queue
// with a slot.
type QueueSink interface {
	Queued(waiting bool)
}

// waiter is a call that waits for a slot.
type waiter struct {
	number  uint64
	client  clientRef
	queue   *targetQueue
	ready   chan struct{} // closed when the call has a slot, or err is set
	err     error
	granted bool
	since   time.Time
}

// Acquire grants a slot in an environment (a container id, or empty for the host) to the call of
// ctx, which must have passed Executor. It blocks until there is a slot, and returns how long; the
// deadline of the call is paused meanwhile. release returns the slot and may be called more than
// once. Acquire fails with the cause of ctx, or with shutting_down after Close; then the call has
// no slot.
func (g *Controller) Acquire(ctx context.Context, container string, sink dray.Sink) (release func(),
	waited time.Duration, err error,
) {
	t, ok := ctx.Value(ticketKey{}).(*ticket)
	if !ok {
		return nil, 0, dray.Errorf(dray.CodeInternal, "a call that was not admitted requests a slot")
	}
	w, before, err := g.acquireOrQueue(t, container)
	if err != nil {
		return nil, 0, err
	}
	select {
	case <-w.ready: // at once
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

// acquireOrQueue grants a slot, or queues the call and returns how many are before it.
func (g *Controller) acquireOrQueue(t *ticket, container string) (*waiter, int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if container != hostID && t.target.queueID != hostID {
		g.bindRoute(t.target, container)
	}
	b := g.queueFor(container)
	w := &waiter{number: t.number, client: t.client, queue: b, ready: make(chan struct{})}
	if g.running < g.limits.Concurrent && b.running < b.limit {
		// No queued call is overtaken: one that could run now would already have been granted a slot.
		g.grant(w)
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

// queuePosition returns about how many queued calls are granted a slot earlier, as things stand:
// those of the same client, and as many of each other one.
func (g *Controller) queuePosition(w *waiter) int {
	own, others := 0, map[*client]int{}
	for _, b := range g.queues {
		// the queue of a container that is full delays its own calls alone
		if b != w.queue && b.running >= b.limit {
			continue
		}
		for _, other := range b.queue {
			switch {
			case other.client.workspace != w.client.workspace:
				others[other.client.workspace]++
			case other.number < w.number:
				own++
			}
		}
	}
	n := own
	for _, queued := range others {
		n += min(queued, own+1)
	}
	return n
}

func byNumber(w *waiter, number uint64) int { return cmp.Compare(w.number, number) }

// wait blocks until the call has a slot, with the deadline paused and the sink notified. If it
// fails the call has no slot and is in no queue. It is not shown as running: nothing of it ran.
func (g *Controller) wait(ctx context.Context, w *waiter, before int, sink dray.Sink) (err error) {
	served := false
	defer func() {
		if !served { // also after a panic of the sink
			g.withdraw(w)
		}
	}()
	defer executor.PauseDeadline(ctx)()
	q, shows := sink.(QueueSink)
	if shows {
		q.Queued(true)
	}
	sink.Progress("queue", queueMessage(before))
	select {
	case <-w.ready:
		err = w.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil && shows {
		q.Queued(false)
	}
	served = err == nil
	return err
}

func queueMessage(before int) string {
	switch before {
	case 0:
		return "queued: next in line"
	case 1:
		return "queued: 1 call before it"
	default:
		return fmt.Sprintf("queued: %d calls before it", before)
	}
}

// withdraw removes a call from the queue. A slot that it was granted meanwhile goes to the next
// call.
func (g *Controller) withdraw(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.granted {
		g.releaseSlot(w)
		return
	}
	if at, found := slices.BinarySearchFunc(w.queue.queue, w.number, byNumber); found {
		w.queue.queue = slices.Delete(w.queue.queue, at, at+1)
		g.waiting--
	}
	g.removeIfIdle(w.queue)
}

func (g *Controller) grant(w *waiter) {
	w.granted, w.since = true, time.Now()
	g.running++
	w.queue.running++
	g.clients.grant(w.client)
	g.pace.began(w.since)
	close(w.ready)
}

func (g *Controller) finishCall(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pace.ran(time.Since(w.since))
	g.releaseSlot(w)
}

// releaseSlot releases a slot and grants the free ones.
func (g *Controller) releaseSlot(w *waiter) {
	g.running--
	w.queue.running--
	w.client.release()
	g.pace.left(w.since)
	for next := g.nextRunnable(); next != nil; next = g.nextRunnable() {
		at, _ := slices.BinarySearchFunc(next.queue.queue, next.number, byNumber)
		next.queue.queue = slices.Delete(next.queue.queue, at, at+1)
		g.waiting--
		g.grant(next)
	}
	g.removeIfIdle(w.queue)
}

// nextRunnable returns the queued call that is next and can run now, or nil.
func (g *Controller) nextRunnable() *waiter {
	if g.running >= g.limits.Concurrent {
		return nil
	}
	var first *waiter
	for _, b := range g.queues {
		if b.running >= b.limit {
			continue
		}
		for _, w := range b.queue {
			if first == nil || w.isBefore(first) {
				first = w
			}
		}
	}
	return first
}
