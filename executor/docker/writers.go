package docker

import (
	"bytes"
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/linux"
)

// Writers returns the containers with processes, paused ones included, that can change one of the
// paths: what a file contains or what a name leads to. The paths are absolute and contain no
// symlink before their last element.
func (e *Engine) Writers(ctx context.Context, paths []string,
) ([]devcontainer.ContainerInfo, error) {
	res, err := e.api.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return nil, e.unavailable("list containers", err)
	}
	var writers []devcontainer.ContainerInfo
	for _, c := range res.Items {
		if slices.Contains(withoutProcesses, string(c.State)) {
			continue
		}
		info, writes, err := e.Writer(ctx, c.ID, paths)
		if err != nil {
			return nil, err
		}
		if writes {
			writers = append(writers, info)
		}
	}
	return writers, nil
}

// Writer returns one container, and whether its processes, which it need not have yet, can change
// one of the paths. A container that does not exist is empty and cannot.
func (e *Engine) Writer(ctx context.Context, id string, paths []string,
) (devcontainer.ContainerInfo, bool, error) {
	res, err := e.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if errdefs.IsNotFound(err) {
		return devcontainer.ContainerInfo{}, false, nil
	}
	if err != nil {
		return devcontainer.ContainerInfo{}, false, e.containerError(id, "inspect a container", err)
	}
	info, err := e.newContainer(ctx, res.Container)
	if err != nil {
		return info, false, err
	}
	targets := newTargets(paths)
	if targets.mountedIn(res.Container) {
		return info, true, nil
	}
	writes, err := e.declaresMountOf(ctx, res.Container, targets)
	return info, writes, err
}

// declaresMountOf compares the mounts that the container was created with: all that is known of one
// that has no processes or runs on another kernel.
func (e *Engine) declaresMountOf(ctx context.Context, c container.InspectResponse, t targets,
) (bool, error) {
	for _, m := range c.Mounts {
		source := m.Source
		if m.Type == "volume" {
			var err error
			if source, err = e.volumeSource(ctx, m.Name); err != nil {
				return false, err
			}
		}
		if (m.RW || mayRemount(c)) && t.anyIn(source) {
			return true, nil
		}
	}
	return false, nil
}

// volumeSource returns the directory of the host that a volume of the local driver mounts, or "".
func (e *Engine) volumeSource(ctx context.Context, name string) (string, error) {
	res, err := e.api.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if err != nil && !errdefs.IsNotFound(err) {
		return "", e.unavailable("inspect a volume", err)
	}
	return res.Volume.Options["device"], nil
}

// mayRemount reports whether root in the container can make a read-only mount writable.
func mayRemount(c container.InspectResponse) bool {
	if c.HostConfig == nil {
		return false
	}
	return c.HostConfig.Privileged || slices.ContainsFunc(c.HostConfig.CapAdd, func(name string) bool {
		name = strings.TrimPrefix(strings.ToUpper(name), "CAP_")
		return name == "SYS_ADMIN" || name == "ALL"
	})
}

// targets are paths that containers must not change.
type targets struct {
	paths []string
	// onDevices has each path in each file system that is mounted above it. What a mount hides counts:
	// renaming it moves the mount.
	onDevices []devicePath
}

// devicePath is a path in a file system.
type devicePath struct{ device, path string }

func newTargets(paths []string) targets {
	t := targets{paths: paths}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return t // not Linux: names only
	}
	mounts := slices.Collect(linux.Mounts(table))
	for _, p := range paths {
		for _, m := range mounts {
			if rel, ok := lexical.Rel(m.Point, p); ok {
				t.onDevices = append(t.onDevices, devicePath{m.Device, path.Join(m.Root, rel)})
			}
		}
	}
	return t
}

// anyIn reports whether one of the paths is source or below it.
func (t targets) anyIn(source string) bool {
	if source == "" {
		return false
	}
	if resolved, err := filepath.EvalSymlinks(source); err == nil {
		source = resolved
	}
	return slices.ContainsFunc(t.paths, func(p string) bool {
		_, ok := lexical.Rel(source, p)
		return ok
	})
}

// mountedIn compares the mounts that a running container has, as its kernel knows them. It finds
// what names do not show: another path to the same directory, and mounts that were added later. For
// a container of another kernel it reports false.
func (t targets) mountedIn(c container.InspectResponse) bool {
	if c.State == nil || c.State.Pid <= 0 {
		return false
	}
	proc := "/proc/" + strconv.Itoa(c.State.Pid)
	groups, err := os.ReadFile(proc + "/cgroup")
	if err != nil || !bytes.Contains(groups, []byte(c.ID)) {
		return false
	}
	table, err := os.ReadFile(proc + "/mountinfo")
	if err != nil {
		return false // it has ended
	}
	for m := range linux.Mounts(table) {
		if (!m.ReadOnly || mayRemount(c)) &&
			slices.ContainsFunc(t.onDevices, func(p devicePath) bool { return p.visibleIn(m) }) {
			return true
		}
	}
	return false
}

func (p devicePath) visibleIn(m linux.Mount) bool {
	_, ok := lexical.Rel(m.Root, p.path)
	return ok && p.device == m.Device
}

// startEvents are the events after which a container may have processes, or will.
var startEvents = []string{"create", "start", "unpause"}

// Starts sends the id of each container that is created, started or unpaused, until ctx is done. It
// closes the channel when ctx is done or when it cannot follow the events.
func (e *Engine) Starts(ctx context.Context) (<-chan string, error) {
	info, err := e.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, e.unavailable("get its time", err)
	}
	stream := e.api.Events(ctx, client.EventsListOptions{
		Filters: client.Filters{}.Add("type", "container").Add("event", startEvents...),
		Since:   info.Info.SystemTime, // the engine answers before it subscribes
	})
	ids := make(chan string)
	go func() {
		defer close(ids)
		for {
			select {
			case m := <-stream.Messages:
				select {
				case ids <- m.Actor.ID:
				case <-ctx.Done():
					return
				}
			case <-stream.Err: //nolint:errcheck // the closed channel says it
				return
			}
		}
	}()
	return ids, nil
}
