package container

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"
	"go.uber.org/zap"
)

// changeActions are the events after which what is known of the engine's containers may be wrong.
var changeActions = []string{"create", "start", "die", "destroy", "remove", "rename", "pause", "unpause", "update"}

// EventWatcher follows the engine's events until Close. It answers one question: has any container changed since? And when a container goes, it
// removes what the engine keeps for that one's agent.
type EventWatcher struct {
	engine    *Engine
	onEvent   func(ctx context.Context, id string)
	cancel    context.CancelFunc
	done      sync.WaitGroup
	count     atomic.Uint64
	live      atomic.Bool
	gcPending chan struct{} // holds one word that a container may have gone; nil where nobody tidies up
}

// Watch begins to follow the engine's events. An engine that does not answer is asked again and again.
func (e *Engine) Watch(ctx context.Context) *EventWatcher {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &EventWatcher{engine: e, onEvent: func(context.Context, string) {}, cancel: cancel, gcPending: make(chan struct{}, 1)}
	w.done.Go(func() { w.follow(ctx) })
	w.done.Go(func() { w.tidy(ctx) })
	return w
}

// watch tells of each container that has changed, one after the other, and of "" when some may have while nobody listened.
func (e *Engine) watch(ctx context.Context, heard func(ctx context.Context, id string)) *EventWatcher {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &EventWatcher{engine: e, onEvent: heard, cancel: cancel}
	w.done.Go(func() { w.follow(ctx) })
	return w
}

// Close ends it.
func (w *EventWatcher) Close() {
	w.cancel()
	w.done.Wait()
}

// Generation changes with every change of a container. While the events do not come, ok is false: then nothing may be taken as known.
func (w *EventWatcher) Generation() (n uint64, ok bool) { return w.count.Load(), w.live.Load() }

// reconnectDelay is the pause before the engine is asked for its events again.
const reconnectDelay = time.Second

func (w *EventWatcher) follow(ctx context.Context) {
	for ctx.Err() == nil {
		_ = w.engine.recoverPanics("following the engine's events", func() { w.read(ctx) }) // it is asked again
		w.live.Store(false)
		select {
		case <-ctx.Done():
		case <-time.After(reconnectDelay):
		}
	}
}

func (w *EventWatcher) read(ctx context.Context) {
	if _, err := w.engine.api.Ping(ctx, client.PingOptions{}); err != nil {
		return
	}
	filters := client.Filters{}.Add("type", "container").Add("event", changeActions...)
	stream := w.engine.api.Events(ctx, client.EventsListOptions{Filters: filters})
	w.count.Add(1) // what happened while nobody listened
	w.live.Store(true)
	w.onEvent(ctx, "")
	w.requestGC()
	for {
		select {
		case m := <-stream.Messages:
			w.count.Add(1)
			w.onEvent(ctx, m.Actor.ID)
			if m.Action == "destroy" || m.Action == "remove" {
				w.requestGC()
			}
		case <-stream.Err: //nolint:errcheck // what it says is met by the next question
			return
		}
	}
}

// requestGC says that a container may have gone.
func (w *EventWatcher) requestGC() {
	select {
	case w.gcPending <- struct{}{}:
	default: // it is said already
	}
}

// tidy looks after what containers left that have gone, beside the events and not between them.
func (w *EventWatcher) tidy(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.gcPending:
			if err := w.engine.collectGarbage(ctx); err != nil && ctx.Err() == nil {
				w.engine.log.Warn("what containers left behind that have gone stays", zap.Error(err))
			}
		}
	}
}
