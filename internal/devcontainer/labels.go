package devcontainer

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dray-dev/dray/internal/lexical"
)

// Labels that the reference puts on the containers that it makes.
const (
	LabelFolder   = "devcontainer.local_folder"
	LabelConfig   = "devcontainer.config_file"
	LabelMetadata = "devcontainer.metadata"
)

// ContainerInfo is what the engine says of a container. It comes from the engine's list or
// inspection, and its image may have chosen much of it.
type ContainerInfo struct {
	ID      string
	Name    string
	Image   string
	Labels  map[string]string
	Env     []string // Config.Env: K=V
	User    string   // Config.User, verbatim
	Workdir string   // Config.WorkingDir
	Mounts  []MountInfo
	// Status is the engine's word: created, running, paused, restarting, removing, exited, dead.
	Status    string
	Created   time.Time
	StartedAt string // verbatim, to tell one start from the next
}

// MountInfo is one mount of a container as the engine lists it. Source is a host path only for the
// type bind.
type MountInfo struct {
	Type        string
	Source      string
	Destination string
}

// Match chooses the container of this location among those of the engine, stopped ones included, in
// any order. Containers with both labels go before those with the folder's alone, and the latter
// count only if no configuration is named on them. Among equals a running one is preferred, then
// the newest. Containers that are being removed do not exist.
func (l Location) Match(containers []ContainerInfo) (ContainerInfo, bool) {
	names := l.names()
	var both, folderOnly []ContainerInfo
	for _, c := range containers {
		config, hasConfig := c.Labels[LabelConfig]
		switch {
		case c.Status == "removing" || !slices.Contains(names.folders, c.Labels[LabelFolder]):
		case slices.Contains(names.configs, config):
			both = append(both, c)
		case !hasConfig || config == "":
			folderOnly = append(folderOnly, c)
		}
	}
	if len(both) == 0 {
		both = folderOnly
	}
	if len(both) == 0 {
		return ContainerInfo{}, false
	}
	return slices.MinFunc(both, compareContainers), true
}

// Owns says whether a container carries the labels of this workspace, whatever its configuration
// file (EX-01).
func (l Location) Owns(c ContainerInfo) bool {
	return slices.Contains(l.names().folders, c.Labels[LabelFolder])
}

// withLabelPaths gives the location under the name that a container of it was made with, where
// links give it several: the folder in the container and the values of ${localWorkspaceFolder}
// follow from that name.
func (l Location) withLabelPaths(c ContainerInfo) Location {
	folder := c.Labels[LabelFolder]
	if l == (Location{}) || folder == l.Workspace || !l.Owns(c) {
		return l
	}
	if rel, ok := lexical.Rel(l.Workspace, l.Config); ok {
		l.Config = filepath.Join(folder, rel)
	}
	l.Workspace = folder
	return l
}

// compareContainers orders the better container first.
func compareContainers(a, b ContainerInfo) int {
	if aRuns, bRuns := a.Status == "running", b.Status == "running"; aRuns != bRuns {
		if aRuns {
			return -1
		}
		return 1
	}
	if order := b.Created.Compare(a.Created); order != 0 {
		return order
	}
	return strings.Compare(a.ID, b.ID)
}

// labelPaths are the values that the two labels may have: the location's own paths, and those with
// links resolved.
type labelPaths struct {
	folders []string
	configs []string
}

func (l Location) names() labelPaths {
	n := labelPaths{folders: []string{l.Workspace}, configs: []string{l.Config}}
	if folder, err := filepath.EvalSymlinks(l.Workspace); err == nil && folder != l.Workspace {
		n.folders = append(n.folders, folder)
		if rel, ok := lexical.Rel(l.Workspace, l.Config); ok {
			n.configs = append(n.configs, filepath.Join(folder, rel))
		}
	}
	if config, err := filepath.EvalSymlinks(l.Config); err == nil &&
		!slices.Contains(n.configs, config) {
		n.configs = append(n.configs, config)
	}
	return n
}

// idLabels are the labels that name a container: its own where it has them, since that is what `up`
// derived ${devcontainerId} from, else those that `up` would give.
func (l Location) idLabels(c ContainerInfo) map[string]string {
	labels := map[string]string{}
	if l.Workspace != "" {
		labels[LabelFolder], labels[LabelConfig] = l.Workspace, l.Config
	}
	folder, config := c.Labels[LabelFolder], c.Labels[LabelConfig]
	if folder == "" {
		return labels
	}
	labels[LabelFolder] = folder
	delete(labels, LabelConfig)
	if config != "" {
		labels[LabelConfig] = config
	}
	return labels
}
