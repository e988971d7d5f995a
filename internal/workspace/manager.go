package workspace

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/lexical"
)

// Engine is what a Manager needs of a container engine. It is safe for concurrent use.
type Engine interface {
	// Inspect returns a container by id or name, List those with a label, stopped ones included.
	Inspect(ctx context.Context, ref string) (devcontainer.ContainerInfo, error)
	List(ctx context.Context, label, value string) ([]devcontainer.ContainerInfo, error)
	// Stop stops a container, Remove removes it with its anonymous volumes.
	Stop(ctx context.Context, id string) error
	Remove(ctx context.Context, id string) error
	// RemoveNetworks removes the networks with a label that no container uses.
	RemoveNetworks(ctx context.Context, label, value string) error
	// Writers returns the containers with processes that can change one of the paths, Writer whether
	// one container can. Starts sends the ids of containers that are created, started or unpaused; it
	// closes the channel when events may be missed, or ctx is done.
	Writers(ctx context.Context, paths []string) ([]devcontainer.ContainerInfo, error)
	Writer(ctx context.Context, id string, paths []string) (devcontainer.ContainerInfo, bool, error)
	Starts(ctx context.Context) (<-chan string, error)
	// Environment returns an environment of a running container.
	Environment(ctx context.Context, c devcontainer.ContainerInfo, spec agent.Spec,
	) (dray.Environment, error)
	// Watch starts receiving events. Generation changes when a container changes; if ok is false,
	// changes may have been missed.
	Watch()
	Generation() (n uint64, ok bool)
	// Changed receives a value after the generation has changed. It has one receiver.
	Changed() <-chan struct{}
	// Restore repairs a container of an earlier version that cannot start.
	Restore(ctx context.Context, id string) error
	// Env returns the variables that select this engine for the devcontainer CLI.
	Env() []string
}

// Named is a container that the configuration gives a name: by its workspace, its id or name, or a
// label.
type Named struct {
	Workspace string
	// Config is the devcontainer.json of the workspace. Empty means the default locations.
	Config string
	ID     string
	// Service is the compose service, if the workspace has several.
	Service string
	// Label is key=value.
	Label    string
	Mappings []dray.Mount
	// User and Folder, if not empty, replace the user and the working directory of calls.
	User, Folder string
}

// Config is the configuration of a Manager.
type Config struct {
	Named map[string]Named
	// CLI is the absolute path of the devcontainer CLI, empty if there is none. UpArgs are added to
	// its `up`.
	CLI    string
	UpArgs []string
	// LocalEnv holds values of ${localEnv:X} for calls that bring none.
	LocalEnv map[string]string
	// State is the directory of the daemon's state.
	State string
	// UpTimeout bounds one `up`. It must be positive.
	UpTimeout time.Duration
	// Record records a change of state in the audit log.
	Record func(context.Context, Transition) error
	// Redact replaces the secrets in what an `up` prints and in its error; nil replaces none.
	Redact func(string) string
	// Breakers are those of the calls. Their states are listed.
	Breakers *Breakers
}

// Manager provides the containers of workspaces. It implements Provider and is safe for concurrent
// use.
type Manager struct {
	*resolver
	ups    *upRunner
	cache  cache[dray.Environment]
	tools  cache[*trust.ToolsFile]
	labels labelCache

	mu          sync.Mutex
	usedFolders map[string]bool // workspaces of calls since the start
}

// New returns a manager. Close must be called; engine and pool remain the caller's.
func New(cfg Config, engine Engine, pool *process.Pool, trust *trust.Store,
	log *zap.Logger,
) *Manager {
	if err := helper.RemoveRunDirs(cfg.State); err != nil {
		log.Warn("stale directories not removed", zap.Error(err))
	}
	engine.Watch()
	r := newResolver(cfg, engine, trust, log)
	m := &Manager{resolver: r, ups: newUpRunner(r, pool), usedFolders: map[string]bool{}}
	m.ups.wg.Go(func() { r.observe(m.ups.ctx, engine.Changed()) })
	return m
}

// Close cancels every `up` and waits for its end.
func (m *Manager) Close() { m.ups.close() }

// Environment makes the container of a route ready.
func (m *Manager) Environment(ctx context.Context, route dray.Route, inv dray.Invocation,
	progress func(phase, message string),
) (dray.Environment, error) {
	return m.environment(ctx, requestOf(route, inv), progress)
}

// IsCurrent reports whether env is still cached for the route.
func (m *Manager) IsCurrent(ctx context.Context, route dray.Route, inv dray.Invocation,
	env dray.Environment,
) bool {
	return m.lookupCached(ctx, requestOf(route, inv)) == env
}

// Check returns the error that a call with the route would fail with.
func (m *Manager) Check(ctx context.Context, route dray.Route, _ dray.Invocation, _ bool) error {
	req := request{name: route.Container, workspace: route.Workspace}
	if m.lookupCached(ctx, req) != nil {
		return nil
	}
	loc, err := m.locate(ctx, req)
	if err != nil {
		return err
	}
	if !m.byWorkspace(req) { // it is never brought up
		c, err := m.findNamed(ctx, req, loc)
		if err == nil && !c.Running() {
			err = c.NotRunning()
		}
		if err == nil {
			_, _, err = m.spec(ctx, loc, c, req)
		}
		return err
	}
	s, err := m.examine(ctx, loc)
	if err != nil {
		return err
	}
	done, err := m.upNeeded(ctx, loc, s, onDemand, ignoreProgress)
	switch {
	case err != nil:
	case done:
		_, _, err = m.spec(ctx, loc, s.container, req)
	default:
		_, err = m.approve(ctx, loc) // it would be brought up
	}
	return err
}

func ignoreProgress(string, string) {}

// Mounts returns the mounts of a container by its name or its workspace. The container must exist:
// it is not brought up.
func (m *Manager) Mounts(ctx context.Context, workspace, name string) ([]dray.Mount, error) {
	req := request{name: name, workspace: workspace}
	if env := m.lookupCached(ctx, req); env != nil {
		return env.Capabilities().Mounts, nil
	}
	loc, err := m.locate(ctx, req)
	if err != nil {
		return nil, err
	}
	c, err := m.find(ctx, req, loc, func() (devcontainer.ContainerInfo, error) {
		c, found, err := m.findByLabels(ctx, loc)
		if err == nil && !found {
			err = dray.Errorf(dray.CodeContainerUnavailable, "workspace %s has no container yet",
				loc.Workspace).WithHint("run `dray workspace up %s`",
				lexical.ShellWord(loc.Workspace))
		}
		return c, err
	})
	if err != nil {
		return nil, err
	}
	spec, _, err := m.spec(ctx, loc, c, req)
	return spec.Mounts, err
}

// find returns the container of a request. ofWorkspace returns that of a workspace.
func (m *Manager) find(ctx context.Context, req request, loc devcontainer.Location,
	ofWorkspace func() (devcontainer.ContainerInfo, error),
) (devcontainer.ContainerInfo, error) {
	if !m.byWorkspace(req) {
		return m.findNamed(ctx, req, loc)
	}
	c, err := ofWorkspace()
	if err != nil {
		return c, err
	}
	return m.findService(ctx, c, req.name)
}

// resolve finds the container, brings it up if necessary, and makes its environment.
func (m *Manager) resolve(ctx context.Context, req request, progress func(phase, message string),
) (dray.Environment, trust.Files, error) {
	var none trust.Files
	loc, err := m.locate(ctx, req)
	if err != nil {
		return nil, none, err
	}
	c, err := m.find(ctx, req, loc, func() (devcontainer.ContainerInfo, error) {
		return m.ensureRunning(ctx, loc, onDemand, progress)
	})
	if err != nil {
		return nil, none, err
	}
	m.remember(loc.Workspace)
	spec, trust, err := m.spec(ctx, loc, c, req)
	if err != nil {
		return nil, trust, err
	}
	env, err := m.engine.Environment(ctx, c, spec)
	return env, trust, err
}

func (m *Manager) remember(folder string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if folder != "" {
		m.usedFolders[folder] = true
	}
}

func (m *Manager) used(folder string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usedFolders[folder]
}

// Info is the state of a workspace.
type Info struct {
	ID      string `json:"id"`
	Folder  string `json:"folder"`
	State   State  `json:"state"`
	Trusted bool   `json:"trusted"`
	// Breaker is the state of the circuit breaker of its calls.
	Breaker BreakerState `json:"breaker,omitzero" enum:"closed,open,half_open"`
	// Container is the full id of its container, if there is one.
	Container string `json:"container,omitempty"`
	// Outdated is true if the container was created from an earlier configuration.
	Outdated bool `json:"outdated,omitzero"`
	// Failure is the error of the last `up` if the state is failed.
	Failure string `json:"failure,omitzero"`
	// Trust is what Manager.Trust has trusted, and nil otherwise.
	Trust *trust.Summary `json:"trust,omitempty"`
}

// ID returns the id of a workspace folder, which never changes.
func ID(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return hex.EncodeToString(sum[:])[:12]
}

// List returns the workspaces that are configured, were used since the start, or have a container.
func (m *Manager) List(ctx context.Context) ([]Info, error) {
	containers, err := m.engine.List(ctx, devcontainer.LabelFolder, "")
	if err != nil {
		return nil, err
	}
	folders := m.knownFolders()
	for _, c := range containers {
		if folder := c.Label(devcontainer.LabelFolder); folder != "" {
			folders[folder] = true
		}
	}
	list := make([]Info, 0, len(folders))
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		if loc, err := m.locationOf(ctx, folder); err == nil { // else it was removed
			found, err := m.snapshotOf(ctx, loc, containers)
			if err != nil { // it must not hide the other workspaces
				m.log.Warn("last up not read", zap.String("workspace", folder), zap.Error(err))
			}
			list = append(list, m.describe(ctx, loc, found))
		}
	}
	return list, nil
}

// knownFolders returns the workspaces that are configured or were used since the start.
func (m *Manager) knownFolders() map[string]bool {
	m.mu.Lock()
	folders := maps.Clone(m.usedFolders)
	m.mu.Unlock()
	for _, n := range m.cfg.Named {
		if n.Workspace != "" {
			folders[n.Workspace] = true
		}
	}
	return folders
}

func (m *Manager) describe(ctx context.Context, loc devcontainer.Location, found snapshot) Info {
	trusted, _, _ := m.trust.IsTrusted(ctx, loc) // an error means untrusted
	info := Info{ID: ID(loc.Workspace), Folder: loc.Workspace, State: Discovered, Trusted: trusted}
	info.State = cmp.Or(m.tracker.inProgress(loc), found.state())
	info.Container, info.Outdated = found.container.ID, m.outdated(ctx, loc, found)
	if info.State == Failed {
		info.Failure = found.last.Message
	}
	info.Breaker = m.cfg.Breakers.State(m.routeNames(loc.Workspace)...)
	return info
}

// routeNames returns the names by which routes lead to the containers of a workspace.
func (m *Manager) routeNames(folder string) []string {
	names := []string{folder}
	for name, n := range m.cfg.Named {
		if n.Workspace == folder {
			names = append(names, name)
		}
	}
	return names
}

// folder returns the folder with an id. An absolute path is returned as it is.
func (m *Manager) folder(ctx context.Context, id string) (string, error) {
	if filepath.IsAbs(id) {
		return id, nil
	}
	list, err := m.List(ctx)
	if err != nil {
		return "", err
	}
	for _, w := range list {
		if w.ID == id {
			return w.Folder, nil
		}
	}
	return "", dray.Errorf(dray.CodeNotFound, "no such workspace: %q", id).
		WithHint("use an id of `dray workspace ls`, or an absolute path")
}
