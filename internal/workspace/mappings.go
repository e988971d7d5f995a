package workspace

import (
	"maps"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/container"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// mappings are the configured ones of a container. They belong to it, not to the word that it was called by: a call that names its workspace
// or its id gets them as one does that names containers.NAME. Where several names mean one container, the name in the call counts alone.
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
		if err != nil || labelledByImage(c) || named.Service != "" && c.Labels[labelService] != named.Service {
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
