package docker

import (
	"context"
	"errors"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// Environment returns an environment of a running container: by its agent or, if it cannot run one
// and Options.Transport allows it, by the engine's exec. It fails with container_unavailable or
// engine_unavailable.
func (e *Engine) Environment(ctx context.Context, info devcontainer.ContainerInfo,
	spec agent.Spec,
) (dray.Environment, error) {
	if !info.Running() {
		return nil, info.NotRunning()
	}
	c, err := e.agentContainer(ctx, info)
	if err != nil {
		return nil, err
	}
	if spec.User == "" {
		spec.User = c.User
	}
	if e.opts.Transport == TransportEngine {
		return newExecEnv(e, c, spec, ""), nil
	}
	key := c.ID + "\x00" + c.StartedAt + "\x00" + spec.User
	if reason, ok := e.recentFailure(key); ok {
		return newExecEnv(e, c, spec, reason), nil
	}
	e.events.start(false)
	env, err := e.agents.Environment(ctx, c, spec)
	failed, ok := errors.AsType[*agent.PlacementError](err)
	if !ok {
		return env, err
	}
	if e.opts.Transport != TransportAuto {
		return nil, dray.Errorf(dray.CodeContainerUnavailable,
			"could not install the agent in container %s: %w", info.Name, err).
			WithHint("set agent.transport to auto to fall back to the engine's exec")
	}
	e.recordFailure(key, info.Name, failed.Error())
	return newExecEnv(e, c, spec, failed.Error()), nil
}

func (e *Engine) agentContainer(ctx context.Context, info devcontainer.ContainerInfo,
) (agent.Container, error) {
	name, err := e.Name(ctx)
	return agent.Container{
		ID: info.ID, StartedAt: info.StartedAt, User: info.User, Env: info.Env,
		Hostname: info.Hostname, Workdir: info.Workdir, Groups: info.Groups,
		Metadata: dray.ContainerMetadata{
			ID: info.ID, Name: info.Name, Image: info.Image, ImageDigest: info.ImageDigest, Engine: name,
		},
		Access: access{e, info},
	}, err
}
