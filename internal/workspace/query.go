package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/container"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// Check says what a call would be met with where its route leads, and changes nothing: no container
// is brought up, no agent placed, no process started. Starts says that the call's tool is a
// process, which the host allows beneath its roots alone.
func (m *Manager) Check(ctx context.Context, route dray.Route, inv dray.Invocation,
	starts bool,
) error {
	if route.Environment != dray.KindHost {
		return m.checkContainer(ctx, request{name: route.Container, workspace: route.Workspace})
	}
	if err := checkWorkspaceDir(inv.Workspace); err != nil || !starts {
		return err
	}
	dir := inv.Cwd
	if dir != "" && !filepath.IsAbs(dir) {
		dir = filepath.Join(inv.Workspace, dir)
	}
	if dir == "" {
		dir = inv.Workspace
	}
	return m.host.Check(dir)
}

func (m *Manager) checkContainer(ctx context.Context, req request) error {
	if m.lookupCached(req) != nil {
		return nil
	}
	named, configured := m.cfg.Named[req.name]
	loc, err := m.locate(req, named)
	if err != nil {
		return err
	}
	if req.name != "" && (!configured || named.Workspace == "") {
		// by its own name: nothing is brought up for it
		_, c, err := m.find(ctx, req, func(string, string) {})
		if err == nil && !c.Running() {
			err = c.NotRunning()
		}
		return err
	}
	c, found, err := m.findByLabels(ctx, loc)
	if err != nil || (found && c.Running()) {
		return err
	}
	_, err = m.trust.Approve(ctx, loc) // it would be brought up
	return err
}

// Mounts gives how host folders lead into a container, named itself or by its workspace. The
// container has to run: nothing is brought up to answer a question.
func (m *Manager) Mounts(ctx context.Context, workspace, name string) ([]dray.Mount, error) {
	req := request{name: name, workspace: workspace}
	if hit := m.lookupCached(req); hit != nil {
		return hit.Capabilities().Mounts, nil
	}
	named := m.cfg.Named[name]
	loc, err := m.locate(req, named)
	if err != nil {
		return nil, err
	}
	if name == "" || named.Workspace != "" {
		c, found, err := m.findByLabels(ctx, loc)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, dray.Errorf(dray.CodeContainerUnavailable, "workspace %s has no container yet",
				loc.Workspace).
				WithHint("bring it up with `dray workspace up %s`", loc.Workspace)
		}
		if c, err = m.ofService(ctx, c, name, named.Service); err != nil {
			return nil, err
		}
		target, _, err := m.environmentSpec(ctx, loc, c, req)
		return target.Mounts, err
	}
	loc, c, err := m.find(ctx, req, func(string, string) {})
	if err != nil {
		return nil, err
	}
	target, _, err := m.environmentSpec(ctx, loc, c, req)
	return target.Mounts, err
}

// mappings are the configured ones of a container. They belong to it, not to the word that it was
// called by: a call that names its workspace or its id gets them as one does that names
// containers.NAME. Where several names mean one container, the name in the call counts alone.
func (m *Manager) mappings(req request, c container.Container) []dray.Mount {
	if named, ok := m.cfg.Named[req.name]; ok {
		return named.Mappings
	}
	var all []dray.Mount
	for _, name := range slices.Sorted(maps.Keys(m.cfg.Named)) {
		if named := m.cfg.Named[name]; len(named.Mappings) > 0 && m.matchesNamed(named, c) {
			all = append(all, named.Mappings...)
		}
	}
	return all
}

// matchesNamed says whether a configured name means a container.
func (m *Manager) matchesNamed(named Named, c container.Container) bool {
	switch {
	case named.Workspace != "":
		loc, err := m.locate(request{}, named)
		if err != nil || labelledByImage(c) || named.Service != "" &&
			c.Labels[labelService] != named.Service {
			return false
		}
		_, its := loc.Match([]devcontainer.ContainerInfo{c.ContainerInfo})
		return its
	case named.Label != "":
		key, value, _ := strings.Cut(named.Label, "=")
		return c.Labels[key] == value
	default:
		return named.ID == c.ID || named.ID == c.Name
	}
}

// State is how far a workspace is from taking calls.
type State string

// The states.
const (
	Discovered State = "discovered" // a configuration, and no container
	Building   State = "building"   // `up` is under way
	Running    State = "running"
	Stopped    State = "stopped"
)

// Info is the state of a workspace.
type Info struct {
	ID      string `json:"id"`
	Folder  string `json:"folder"`
	State   State  `json:"state"`
	Trusted bool   `json:"trusted"`
	// Container is the full id of its container, if there is one.
	Container string `json:"container,omitempty"`
	// Trust is what ActionTrust has trusted, and nil otherwise.
	Trust *devcontainer.Summary `json:"trust,omitempty"`
}

// ID is short, and the same for a folder for all time.
func ID(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return hex.EncodeToString(sum[:])[:12]
}

// List gives every workspace that is known: configured, used since the start, or with a container
// at the engine.
func (m *Manager) List(ctx context.Context) ([]Info, error) {
	containers, err := m.engine.List(ctx, devcontainer.LabelFolder, "")
	if err != nil {
		return nil, err
	}
	folders := m.folders()
	for _, c := range containers {
		folders[c.Labels[devcontainer.LabelFolder]] = true
	}
	list := make([]Info, 0, len(folders))
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		// one whose folder is gone is no workspace any more
		if loc, err := m.locationOf(folder); err == nil {
			list = append(list, m.describe(ctx, loc, containers))
		}
	}
	return list, nil
}

func (m *Manager) folders() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	folders := maps.Clone(m.usedFolders)
	for _, n := range m.cfg.Named {
		if n.Workspace != "" {
			folders[n.Workspace] = true
		}
	}
	return folders
}

func (m *Manager) describe(ctx context.Context, loc devcontainer.Location,
	containers []devcontainer.ContainerInfo,
) Info {
	trusted, _, _ := m.trust.IsTrusted(ctx, loc) // what cannot be judged is not trusted
	info := Info{ID: ID(loc.Workspace), Folder: loc.Workspace, State: Discovered, Trusted: trusted}
	if c, found := loc.Match(containers); found {
		info.Container, info.State = c.ID, Stopped
		if c.Status == "running" {
			info.State = Running
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.upRuns[loc] != nil {
		info.State = Building
	}
	return info
}

// Folder gives the folder that an id of the list, or an absolute folder itself, stands for.
func (m *Manager) Folder(ctx context.Context, id string) (string, error) {
	if len(id) > 0 && id[0] == '/' {
		return id, nil
	}
	list, err := m.List(ctx)
	if err != nil {
		return "", err
	}
	for _, w := range list {
		if w.ID == id {
			return w.Folder, nil
		}
	}
	return "", dray.Errorf(dray.CodeNotFound, "there is no workspace %q", id).
		WithHint("`dray workspace ls` lists those that are known; an absolute folder works too")
}

// Get describes one workspace.
func (m *Manager) Get(ctx context.Context, folder string) (Info, error) {
	loc, err := m.locationOf(folder)
	if err != nil {
		return Info{}, err
	}
	containers, err := m.engine.List(ctx, devcontainer.LabelFolder, "")
	if err != nil {
		return Info{}, err
	}
	m.remember(loc.Workspace)
	return m.describe(ctx, loc, containers), nil
}
