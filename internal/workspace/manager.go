package workspace

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/container"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/devcontainer"
)

// Named is a container that configuration gives a name: by its workspace, its id or name, or a
// label.
type Named struct {
	Workspace string
	// Config is the devcontainer.json of the workspace; empty looks in the usual places.
	Config string
	ID     string
	// Service is the compose service that is meant, where the workspace has several.
	Service string
	// Label is key=value.
	Label    string
	Mappings []dray.Mount
}

// Config is what the manager works by.
type Config struct {
	Named map[string]Named
	// CLI is the absolute path of the reference CLI, empty if there is none; UpArgs are extra
	// arguments of its `up`.
	CLI    string
	UpArgs []string
	// LocalEnv holds values of ${localEnv:X} for calls that bring none.
	LocalEnv map[string]string
	// State is where failures of `up` are remembered.
	State string
	// UpTimeout bounds one `up`, whoever waits for it; above 0.
	UpTimeout time.Duration
}

// AcquireFunc gives a call its turn in a container that is ready, or on the host, which has no id.
// It may wait, and says how long it did; leave gives the turn back and may be called more than
// once.
type AcquireFunc func(ctx context.Context, container string, sink dray.Sink) (leave func(),
	waited time.Duration, err error)

// Manager knows the workspaces and their containers.
type Manager struct {
	cfg    Config
	engine *container.Engine
	host   *host.Host
	pool   *process.Pool
	trust  *devcontainer.TrustStore
	watch  *container.EventWatcher
	log    *zap.Logger

	// the manager's own life, which bounds what goes on without a caller
	ctx    context.Context //nolint:containedctx
	cancel context.CancelFunc

	known labelCache

	mu          sync.Mutex
	envCache    map[cacheKey]*cachedEnv
	usedFolders map[string]bool // workspace folders that were used
	upRuns      map[devcontainer.Location]*upRun
	closed      bool
	wg          sync.WaitGroup
}

// New makes a manager. Close ends what it began; engine, host and pool stay the caller's.
func New(ctx context.Context, cfg Config, engine *container.Engine, h *host.Host,
	pool *process.Pool, trust *devcontainer.TrustStore, log *zap.Logger,
) *Manager {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	removeStaleConfigs(cfg.State, log)
	return &Manager{
		cfg: cfg, engine: engine, host: h, pool: pool, trust: trust, watch: engine.Watch(ctx), log: log, ctx: ctx, cancel: cancel,
		envCache: map[cacheKey]*cachedEnv{}, usedFolders: map[string]bool{}, upRuns: map[devcontainer.Location]*upRun{},
	}
}

// removeStaleConfigs removes the configurations that an `up` of an earlier daemon left behind,
// because that one was killed. There is one daemon for each state folder, so nobody uses them.
func removeStaleConfigs(state string, log *zap.Logger) {
	// the pattern is well formed unless the folder's name is odd: then they stay
	left, _ := filepath.Glob(filepath.Join(state, "run", "up-*"))
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			log.Warn("a leftover of an earlier start stays", zap.Error(err))
		}
	}
}

// Close gives up what is being brought up and waits for it. Nothing is brought up from then on.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.watch.Close()
	m.wg.Wait()
}

// Executor makes the environment that the route names ready, waits for the call's turn there, hands
// the call on, and puts the container's metadata into the result. What is being made ready holds
// nobody's turn.
func (m *Manager) Executor(next dray.Executor, turns AcquireFunc) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		env, leave, waited, err := m.acquire(ctx, call, sink, turns)
		queued := float64(waited.Microseconds()) / 1000
		if err != nil {
			return dray.Result{Metadata: dray.Metadata{QueuedMS: queued}}, err
		}
		defer leave()
		call.Environment = env
		res, err := next.Execute(ctx, call, sink)
		res.Metadata.QueuedMS = queued
		attach(&res, env.Capabilities())
		return res, err
	})
}

// acquire makes the environment ready and waits for the turn. What has changed while the call
// waited is made ready again, with the turn given back.
func (m *Manager) acquire(ctx context.Context, call dray.Call, sink dray.Sink,
	turns AcquireFunc,
) (env dray.Environment, leave func(), waited time.Duration, err error) {
	for {
		env, err = m.Environment(ctx, call.Route, call.Invocation, sink.Progress)
		if err != nil {
			return nil, nil, waited, err
		}
		var now time.Duration
		leave, now, err = turns(ctx, containerID(env), sink)
		waited += now
		if err != nil || now == 0 || m.stillReady(call, env) {
			return env, leave, waited, err
		}
		leave()
	}
}

// stillReady says whether an environment is as it was when it was made ready.
func (m *Manager) stillReady(call dray.Call, env dray.Environment) bool {
	return call.Route.Environment == dray.KindHost ||
		m.lookupCached(requestOf(call.Route, call.Invocation)) == env
}

func containerID(env dray.Environment) string {
	if c := env.Capabilities().Container; c != nil {
		return c.ID
	}
	return ""
}

// attach puts what is known of the place beside the tool's own output, after that was mapped
// (PM-11).
func attach(res *dray.Result, caps dray.Capabilities) {
	res.Metadata.Warnings = append(append([]string(nil), caps.Warnings...), res.Metadata.Warnings...)
	if caps.Container == nil {
		return
	}
	c := *caps.Container
	c.ExecMS = float64(res.ExecDuration.Microseconds()) / 1000
	c.ExitCode = res.ExitCode
	res.Metadata.Container = &c
}

// Environment makes a route's environment ready.
func (m *Manager) Environment(ctx context.Context, route dray.Route, inv dray.Invocation,
	progress func(phase, message string),
) (dray.Environment, error) {
	if route.Environment == dray.KindHost {
		return m.host.Environment(hostFolder(inv)), checkWorkspaceDir(inv.Workspace)
	}
	return m.container(ctx, requestOf(route, inv), progress)
}

// checkWorkspaceDir refuses a workspace that is no folder: what follows would be told as trouble
// with the folder's rights.
func checkWorkspaceDir(folder string) error {
	if folder == "" {
		return nil
	}
	if info, err := os.Stat(folder); err == nil && info.IsDir() {
		return nil
	}
	return dray.Errorf(dray.CodeWorkspaceNotFound,
		"the workspace folder %s does not exist, or is no folder", folder).
		WithHint("check its spelling; it is a folder of the machine that the daemon runs on")
}

// hostFolder is where a call works on the host: its workspace, else its working folder.
func hostFolder(inv dray.Invocation) string {
	if inv.Workspace != "" {
		return inv.Workspace
	}
	return inv.Cwd
}
