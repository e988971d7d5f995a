package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/logging"
)

// Config is the configuration of a Pool.
type Config struct {
	// Lease is how long an agent keeps calls running without a frame from the daemon.
	Lease time.Duration
	// Channel insists on a channel. The zero value takes what works.
	Channel Channel
	// Version of the daemon, for the hello.
	Version string
	Log     *zap.Logger
}

// agentKey identifies an agent: one for each start of a container or, if root there cannot change
// users, one for each user.
type agentKey struct{ id, startedAt, user string }

// Pool keeps one connected agent for each start of a container. Concurrent callers share the start
// of an agent. It is safe for concurrent use.
type Pool struct {
	cfg Config
	// closing ends with the pool: it bounds connections that outlive their first caller
	closing context.Context //nolint:containedctx // see above
	cancel  context.CancelFunc

	mu      sync.Mutex
	closed  bool
	entries map[agentKey]*agentEntry
	// tainted has the starts of containers in which a call ended and its processes were not verified
	// to have ended. A restart ends them. Its keys have no user.
	tainted map[agentKey]bool
	wg      sync.WaitGroup
}

type agentEntry struct {
	conn  connector
	ready chan struct{} // closed when agent or err is set
	agent *agent
	err   error
}

// lost reports whether the start failed or the agent was lost.
func (e *agentEntry) lost() bool {
	select {
	case <-e.ready:
		return e.agent == nil || e.agent.mux.Err() != nil
	default:
		return false
	}
}

// NewPool returns a pool without agents. Close must be called.
func NewPool(cfg Config) *Pool {
	p := &Pool{cfg: cfg, entries: map[agentKey]*agentEntry{}, tainted: map[agentKey]bool{}}
	p.closing, p.cancel = context.WithCancel(context.Background())
	return p
}

// connectTimeout bounds the start of an agent.
const connectTimeout = 30 * time.Second

var (
	errClosed         = errors.New("the agent pool is closed")
	errConnectTimeout = fmt.Errorf("the agent did not connect within %s", connectTimeout)
)

func (p *Pool) connector(c Container) connector {
	return connector{p.cfg, c, p.cfg.Log.With(
		zap.String("container", c.Metadata.Name), zap.String("container_id", c.ID))}
}

// get returns the agent for a user of a container.
func (p *Pool) get(ctx context.Context, conn connector, user string) (*agent, error) {
	a, err := p.getOrStart(ctx, conn, "")
	if err != nil || a.hello.SwitchUser || user == "" || user == "0" || user == "root" {
		return a, err
	}
	return p.getOrStart(ctx, conn, user)
}

func (p *Pool) getOrStart(ctx context.Context, conn connector, user string) (*agent, error) {
	key := agentKey{conn.c.ID, conn.c.StartedAt, user}
	p.mu.Lock()
	entry := p.entries[key]
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed
	}
	if entry == nil || entry.lost() {
		entry = &agentEntry{conn: conn, ready: make(chan struct{})}
		p.entries[key] = entry
		p.wg.Go(func() { p.serve(context.WithoutCancel(ctx), key, entry) })
	}
	p.mu.Unlock()
	select {
	case <-entry.ready:
		return entry.agent, entry.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// serve connects to an agent and reads its connection until it ends.
func (p *Pool) serve(ctx context.Context, key agentKey, entry *agentEntry) {
	log := entry.conn.log
	begun := time.Now()
	a, err := p.connect(ctx, key, entry)
	if err != nil {
		log.Warn("agent connection failed", zap.Error(err))
		return
	}
	log.Info("agent connected", zap.String("version", a.hello.Version),
		zap.Duration("took", time.Since(begun)))
	err = a.mux.Run()
	p.mu.Lock()
	p.remove(key, entry)
	p.mu.Unlock()
	if !a.killLeftovers() {
		p.taint(entry.conn.c)
		log.Warn("agent lost; processes of its calls may still run", zap.Error(err))
	}
	log.Info("agent disconnected", zap.Error(err))
}

// connect sets the agent or the error of an entry.
func (p *Pool) connect(ctx context.Context, key agentKey, entry *agentEntry) (a *agent, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errConnectTimeout)
	defer cancel()
	defer context.AfterFunc(p.closing, cancel)() //nolint:contextcheck // ends with the pool
	if panicked := logging.RecoverPanics(entry.conn.log, "connecting to an agent",
		func() { a, err = entry.conn.connect(ctx, key.user) }); panicked != nil {
		err = panicked
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	entry.agent, entry.err = a, err
	if err != nil || p.closed {
		p.remove(key, entry)
	}
	if err == nil && p.closed {
		a.mux.Close()
	}
	close(entry.ready)
	return a, err
}

// remove removes an entry unless it was replaced. The caller holds mu.
func (p *Pool) remove(key agentKey, entry *agentEntry) {
	if p.entries[key] == entry {
		delete(p.entries, key)
	}
}

// Close ends every agent, and with it all processes that it started. It blocks until all
// connections have ended.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.cancel()
	for _, entry := range p.entries {
		if entry.agent != nil {
			go entry.agent.mux.Close() // wg.Wait waits for the Run that it ends
		}
	}
	p.mu.Unlock()
	p.wg.Wait()
}

var errContainerDown = errors.New("the container stopped or is paused")

// inspectTimeout bounds the inspection of one container after an event.
const inspectTimeout = 2 * time.Second

// ContainerChanged closes the connections into a container that stopped, was paused or was removed:
// without it, the connection to a paused container would end only with its lease. An empty id means
// that any container may have changed. Events may be late, so the container is inspected.
func (p *Pool) ContainerChanged(ctx context.Context, id string) {
	for _, entry := range p.connected(id) {
		c := entry.conn.c
		ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
		now, err := c.State(ctx)
		cancel()
		removed := dray.CodeOf(err) == dray.CodeContainerNotFound
		restarted := err == nil && now.StartedAt != c.StartedAt
		if removed || restarted || err == nil && !now.Running {
			entry.agent.mux.Fail(errContainerDown)
		}
		if removed || restarted {
			p.mu.Lock()
			delete(p.tainted, startOf(c))
			p.mu.Unlock()
		}
	}
}

func (p *Pool) connected(id string) (found []*agentEntry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, entry := range p.entries {
		if entry.agent != nil && (id == "" || key.id == id) {
			found = append(found, entry)
		}
	}
	return found
}

const taintWarning = "processes of an earlier call may still run in this container; " +
	"restart it to be sure"

func startOf(c Container) agentKey { return agentKey{id: c.ID, startedAt: c.StartedAt} }

// taint makes every later call in this start of the container warn.
func (p *Pool) taint(c Container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tainted[startOf(c)] = true
}

// Warnings returns the warnings of every new call in the container.
func (p *Pool) Warnings(c Container) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tainted[startOf(c)] {
		return []string{taintWarning}
	}
	return nil
}
