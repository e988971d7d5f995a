package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"go.uber.org/zap"
)

// volumeLabel marks our volumes.
const volumeLabel = "dev.dray.agent"

// staleDirAge is how long a folder of ours lies untouched, without a volume at this engine, until nobody is taken to need it: it may belong
// to an engine that is not used now.
const staleDirAge = 30 * 24 * time.Hour

// volumeRefs are those of our volumes that containers are being made for.
type volumeRefs struct {
	mu   sync.Mutex // held while one is made or removed
	refs map[string]int
}

// acquire keeps a volume until it is released as often.
func (v *volumeRefs) acquire(name string) {
	if v.refs == nil {
		v.refs = map[string]int{}
	}
	v.refs[name]++
}

// Release says that the container for which Mount was called has been made, or never will be: from then on its volume and folder go when
// no container has them any more.
func (e *Engine) Release(key string) {
	e.volumes.mu.Lock()
	defer e.volumes.mu.Unlock()
	name := e.volumeName(key)
	if e.volumes.refs[name]--; e.volumes.refs[name] <= 0 {
		delete(e.volumes.refs, name)
	}
}

// collectGarbage removes the volumes and folders that no container uses, running or not, and remakes folders that are gone though one does. It
// touches what this daemon's own run folder holds and nothing else; whether a volume is in use the engine decides, in the act of removing it.
func (e *Engine) collectGarbage(ctx context.Context) error {
	if local, err := e.sharesFilesystem(ctx); err != nil || !local {
		return err
	}
	res, err := e.api.VolumeList(ctx, client.VolumeListOptions{Filters: client.Filters{}.Add("label", volumeLabel)})
	if err != nil {
		return e.unavailable("listing volumes", err)
	}
	present := map[string]bool{}
	var errs []error
	for _, v := range res.Items {
		if v.Options["device"] != e.agentFolder(v.Name) {
			continue // another daemon's
		}
		present[v.Name] = true
		errs = append(errs, e.collectVolume(ctx, v.Name))
	}
	return errors.Join(append(errs, e.tidyFolders(present))...)
}

func (e *Engine) collectVolume(ctx context.Context, name string) error {
	e.volumes.mu.Lock()
	defer e.volumes.mu.Unlock()
	if e.volumes.refs[name] > 0 {
		return nil
	}
	_, err := e.api.VolumeRemove(ctx, name, client.VolumeRemoveOptions{})
	switch {
	case errdefs.IsConflict(err): // a container has it
		return makeAgentFolder(e.agentFolder(name))
	case err != nil && !errdefs.IsNotFound(err):
		return e.unavailable("removing a volume", err)
	}
	e.log.Info("removed what no container uses any more", zap.String("volume", name))
	return os.RemoveAll(e.agentFolder(name))
}

// tidyFolders removes folders that were forgotten.
func (e *Engine) tidyFolders(present map[string]bool) error {
	folders, err := filepath.Glob(e.agentFolder(volumePrefix + "*"))
	if err != nil {
		return nil //nolint:nilerr // the run folder's own name reads as a pattern: then they stay
	}
	var errs []error
	for _, folder := range folders {
		info, err := os.Lstat(folder)
		if err == nil && !present[filepath.Base(folder)] && time.Since(info.ModTime()) > staleDirAge {
			errs = append(errs, os.RemoveAll(folder))
		}
	}
	return errors.Join(errs...)
}

// recreateAgentDir makes the folder behind a container's volume anew if it is gone: without it the engine can neither start the container again nor
// copy anything into it.
func (e *Engine) recreateAgentDir(ctx context.Context, c Container) {
	if c.AgentVolume == "" {
		return
	}
	folder := e.agentFolder(c.AgentVolume)
	if _, err := os.Lstat(folder); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	res, err := e.api.VolumeInspect(ctx, c.AgentVolume, client.VolumeInspectOptions{})
	if err != nil || res.Volume.Options["device"] != folder {
		return // not ours
	}
	if err := makeAgentFolder(folder); err != nil {
		e.log.Warn("agent's folder is gone and cannot be made again", zap.Error(err))
	}
}

func makeAgentFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // the container's users must be able to enter it
		return fmt.Errorf("making the agent's folder: %w", err)
	}
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // whatever the umask
		return fmt.Errorf("opening the agent's folder: %w", err)
	}
	return nil
}
