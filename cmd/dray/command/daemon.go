package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapio"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/executor/files"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/admission"
	"github.com/dray-dev/dray/internal/api"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/logging"
	"github.com/dray-dev/dray/internal/mcp"
	"github.com/dray-dev/dray/internal/policy"
	"github.com/dray-dev/dray/internal/policy/approval"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/redact"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/transfer"
	"github.com/dray-dev/dray/internal/workspace"
)

// daemon has the parts of the running daemon.
type daemon struct {
	startedAt    time.Time
	current      atomic.Pointer[generation]
	redactor     atomic.Pointer[redact.Redactor] // of what belongs to no call
	reloading    sync.Mutex                      // held while a new generation is made
	log          *zap.Logger
	access       call.Access
	admission    *admission.Controller
	budgets      *call.Budgets
	calls        *call.Registry
	server       *api.Server
	mcp          *mcp.Server
	workspaces   *workspace.Manager
	breakers     *workspace.Breakers
	environments workspace.Environments
	engine       *docker.Engine
	pool         *process.Pool
	host         *host.Host
	closeCgroups func() // removes the cgroups of the processes of pool
	captures     *capture.Store
	transfer     *transfer.Syncer
	toolStates   *tool.States
	python       *python.Sessions // nil if there is no tool python
	upstreams    *upstreams
	shells       *tool.ShellSessions
	audit        *audit.Store
	approvals    *approval.Gate

	stopRetention func() // nil before it runs
}

// newDaemon wires the daemon. It opens no socket, and does not connect to the engine before a call
// needs it.
func newDaemon(ctx context.Context, cfg *config.Config, log *zap.Logger) (*daemon, error) {
	unsafe, err := useSafePath(cfg)
	if err != nil {
		return nil, err
	}
	if len(unsafe) > 0 {
		log.Warn("unsafe elements of PATH dropped", zap.Strings("elements", unsafe))
	}
	d := &daemon{startedAt: time.Now(), access: call.Access{UID: os.Geteuid()}}
	rules, err := openRedaction(cfg)
	if err != nil {
		return nil, err
	}
	d.redactor.Store(rules.Base())
	log = logging.Redacted(log, d.redact)
	d.log = log
	if err := d.openServices(ctx, cfg, log); err != nil {
		return nil, errors.Join(err, d.close(ctx))
	}
	return d, nil
}

func (d *daemon) openServices(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	if err := d.openAudit(ctx, cfg, log); err != nil {
		return err
	}
	var err error
	if d.captures, err = openCaptures(cfg, log); err != nil {
		return err
	}
	if err := d.openEnvironments(cfg, log); err != nil {
		return err
	}
	if d.transfer, err = d.openTransfer(ctx, cfg); err != nil {
		return err
	}
	d.admission = admission.New(admission.Limits{
		Concurrent: cfg.Limits.Concurrent, PerContainer: cfg.Limits.PerContainer, Queue: cfg.Limits.Queue,
	})
	if d.toolStates, err = openToolStates(cfg.State, d.audit); err != nil {
		return err
	}
	if d.shells, err = tool.OpenShellSessions(cfg.State.ShellSessions()); err != nil {
		return err
	}
	if d.python, err = openPython(cfg, d.pool, log); err != nil {
		return err
	}
	d.upstreams = d.openUpstreams(cfg)
	d.budgets = call.NewBudgets(planBudgets(cfg), d.audit.PlanUsage)
	requestKey, err := audit.LoadHMACKey(cfg.State.IdempotencyKey())
	if err != nil {
		return err
	}
	d.approvals = approval.New(approval.Config{
		Session: d.shells.State,
		Log:     d.audit, Key: requestKey, Principal: d.principal(),
		Lifetime: func() time.Duration { return d.current.Load().cfg.Policy.ApprovalLifetime },
		Policies: func() approval.Decider { return d.current.Load().policies },
	})
	policies, err := newPolicies(cfg, d.workspaces.Mounts)
	if err != nil {
		return err
	}
	first, err := d.newGeneration(cfg, policies)
	if err != nil {
		return err
	}
	d.use(first)
	d.calls = call.NewRegistry(call.Options{
		Executor: dray.ExecutorFunc(d.execute), Open: d.captures.OpenAuto, Log: log,
		Claims: d.audit, RequestKey: requestKey,
	})
	//nolint:contextcheck // requests outlive ctx, which bounds only the start
	if err := d.newServers(cfg, requestKey, log); err != nil {
		return err
	}
	d.startRetention(ctx)
	d.startUpstreams(ctx)
	return nil
}

// newServers makes what serves HTTP and MCP, with the present generation.
func (d *daemon) newServers(cfg *config.Config, sessionKey []byte, log *zap.Logger) error {
	tcp, err := tcpAccess(cfg)
	if err != nil {
		return err
	}
	d.mcp = mcp.New(mcp.Config{
		Current: func() mcp.Configured {
			g := d.current.Load()
			return mcp.Configured{
				Intake: g.Intake, Tools: g.tools, View: int(g.cfg.MCP.View), Denies: g.Denies,
				ProjectTools: g.activeProjectTools,
			}
		},
		Calls: d.calls, Outputs: d.outputs(), Access: d.access, Approvals: d.approvals,
		Nearest: nearestWorkspace, AwaitTools: d.upstreams.await,
		SessionKey: sessionKey, MaxBody: cfg.Server.MaxBody, Version: thisBuild().Version,
		Log: slog.New(slog.NewTextHandler(&zapio.Writer{Log: log.Named("mcp"), Level: zap.WarnLevel},
			&slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	d.server, err = api.New(api.Config{
		Configured: d.current.Load().Configured,
		Calls:      d.calls, Audit: d.audit, Prover: d.audit, Workspaces: d.workspaces,
		Captures: d.captures, Daemon: d, Approvals: d.approvals, AwaitTools: d.upstreams.await,
		ToolWarnings: d.upstreams.warnings,
		Record:       d.audit.RecordEvent, Rejected: d.audit.CountRejection, Log: log,
		Access: d.access, TCP: tcp, MaxBody: cfg.Server.MaxBody, BodyDir: string(cfg.State),
		Ready: d.audit.Ready, Warnings: d.audit.Warnings, MCP: d.mcp,
		Version: thisBuild().Version,
	})
	return err
}

func (d *daemon) openAudit(ctx context.Context, cfg *config.Config, log *zap.Logger) (err error) {
	// before the calls are marked as interrupted: their records have the files that were synced
	completed, recoverErr := transfer.Recover(ctx, cfg.Sandbox.Root)
	commits, commitErr := files.NewCommits(cfg.State.Commits()).Recover(ctx)
	completed, recoverErr = completed+commits, errors.Join(recoverErr, commitErr)
	var interrupted int
	d.audit, interrupted, err = audit.Open(ctx, audit.Options{
		Path: cfg.State.AuditDB(), CapturesDir: cfg.State.Captures(), Log: log, Recover: killRemains,
		Redact: func(body []byte) []byte { return d.redactor.Load().Event(body) },
		Disk:   diskMarks(cfg), Degrade: cfg.Audit.OnFailure == config.OnFailureDegrade,
	})
	if interrupted > 0 {
		log.Warn("calls interrupted", zap.Int("calls", interrupted))
	}
	if err != nil {
		return err
	}
	if completed > 0 || recoverErr != nil {
		log.Warn("interrupted writes completed", zap.Int("completed", completed),
			zap.Error(recoverErr))
		d.audit.PostEvent(&audit.SyncsRecovered{Completed: completed, Error: errorText(recoverErr)})
	}
	return d.audit.RecordEvent(ctx, &audit.DaemonStarted{
		Principal: d.principal(), Version: thisBuild().Version, PID: os.Getpid(), ConfigFile: cfg.File,
		ConfigDigest: configDigest(cfg), Interrupted: interrupted,
	})
}

// killRemains kills what is left of calls of a daemon that was killed, and returns what is known of
// them.
func killRemains(_ context.Context, ids []string) map[string]dray.Metadata {
	known := map[string]dray.Metadata{}
	for id, report := range host.KillRemains(ids) {
		known[id] = dray.Metadata{Kill: &report}
	}
	return known
}

func diskMarks(cfg *config.Config) audit.DiskMarks {
	return audit.DiskMarks{Low: cfg.Audit.DiskLow, Reserve: cfg.Audit.DiskReserve}
}

// principal returns the principal of what the daemon does by itself.
func (d *daemon) principal() string { return fmt.Sprintf("uid:%d", d.access.UID) }

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// openCaptures opens the directory of captured output. What retention removes is logged.
func openCaptures(cfg *config.Config, log *zap.Logger) (*capture.Store, error) {
	return capture.NewStore(capture.Options{
		Dir: cfg.State.Captures(), Limit: cfg.Limits.Capture, SummaryBytes: int(cfg.Limits.View),
		MaxDiskBytes: cfg.Limits.CapturesDisk, MaxAge: cfg.Limits.CapturesKeep,
		OnRemoved: func(r capture.Removed) {
			if r.Err != nil {
				log.Warn("capture removal failed", zap.Error(r.Err))
			}
			if r.Files > 0 {
				log.Info("captures removed", zap.Int("files", r.Files), zap.Int64("bytes", r.Bytes))
			}
		},
	})
}

// openEnvironments opens the provider of each kind of environment.
func (d *daemon) openEnvironments(cfg *config.Config, log *zap.Logger) error {
	launch, err := supervisorLaunch()
	if err != nil {
		return err
	}
	launch, d.closeCgroups, err = host.WithCgroups(launch)
	if err != nil {
		log.Info("cgroups unavailable for host tools", zap.Error(err))
	}
	d.pool = process.NewPool(launch)
	endpoint := docker.EndpointConfig{Host: cfg.Engine.Host, Context: cfg.Engine.Context}
	d.engine, err = docker.NewEngine(endpoint, docker.Options{
		Lease: cfg.Agent.Lease, Transport: docker.Transport(cfg.Agent.Transport),
		RunDir: cfg.State.Run(), Version: thisBuild().Version, Log: log,
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
	d.host = host.New(host.Config{
		Roots: cfg.Host.Roots, Env: cfg.Host.Env, Homes: cfg.State.Homes(),
		Commits: cfg.State.Commits(), ConfigFile: cfg.FileToEdit(),
	}, d.pool)
	state := string(cfg.State)
	trust := trust.NewStore(state, cfg.Trust.Workspaces,
		workspace.NewCompose(d.pool, state, d.engine.Env(), cfg.Devcontainer.LocalEnv))
	d.breakers = workspace.NewBreakers(cfg.Breaker.Failures, cfg.Breaker.Open, log)
	d.breakers.OnChange = func(c workspace.BreakerChange) {
		d.audit.PostEvent(&audit.BreakerChanged{
			Container: c.Container, State: string(c.State), Failures: c.Failures, Error: c.Last,
		})
	}
	d.workspaces = workspace.New(workspace.Config{
		Breakers: d.breakers,
		Named:    namedContainers(cfg), CLI: cli, UpArgs: cfg.Devcontainer.UpArgs,
		LocalEnv: cfg.Devcontainer.LocalEnv, State: state, UpTimeout: cfg.Devcontainer.UpTimeout,
		Redact: d.redact,
		Record: func(ctx context.Context, t workspace.Transition) error {
			return d.audit.RecordEvent(ctx, &audit.ContainerChanged{
				Workspace: t.Workspace, Config: t.Config, Container: t.Container, From: string(t.From),
				To: string(t.To), Error: t.Error,
			})
		},
	}, d.engine, d.pool, trust, log)
	d.environments = workspace.Environments{
		dray.KindHost:      workspace.NewHostProvider(d.host),
		dray.KindContainer: d.workspaces,
	}
	return nil
}

func (d *daemon) toolOptions(cfg *config.Config) tool.Options {
	return tool.Options{
		Processes:   &executor.Runner{Captures: d.captures, Grace: cfg.Limits.Grace},
		Transfer:    d.transfer,
		States:      d.toolStates,
		IdleTimeout: cfg.Limits.IdleTimeout,
		SyncTimeout: cfg.Sandbox.Timeout + syncTimeoutMargin,
		Python:      d.pythonOptions(cfg),

		ReadOutput: d.readOutput,
	}
}

// outputs reads what calls kept.
func (d *daemon) outputs() *call.Outputs {
	return &call.Outputs{
		Calls: d.calls, Open: d.captures.OpenAuto, Record: d.audit.Get, Access: d.access,
	}
}

// readOutput returns a part of what a call kept that a principal may see.
func (d *daemon) readOutput(ctx context.Context, principal, id string, stream dray.Stream,
	offset, limit int64,
) (any, error) {
	from := d.outputs()
	c, rec, err := from.Find(ctx, principal, id)
	if err != nil {
		return nil, err
	}
	return from.Part(c, rec, stream, offset, limit)
}

// newExecutor returns the layers of a call, the outermost first: admission, budget, audit log,
// record, deadline, policy and approval, session of a shell, breaker, retries, environment and the
// tool itself.
func (d *daemon) newExecutor(cfg *config.Config, policies *policy.Engine) dray.Executor {
	return d.admission.Executor(d.newRecordedExecutor(cfg, policies, d.admission.Acquire))
}

// newRecordedExecutor returns the layers inside admission.
func (d *daemon) newRecordedExecutor(cfg *config.Config, policies *policy.Engine,
	acquire workspace.AcquireFunc,
) dray.Executor {
	inEnvironment := d.environments.Executor(dray.RunTool, acquire)
	retries := workspace.Retries{Attempts: cfg.Retry.Attempts, Budget: cfg.Retry.Budget}
	guarded := d.breakers.Executor(retries.Executor(inEnvironment))
	decided := d.approvals.Executor(policies, d.shells.Executor(guarded))
	bounded := executor.Deadline(decided, executor.Timeouts{
		Default: cfg.Limits.Timeout, Max: cfg.Limits.MaxTimeout,
	})
	return d.budgets.Executor(d.audit.Executor(call.Recorded(bounded)))
}

// redact replaces the secrets in a text that belongs to no call.
func (d *daemon) redact(text string) string { return d.redactor.Load().Text(text) }

// Serve serves requests until Shutdown.
func (d *daemon) Serve(l net.Listener) error { return d.server.Serve(l) }

// Idle returns since when there has been no request and no call. ok is false while there is one.
func (d *daemon) Idle() (since time.Time, ok bool) { return d.server.Idle() }

// Shutdown waits for the calls until ctx ends, cancels the rest and closes everything.
func (d *daemon) Shutdown(ctx context.Context) error {
	d.admission.Close() // queued calls end
	// a fetch of declared outputs would delay the end of a cancelled call
	defer context.AfterFunc(ctx, d.transfer.Stop)()
	err := d.server.Shutdown(ctx)
	d.audit.PostEvent(&audit.DaemonStopped{PID: os.Getpid(), Error: errorText(err)})
	return errors.Join(err, d.close(context.WithoutCancel(ctx)))
}

func (d *daemon) close(ctx context.Context) error {
	var err error
	if d.stopRetention != nil {
		d.stopRetention()
	}
	if d.python != nil {
		d.python.Close() // while the environments of its workers are there
	}
	if d.upstreams != nil {
		d.upstreams.close()
	}
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
	if d.host != nil {
		err = errors.Join(err, d.host.Close())
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

// syncTimeoutMargin is added to sandbox.timeout for calls of the tool sync, so that the more
// specific timeout of the sync elapses first.
const syncTimeoutMargin = 30 * time.Second

// openTransfer opens the sandbox root. It fails if the root is unusable.
func (d *daemon) openTransfer(ctx context.Context, cfg *config.Config) (*transfer.Syncer, error) {
	s := cfg.Sandbox
	return transfer.Open(ctx, transfer.Config{
		Root: s.Root, Sources: s.Sources, Deny: s.Deny, Timeout: s.Timeout, Executable: s.Executable,
		HostRoots: cfg.Host.Roots, ConfigFile: cfg.FileToEdit(),
		Limits: dray.TreeLimits{
			MaxFile: s.MaxFile, MaxTotal: s.MaxTotal, MaxFiles: s.MaxFiles, MaxDepth: s.MaxDepth,
		},
		Trusted: d.workspaces.Trusted,
		Record:  d.audit.RecordSync,
	})
}
