package devcontainer

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/linux"
)

// The labels of the reference's containers.
const (
	LabelFolder   = "devcontainer.local_folder"
	LabelConfig   = "devcontainer.config_file"
	LabelMetadata = "devcontainer.metadata"
)

// Labels of docker compose, version 1 and the plugin.
const (
	LabelComposeProject = "com.docker.compose.project"
	LabelComposeService = "com.docker.compose.service"
	LabelComposeNumber  = "com.docker.compose.container-number"
	LabelComposeOneOff  = "com.docker.compose.oneoff"
	LabelComposeFiles   = "com.docker.compose.project.config_files" // separated by commas
)

// ContainerInfo is a container as the engine reports it. A list fills the fields up to Created, an
// inspection all of them. The image may have chosen many of the values.
type ContainerInfo struct {
	ID    string
	Name  string
	Image string
	// Labels are all labels, those of the image included. Use Label, except for LabelMetadata, which
	// images have by design.
	Labels map[string]string
	// ImageLabels are the labels of the image. ImageRemoved is true if they are unknown.
	ImageLabels  map[string]string
	ImageRemoved bool
	// Status is created, running, paused, restarting, removing, exited or dead.
	Status  string
	Created time.Time

	StartedAt string   // verbatim; it differs after a restart
	Env       []string // NAME=value
	User      string   // verbatim
	Workdir   string
	Hostname  string
	Groups    []string // of --group-add, names or gids
	Mounts    []MountInfo
	// ImageDigest is the repository digest of the image if it has one, else the image's id.
	ImageDigest string
	Arch        string // of the image, as the engine names it
}

// Label returns a label that was given to the container when it was created, else "". Anybody can
// build an image with any label, which its containers then have too, and would receive the calls
// of a workspace and their secrets. So a label does not count if the image has it with the same
// value, or if the image was removed: nobody can tell then where it came from.
//
// Docker compose sets project, service and container number when it creates a container. The plugin
// also sets project and service in images that it builds, so these count if the number does.
func (c ContainerInfo) Label(key string) string {
	if !c.isOwn(key) {
		return ""
	}
	return c.Labels[key]
}

// HasLabel reports whether the container was given a label with this value.
func (c ContainerInfo) HasLabel(key, value string) bool {
	return c.isOwn(key) && c.Labels[key] == value
}

func (c ContainerInfo) isOwn(key string) bool {
	value, ok := c.Labels[key]
	if !ok || c.ImageRemoved {
		return false
	}
	if key == LabelComposeProject || key == LabelComposeService {
		return c.isOwn(LabelComposeNumber)
	}
	fromImage, inImage := c.ImageLabels[key]
	return !inImage || fromImage != value
}

// Running reports whether processes can be started in the container.
func (c ContainerInfo) Running() bool { return c.Status == "running" }

// Paused reports whether its processes are suspended, until `docker unpause`.
func (c ContainerInfo) Paused() bool { return c.Status == "paused" }

// NotRunning returns the error of a call to a container that is not running.
func (c ContainerInfo) NotRunning() error {
	return dray.Errorf(dray.CodeContainerUnavailable, "container %s is %s", c.Name, c.Status).
		WithHint("start it (`dray workspace up` for that of a workspace, " +
			"else `docker start` or `docker unpause`)")
}

// MountInfo is one mount of a container. Source is a path of the host only for the type bind; Name
// is the name of a volume.
type MountInfo struct {
	Type        string
	Name        string
	Source      string
	Destination string
}

// Match selects the container of this location from all containers of the engine, stopped ones
// included. Containers with both labels precede those without a configuration label, running ones
// precede others, and newer ones older ones. Containers that are being removed are ignored.
func (l Location) Match(ctx context.Context, containers []ContainerInfo) (ContainerInfo, bool) {
	folders, configs := l.labelPaths(ctx)
	var both, folderOnly []ContainerInfo
	for _, c := range containers {
		config := c.Label(LabelConfig)
		switch {
		case c.Status == "removing" || !slices.Contains(folders, c.Label(LabelFolder)):
		case slices.Contains(configs, config):
			both = append(both, c)
		case config == "":
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

// Owns reports whether a container was given the label of this workspace, for any configuration
// file (EX-01).
func (l Location) Owns(ctx context.Context, c ContainerInfo) bool {
	folders, _ := l.labelPaths(ctx)
	return slices.Contains(folders, c.Label(LabelFolder))
}

// Impersonated returns a container whose image has the label of this workspace. The reference CLI
// would take it for the workspace's own.
func (l Location) Impersonated(ctx context.Context, containers []ContainerInfo,
) (c ContainerInfo, ok bool) {
	folders, _ := l.labelPaths(ctx)
	i := slices.IndexFunc(containers, func(c ContainerInfo) bool {
		return c.Status != "removing" && c.Label(LabelFolder) == "" &&
			slices.Contains(folders, c.Labels[LabelFolder])
	})
	if i < 0 {
		return ContainerInfo{}, false
	}
	return containers[i], true
}

// withLabelPaths returns the location by the path in the container's labels, which differs from l
// where there are symlinks. The workspace folder and ${localWorkspaceFolder} depend on that path.
func (l Location) withLabelPaths(ctx context.Context, c ContainerInfo) Location {
	folder := c.Label(LabelFolder)
	if l == (Location{}) || folder == l.Workspace || !l.Owns(ctx, c) {
		return l
	}
	if rel, ok := lexical.Rel(l.Workspace, l.Config); ok {
		l.Config = filepath.Join(folder, rel)
	}
	l.Workspace = folder
	return l
}

// compareContainers orders the preferred container first.
func compareContainers(a, b ContainerInfo) int {
	stopped := func(c ContainerInfo) int {
		if c.Status == "running" {
			return 0
		}
		return 1
	}
	return cmp.Or(stopped(a)-stopped(b), b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID))
}

// labelPaths returns the possible values of the two labels: the location's paths, and those with
// symlinks resolved.
func (l Location) labelPaths(ctx context.Context) (folders, configs []string) {
	folders, configs = []string{l.Workspace}, []string{l.Config}
	dir := linux.UntrustedDir(l.Workspace)
	if folder, err := dir.RealPath(ctx, l.Workspace); err == nil && folder != l.Workspace {
		folders = append(folders, folder)
		if rel, ok := lexical.Rel(l.Workspace, l.Config); ok {
			configs = append(configs, filepath.Join(folder, rel))
		}
	}
	config, err := dir.RealPath(ctx, l.Config)
	if err == nil && !slices.Contains(configs, config) {
		configs = append(configs, config)
	}
	return folders, configs
}

// idLabels returns the labels that ${devcontainerId} is derived from: the container's, else those
// that `up` would set.
func (l Location) idLabels(c ContainerInfo) map[string]string {
	folder, config := c.Label(LabelFolder), c.Label(LabelConfig)
	if folder == "" {
		folder, config = l.Workspace, l.Config
	}
	labels := map[string]string{}
	if folder != "" {
		labels[LabelFolder] = folder
	}
	if config != "" {
		labels[LabelConfig] = config
	}
	return labels
}
