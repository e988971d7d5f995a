package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/agentbin"
	"github.com/dray-dev/dray/internal/logging"
)

// Transport defines how processes are started in containers.
type Transport string

// The transports. TransportAuto uses the agent, by a socket if it reaches one and else by its
// stdio, and falls back to the engine's exec. The others use that transport or fail.
const (
	TransportAuto   Transport = "auto"
	TransportSocket Transport = "socket"
	TransportStdio  Transport = "stdio"
	TransportEngine Transport = "engine"
)

// channel returns the channel that a transport insists on.
func (t Transport) channel() agent.Channel {
	if t == TransportSocket || t == TransportStdio {
		return agent.Channel(t)
	}
	return agent.AnyChannel
}

// Options of an engine.
type Options struct {
	// Lease is how long an agent keeps calls running without a frame from the daemon.
	Lease     time.Duration
	Transport Transport
	// RunDir has the directories that containers of earlier versions mount.
	RunDir string
	// Version of the daemon, for the agents' hello.
	Version string
	Log     *zap.Logger
}

// Engine is a connection to a container engine. It is safe for concurrent use.
type Engine struct {
	api      *client.Client
	config   EndpointConfig
	endpoint endpoint
	opts     Options
	log      *zap.Logger
	agents   *agent.Pool
	events   *eventWatcher
	// agentFor returns the agent for an architecture.
	agentFor func(arch string) (agentbin.Agent, error)

	mu       sync.Mutex
	server   server // zero before the first request
	images   map[string]image
	failures map[string]agentFailure
}

func newEngine(api *client.Client, config EndpointConfig, found endpoint, opts Options) *Engine {
	if opts.Log == nil {
		opts.Log = zap.NewNop()
	}
	e := &Engine{
		api: api, config: config, endpoint: found, opts: opts, log: opts.Log,
		images: map[string]image{}, failures: map[string]agentFailure{}, agentFor: agentbin.For,
		agents: agent.NewPool(agent.Config{
			Lease: opts.Lease, Channel: opts.Transport.channel(), Version: opts.Version, Log: opts.Log,
		}),
	}
	e.events = newEventWatcher(e)
	return e
}

// Source returns the setting that selected this engine.
func (e *Engine) Source() string { return e.endpoint.source }

// Host returns the engine's address.
func (e *Engine) Host() string { return e.endpoint.host }

// Env returns variables that make the docker CLI use this engine too.
func (e *Engine) Env() []string {
	switch e.endpoint.source {
	case sourceHost:
		return []string{"DOCKER_HOST=" + e.config.Host}
	case sourceContext:
		return []string{"DOCKER_CONTEXT=" + e.config.Context, "DOCKER_HOST="}
	default:
		return nil
	}
}

// Close ends every agent and its processes, and closes the connections to the engine.
func (e *Engine) Close() error {
	e.agents.Close()
	e.events.close()
	return e.api.Close()
}

// server is the program that answers an engine's requests.
type server struct {
	name    string // "docker 20.10.24"
	dialect dialect
}

// Name returns the engine's product and version.
func (e *Engine) Name(ctx context.Context) (string, error) {
	s, err := e.askServer(ctx)
	return s.name, err
}

// knownServer returns the cached result of askServer, which is called for each container that is
// inspected.
func (e *Engine) knownServer() server {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.server
}

// askServer asks the engine once what it is.
func (e *Engine) askServer(ctx context.Context) (server, error) {
	if known := e.knownServer(); known.name != "" {
		return known, nil
	}
	v, err := e.api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return server{}, e.unavailable("get its version", err)
	}
	d, version := dialectOf(v)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.server = server{name: d.product + " " + version, dialect: d}
	return e.server, nil
}

// Components returns the versions of the engine's parts by name, such as runc. An engine reports
// only some of them.
func (e *Engine) Components(ctx context.Context) (map[string]string, error) {
	v, err := e.api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return nil, e.unavailable("get its version", err)
	}
	parts := make(map[string]string, len(v.Components))
	for _, c := range v.Components {
		parts[c.Name] = c.Version
	}
	return parts, nil
}

// unavailable returns the error of a request that the engine did not answer.
func (e *Engine) unavailable(doing string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("container engine: %s: %w", doing, err)
	}
	if e.permissionDenied() {
		return dray.Errorf(dray.CodeEngineUnavailable,
			"this user may not use the container engine at %s (%s): %w", e.Host(), doing, err).
			WithHint("join the group of its socket (often `usermod -aG docker USER`, then log in again), "+
				"or "+selectEngineHint, e.Source())
	}
	return dray.Errorf(dray.CodeEngineUnavailable,
		"the container engine at %s did not answer (%s): %w", e.Host(), doing, err).
		WithHint("start the engine, or "+selectEngineHint, e.Source())
}

const selectEngineHint = "select one by engine.host, engine.context or DOCKER_HOST (selected by %s)"

// permissionDenied reports whether the engine's socket exists and this user may not write to it.
// The client library reports that as text only.
func (e *Engine) permissionDenied() bool {
	path, local := strings.CutPrefix(e.Host(), "unix://")
	return local && errors.Is(unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS),
		fs.ErrPermission)
}

// containerError returns the error of a request about one container.
func (e *Engine) containerError(ref, doing string, err error) error {
	switch {
	case errdefs.IsNotFound(err), isAmbiguous(err):
		return dray.Errorf(dray.CodeContainerNotFound, "no such container: %q", ref).
			WithHint("`docker ps -a` lists all containers; `dray workspace up` creates that of a workspace")
	case errdefs.IsConflict(err):
		return dray.Errorf(dray.CodeContainerUnavailable, "container %q cannot be used now (%s): %w", ref,
			doing, err).
			WithHint("check its state with `docker ps -a`; start or unpause it")
	default:
		return e.unavailable(doing, err)
	}
}

// isAmbiguous reports whether an engine refused a reference because several ids begin with it. dray
// accepts no beginnings of ids.
func isAmbiguous(err error) bool {
	return strings.Contains(err.Error(), "Multiple IDs found with provided prefix") || // Docker
		strings.Contains(err.Error(), "more than one result for container name or ID") // Podman
}

// eventWatcher follows the container events of an engine. It counts them, passes them to the
// agents, and sweeps the volumes of earlier versions after removals.
type eventWatcher struct {
	engine *Engine
	ctx    context.Context //nolint:containedctx // ends with the engine
	cancel context.CancelFunc
	done   sync.WaitGroup
	count  atomic.Uint64
	live   atomic.Bool
	// changed receives a value when count or live has changed
	changed chan struct{}
	follow  sync.Once
	sweep   sync.Once
	// sweepPending receives a value if a container may have been removed
	sweepPending chan struct{}
}

func newEventWatcher(e *Engine) *eventWatcher {
	w := &eventWatcher{
		engine: e, changed: make(chan struct{}, 1), sweepPending: make(chan struct{}, 1),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Watch follows the engine's events until Close. It also removes the volumes that earlier versions
// made for containers that have been removed, and creates the missing directories of the others.
func (e *Engine) Watch() {
	e.events.start()
	e.events.sweep.Do(func() { e.events.done.Go(e.events.sweepVolumes) })
}

// Generation returns a number that changes whenever a container changes. If ok is false, events are
// not received and nothing cached about containers may be used.
func (e *Engine) Generation() (n uint64, ok bool) {
	return e.events.count.Load(), e.events.live.Load()
}

// Changed receives a value after Generation has changed. Changes that are not received are merged,
// so it can have one receiver only.
func (e *Engine) Changed() <-chan struct{} { return e.events.changed }

func (w *eventWatcher) start() { w.follow.Do(func() { w.done.Go(w.followEvents) }) }

func (w *eventWatcher) close() {
	w.cancel()
	w.done.Wait()
}

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

func (w *eventWatcher) readEvents() {
	if _, err := w.engine.api.Ping(w.ctx, client.PingOptions{}); err != nil {
		return
	}
	filters := client.Filters{}.Add("type", "container").Add("event", changeEvents...)
	stream := w.engine.api.Events(w.ctx, client.EventsListOptions{Filters: filters})
	w.noteChange() // for the events that were missed
	w.live.Store(true)
	w.engine.agents.ContainerChanged(w.ctx, "")
	w.requestSweep()
	for {
		select {
		case m := <-stream.Messages:
			w.noteChange()
			w.engine.agents.ContainerChanged(w.ctx, m.Actor.ID)
			if slices.Contains(removalEvents, string(m.Action)) {
				w.requestSweep()
			}
		case <-stream.Err: //nolint:errcheck // the next request meets the same error
			return
		}
	}
}

func (w *eventWatcher) noteChange() {
	w.count.Add(1)
	notify(w.changed)
}

func (w *eventWatcher) requestSweep() { notify(w.sweepPending) }

// notify sends a value unless one is pending already.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sweepVolumes runs beside the events, so that it does not delay them.
func (w *eventWatcher) sweepVolumes() {
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-w.sweepPending:
			if err := w.engine.sweepOldVolumes(w.ctx); err != nil && w.ctx.Err() == nil {
				w.engine.log.Warn("agent volume cleanup failed", zap.Error(err))
			}
		}
	}
}
