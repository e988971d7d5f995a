package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// State is how far a workspace is from taking calls.
type State string

// The states.
const (
	Discovered State = "discovered" // a configuration, and no container
	Building   State = "building"   // `up` is under way
	Running    State = "running"
	Stopped    State = "stopped"
)

// Info is a workspace as it is now.
type Info struct {
	ID        string
	Folder    string
	State     State
	Trusted   bool
	Container string
}

// ID is short, and the same for a folder for all time.
func ID(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return hex.EncodeToString(sum[:])[:12]
}

// List gives every workspace that is known: configured, used since the start, or with a container at the engine.
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
		if loc, err := m.locationOf(folder); err == nil { // one whose folder is gone is no workspace any more
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

func (m *Manager) describe(ctx context.Context, loc devcontainer.Location, containers []devcontainer.ContainerInfo) Info {
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
