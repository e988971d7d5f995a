package command

import (
	"context"
	"errors"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/executor/container"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/admission"
	"github.com/dray-dev/dray/internal/api"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/router"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/transfer"
	"github.com/dray-dev/dray/internal/workspace"
)

// daemon is every room joined: the server in front, the trail, and where processes run. What is
// closed comes in the order of the fields, the caller's side first.
type daemon struct {
	admission    *admission.Controller
	server       *api.Server
	workspaces   *workspace.Manager
	engine       *container.Engine
	pool         *process.Pool
	closeCgroups func() // gives up the control groups of what the pool starts
	captures     *capture.Store
	transfer     *transfer.Syncer
	audit        *audit.Store
}

// newDaemon joins the rooms. Nothing listens yet, and nothing asks the engine before a call needs
// it.
func newDaemon(ctx context.Context, cfg *config.Config, log *zap.Logger) (*daemon, error) {
	d := &daemon{}
	if err := d.openServices(ctx, cfg, log); err != nil {
		return nil, errors.Join(err, d.close(ctx))
	}
	return d, nil
}

func (d *daemon) openServices(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	if err := d.openAudit(ctx, cfg, log); err != nil {
		return err
	}
	rules, err := newRouter(cfg, d.nearest)
	if err != nil {
		return err
	}
	if d.captures, err = openCaptures(cfg, log); err != nil {
		return err
	}
	if err := d.openEnvironments(ctx, cfg, log); err != nil {
		return err
	}
	if d.transfer, err = d.openTransfer(ctx, cfg, log); err != nil {
		return err
	}
	tools, err := newToolRegistry(cfg, d.toolOptions(cfg))
	if err != nil {
		return err
	}
	d.admission = admission.New(admission.Limits{
		Concurrent: cfg.Limits.Concurrent, PerContainer: cfg.Limits.PerContainer, Queue: cfg.Limits.Queue,
	})
	// what it starts lives as long as the daemon
	d.server, err = api.New(api.Config{ //nolint:contextcheck
		Executor: d.newExecutor(cfg, rules), Records: d.audit, Tools: tools, Router: rules,
		Places:     environmentChecker{d.workspaces},
		Workspaces: workspaceAdapter{d.workspaces}, Paths: pathAdapter{d.workspaces}, Captures: d.captures, Log: log,
		MaxBody: cfg.Server.MaxBody, MaxTimeout: cfg.Limits.MaxTimeout,
		Ready: d.audit.Ready, Version: version,
	})
	return err
}

// nearest finds the workspace of a folder, once there are workspaces to ask.
func (d *daemon) nearest(dir, root string) (folder string, ok bool) {
	return d.workspaces.Nearest(dir, root)
}

func (d *daemon) openAudit(ctx context.Context, cfg *config.Config, log *zap.Logger) (err error) {
	var interrupted int
	d.audit, interrupted, err = audit.Open(ctx,
		audit.Options{Path: cfg.State.AuditDB(), CapturesDir: cfg.State.Captures(), Log: log})
	if interrupted > 0 {
		log.Warn("calls interrupted", zap.Int("calls", interrupted))
	}
	return err
}

// openCaptures opens the folder of kept output, and has the log tell what retention removes.
func openCaptures(cfg *config.Config, log *zap.Logger) (*capture.Store, error) {
	return capture.NewStore(capture.Options{
		Dir: cfg.State.Captures(), Limit: cfg.Limits.Capture, SummaryBytes: int(cfg.Limits.View),
		MaxDiskBytes: cfg.Limits.CapturesDisk, MaxAge: cfg.Limits.CapturesKeep,
		OnRemoved: func(r capture.Removed) {
			if r.Err != nil {
				log.Warn("captures stay", zap.Error(r.Err))
			}
			if r.Files > 0 {
				log.Info("captures removed", zap.Int("files", r.Files), zap.Int64("bytes", r.Bytes))
			}
		},
	})
}

// openEnvironments makes the host, the engine and the workspaces over them.
func (d *daemon) openEnvironments(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	launch, err := supervisorLaunch()
	if err != nil {
		return err
	}
	launch, d.closeCgroups, err = host.WithCgroups(launch)
	if err != nil {
		log.Info("no control groups for host tools", zap.Error(err))
	}
	d.pool = process.NewPool(launch)
	d.engine, err = container.NewEngine(container.EndpointConfig{
		Host:    cfg.Engine.Host,
		Context: cfg.Engine.Context,
	}, container.Options{
		Lease: cfg.Agent.Lease, Transport: container.Transport(cfg.Agent.Transport), RunDir: cfg.State.Run(), Version: version, Log: log,
	})
	if err != nil {
		return err
	}
	log.Info("engine chosen", zap.String("host", d.engine.Host()),
		zap.String("source", d.engine.Source()))
	cli, err := devcontainerCLI(cfg)
	if err != nil {
		log.Warn("devcontainer CLI missing", zap.Error(err))
	}
	h := host.New(host.Config{Roots: cfg.Host.Roots, Env: cfg.Host.Env, Homes: cfg.State.Homes()},
		d.pool)
	git := workspace.Git(d.pool)
	d.workspaces = workspace.New(ctx, workspace.Config{
		Named: namedContainers(cfg), CLI: cli, UpArgs: cfg.Devcontainer.UpArgs, LocalEnv: cfg.Devcontainer.LocalEnv, State: string(cfg.State),
		UpTimeout: cfg.Devcontainer.UpTimeout,
	}, d.engine, h, d.pool, devcontainer.NewTrustStore(string(cfg.State), cfg.Trust.Workspaces, git), log)
	return nil
}

func (d *daemon) toolOptions(cfg *config.Config) tool.Options {
	return tool.Options{
		Processes:   &executor.Runner{Captures: d.captures, Grace: cfg.Limits.Grace},
		Transfer:    d.transfer,
		IdleTimeout: cfg.Limits.IdleTimeout,
		SyncTimeout: cfg.Sandbox.Timeout + syncTimeoutMargin,
	}
}

// newExecutor returns the layers of a call, the outermost first.
func (d *daemon) newExecutor(cfg *config.Config, rules *router.Router) dray.Executor {
	inEnvironment := d.workspaces.Executor(dray.RunTool, d.admission.Acquire)
	bounded := executor.Deadline(inEnvironment, cfg.Limits.Timeout)
	return d.admission.Executor(d.audit.Executor(call.MarkAccepted(rules.Executor(bounded))))
}

// Serve answers requests until Shutdown.
func (d *daemon) Serve(l net.Listener) error { return d.server.Serve(l) }

// Idle says since when nothing was asked and no call has run.
func (d *daemon) Idle() (since time.Time, ok bool) { return d.server.Idle() }

// Shutdown lets calls end until the context is over, cancels the rest, and closes everything.
func (d *daemon) Shutdown(ctx context.Context) error {
	d.admission.Close() // who waits for a turn is not let run any more
	// what still comes home when calls are cancelled would keep them
	defer context.AfterFunc(ctx, d.transfer.Stop)()
	return errors.Join(d.server.Shutdown(ctx), d.close(context.WithoutCancel(ctx)))
}

func (d *daemon) close(ctx context.Context) error {
	var err error
	if d.workspaces != nil {
		d.workspaces.Close()
	}
	if d.engine != nil {
		err = d.engine.Close()
	}
	if d.pool != nil {
		d.pool.Close()
		d.closeCgroups()
	}
	if d.captures != nil {
		d.captures.Close()
	}
	if d.transfer != nil {
		err = errors.Join(err, d.transfer.Close())
	}
	if d.audit != nil {
		err = errors.Join(err, d.audit.Close(ctx))
	}
	return err
}

// syncTimeoutMargin is what a call of the tool sync has beside sandbox.timeout, so that it is the
// sync that says what took too long.
const syncTimeoutMargin = 30 * time.Second

// openTransfer opens the sandbox root, or finds out that the daemon cannot come up with it.
func (d *daemon) openTransfer(ctx context.Context, cfg *config.Config,
	log *zap.Logger,
) (*transfer.Syncer, error) {
	s := cfg.Sandbox
	return transfer.Open(ctx, transfer.Config{
		Root: s.Root, Sources: s.Sources, Deny: s.Deny, Timeout: s.Timeout, Executable: s.Executable, HostRoots: cfg.Host.Roots,
		Limits: dray.TreeLimits{
			MaxFile: s.MaxFile, MaxTotal: s.MaxTotal, MaxFiles: s.MaxFiles,
			MaxDepth: s.MaxDepth,
		},
		Trusted: d.workspaces.Trusted,
		OnRecovered: func(finished int, err error) {
			if err != nil {
				log.Warn("leftovers of syncs stay in the sandbox root", zap.Error(err))
			}
			if finished > 0 {
				log.Info("syncs finished that were interrupted", zap.Int("syncs", finished))
			}
		},
	})
}
