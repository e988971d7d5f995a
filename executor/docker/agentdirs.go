package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"go.uber.org/zap"

	"github.com/dray-dev/dray/internal/devcontainer"
)

const (
	// agentMountPath is where `up` mounts the directory of a container's agent, read-only.
	agentMountPath = "/.dray"
	// volumePrefix begins the names of our volumes, and volumeLabel marks them.
	volumePrefix = "dray-agent-"
	volumeLabel  = "dev.dray.agent"
	// staleDirAge is the age at which a directory without a volume at this engine is removed. A
	// younger one may belong to another engine that is not used now.
	staleDirAge = 30 * 24 * time.Hour
)

// agentDirs are the directories of agents in Options.RunDir. A volume mounts one read-only into its
// container, whose processes thus cannot replace its content.
type agentDirs struct {
	engine *Engine
	mu     sync.Mutex // held while a volume is created or removed
	refs   map[string]int
}

func (d *agentDirs) volumeName(key string) string {
	sum := sha256.Sum256([]byte(d.engine.opts.RunDir + "\x00" + key))
	return volumePrefix + hex.EncodeToString(sum[:])[:24]
}

func (d *agentDirs) path(volume string) string {
	return filepath.Join(d.engine.opts.RunDir, volume)
}

// Mount prepares the directory of the agent of one container on the host and the volume that
// mounts it read-only in the container. The key identifies the container for ever, by its
// workspace and configuration. The result is for `devcontainer up --mount`; it is empty if the
// engine cannot mount directories of this machine. Release must be called when the container was
// created.
func (e *Engine) Mount(ctx context.Context, key string) (string, error) {
	d := e.dirs
	local, err := d.sharesFilesystem(ctx)
	if err != nil || !local {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	name := d.volumeName(key)
	if err := makeAgentDir(d.path(name)); err != nil {
		return "", err
	}
	_, err = e.api.VolumeCreate(ctx, client.VolumeCreateOptions{
		Name: name, Driver: "local", Labels: map[string]string{volumeLabel: "1"},
		DriverOpts: map[string]string{"type": "none", "o": "bind,ro", "device": d.path(name)},
	})
	if err != nil {
		return "", e.unavailable("create the agent's volume", err)
	}
	d.refs[name]++
	return fmt.Sprintf("type=volume,source=%s,target=%s,external=true", name, agentMountPath), nil
}

// Release allows the volume and the directory of Mount to be removed when no container uses them.
func (e *Engine) Release(key string) {
	d := e.dirs
	d.mu.Lock()
	defer d.mu.Unlock()
	name := d.volumeName(key)
	if d.refs[name]--; d.refs[name] <= 0 {
		delete(d.refs, name)
	}
}

// sharesFilesystem reports whether the engine runs on this kernel under this host name and is
// reached by a local socket. It decides only whether a mount is worth a try: the handshake shows
// whether the container really has the directory.
func (d *agentDirs) sharesFilesystem(ctx context.Context) (bool, error) {
	if !strings.HasPrefix(d.engine.Host(), "unix://") {
		return false, nil
	}
	info, err := d.engine.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return false, d.engine.unavailable("get its host", err)
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return false, nil //nolint:nilerr // not Linux, so no shared kernel
	}
	name, err := os.Hostname()
	return err == nil && info.Info.Name == name &&
		info.Info.KernelVersion == strings.TrimSpace(string(release)), nil
}

// volumeOf returns the volume that a container has mounted for its agent, empty if there is none.
func volumeOf(c devcontainer.ContainerInfo) string {
	for _, m := range c.Mounts {
		if m.Destination == agentMountPath && m.Type == "volume" &&
			strings.HasPrefix(m.Name, volumePrefix) && filepath.Base(m.Name) == m.Name {
			return m.Name
		}
	}
	return ""
}

var errNoAgentDir = errors.New("the container has no volume of this daemon")

// of returns the directory of a container's agent.
func (d *agentDirs) of(c devcontainer.ContainerInfo) (string, error) {
	volume := volumeOf(c)
	if volume == "" {
		return "", errNoAgentDir
	}
	info, err := os.Lstat(d.path(volume))
	if err != nil || !info.IsDir() {
		return "", errNoAgentDir
	}
	return d.path(volume), nil
}

// restore creates the directory behind a container's volume again if it was removed. Without it the
// engine can neither start the container nor copy files into it.
func (d *agentDirs) restore(ctx context.Context, c devcontainer.ContainerInfo) {
	volume := volumeOf(c)
	if volume == "" {
		return
	}
	dir := d.path(volume)
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	res, err := d.engine.api.VolumeInspect(ctx, volume, client.VolumeInspectOptions{})
	if err != nil || res.Volume.Options["device"] != dir {
		return // not ours
	}
	if err := makeAgentDir(dir); err != nil {
		d.engine.log.Warn("agent directory not restored", zap.Error(err))
	}
}

// collectGarbage removes the volumes and directories that no container uses, running or not, and
// restores missing directories of those that are used. It touches only what belongs to RunDir. The
// engine decides whether a volume is in use, when it removes it.
func (d *agentDirs) collectGarbage(ctx context.Context) error {
	if local, err := d.sharesFilesystem(ctx); err != nil || !local {
		return err
	}
	res, err := d.engine.api.VolumeList(ctx,
		client.VolumeListOptions{Filters: client.Filters{}.Add("label", volumeLabel)})
	if err != nil {
		return d.engine.unavailable("list volumes", err)
	}
	present := map[string]bool{}
	var errs []error
	for _, v := range res.Items {
		if v.Options["device"] != d.path(v.Name) {
			continue // another daemon's
		}
		present[v.Name] = true
		errs = append(errs, d.collectVolume(ctx, v.Name))
	}
	return errors.Join(append(errs, d.removeStale(present))...)
}

func (d *agentDirs) collectVolume(ctx context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refs[name] > 0 {
		return nil
	}
	_, err := d.engine.api.VolumeRemove(ctx, name, client.VolumeRemoveOptions{})
	switch {
	case errdefs.IsConflict(err): // a container uses it
		return makeAgentDir(d.path(name))
	case err != nil && !errdefs.IsNotFound(err):
		return d.engine.unavailable("remove a volume", err)
	}
	d.engine.log.Info("unused agent volume removed", zap.String("volume", name))
	return os.RemoveAll(d.path(name))
}

// removeStale removes old directories whose volume is not among those present.
func (d *agentDirs) removeStale(present map[string]bool) error {
	dirs, err := filepath.Glob(d.path(volumePrefix + "*"))
	if err != nil {
		return nil //nolint:nilerr // the name of RunDir is a pattern: they stay
	}
	var errs []error
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err == nil && !present[filepath.Base(dir)] && time.Since(info.ModTime()) > staleDirAge {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

func makeAgentDir(dir string) error {
	// every user of the container must be able to enter it, and only root to find the agent's socket
	const mode = 0o711
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("create the agent's directory: %w", err)
	}
	if err := os.Chmod(dir, mode); err != nil { // independent of the umask
		return fmt.Errorf("change the mode of the agent's directory: %w", err)
	}
	return nil
}
