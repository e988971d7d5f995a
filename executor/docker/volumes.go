package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/volume"
	"github.com/moby/moby/client"
	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

// Versions of dray before 0.2 mounted a directory of their state directory in each container that
// they created, by a volume that binds it. Such a container needs the directory: without it, the
// engine can neither start the container nor copy files into it. Nothing else uses it any more.

// Names and label of these volumes. The directory has the name of its volume.
const (
	oldVolumePrefix = "dray-agent-"
	oldVolumeLabel  = "dev.dray.agent"
)

// oldVolumeDir returns the directory that a volume of an earlier version binds.
func oldVolumeDir(v volume.Volume) (dir string, ok bool) {
	dir = v.Options["device"]
	return dir, v.Labels[oldVolumeLabel] != "" && strings.HasPrefix(v.Name, oldVolumePrefix) &&
		filepath.IsAbs(dir) && filepath.Base(dir) == v.Name
}

// sharesFilesystem reports whether the engine runs on this kernel under this host name and is
// reached by a local socket, so that its paths are those of this machine.
func (e *Engine) sharesFilesystem(ctx context.Context) (bool, error) {
	if !strings.HasPrefix(e.Host(), "unix://") {
		return false, nil
	}
	info, err := e.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return false, e.unavailable("get its host", err)
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return false, nil //nolint:nilerr // not Linux, so no shared kernel
	}
	name, err := os.Hostname()
	return err == nil && info.Info.Name == name &&
		info.Info.KernelVersion == strings.TrimSpace(string(release)), nil
}

// sweepOldVolumes removes the volumes of earlier versions that no container uses, running or not,
// with their directories, and creates the missing directories of those that are used. It keeps an
// unused volume whose directory is in another state directory: an earlier version may be creating
// its container. The engine decides whether a volume is in use, when it removes it.
func (e *Engine) sweepOldVolumes(ctx context.Context) error {
	res, err := e.api.VolumeList(ctx,
		client.VolumeListOptions{Filters: client.Filters{}.Add("label", oldVolumeLabel)})
	if err != nil {
		return e.unavailable("list volumes", err)
	}
	if len(res.Items) == 0 {
		return nil
	}
	if local, err := e.sharesFilesystem(ctx); err != nil || !local {
		return err
	}
	var errs []error
	for _, v := range res.Items {
		if dir, ok := oldVolumeDir(v); ok {
			errs = append(errs, e.sweepOldVolume(ctx, v.Name, dir))
		}
	}
	return errors.Join(errs...)
}

func (e *Engine) sweepOldVolume(ctx context.Context, name, dir string) error {
	own := filepath.Dir(dir) == filepath.Clean(e.opts.RunDir)
	if !own && !isMissing(dir) {
		return nil
	}
	_, err := e.api.VolumeRemove(ctx, name, client.VolumeRemoveOptions{})
	switch {
	case errdefs.IsConflict(err): // a container uses it
		return restoreOldDir(dir)
	case err != nil && !errdefs.IsNotFound(err):
		return e.unavailable("remove a volume", err)
	}
	e.log.Info("unused agent volume removed", zap.String("volume", name))
	if !own {
		return nil
	}
	return os.RemoveAll(dir)
}

// Restore makes a container that an earlier version of dray created startable again, if the
// directory that it mounts is missing. It fails with container_unavailable if that is impossible.
func (e *Engine) Restore(ctx context.Context, id string) error {
	res, err := e.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return e.containerError(id, "inspect a container", err)
	}
	for _, m := range res.Container.Mounts {
		if !strings.HasPrefix(m.Name, oldVolumePrefix) {
			continue
		}
		v, err := e.api.VolumeInspect(ctx, m.Name, client.VolumeInspectOptions{})
		if err != nil {
			return e.unavailable("inspect a volume", err)
		}
		dir, ok := oldVolumeDir(v.Volume)
		if local, err := e.sharesFilesystem(ctx); !ok || err != nil || !local {
			return err
		}
		if err := restoreOldDir(dir); err != nil {
			name := strings.TrimPrefix(res.Container.Name, "/")
			return dray.Errorf(dray.CodeContainerUnavailable,
				"container %s cannot start: an earlier version of dray mounted %s in it, which is missing: %w",
				name, dir, err).
				WithHint("create that directory, or remove the container with `docker rm %s`: the next "+
					"`dray workspace up` creates one that needs nothing of dray", name)
		}
	}
	return nil
}

func isMissing(dir string) bool {
	_, err := os.Lstat(dir)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// restoreOldDir creates a directory if it is missing. Its parents get the mode of a state
// directory.
func restoreOldDir(dir string) error {
	if !isMissing(dir) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("create the parent of an agent's directory: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create an agent's directory: %w", err)
	}
	return nil
}
