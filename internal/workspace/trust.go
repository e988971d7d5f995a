package workspace

import (
	"context"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
)

// These methods take an id of the list, an absolute directory, or the name of a configured
// container of a workspace, which stands for its configuration. Only an id needs an engine.

// Review returns what a trust in a workspace would cover.
func (m *Manager) Review(ctx context.Context, id string) (trust.Review, error) {
	loc, err := m.byID(ctx, id)
	if err != nil {
		return trust.Review{}, err
	}
	return m.trust.Review(ctx, loc)
}

// Trust records that the user agrees to what a review with this hash shows.
func (m *Manager) Trust(ctx context.Context, id, hash string) (Info, error) {
	loc, err := m.byID(ctx, id)
	if err != nil {
		return Info{}, err
	}
	summary, err := m.trust.Trust(ctx, loc, hash)
	if err != nil {
		return Info{}, err
	}
	m.log.Info("workspace trusted", zap.String("workspace", loc.Workspace),
		zap.String("hash", summary.Hash))
	info, err := m.stateWithoutEngine(ctx, loc)
	info.Trust = &summary
	return info, err
}

// Revoke ends the trust in a workspace. Its containers go on.
func (m *Manager) Revoke(ctx context.Context, id string) (Info, error) {
	loc, err := m.byID(ctx, id)
	if err != nil {
		return Info{}, err
	}
	if err := m.trust.Revoke(ctx, loc); err != nil {
		return Info{}, err
	}
	m.log.Info("trust in a workspace revoked", zap.String("workspace", loc.Workspace))
	return m.stateWithoutEngine(ctx, loc)
}

// byID returns the configuration of a workspace, or that of a configured container.
func (m *Manager) byID(ctx context.Context, id string) (devcontainer.Location, error) {
	if n := m.cfg.Named[id]; n.Workspace != "" {
		return devcontainer.Locate(ctx, n.Workspace, n.Config)
	}
	folder, err := m.folder(ctx, id)
	if err != nil {
		return devcontainer.Location{}, err
	}
	return m.locationOf(ctx, folder)
}

// approve is Approve of the store. Its hint names the container of a configuration that is not the
// first of its workspace.
func (r *resolver) approve(ctx context.Context, loc devcontainer.Location) (trust.Approval, error) {
	approval, err := r.trust.Approve(ctx, loc)
	if name := r.nameOf(ctx, loc); dray.CodeOf(err) == dray.CodeWorkspaceUntrusted && name != "" {
		err = dray.AsError(err).WithHint("look at it with `dray workspace trust --show --container %s`, "+
			"and trust it with `dray workspace trust --container %[1]s`", name)
	}
	return approval, err
}

// nameOf returns the name of a configured container with a configuration, empty for the first
// configuration of its workspace.
func (r *resolver) nameOf(ctx context.Context, loc devcontainer.Location) string {
	if first, err := r.locationOf(ctx, loc.Workspace); err != nil || first == loc {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(r.cfg.Named)) {
		if n := r.cfg.Named[name]; n.Workspace == loc.Workspace && n.Config != "" {
			if found, err := devcontainer.Locate(ctx, n.Workspace, n.Config); err == nil && found == loc {
				return name
			}
		}
	}
	return ""
}

// stateWithoutEngine returns the state of a workspace, without a container if the engine does not
// respond.
func (m *Manager) stateWithoutEngine(ctx context.Context, loc devcontainer.Location) (Info, error) {
	info, err := m.state(ctx, loc)
	if dray.CodeOf(err) == dray.CodeEngineUnavailable {
		return m.describe(ctx, loc, snapshot{}), nil
	}
	return info, err
}

// Trusted reports whether a workspace is trusted. An error counts as untrusted.
func (m *Manager) Trusted(ctx context.Context, folder string) bool {
	loc, err := m.locationOf(ctx, folder)
	if err != nil {
		return false
	}
	trusted, _, err := m.trust.IsTrusted(ctx, loc)
	return err == nil && trusted
}
