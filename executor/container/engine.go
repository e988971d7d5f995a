package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// Transport is how processes are started in containers.
type Transport string

// The transports. Auto uses the agent, by a socket where the agent reaches one and else by its stdio, and the engine's exec where no agent
// can be placed. Each other insists.
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
	// FilesByHelper has containers' files read by a helper in there even where this daemon could read them itself.
	FilesByHelper bool
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

// Env makes the docker CLI and what uses it choose this engine too, whatever it would choose by itself.
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
		return dray.Errorf(dray.CodeEngineUnavailable, "the container engine at %s may not be used by this user (%s): %w", e.Host(), doing, err).
			WithHint("join the group of its socket (often `usermod -aG docker USER`, and log in again), or point dray at an engine of your own "+
				"with engine.host, engine.context or DOCKER_HOST (chosen by %s)", e.source)
	}
	return dray.Errorf(dray.CodeEngineUnavailable, "the container engine at %s did not answer (%s): %w", e.Host(), doing, err).
		WithHint("start the engine, or point dray at it with engine.host, engine.context or DOCKER_HOST (chosen by %s)", e.source)
}

// permissionDenied says that the engine's socket is there and not for this user. The client library tells that in words alone.
func (e *Engine) permissionDenied() bool {
	path, local := strings.CutPrefix(e.Host(), "unix://")
	return local && errors.Is(unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS), fs.ErrPermission)
}

// containerError gives an answer of the engine about one container its code.
func (e *Engine) containerError(ref, doing string, err error) error {
	switch {
	case errdefs.IsNotFound(err):
		return dray.Errorf(dray.CodeContainerNotFound, "there is no container %q", ref).
			WithHint("`docker ps -a` lists the engine's containers; `dray workspace up` makes a workspace's own")
	case errdefs.IsConflict(err):
		return dray.Errorf(dray.CodeContainerUnavailable, "container %q cannot be used now (%s): %w", ref, doing, err).
			WithHint("look at its state with `docker ps -a`; start or unpause it")
	default:
		return e.unavailable(doing, err)
	}
}
