package container

import (
	"context"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// Container is one container as the engine describes it.
type Container struct {
	devcontainer.ContainerInfo
	// Hostname is what the engine puts into HOSTNAME.
	Hostname string
	Paused   bool
	// ImageDigest is the repository digest where there is one, else the image's id.
	ImageDigest string
	// Arch is the image's, as the engine names it.
	Arch string
	// Groups are what the container adds to every user's (--group-add), names or numbers.
	Groups []string
	// ImageLabels are those that come from the image, not from whoever made the container.
	ImageLabels map[string]string
	// AgentVolume is the volume that is mounted for our agent, if there is one.
	AgentVolume string
}

// Running says that processes can be started in it.
func (c Container) Running() bool { return c.Status == "running" && !c.Paused }

// Inspect describes one container by id or name. Errors: container_not_found, engine_unavailable.
func (e *Engine) Inspect(ctx context.Context, ref string) (Container, error) {
	res, err := e.api.ContainerInspect(ctx, ref, client.ContainerInspectOptions{})
	if err != nil {
		return Container{}, e.containerError(ref, "inspecting it", err)
	}
	c := newContainer(res.Container)
	img, err := e.image(ctx, res.Container.Image)
	if err != nil {
		return Container{}, err
	}
	c.ImageDigest, c.Arch, c.ImageLabels = img.digest, img.arch, img.labels
	return c, nil
}

func newContainer(r container.InspectResponse) Container {
	c := Container{ContainerInfo: devcontainer.ContainerInfo{
		ID:   r.ID,
		Name: strings.TrimPrefix(r.Name, "/"),
	}}
	// an engine without a readable time sorts last
	c.Created, _ = time.Parse(time.RFC3339Nano, r.Created)
	if r.State != nil {
		c.Status, c.Paused, c.StartedAt = string(r.State.Status), r.State.Paused, r.State.StartedAt
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
			Type: string(m.Type), Source: m.Source,
			Destination: m.Destination,
		})
		if m.Destination == agentMountPath && m.Type == "volume" {
			c.AgentVolume = m.Name
		}
	}
	return c
}

// List gives the containers with a label, stopped ones included. A value may be empty.
func (e *Engine) List(ctx context.Context, label, value string) ([]devcontainer.ContainerInfo,
	error,
) {
	if value != "" {
		label += "=" + value
	}
	res, err := e.api.ContainerList(ctx,
		client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", label)})
	if err != nil {
		return nil, e.unavailable("listing containers", err)
	}
	list := make([]devcontainer.ContainerInfo, len(res.Items))
	for i, s := range res.Items {
		list[i] = devcontainer.ContainerInfo{
			ID: s.ID, Image: s.Image, Labels: s.Labels, Status: string(s.State), Created: time.Unix(s.Created, 0),
		}
		if len(s.Names) > 0 {
			list[i].Name = strings.TrimPrefix(s.Names[0], "/")
		}
	}
	return list, nil
}

// Stop stops a container; its own stop timeout counts.
func (e *Engine) Stop(ctx context.Context, id string) error {
	if _, err := e.api.ContainerStop(ctx, id, client.ContainerStopOptions{}); err != nil {
		return e.containerError(id, "stopping it", err)
	}
	return nil
}

type image struct {
	digest, arch string
	labels       map[string]string
}

// image asks for an image once: it never changes under its id.
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
			return image{}, e.unavailable("inspecting an image", err)
		}
		return image{digest: id}, nil // a running container outlives its image
	}
	img = image{digest: id, arch: res.Architecture}
	if res.Config != nil {
		img.labels = res.Config.Labels
	}
	if len(res.RepoDigests) > 0 {
		img.digest = res.RepoDigests[0]
	}
	e.mu.Lock()
	e.images[id] = img
	e.mu.Unlock()
	return img, nil
}

// engineArch is the architecture to assume where an image says none: the engine's own.
func (e *Engine) engineArch(ctx context.Context) (string, error) {
	v, err := e.api.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return "", e.unavailable("asking its architecture", err)
	}
	return v.Arch, nil
}

// stateName is the engine's word, for people.
func (c Container) stateName() string {
	if c.Paused {
		return "paused"
	}
	return c.Status
}

// NotRunning refuses a container that is stopped or paused, saying which.
func (c Container) NotRunning() error {
	return dray.Errorf(dray.CodeContainerUnavailable, "container %s is %s", c.Name, c.stateName()).
		WithHint("start it (`dray workspace up` for a workspace's own, else `docker start` or `docker unpause`)")
}
