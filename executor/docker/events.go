package docker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"
	"go.uber.org/zap"

	"github.com/dray-dev/dray/internal/logging"
)

// eventWatcher follows the container events of an engine. It counts them, passes them to the
// agents, and starts garbage collection after removals.
type eventWatcher struct {
	engine *Engine
	ctx    context.Context //nolint:containedctx // ends with the engine
	cancel context.CancelFunc
	done   sync.WaitGroup
	count  atomic.Uint64
	live   atomic.Bool
	follow sync.Once
	gc     sync.Once
	// gcPending receives a value if a container may have been removed
	gcPending chan struct{}
}

func newEventWatcher(e *Engine) *eventWatcher {
	w := &eventWatcher{engine: e, gcPending: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// start starts following events once, and with gc also garbage collection.
func (w *eventWatcher) start(gc bool) {
	w.follow.Do(func() { w.done.Go(w.followEvents) })
	if gc {
		w.gc.Do(func() { w.done.Go(w.collectGarbage) })
	}
}

func (w *eventWatcher) close() {
	w.cancel()
	w.done.Wait()
}

func (w *eventWatcher) generation() (n uint64, ok bool) { return w.count.Load(), w.live.Load() }

// reconnectDelay is the pause before events are requested again.
const reconnectDelay = time.Second

func (w *eventWatcher) followEvents() {
	for w.ctx.Err() == nil {
		_ = logging.RecoverPanics(w.engine.log, "following the engine's events", w.readEvents)
		w.live.Store(false)
		select {
		case <-w.ctx.Done():
		case <-time.After(reconnectDelay):
		}
	}
}

// readEvents reads events until the stream ends.
func (w *eventWatcher) readEvents() {
	if _, err := w.engine.api.Ping(w.ctx, client.PingOptions{}); err != nil {
		return
	}
	filters := client.Filters{}.Add("type", "container").Add("event", changeEvents...)
	stream := w.engine.api.Events(w.ctx, client.EventsListOptions{Filters: filters})
	w.count.Add(1) // for the events that were missed
	w.live.Store(true)
	w.engine.agents.ContainerChanged(w.ctx, "")
	w.requestGC()
	for {
		select {
		case m := <-stream.Messages:
			w.count.Add(1)
			w.engine.agents.ContainerChanged(w.ctx, m.Actor.ID)
			if slices.Contains(removalEvents, string(m.Action)) {
				w.requestGC()
			}
		case <-stream.Err: //nolint:errcheck // the next request meets the same error
			return
		}
	}
}

func (w *eventWatcher) requestGC() {
	select {
	case w.gcPending <- struct{}{}:
	default: // one is pending already
	}
}

// collectGarbage runs beside the events, so that it does not delay them.
func (w *eventWatcher) collectGarbage() {
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-w.gcPending:
			if err := w.engine.dirs.collectGarbage(w.ctx); err != nil && w.ctx.Err() == nil {
				w.engine.log.Warn("agent volume cleanup failed", zap.Error(err))
			}
		}
	}
}
