package docker

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// Inspect returns one container by id or name. It fails with container_not_found or
// engine_unavailable.
func (e *Engine) Inspect(ctx context.Context, ref string) (devcontainer.ContainerInfo, error) {
	res, err := e.api.ContainerInspect(ctx, ref, client.ContainerInspectOptions{})
	if err != nil {
		return devcontainer.ContainerInfo{}, e.containerError(ref, "inspect a container", err)
	}
	return e.newContainer(ctx, res.Container)
}

// newContainer describes a container with its image.
func (e *Engine) newContainer(ctx context.Context, r container.InspectResponse,
) (devcontainer.ContainerInfo, error) {
	c := containerInfo(r)
	server, err := e.askServer(ctx)
	if err != nil {
		return c, err
	}
	img, err := e.image(ctx, r.Image)
	c.Env = server.dialect.ownEnv(c, img)
	c.ImageDigest, c.Arch = img.digest, img.arch
	c.ImageLabels, c.ImageRemoved = img.labels, img.removed
	return c, err
}

func containerInfo(r container.InspectResponse) devcontainer.ContainerInfo {
	c := devcontainer.ContainerInfo{ID: r.ID, Name: strings.TrimPrefix(r.Name, "/")}
	c.Created, _ = time.Parse(time.RFC3339Nano, r.Created) // unreadable sorts last
	if r.State != nil {
		c.Status, c.StartedAt = string(r.State.Status), r.State.StartedAt
		if r.State.Paused {
			c.Status = "paused"
		}
	}
	if r.HostConfig != nil {
		c.Groups = r.HostConfig.GroupAdd
	}
	if r.Config != nil {
		c.Image, c.Labels, c.Env, c.User = r.Config.Image, r.Config.Labels, r.Config.Env, r.Config.User
		c.Workdir, c.Hostname = r.Config.WorkingDir, r.Config.Hostname
	}
	for _, m := range r.Mounts {
		c.Mounts = append(c.Mounts, devcontainer.MountInfo{
			Type: string(m.Type), Name: m.Name, Source: m.Source, Destination: m.Destination,
		})
	}
	return c
}

// List returns the containers with a label, stopped ones included. An empty value matches any.
func (e *Engine) List(ctx context.Context, label, value string,
) ([]devcontainer.ContainerInfo, error) {
	if value != "" {
		label += "=" + value
	}
	res, err := e.api.ContainerList(ctx,
		client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", label)})
	if err != nil {
		return nil, e.unavailable("list containers", err)
	}
	list := make([]devcontainer.ContainerInfo, len(res.Items))
	for i, s := range res.Items {
		list[i] = devcontainer.ContainerInfo{
			ID: s.ID, Image: s.Image, Labels: s.Labels, Status: string(s.State),
			Created: time.Unix(s.Created, 0),
		}
		img, err := e.image(ctx, s.ImageID)
		if err != nil {
			return nil, err
		}
		list[i].ImageLabels, list[i].ImageRemoved = img.labels, img.removed
		if len(s.Names) > 0 {
			list[i].Name = strings.TrimPrefix(s.Names[0], "/")
		}
	}
	return list, nil
}

// Stop stops a container within its own stop timeout.
func (e *Engine) Stop(ctx context.Context, id string) error {
	if _, err := e.api.ContainerStop(ctx, id, client.ContainerStopOptions{}); err != nil {
		return e.containerError(id, "stop a container", err)
	}
	return nil
}

// Remove removes a container, also a running one, with its anonymous volumes.
func (e *Engine) Remove(ctx context.Context, id string) error {
	options := client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}
	if _, err := e.api.ContainerRemove(ctx, id, options); err != nil {
		return e.containerError(id, "remove a container", err)
	}
	return nil
}

// RemoveNetworks removes the networks with a label. One that containers still use stays.
func (e *Engine) RemoveNetworks(ctx context.Context, label, value string) error {
	res, err := e.api.NetworkList(ctx, client.NetworkListOptions{
		Filters: client.Filters{}.Add("label", label+"="+value),
	})
	if err != nil {
		return e.unavailable("list networks", err)
	}
	for _, n := range res.Items {
		inspected, err := e.api.NetworkInspect(ctx, n.ID, client.NetworkInspectOptions{})
		if err == nil && len(inspected.Network.Containers) == 0 {
			_, err = e.api.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
		}
		if err != nil && !errdefs.IsNotFound(err) { // it was removed meanwhile
			return e.unavailable("remove a network", err)
		}
	}
	return nil
}

type image struct {
	digest, arch string
	labels       map[string]string
	env          []string
	removed      bool // digest is its id, and nothing else is known
}

// image returns an image, which never changes under its id, from a cache.
func (e *Engine) image(ctx context.Context, id string) (image, error) {
	e.mu.Lock()
	img, ok := e.images[id]
	e.mu.Unlock()
	if ok {
		return img, nil
	}
	res, err := e.api.ImageInspect(ctx, id)
	if err != nil {
		if ctx.Err() != nil {
			return image{}, e.unavailable("inspect an image", err)
		}
		return image{digest: id, removed: true}, nil // this can happen to that of a running container
	}
	img = image{digest: id, arch: res.Architecture}
	if res.Config != nil {
		img.labels, img.env = res.Config.Labels, res.Config.Env
	}
	if len(res.RepoDigests) > 0 {
		img.digest = res.RepoDigests[0]
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.images[id] = img
	return img, nil
}

// archOf returns the architecture of a container, the engine's own if the image names none.
func (e *Engine) archOf(ctx context.Context, c devcontainer.ContainerInfo) (string, error) {
	if c.Arch != "" {
		return c.Arch, nil
	}
	v, err := e.api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return "", e.unavailable("get its architecture", err)
	}
	return v.Arch, nil
}

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
	spec.User = cmp.Or(spec.User, c.User)
	if e.opts.Transport == TransportEngine {
		return newExecEnv(e, c, spec, ""), nil
	}
	key := c.ID + "\x00" + c.StartedAt + "\x00" + spec.User
	if reason, ok := e.recentFailure(key); ok {
		return newExecEnv(e, c, spec, reason), nil
	}
	e.events.start()
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
	server, err := e.askServer(ctx)
	return agent.Container{
		ID: info.ID, StartedAt: info.StartedAt, User: info.User, Env: info.Env,
		Hostname: info.Hostname, Workdir: info.Workdir, Groups: info.Groups,
		Metadata: dray.ContainerMetadata{
			ID: info.ID, Name: info.Name, Image: info.Image, ImageDigest: info.ImageDigest,
			Engine: server.name,
		},
		Access: access{e, info},
	}, err
}
