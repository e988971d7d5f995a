package workspace

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/container"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// Labels that docker compose puts on its containers, both the program of version 1 and the plugin.
const (
	labelProject = "com.docker.compose.project"
	labelService = "com.docker.compose.service"
	labelNumber  = "com.docker.compose.container-number"
	labelOneOff  = "com.docker.compose.oneoff"
)

// ofService gives the container of another service in the compose project of a workspace's container; without a service it is that
// container itself. `up` starts the services that the configuration names, so one that is not there is not started here.
func (m *Manager) ofService(ctx context.Context, c container.Container, name, service string) (container.Container, error) {
	if service == "" || c.Labels[labelService] == service {
		return c, nil
	}
	project := c.Labels[labelProject]
	if project == "" {
		return c, dray.Errorf(dray.CodeContainerNotFound, "container %s is of no compose project, so it has no service %q", c.Name, service).
			WithHint("remove containers.%s.service, or use dockerComposeFile in the workspace's devcontainer.json", name)
	}
	list, err := m.engine.List(ctx, labelProject, project)
	if err != nil {
		return c, err
	}
	found, ok := serviceOf(list, service)
	if !ok {
		return c, dray.Errorf(dray.CodeContainerNotFound, "the compose project %s has no container of service %q", project, service).
			WithHint("correct containers.%s.service, or add the service to runServices in devcontainer.json and bring the workspace up", name)
	}
	return m.engine.Inspect(ctx, found.ID)
}

// serviceOf chooses among a project's containers: running before others, then the lowest number of the service. One-off runs do not count.
func serviceOf(project []devcontainer.ContainerInfo, service string) (devcontainer.ContainerInfo, bool) {
	var of []devcontainer.ContainerInfo
	for _, c := range project {
		if c.Labels[labelService] == service && c.Labels[labelOneOff] != "True" && c.Status != "removing" {
			of = append(of, c)
		}
	}
	if len(of) == 0 {
		return devcontainer.ContainerInfo{}, false
	}
	rank := func(c devcontainer.ContainerInfo) (stopped, number int) {
		if c.Status != "running" {
			stopped = 1
		}
		number, _ = strconv.Atoi(c.Labels[labelNumber]) // what is none counts as the first
		return stopped, number
	}
	return slices.MinFunc(of, func(a, b devcontainer.ContainerInfo) int {
		aStopped, aNumber := rank(a)
		bStopped, bNumber := rank(b)
		return cmp.Or(cmp.Compare(aStopped, bStopped), cmp.Compare(aNumber, bNumber))
	}), true
}
