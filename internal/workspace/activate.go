package workspace

import (
	"context"
	"sync"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// activation is one `up` of a workspace, with all who wait for it. It belongs to the manager, not to the call that asked first: a
// caller who gives up does not end it for the others.
type activation struct {
	done chan struct{} // closed when id and err are set
	id   string
	err  error

	mu        sync.Mutex
	listeners map[int]func(phase, message string)
	next      int
	last      [2]string // what a late listener hears first
}

// up brings a workspace's container up, once, however many ask for it meanwhile.
func (m *Manager) up(ctx context.Context, loc devcontainer.Location, progress func(phase, message string)) (string, error) {
	a, mine := m.activation(loc)
	if a == nil {
		return "", dray.Errorf(dray.CodeShuttingDown, "the daemon is shutting down").WithHint("repeat the call when it is up again")
	}
	leave := a.listen(progress)
	defer leave()
	if mine {
		go func() { // counted by activation; Close ends it and waits for it
			defer m.wg.Done()
			a.id, a.err = m.bringUp(m.ctx, loc, a.tell)
			m.mu.Lock()
			delete(m.running, loc)
			m.mu.Unlock()
			close(a.done)
		}()
	}
	select {
	case <-a.done:
		return a.id, a.err
	case <-ctx.Done():
		return "", dray.Errorf(dray.CodeContainerUnavailable, "the container of %s is still being brought up: %w", loc.Workspace, context.Cause(ctx)).
			WithHint("it goes on in the background; repeat the call, or wait with `dray workspace up`")
	}
}

// activation gives the one that is under way, or a new one that the caller has to begin; nil once the manager is closed.
func (m *Manager) activation(loc devcontainer.Location) (a *activation, mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.running[loc]; a != nil {
		return a, false
	}
	if m.closed {
		return nil, false
	}
	m.wg.Add(1)
	a = &activation{done: make(chan struct{}), listeners: map[int]func(phase, message string){}}
	m.running[loc] = a
	return a, true
}

// listen adds a listener. After leave has returned it is not called any more.
func (a *activation) listen(progress func(phase, message string)) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := a.next
	a.next++
	a.listeners[id] = progress
	if a.last[0] != "" {
		progress(a.last[0], a.last[1])
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.listeners, id)
	}
}

func (a *activation) tell(phase, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = [2]string{phase, message}
	for _, progress := range a.listeners {
		progress(phase, message)
	}
}
