package workspace

import (
	"context"
	"sync"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// upRun is one `up` of a workspace, with all who wait for it. It belongs to the manager, not to the call that asked first: a
// caller who gives up does not end it for the others.
type upRun struct {
	done chan struct{} // closed when id and err are set
	id   string
	err  error

	mu        sync.Mutex
	listeners map[int]subscriber
	next      int
	last      [2]string // what a late listener hears first
}

// subscriber is one caller who waits.
type subscriber struct {
	progress func(phase, message string)
	panicked chan *executor.PanicError // gets its panic, which is its own call's and nobody else's
}

// notify tells a listener, and says whether that went well.
func (l subscriber) notify(phase, message string) (ok bool) {
	defer func() {
		if p := executor.Recovered(recover()); p != nil {
			l.panicked <- p // the first is the last: it hears no more
		}
	}()
	l.progress(phase, message)
	return true
}

// up brings a workspace's container up, once, however many ask for it meanwhile.
func (m *Manager) up(ctx context.Context, loc devcontainer.Location, progress func(phase, message string)) (string, error) {
	a, mine := m.activation(loc)
	if a == nil {
		return "", dray.Errorf(dray.CodeShuttingDown, "the daemon is shutting down").WithHint("repeat the call when it is up again")
	}
	panicked, leave := a.subscribe(progress)
	defer leave()
	if mine {
		go func() { // counted by activation; Close ends it and waits for it
			defer m.wg.Done()
			a.id, a.err = m.upWithTimeout(m.ctx, loc, a.broadcast)
			m.mu.Lock()
			delete(m.upRuns, loc)
			m.mu.Unlock()
			close(a.done)
		}()
	}
	select {
	case <-a.done:
		return a.id, a.err
	case p := <-panicked:
		panic(p)
	case <-ctx.Done():
		return "", dray.Errorf(dray.CodeContainerUnavailable, "the container of %s is still being brought up: %w", loc.Workspace, context.Cause(ctx)).
			WithHint("it goes on in the background; repeat the call, or wait with `dray workspace up`")
	}
}

// activation gives the one that is under way, or a new one that the caller has to begin; nil once the manager is closed.
func (m *Manager) activation(loc devcontainer.Location) (a *upRun, mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.upRuns[loc]; a != nil {
		return a, false
	}
	if m.closed {
		return nil, false
	}
	m.wg.Add(1)
	a = &upRun{done: make(chan struct{}), listeners: map[int]subscriber{}}
	m.upRuns[loc] = a
	return a, true
}

// subscribe adds a listener. After leave has returned it is not called any more.
func (a *upRun) subscribe(progress func(phase, message string)) (panicked <-chan *executor.PanicError, leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := a.next
	a.next++
	l := subscriber{progress: progress, panicked: make(chan *executor.PanicError, 1)}
	if a.last[0] == "" || l.notify(a.last[0], a.last[1]) {
		a.listeners[id] = l
	}
	return l.panicked, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.listeners, id)
	}
}

func (a *upRun) broadcast(phase, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = [2]string{phase, message}
	for id, l := range a.listeners {
		if !l.notify(phase, message) {
			delete(a.listeners, id)
		}
	}
}
