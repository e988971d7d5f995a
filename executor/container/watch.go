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

// Watch follows the engine's events until Close. It answers one question: has any container changed since? And when a container goes, it
// removes what the engine keeps for that one's agent.
type Watch struct {
	engine *Engine
	heard  func(ctx context.Context, id string)
	cancel context.CancelFunc
	done   sync.WaitGroup
	count  atomic.Uint64
	live   atomic.Bool
	untidy chan struct{} // holds one word that a container may have gone; nil where nobody tidies up
}

// Watch begins to follow the engine's events. An engine that does not answer is asked again and again.
func (e *Engine) Watch(ctx context.Context) *Watch {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &Watch{engine: e, heard: func(context.Context, string) {}, cancel: cancel, untidy: make(chan struct{}, 1)}
	w.done.Go(func() { w.follow(ctx) })
	w.done.Go(func() { w.tidy(ctx) })
	return w
}

// watch tells of each container that has changed, one after the other, and of "" when some may have while nobody listened.
func (e *Engine) watch(ctx context.Context, heard func(ctx context.Context, id string)) *Watch {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &Watch{engine: e, heard: heard, cancel: cancel}
	w.done.Go(func() { w.follow(ctx) })
	return w
}

// Close ends it.
func (w *Watch) Close() {
	w.cancel()
	w.done.Wait()
}

// Generation changes with every change of a container. While the events do not come, ok is false: then nothing may be taken as known.
func (w *Watch) Generation() (n uint64, ok bool) { return w.count.Load(), w.live.Load() }

// patience is the pause before the engine is asked for its events again.
const patience = time.Second

func (w *Watch) follow(ctx context.Context) {
	for ctx.Err() == nil {
		_ = w.engine.guard("following the engine's events", func() { w.read(ctx) }) // it is asked again
		w.live.Store(false)
		select {
		case <-ctx.Done():
		case <-time.After(patience):
		}
	}
}

func (w *Watch) read(ctx context.Context) {
	if _, err := w.engine.api.Ping(ctx, client.PingOptions{}); err != nil {
		return
	}
	filters := client.Filters{}.Add("type", "container").Add("event", changeActions...)
	stream := w.engine.api.Events(ctx, client.EventsListOptions{Filters: filters})
	w.count.Add(1) // what happened while nobody listened
	w.live.Store(true)
	w.heard(ctx, "")
	w.gone()
	for {
		select {
		case m := <-stream.Messages:
			w.count.Add(1)
			w.heard(ctx, m.Actor.ID)
			if m.Action == "destroy" || m.Action == "remove" {
				w.gone()
			}
		case <-stream.Err: //nolint:errcheck // what it says is met by the next question
			return
		}
	}
}

// gone says that a container may have gone.
func (w *Watch) gone() {
	select {
	case w.untidy <- struct{}{}:
	default: // it is said already
	}
}

// tidy looks after what containers left that have gone, beside the events and not between them.
func (w *Watch) tidy(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.untidy:
			if err := w.engine.tidy(ctx); err != nil && ctx.Err() == nil {
				w.engine.log.Warn("what containers left behind that have gone stays", zap.Error(err))
			}
		}
	}
}
