package host

import (
	"fmt"

	"github.com/dray-dev/dray/executor/cgroup"
	"github.com/dray-dev/dray/executor/process"
)

// WithCgroups has every supervisor of a pool on this machine live in a group of the unified hierarchy, beneath this program's own: a host
// tool runs as the daemon's user and can kill its supervisor, and what it leaves then is ended through the group, with proof. Where this
// program may make no groups the launch is as it was, the error says why, and such an end proves nothing. The function gives the groups
// up; it is called, and may be, whatever the error, after the pool was closed.
func WithCgroups(launch process.SupervisorConfig) (process.SupervisorConfig, func(), error) {
	folder, err := cgroup.SelfPath()
	if err != nil {
		return launch, func() {}, fmt.Errorf("finding the daemon's own group: %w", err)
	}
	tree, err := cgroup.NewManager(folder)
	if err != nil {
		return launch, func() {}, err
	}
	launch.Cgroup = func() *process.Cgroup {
		g, err := tree.NewGroup()
		if err != nil {
			return nil // such a supervisor has none, and what its loss leaves is not proved to be gone
		}
		return g
	}
	return launch, func() { _ = tree.Close() }, nil // what cannot be removed goes with the next daemon's sweep
}
