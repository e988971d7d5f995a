package container

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

// agentKey names an agent: one for each start of a container, and, where root in there may not
// switch users, one for each user.
type agentKey struct{ id, startedAt, user string }

// agentPool keeps one living agent for each key. Callers who come while it is being started wait
// for it.
type agentPool struct {
	engine *Engine
	// the client's own life, which bounds what goes on without a caller
	closing context.Context //nolint:containedctx
	cancel  context.CancelFunc

	mu      sync.Mutex
	closed  bool
	events  *EventWatcher // of the containers that have agents; nil until there is one
	entries map[agentKey]*agentEntry
	wg      sync.WaitGroup
}

type agentEntry struct {
	ready chan struct{} // closed when agent or err is set
	agent *agent
	err   error
}

// lost says that its agent was there and is not any more.
func (e *agentEntry) lost() bool {
	select {
	case <-e.ready:
		return e.agent == nil || e.agent.mux.Err() != nil
	default:
		return false
	}
}

func newAgents(e *Engine) *agentPool {
	s := &agentPool{engine: e, entries: map[agentKey]*agentEntry{}}
	s.closing, s.cancel = context.WithCancel(context.Background())
	return s
}

var (
	errClosing        = errors.New("the engine client is closed")
	errConnectTimeout = fmt.Errorf("the agent did not come up within %s", connectTimeout)
)

// get gives the living agent for a user of a container.
func (s *agentPool) get(ctx context.Context, c Container, user string) (*agent, error) {
	a, err := s.getOrStart(ctx, c, "")
	if err != nil || a.hello.SwitchUser || user == "" || user == "0" || user == "root" {
		return a, err
	}
	return s.getOrStart(ctx, c, user)
}

// connectTimeout bounds the start of an agent, whoever waits for it.
const connectTimeout = 30 * time.Second

func (s *agentPool) getOrStart(ctx context.Context, c Container, user string) (*agent, error) {
	key := agentKey{c.ID, c.StartedAt, user}
	s.mu.Lock()
	entry := s.entries[key]
	if s.closed {
		s.mu.Unlock()
		return nil, errClosing
	}
	if entry == nil || entry.lost() {
		if s.events == nil {
			s.events = s.engine.watch(ctx, s.onContainerEvent)
		}
		entry = &agentEntry{ready: make(chan struct{})}
		s.entries[key] = entry
		s.wg.Go(func() { s.serve(context.WithoutCancel(ctx), key, entry, c) })
	}
	s.mu.Unlock()
	select {
	case <-entry.ready:
		return entry.agent, entry.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// serve is an agent's whole life here: connect, serve, forget.
func (s *agentPool) serve(ctx context.Context, key agentKey, entry *agentEntry, c Container) {
	log := s.engine.log.With(zap.String("container", c.Name), zap.String("container_id", c.ID))
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errConnectTimeout)
	defer cancel()
	// it ends with the client, not with a caller
	defer context.AfterFunc(s.closing, cancel)() //nolint:contextcheck
	begun := time.Now()
	var a *agent
	var err error
	if defect := s.engine.recoverPanics("connecting to an agent",
		func() { a, err = s.engine.connect(ctx, c, key.user) }); defect != nil {
		err = defect
	}
	s.mu.Lock()
	entry.agent, entry.err = a, err
	if err != nil || s.closed {
		s.forget(key, entry)
	}
	closed := s.closed
	close(entry.ready)
	s.mu.Unlock()
	if err != nil {
		log.Warn("agent failed", zap.Error(err))
		return
	}
	log.Info("agent connected", zap.String("version", a.hello.Version),
		zap.Duration("took", time.Since(begun)))
	if closed {
		a.mux.Close()
	}
	err = a.mux.Run()
	s.mu.Lock()
	s.forget(key, entry)
	s.mu.Unlock()
	if !a.killLeftovers() {
		s.engine.dirt.taint(key)
		log.Warn("agent lost, and what its calls may have left behind cannot be known", zap.Error(err))
	}
	log.Info("agent gone", zap.Error(err))
}

// leftoverKillTimeout bounds how long what an agent left behind may take to end.
const leftoverKillTimeout = time.Second

// killLeftovers ends what a lost agent left running, where its group lets us. It reports false
// where calls were lost with the agent and may have left something.
func (a *agent) killLeftovers() (clean bool) {
	defer close(a.cleaned)
	if a.cgroup != nil {
		pids, proven := a.cgroup.KillAndWait(leftoverKillTimeout)
		// other pids would be in our numbering, which says nothing in there
		a.proven = proven && len(pids) == 0
		_ = a.cgroup.Close() // what is stuck in the kernel stays, for the next sweep
	}
	return a.proven || a.calls.Load() == 0
}

// forget removes an entry, unless another took its place already. The caller holds mu.
func (s *agentPool) forget(key agentKey, entry *agentEntry) {
	if s.entries[key] == entry {
		delete(s.entries, key)
	}
}

// close ends every agent and waits for the connections to be over.
func (s *agentPool) close() {
	s.mu.Lock()
	s.closed = true
	s.cancel()
	for _, entry := range s.entries {
		if entry.agent != nil {
			go entry.agent.mux.Close() // Run returns with it, and is waited for below
		}
	}
	events := s.events
	s.mu.Unlock()
	if events != nil {
		events.Close()
	}
	s.wg.Wait()
}

// errContainerDown is a container that went down, or was paused, while an agent was in it.
var errContainerDown = errors.New("the container went down")

// lookTime bounds a look at one container.
const lookTime = 2 * time.Second

// onContainerEvent lets go of the agents of a container that cannot run them any more: one that is
// paused keeps its connections, and an agent in there would be missed only when its lease is over.
// Events may be late, so that what counts is what the container is now.
func (s *agentPool) onContainerEvent(ctx context.Context, id string) {
	for key, a := range s.of(id) {
		ctx, cancel := context.WithTimeout(ctx, lookTime)
		now, err := s.engine.Inspect(ctx, key.id)
		cancel()
		gone := dray.CodeOf(err) == dray.CodeContainerNotFound
		if gone || err == nil && (!now.Running() || now.StartedAt != key.startedAt) {
			a.mux.Fail(errContainerDown)
		}
		if gone || err == nil && now.StartedAt != key.startedAt {
			s.engine.dirt.forget(key)
		}
	}
}

// of gives the living agents of one container, of all for "".
func (s *agentPool) of(id string) map[agentKey]*agent {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[agentKey]*agent{}
	for key, entry := range s.entries {
		if entry.agent != nil && (id == "" || key.id == id) {
			found[key] = entry.agent
		}
	}
	return found
}

// taintTracker remembers the containers in which a call's end was not proved, so that later calls
// there can say so. A restart ends whatever was left, and is another start.
type taintTracker struct {
	mu     sync.Mutex
	starts map[agentKey]struct{}
}

// taintWarning is what later calls say.
const taintWarning = "an earlier call in this container ended without a proof that nothing of it is left; restart the container to be sure"

func containerStart(key agentKey) agentKey {
	key.user = ""
	return key
}

func (d *taintTracker) taint(key agentKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.starts == nil {
		d.starts = map[agentKey]struct{}{}
	}
	d.starts[containerStart(key)] = struct{}{}
}

func (d *taintTracker) forget(key agentKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.starts, containerStart(key))
}

// warningsFor are those of one call.
func (d *taintTracker) warningsFor(key agentKey) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, dirty := d.starts[containerStart(key)]; dirty {
		return []string{taintWarning}
	}
	return nil
}
