package workspace

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dray-dev/dray/internal/devcontainer/trust"
)

// ToolsFile returns the tools that a workspace declares, given by its absolute directory. The
// result of a trusted workspace is the same one until a trust input changes.
func (m *Manager) ToolsFile(ctx context.Context, folder string) (*trust.ToolsFile, error) {
	req := request{workspace: folder}
	begun := time.Now()
	files, err := m.fingerprint(ctx, req)
	if err != nil {
		return nil, err
	}
	if entry := m.tools.get(ctx, req.key(), files, 0); entry != nil {
		return entry.value, nil
	}
	loc, err := m.locationOf(ctx, folder)
	if err != nil {
		return nil, err
	}
	found, err := m.trust.Tools(ctx, loc)
	if err == nil && found.Text != nil {
		m.remember(loc.Workspace)
	}
	if err == nil && found.Untrusted == nil {
		m.tools.put(ctx, req.key(), &cached[*trust.ToolsFile]{
			value: &found, files: files, trust: found.Files, checkedAt: begun,
		})
	}
	return &found, err
}

// ToolFolders returns the workspaces whose tools are listed: those that are configured, trusted, or
// were used since the start.
func (m *Manager) ToolFolders() ([]string, error) {
	folders := m.knownFolders()
	trusted, err := m.trust.Workspaces()
	for _, folder := range trusted {
		folders[folder] = true
	}
	return slices.Sorted(maps.Keys(folders)), err
}
