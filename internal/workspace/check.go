package workspace

import (
	"context"
	"path/filepath"

	"github.com/dray-dev/dray"
)

// Check says what a call would be met with where its route leads, and changes nothing: no container is brought up, no agent placed, no
// process started. Starts says that the call's tool is a process, which the host allows beneath its roots alone.
func (m *Manager) Check(ctx context.Context, route dray.Route, inv dray.Invocation, starts bool) error {
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
		_, c, err := m.find(ctx, req, func(string, string) {}) // by its own name: nothing is brought up for it
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
