package container

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// Transport is how processes are started in containers.
type Transport string

// The transports. Auto uses the agent, by a socket where the agent reaches one and else by its
// stdio, and the engine's exec where no agent can be placed. Each other insists.
const (
	TransportAuto   Transport = "auto"
	TransportSocket Transport = "socket"
	TransportStdio  Transport = "stdio"
	TransportEngine Transport = "engine"
)

// Options of an engine.
type Options struct {
	// Lease is how long an agent goes on without a frame from us.
	Lease     time.Duration
	Transport Transport
	// RunDir holds the folders that `up` mounts into containers, one for each.
	RunDir string
	// Version is ours, for the agents' handshake.
	Version string
	Log     *zap.Logger
}

// Engine is the container engine and everything that we keep at it.
type Engine struct {
	api      *client.Client
	endpoint EndpointConfig
	source   string
	opts     Options
	log      *zap.Logger
	agents   *agentPool
	dirt     taintTracker

	volumes volumeRefs

	mu      sync.Mutex
	name    string // "docker 20.10.24", once it was asked
	images  map[string]image
	refusal map[agentKey]agentFailure
}

func newEngine(api *client.Client, choice EndpointConfig, source string, opts Options) *Engine {
	e := &Engine{
		api: api, endpoint: choice, source: source, opts: opts, log: opts.Log,
		images: map[string]image{}, refusal: map[agentKey]agentFailure{},
	}
	e.agents = newAgents(e)
	return e
}

// Source says what decided which engine this is, and Host where it answers.
func (e *Engine) Source() string { return e.source }

// Host is the engine's address.
func (e *Engine) Host() string { return e.api.DaemonHost() }

// Env makes the docker CLI and what uses it choose this engine too, whatever it would choose by
// itself.
func (e *Engine) Env() []string {
	switch e.source {
	case sourceHost:
		return []string{"DOCKER_HOST=" + e.endpoint.Host}
	case sourceContext:
		return []string{"DOCKER_CONTEXT=" + e.endpoint.Context, "DOCKER_HOST="}
	default:
		return nil
	}
}

// Close ends every agent, and with it everything that they started, and lets go of the engine.
func (e *Engine) Close() error {
	e.agents.close()
	return e.api.Close()
}

// Name is the engine's product and version.
func (e *Engine) Name(ctx context.Context) (string, error) {
	e.mu.Lock()
	name := e.name
	e.mu.Unlock()
	if name != "" {
		return name, nil
	}
	v, err := e.api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return "", e.unavailable("asking its version", err)
	}
	name = "docker " + v.Version
	for _, c := range v.Components {
		if c.Name == "Podman Engine" {
			name = "podman " + c.Version
		}
	}
	e.mu.Lock()
	e.name = name
	e.mu.Unlock()
	return name, nil
}

// unavailable is trouble with the engine itself.
func (e *Engine) unavailable(doing string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s at the engine: %w", doing, err)
	}
	if e.permissionDenied() {
		return dray.Errorf(dray.CodeEngineUnavailable,
			"the container engine at %s may not be used by this user (%s): %w", e.Host(), doing, err).
			WithHint("join the group of its socket (often `usermod -aG docker USER`, and log in again), or point dray at an engine of your own "+
				"with engine.host, engine.context or DOCKER_HOST (chosen by %s)", e.source)
	}
	return dray.Errorf(dray.CodeEngineUnavailable,
		"the container engine at %s did not answer (%s): %w", e.Host(), doing, err).
		WithHint("start the engine, or point dray at it with engine.host, engine.context or DOCKER_HOST (chosen by %s)", e.source)
}

// permissionDenied says that the engine's socket is there and not for this user. The client library
// tells that in words alone.
func (e *Engine) permissionDenied() bool {
	path, local := strings.CutPrefix(e.Host(), "unix://")
	return local && errors.Is(unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS),
		fs.ErrPermission)
}

// containerError gives an answer of the engine about one container its code.
func (e *Engine) containerError(ref, doing string, err error) error {
	switch {
	case errdefs.IsNotFound(err):
		return dray.Errorf(dray.CodeContainerNotFound, "there is no container %q", ref).
			WithHint("`docker ps -a` lists the engine's containers; `dray workspace up` makes a workspace's own")
	case errdefs.IsConflict(err):
		return dray.Errorf(dray.CodeContainerUnavailable, "container %q cannot be used now (%s): %w", ref,
			doing, err).
			WithHint("look at its state with `docker ps -a`; start or unpause it")
	default:
		return e.unavailable(doing, err)
	}
}

// recoverPanics does the work of a goroutine that no call is around, so that nobody else would
// catch its panic: it is logged under an id, and told as an error with that id to whoever relies on
// the work (EX-18).
func (e *Engine) recoverPanics(doing string, work func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = e.panicError(doing, v, debug.Stack())
		}
	}()
	work()
	return nil
}

// panicError logs a panic under an id and makes an error that names it.
func (e *Engine) panicError(doing string, value any, stack []byte) error {
	id := rand.Text()
	e.log.Error("goroutine panicked", zap.String("id", id), zap.String("doing", doing),
		zap.String("panic", fmt.Sprint(value)), zap.ByteString("stack", stack))
	return dray.InternalError(dray.CodeInternal, id, "%s", doing)
}

// changeActions are the events after which what is known of the engine's containers may be wrong.
var changeActions = []string{
	"create", "start", "die", "destroy", "remove", "rename", "pause",
	"unpause", "update",
}

// EventWatcher follows the engine's events until Close. It answers one question: has any container
// changed since? And when a container goes, it removes what the engine keeps for that one's agent.
type EventWatcher struct {
	engine  *Engine
	onEvent func(ctx context.Context, id string)
	cancel  context.CancelFunc
	done    sync.WaitGroup
	count   atomic.Uint64
	live    atomic.Bool
	// holds one word that a container may have gone; nil where nobody tidies up
	gcPending chan struct{}
}

// Watch begins to follow the engine's events. An engine that does not answer is asked again and
// again.
func (e *Engine) Watch(ctx context.Context) *EventWatcher {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &EventWatcher{
		engine: e, onEvent: func(context.Context, string) {}, cancel: cancel,
		gcPending: make(chan struct{}, 1),
	}
	w.done.Go(func() { w.follow(ctx) })
	w.done.Go(func() { w.tidy(ctx) })
	return w
}

// watch tells of each container that has changed, one after the other, and of "" when some may have
// while nobody listened.
func (e *Engine) watch(ctx context.Context,
	heard func(ctx context.Context, id string),
) *EventWatcher {
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

// Generation changes with every change of a container. While the events do not come, ok is false:
// then nothing may be taken as known.
func (w *EventWatcher) Generation() (n uint64, ok bool) { return w.count.Load(), w.live.Load() }

// reconnectDelay is the pause before the engine is asked for its events again.
const reconnectDelay = time.Second

func (w *EventWatcher) follow(ctx context.Context) {
	for ctx.Err() == nil {
		// it is asked again
		_ = w.engine.recoverPanics("following the engine's events", func() { w.read(ctx) })
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
