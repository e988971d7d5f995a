package workspace

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// runUp runs the reference CLI for a trusted workspace and gives the id of its container. The values of ${localEnv:X} are the daemon's
// and the configuration's: mounts can depend on them, so no caller over HTTP chooses any.
func (m *Manager) runUp(ctx context.Context, loc devcontainer.Location, progress func(phase, message string)) (string, error) {
	approval, err := m.trust.Approve(ctx, loc)
	if err != nil {
		return "", err
	}
	found, _, err := m.findByLabels(ctx, loc)
	if err != nil {
		return "", err
	}
	key := loc.Workspace + "\x00" + loc.Config
	mount, err := m.engine.Mount(ctx, key)
	if err != nil {
		return "", err
	}
	defer m.engine.Release(key)
	env := m.upEnv()
	log := m.log.With(zap.String("workspace", loc.Workspace))
	log.Info("bringing a workspace up")
	res, err := devcontainer.Up(ctx, devcontainer.UpOptions{
		CLI: m.cfg.CLI, State: m.cfg.State, Approval: approval, Container: found.ContainerInfo, ExtraArgs: m.cfg.UpArgs, Mount: mount,
		Env: env, Start: m.startHelperProcess,
	}, progress)
	log.Info("brought a workspace up", zap.String("container_id", res.ContainerID), zap.Error(err))
	return res.ContainerID, err
}

// upEnv are the variables of `up`: each name once, because programs do not agree on which of two counts.
func (m *Manager) upEnv() []string {
	vars := map[string]string{}
	for _, kv := range append(devcontainer.UpEnv(os.Environ()), m.engine.Env()...) {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	maps.Copy(vars, m.cfg.LocalEnv)
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	return env
}

// startHelperProcess starts a helper program on the host, under supervision as any tool.
func (m *Manager) startHelperProcess(ctx context.Context, cmd devcontainer.Command) (devcontainer.Running, error) {
	proc, err := m.pool.Start(ctx, process.Spec{Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir})
	if err != nil {
		return nil, process.WrapStartError(err, cmd.Dir)
	}
	_ = proc.Stdin().Close()
	return helperProcess{proc}, nil
}

// helperProcess is a helper program as internal/devcontainer knows it.
type helperProcess struct{ proc *process.Process }

func (h helperProcess) Stdout() io.Reader { return h.proc.Stdout() }
func (h helperProcess) Stderr() io.Reader { return h.proc.Stderr() }
func (h helperProcess) Stop()             { h.proc.Stop(0) }

func (h helperProcess) Wait() (int, error) {
	exit, err := h.proc.Wait()
	if exit.Signal != 0 {
		return 128 + int(exit.Signal), err
	}
	return exit.Code, err
}

// Up brings a workspace's container up, or finds that it runs.
func (m *Manager) Up(ctx context.Context, folder string, progress func(phase, message string)) error {
	loc, err := m.locationOf(folder)
	if err != nil {
		return err
	}
	_, err = m.ensureRunning(ctx, loc, progress)
	return err
}

// Stop stops a workspace's container. One that does not run is left as it is.
func (m *Manager) Stop(ctx context.Context, folder string) error {
	loc, err := m.locationOf(folder)
	if err != nil {
		return err
	}
	c, found, err := m.findByLabels(ctx, loc)
	if err != nil {
		return err
	}
	if !found {
		return dray.Errorf(dray.CodeContainerNotFound, "workspace %s has no container", folder).
			WithHint("there is nothing to stop; `dray workspace up %s` would make one", folder)
	}
	if c.Status == "exited" || c.Status == "created" || c.Status == "dead" {
		return nil
	}
	m.log.Info("stopping a workspace", zap.String("workspace", folder), zap.String("container_id", c.ID))
	return m.engine.Stop(ctx, c.ID)
}

// Trust records that what the summary shows is agreed to.
func (m *Manager) Trust(ctx context.Context, folder string) (devcontainer.Summary, error) {
	loc, err := m.locationOf(folder)
	if err != nil {
		return devcontainer.Summary{}, err
	}
	summary, err := m.trust.Trust(ctx, loc)
	if err == nil {
		m.log.Info("a workspace is trusted", zap.String("workspace", folder), zap.String("hash", summary.Hash))
	}
	return summary, err
}

// Trusted says whether a workspace folder is trusted. One that cannot be judged is not.
func (m *Manager) Trusted(ctx context.Context, folder string) bool {
	loc, err := m.locationOf(folder)
	if err != nil {
		return false
	}
	trusted, _, err := m.trust.IsTrusted(ctx, loc)
	return err == nil && trusted
}

// locationOf finds the configuration of a folder, the one that a configured container names for it included.
func (m *Manager) locationOf(folder string) (devcontainer.Location, error) {
	for _, name := range slices.Sorted(maps.Keys(m.cfg.Named)) { // of several the first by name, every time
		if n := m.cfg.Named[name]; n.Workspace == folder && n.Config != "" {
			return devcontainer.Locate(folder, n.Config)
		}
	}
	loc, err := devcontainer.Locate(folder, "")
	if err != nil {
		return loc, fmt.Errorf("looking at the workspace: %w", err)
	}
	return loc, nil
}
