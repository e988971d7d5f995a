package workspace

import (
	"context"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
)

// These methods take an id of the list or an absolute directory. With a directory they need no
// engine.

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

// byID returns the configuration of a workspace.
func (m *Manager) byID(ctx context.Context, id string) (devcontainer.Location, error) {
	folder, err := m.folder(ctx, id)
	if err != nil {
		return devcontainer.Location{}, err
	}
	return m.locationOf(ctx, folder)
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
