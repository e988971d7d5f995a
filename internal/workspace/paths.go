package workspace

import (
	"context"

	"github.com/dray-dev/dray"
)

// Mounts gives how host folders lead into a container, named itself or by its workspace. The container has to run: nothing is
// brought up to answer a question.
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
			return nil, dray.Errorf(dray.CodeContainerUnavailable, "workspace %s has no container yet", loc.Workspace).
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
