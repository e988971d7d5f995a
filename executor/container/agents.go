package container

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// agentKey names an agent: one for each start of a container, and, where root in there may not switch users, one for each user.
type agentKey struct{ id, startedAt, user string }

// agents keeps one living agent for each key. Callers who come while it is being started wait for it.
type agents struct {
	engine  *Engine
	closing context.Context //nolint:containedctx // the client's own life, which bounds what goes on without a caller
	abandon context.CancelFunc

	mu      sync.Mutex
	closed  bool
	entries map[agentKey]*agentEntry
	wg      sync.WaitGroup
}

type agentEntry struct {
	ready chan struct{} // closed when agent or err is set
	agent *agent
	err   error
}

// gone says that its agent was there and is not any more.
func (e *agentEntry) gone() bool {
	select {
	case <-e.ready:
		return e.agent == nil || e.agent.mux.Err() != nil
	default:
		return false
	}
}

func newAgents(e *Engine) *agents {
	s := &agents{engine: e, entries: map[agentKey]*agentEntry{}}
	s.closing, s.abandon = context.WithCancel(context.Background())
	return s
}

var (
	errClosing = errors.New("the engine client is closed")
	errSlow    = fmt.Errorf("the agent did not come up within %s", connectTimeout)
)

// get gives the living agent for a user of a container.
func (s *agents) get(ctx context.Context, c Container, user string) (*agent, error) {
	a, err := s.one(ctx, c, "")
	if err != nil || a.hello.SwitchUser || user == "" || user == "0" || user == "root" {
		return a, err
	}
	return s.one(ctx, c, user)
}

// connectTimeout bounds the start of an agent, whoever waits for it.
const connectTimeout = 30 * time.Second

func (s *agents) one(ctx context.Context, c Container, user string) (*agent, error) {
	key := agentKey{c.ID, c.StartedAt, user}
	s.mu.Lock()
	entry := s.entries[key]
	if s.closed {
		s.mu.Unlock()
		return nil, errClosing
	}
	if entry == nil || entry.gone() {
		entry = &agentEntry{ready: make(chan struct{})}
		s.entries[key] = entry
		s.wg.Go(func() { s.live(context.WithoutCancel(ctx), key, entry, c) })
	}
	s.mu.Unlock()
	select {
	case <-entry.ready:
		return entry.agent, entry.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// live is an agent's whole life here: connect, serve, forget.
func (s *agents) live(ctx context.Context, key agentKey, entry *agentEntry, c Container) {
	log := s.engine.log.With(zap.String("container", c.Name), zap.String("container_id", c.ID))
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errSlow)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)() //nolint:contextcheck // it ends with the client, not with a caller
	begun := time.Now()
	a, err := s.engine.connect(ctx, c, key.user)
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
	log.Info("agent connected", zap.String("version", a.hello.Version), zap.Duration("took", time.Since(begun)))
	if closed {
		a.mux.Close()
	}
	err = a.mux.Run()
	s.mu.Lock()
	s.forget(key, entry)
	s.mu.Unlock()
	a.bury()
	log.Info("agent gone", zap.Error(err))
}

// buryPatience bounds how long what an agent left behind may take to end.
const buryPatience = 5 * time.Second

// bury ends what a lost agent left running, where its group lets us, and so knows of it.
func (a *agent) bury() {
	defer close(a.over)
	if a.tree == nil {
		return
	}
	a.survivors.PIDs, a.survivors.Proven = a.tree.End(buryPatience)
	_ = a.tree.Close() // what is stuck in the kernel stays, for the next sweep
}

// forget removes an entry, unless another took its place already. The caller holds mu.
func (s *agents) forget(key agentKey, entry *agentEntry) {
	if s.entries[key] == entry {
		delete(s.entries, key)
	}
}

// close ends every agent and waits for the connections to be over.
func (s *agents) close() {
	s.mu.Lock()
	s.closed = true
	s.abandon()
	for _, entry := range s.entries {
		if entry.agent != nil {
			go entry.agent.mux.Close() // Run returns with it, and is waited for below
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
}
