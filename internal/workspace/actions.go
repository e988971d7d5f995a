package workspace

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/up"
	"github.com/dray-dev/dray/internal/lexical"
)

// Action is a change of a workspace that a caller may ask for.
type Action string

// The actions.
const (
	ActionUp      Action = "up"
	ActionStop    Action = "stop"
	ActionRebuild Action = "rebuild"
	ActionRemove  Action = "rm"
)

// Run performs an action on a workspace, given by an id of the list or by its absolute directory:
// on the containers of all its configurations. It reports the progress and returns the state of the
// workspace afterwards, which is that of its first configuration. ActionRemove needs no directory.
func (m *Manager) Run(ctx context.Context, action Action, id string,
	progress func(phase, message string),
) (Info, error) {
	folder, err := m.folder(ctx, id)
	if err != nil {
		return Info{}, err
	}
	all, err := m.locationsOf(ctx, folder)
	if err != nil && action == ActionRemove {
		all, err = []devcontainer.Location{{Workspace: folder}}, nil
	}
	if err != nil {
		return Info{}, err
	}
	switch action {
	case ActionUp:
		err = m.upAll(ctx, all, asked, progress)
	case ActionRebuild:
		err = m.upAll(ctx, all, rebuild, progress)
	case ActionStop:
		err = m.stop(ctx, all, progress)
	case ActionRemove:
		err = m.remove(ctx, all, progress)
	default:
		err = dray.Errorf(dray.CodeInternal, "unknown action %q", action)
	}
	if err != nil {
		return Info{}, err
	}
	return m.state(ctx, all[0])
}

// upAll brings up each configuration of a workspace, or none if one of them is not trusted.
func (m *Manager) upAll(ctx context.Context, all []devcontainer.Location, mode upMode,
	progress func(phase, message string),
) error {
	if err := m.checkTrust(ctx, all); err != nil {
		return err
	}
	for _, loc := range all {
		if _, err := m.ensureRunning(ctx, loc, mode, progress); err != nil {
			return err
		}
	}
	m.cfg.Breakers.Close(m.routeNames(all[0].Workspace)...) // a user has repaired it, or tries again
	return nil
}

// checkTrust fails if a configuration that is to be brought up is not trusted.
func (m *Manager) checkTrust(ctx context.Context, all []devcontainer.Location) error {
	if len(all) == 1 {
		return nil // its `up` checks it
	}
	for _, loc := range all {
		s, err := m.examine(ctx, loc)
		if err == nil && !s.ready() {
			_, err = m.approve(ctx, loc)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) state(ctx context.Context, loc devcontainer.Location) (Info, error) {
	found, err := m.examine(ctx, loc)
	if err != nil && loc.Config != "" {
		return Info{}, err
	}
	m.remember(loc.Workspace)
	return m.describe(ctx, loc, found), nil
}

// ensureRunning returns the running container of a workspace. It brings it up if necessary. For a
// call an `up` that failed is not repeated with the same configuration (RT-08).
func (m *Manager) ensureRunning(ctx context.Context, loc devcontainer.Location, mode upMode,
	progress func(phase, message string),
) (devcontainer.ContainerInfo, error) {
	s, err := m.examine(ctx, loc)
	if err != nil {
		return s.container, err
	}
	m.observeUnchanged(ctx, loc, s)
	if done, err := m.upNeeded(ctx, loc, s, mode, progress); done || err != nil {
		return s.container, err
	}
	id, err := m.ups.up(ctx, loc, mode, progress)
	if err != nil {
		return s.container, err
	}
	c, err := m.engine.Inspect(ctx, id)
	if err == nil && !loc.Owns(ctx, c) {
		err = impersonationError(c, loc)
	}
	return c, err
}

// upNeeded reports whether nothing has to be done to use the container, and otherwise the error if
// nothing can be done.
func (r *resolver) upNeeded(ctx context.Context, loc devcontainer.Location, s snapshot, mode upMode,
	progress func(phase, message string),
) (done bool, err error) {
	switch {
	case mode == rebuild:
		return false, nil
	case s.ready():
		if mode == asked && r.outdated(ctx, loc, s) {
			progress("up", outdatedMessage(loc, s.container))
		}
		return true, nil
	case s.container.Paused():
		return false, s.container.NotRunning() // `up` would wait for it
	case mode == onDemand && s.last.Failed():
		return false, r.rememberedFailure(ctx, loc, s)
	default:
		return false, nil
	}
}

// rememberedFailure returns the error of the last `up`, or nil if the configuration has changed.
func (r *resolver) rememberedFailure(ctx context.Context, loc devcontainer.Location, s snapshot,
) error {
	hash, err := r.trust.Hash(ctx, loc)
	if err != nil || hash != s.last.Hash {
		return err
	}
	return dray.Errorf(dray.CodeContainerFailed, "the last `up` of %s failed: %s", loc.Workspace,
		s.last.Message).WithHint("correct its configuration, or repeat it with `dray workspace up %s`",
		lexical.ShellWord(loc.Workspace))
}

// outdated reports whether the container was created from an earlier configuration.
func (r *resolver) outdated(ctx context.Context, loc devcontainer.Location, s snapshot) bool {
	hash, err := r.trust.Hash(ctx, loc)
	return err == nil && s.last.Outdated(s.container, hash)
}

func outdatedMessage(loc devcontainer.Location, c devcontainer.ContainerInfo) string {
	return "kept container " + c.Name + ", which was created from an earlier configuration: " +
		"replace it with `dray workspace rebuild " + lexical.ShellWord(loc.Workspace) + "`"
}

// errStopRequested is the cause of the end of an `up` that a stop or removal cancels.
var errStopRequested = errors.New("the workspace was stopped")

// stop stops the containers of a workspace. An `up` that is running is cancelled.
func (m *Manager) stop(ctx context.Context, all []devcontainer.Location,
	progress func(phase, message string),
) error {
	return m.change(ctx, all, func(own []devcontainer.ContainerInfo) error {
		if len(own) == 0 {
			folder := all[0].Workspace
			return dray.Errorf(dray.CodeContainerNotFound, "workspace %s has no container", folder).
				WithHint("`dray workspace up %s` creates one", lexical.ShellWord(folder))
		}
		return m.forEach(ctx, all[0], own, func(c devcontainer.ContainerInfo) error {
			if slices.Contains([]string{"exited", "created", "dead", "removing"}, c.Status) {
				return nil
			}
			progress("stop", "stopping "+c.Name)
			return m.engine.Stop(ctx, c.ID)
		})
	})
}

// remove removes the containers of a workspace with their anonymous volumes and the networks of
// their compose projects, and forgets how its last `up` ended.
func (m *Manager) remove(ctx context.Context, all []devcontainer.Location,
	progress func(phase, message string),
) error {
	return m.change(ctx, all, func(own []devcontainer.ContainerInfo) error {
		err := m.forEach(ctx, all[0], own, func(c devcontainer.ContainerInfo) error {
			progress("remove", "removing "+c.Name)
			return m.engine.Remove(ctx, c.ID)
		})
		if err == nil {
			err = m.removeNetworks(ctx, own)
		}
		for _, loc := range all {
			if err == nil && loc.Config != "" {
				err = up.NewAttemptStore(m.cfg.State).Forget(ctx, loc)
			}
		}
		return err
	})
}

// removeNetworks removes what `docker compose down` removes of the projects of removed containers
// besides containers. A project with a container of another workspace keeps its networks.
func (m *Manager) removeNetworks(ctx context.Context, removed []devcontainer.ContainerInfo) error {
	done := map[string]bool{"": true}
	for _, c := range removed {
		project := c.Label(devcontainer.LabelComposeProject)
		if done[project] {
			continue
		}
		done[project] = true
		rest, err := m.engine.List(ctx, devcontainer.LabelComposeProject, project)
		if err != nil {
			return err
		}
		if len(rest) > 0 {
			continue
		}
		err = m.engine.RemoveNetworks(ctx, devcontainer.LabelComposeProject, project)
		if err != nil {
			return err
		}
	}
	return nil
}

// change cancels the `up` of a workspace that is running, and calls do with its containers, those
// of all configurations, while no other change is in progress.
func (m *Manager) change(ctx context.Context, all []devcontainer.Location,
	do func(own []devcontainer.ContainerInfo) error,
) error {
	unlock, err := m.lockAll(ctx, all)
	if err != nil {
		return err
	}
	defer unlock()
	defer func() {
		for _, loc := range all {
			m.settle(context.WithoutCancel(ctx), loc)
		}
	}()
	own, err := m.ownContainers(ctx, all[0])
	if err != nil {
		return err
	}
	return do(own)
}

// lockAll cancels every `up` of the configurations, and keeps others from starting.
func (m *Manager) lockAll(ctx context.Context, all []devcontainer.Location) (func(), error) {
	var unlocks []func()
	unlock := func() {
		for _, f := range unlocks {
			f()
		}
	}
	for _, loc := range all { // always in the same order
		m.ups.cancelRuns(loc)
		one, err := m.changing.lock(ctx, loc)
		if err != nil {
			unlock()
			return nil, err
		}
		unlocks = append(unlocks, one)
	}
	return unlock, nil
}

func (m *Manager) forEach(ctx context.Context, loc devcontainer.Location,
	own []devcontainer.ContainerInfo, do func(devcontainer.ContainerInfo) error,
) error {
	if len(own) == 0 {
		return nil
	}
	m.settle(ctx, loc)
	if err := m.tracker.set(ctx, loc, own[0].ID, Stopping, ""); err != nil {
		return err
	}
	for _, c := range own {
		m.log.Info("container stop requested", zap.String("workspace", loc.Workspace),
			zap.String("container", c.Name), zap.String("container_id", c.ID))
		err := do(c)
		if err != nil && dray.CodeOf(err) != dray.CodeContainerNotFound { // it was removed meanwhile
			return err
		}
	}
	return nil
}

// ownContainers returns the containers of a workspace, of every configuration, and those of their
// compose projects that belong to no other workspace.
func (m *Manager) ownContainers(ctx context.Context, loc devcontainer.Location,
) ([]devcontainer.ContainerInfo, error) {
	list, err := m.engine.List(ctx, devcontainer.LabelFolder, "")
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(list, func(c devcontainer.ContainerInfo) bool {
		return !loc.Owns(ctx, c)
	})
	for _, c := range slices.Clone(own) {
		project := c.Label(devcontainer.LabelComposeProject)
		if project == "" {
			continue
		}
		services, err := m.engine.List(ctx, devcontainer.LabelComposeProject, project)
		if err != nil {
			return nil, err
		}
		for _, s := range services {
			isKnown := func(known devcontainer.ContainerInfo) bool { return known.ID == s.ID }
			if !slices.ContainsFunc(own, isKnown) && sameProject(ctx, s, c, loc) {
				own = append(own, s)
			}
		}
	}
	return own, nil
}
