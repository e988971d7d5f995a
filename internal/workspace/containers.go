package workspace

import (
	"cmp"
	"context"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// ContainerState describes a container that calls can name.
type ContainerState struct {
	Name string `json:"name"`
	// ID is the full id of the container, empty if it does not exist.
	ID    string `json:"id"`
	State State  `json:"state"`
	// Workspace is the folder that the container belongs to, if any.
	Workspace string `json:"workspace,omitzero"`
	// Breaker is the state of the circuit breaker of its calls.
	Breaker BreakerState `json:"breaker,omitzero" enum:"closed,open,half_open"`
}

// Containers returns the configured and registered containers by their names, and the containers of
// workspaces that have no name.
func (m *Manager) Containers(ctx context.Context) ([]ContainerState, error) {
	containers, err := m.engine.List(ctx, devcontainer.LabelFolder, "")
	if err != nil {
		return nil, err
	}
	list, named := []ContainerState{}, map[string]bool{}
	for _, name := range m.names() {
		c, err := m.namedState(ctx, name, containers)
		if err != nil {
			return nil, err
		}
		list, named[c.ID] = append(list, c), true
	}
	for _, c := range containers {
		if folder := c.Label(devcontainer.LabelFolder); folder != "" && !named[c.ID] {
			list = append(list, ContainerState{
				Name: c.Name, ID: c.ID, State: m.workspaceState(ctx, c, containers), Workspace: folder,
			})
		}
	}
	for i := range list {
		list[i] = m.withBreaker(list[i])
	}
	return list, nil
}

func (m *Manager) withBreaker(c ContainerState) ContainerState {
	c.Breaker = m.cfg.Breakers.State(c.Name, c.ID, c.Workspace)
	return c
}

// namedState returns the state of a configured container. A container that is not found, or whose
// workspace is gone, is Discovered.
func (m *Manager) namedState(ctx context.Context, name string,
	containers []devcontainer.ContainerInfo,
) (ContainerState, error) {
	n, _ := m.named(name)
	state := ContainerState{Name: name, State: Discovered, Workspace: n.Workspace}
	req := request{name: name}
	loc, err := m.locate(ctx, req)
	if err != nil {
		return state, nil //nolint:nilerr // a call says what is wrong with the workspace
	}
	if m.byWorkspace(req) {
		return m.serviceState(ctx, loc, state, containers)
	}
	c, err := m.findNamed(ctx, req, loc)
	if err == nil {
		state.ID, state.State = c.ID, stateOf(c)
	}
	return state, unlessEngineFailed(err)
}

// serviceState returns the state of the container, or of the configured compose service, of a
// workspace.
func (m *Manager) serviceState(ctx context.Context, loc devcontainer.Location, state ContainerState,
	containers []devcontainer.ContainerInfo,
) (ContainerState, error) {
	s, err := m.snapshotOf(ctx, loc, containers)
	if err != nil {
		return state, err
	}
	state.State = cmp.Or(m.tracker.inProgress(loc), s.state())
	if s.container.ID == "" {
		return state, nil
	}
	c, err := m.findService(ctx, s.container, state.Name)
	switch {
	case err != nil:
		state.State = Discovered
	case c.ID != s.container.ID && m.tracker.inProgress(loc) == "":
		state.State = stateOf(c)
	}
	state.ID = c.ID
	return state, unlessEngineFailed(err)
}

// workspaceState returns the state of a container that has the label of a workspace. Only the one
// that the workspace uses can be in a state of `up`.
func (m *Manager) workspaceState(ctx context.Context, c devcontainer.ContainerInfo,
	containers []devcontainer.ContainerInfo,
) State {
	loc, err := m.locationOf(ctx, c.Label(devcontainer.LabelFolder))
	if err != nil {
		return stateOf(c)
	}
	s, err := m.snapshotOf(ctx, loc, containers)
	if err != nil || s.container.ID != c.ID {
		return stateOf(c)
	}
	return cmp.Or(m.tracker.inProgress(loc), s.state())
}

// stateOf returns the state of an existing container by itself.
func stateOf(c devcontainer.ContainerInfo) State {
	if c.Running() {
		return Running
	}
	return Stopped
}

// unlessEngineFailed returns an error of the engine. Others mean that there is no such container.
func unlessEngineFailed(err error) error {
	if dray.CodeOf(err) == dray.CodeEngineUnavailable {
		return err
	}
	return nil
}
