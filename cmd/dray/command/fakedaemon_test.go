package command

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
	"github.com/dray-dev/dray/executor/host"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/api"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/compose"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/policy/approval"
	"github.com/dray-dev/dray/internal/router"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/workspace"
)

// fakeDaemon is a daemon without containers. The packages that need an engine are faked.
type fakeDaemon struct {
	*api.Server
	store    *audit.Store
	pool     *process.Pool
	captures *capture.Store
}

// supervisor is the name under which the test program runs as a supervisor.
const supervisor = "dray-test-supervisor"

func newFakeDaemon(ctx context.Context, cfg *config.Config, log *zap.Logger) (service, error) {
	store, _, err := audit.Open(ctx, audit.Options{
		Path:        cfg.State.AuditDB(),
		CapturesDir: cfg.State.Captures(), Log: log,
	})
	if err != nil {
		return nil, err
	}
	captures, err := openCaptures(cfg, log)
	if err != nil {
		return nil, err
	}
	registry, err := tool.NewRegistry(tool.Options{
		Processes: &executor.Runner{Captures: captures, Grace: cfg.Limits.Grace},
		States:    tool.NewStates(nil, func(context.Context, tool.StateChange) error { return nil }),
	})
	if err == nil {
		count := dray.Tool{Name: "count", Description: "Counts \x1b[31m."}
		err = registry.AddCommand(count, tool.Command{
			Argv:       []string{"sh", "-c", `echo '{"bytes":'$(wc -c)',"title":"\u009b31m"}'`},
			JSONOutput: true,
		})
	}
	if err != nil {
		return nil, err
	}
	routes, err := router.New(router.Rules{}, func(context.Context, string, string) (string, bool) { return "", false })
	if err != nil {
		return nil, err
	}
	pool := process.NewPool(process.SupervisorConfig{
		Path: "/proc/self/exe",
		Args: []string{supervisor},
	})
	hosts := host.New(host.Config{Roots: cfg.Host.Roots, Homes: cfg.State.Homes(), Env: cfg.Host.Env},
		pool)
	chain := executor.Deadline(onHost(hosts, dray.RunTool), executor.Timeouts{
		Default: cfg.Limits.Timeout, Max: cfg.Limits.MaxTimeout,
	})
	calls := call.NewRegistry(call.Options{
		Executor: store.Executor(call.Recorded(fakeSync(chain))), Open: captures.OpenAuto, Log: log,
	})
	srv, err := api.New(api.Config{
		Approvals: approval.New(approval.Config{}),
		Configured: api.Configured{Tools: registry, ConfigDigest: configDigest(cfg), Intake: &call.Intake{
			Tools: registry, Router: routes, Environments: fakeRouteChecker{},
			MaxTimeout: cfg.Limits.MaxTimeout, Budgets: call.NewBudgets(nil, nil),
		}},
		Calls: calls, Audit: store, Prover: store, Record: store.RecordEvent, Rejected: store.CountRejection, Workspaces: fakeWorkspaces{string(cfg.State)},
		Captures: captures, Daemon: fakeStatus{}, Log: log, MaxBody: cfg.Server.MaxBody,
		BodyDir: string(cfg.State), Version: thisBuild().Version,
	})
	if err != nil {
		return nil, err
	}
	return &fakeDaemon{Server: srv, store: store, pool: pool, captures: captures}, nil
}

// Hangup ignores SIGHUP.
func (s *fakeDaemon) Hangup(context.Context) {}

func (s *fakeDaemon) Shutdown(ctx context.Context) error {
	err := s.Server.Shutdown(ctx)
	s.pool.Close()
	s.captures.Close()
	return errors.Join(err, s.store.Close(context.WithoutCancel(ctx)))
}

// onHost runs every call on the host. TEST_PROGRESS makes it report progress, TEST_CHANGES changed
// files.
func onHost(hosts *host.Host, next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		if message := call.Invocation.Env["TEST_PROGRESS"]; message != "" {
			sink.Progress("build", message)
		}
		call.Environment = hosts.Environment(call.Invocation.Workspace)
		res, err := next.Execute(ctx, call, sink)
		if names := call.Invocation.Env["TEST_CHANGES"]; names != "" {
			for name := range strings.SplitSeq(names, ",") {
				digest := fmt.Sprintf("%x", sha256.Sum256([]byte(name)))
				res.Metadata.Changes = append(res.Metadata.Changes,
					dray.FileChange{
						Environment: dray.KindHost, Path: name, Action: dray.FileCreated,
						SHA256After: digest,
					})
			}
		}
		if paths := call.Invocation.Sync; len(paths) > 0 {
			synced, syncErr := syncNamed(filepath.Base(paths[0]), false, false)
			res.Metadata.Sync = synced.Metadata.Sync
			res.Metadata.Sync.Error = dray.AsError(syncErr)
		}
		return res, err
	})
}

// fakeWorkspaces has one workspace and starts no container.
type fakeWorkspaces struct{ state string }

func (fakeWorkspaces) List(context.Context) ([]workspace.Info, error) {
	return []workspace.Info{{
		ID: "w1", Folder: "/srv/a\x1b[2Jpp", State: workspace.Running, Trusted: true,
	}, {ID: "w2", Folder: "/srv/other", State: workspace.Discovered}}, nil
}

func (fakeWorkspaces) ToolFolders() ([]string, error) { return nil, nil }

func (fakeWorkspaces) Register(_ context.Context, name string, reg workspace.Registration,
) (workspace.ContainerState, error) {
	if reg.ID == "taken" {
		return workspace.ContainerState{}, dray.Errorf(dray.CodeConflict, "taken").WithHint("another")
	}
	return workspace.ContainerState{Name: name, ID: reg.ID + reg.Label, State: workspace.Running}, nil
}

func (fakeWorkspaces) Unregister(name string) error {
	if name != "db" {
		return dray.Errorf(dray.CodeNotFound, "no container is registered as %q", name).WithHint("ls")
	}
	return nil
}

func (fakeWorkspaces) Containers(context.Context) ([]workspace.ContainerState, error) {
	return []workspace.ContainerState{
		{
			Name: "app", ID: "c0ffee", State: workspace.Running, Workspace: "/srv/a\x1b[2Jpp",
			Breaker: workspace.BreakerOpen,
		},
		{Name: "db", State: workspace.Discovered},
	}, nil
}

func (fakeWorkspaces) Run(_ context.Context, action workspace.Action, id string,
	progress func(phase, message string),
) (workspace.Info, error) {
	w := workspace.Info{ID: "w1", Folder: id, State: workspace.Stopped}
	switch action {
	case workspace.ActionUp:
		progress("build", "step 1/2 \x1b[2J")
		if strings.HasSuffix(id, "untrusted") {
			return w, dray.Errorf(dray.CodeWorkspaceUntrusted, "the workspace is not trusted").
				WithHint("dray workspace trust %s", id)
		}
		w.State, w.Container = workspace.Running, "c0ffee"
		w.Outdated = true
	case workspace.ActionRebuild:
		progress("remove", "replacing the container")
		w.State, w.Container = workspace.Running, "c0ffee2"
	case workspace.ActionRemove:
		progress("remove", "removing c0ffee2")
		w.State = workspace.Discovered
	}
	return w, nil
}

func (d fakeWorkspaces) store() *trust.Store {
	return trust.NewStore(d.state, nil, compose.Options{})
}

func (d fakeWorkspaces) Review(ctx context.Context, id string) (trust.Review, error) {
	loc, err := devcontainer.Locate(ctx, id, "")
	if err != nil {
		return trust.Review{}, err
	}
	return d.store().Review(ctx, loc)
}

func (d fakeWorkspaces) Trust(ctx context.Context, id, hash string) (workspace.Info, error) {
	w := workspace.Info{ID: "w1", Folder: id, State: workspace.Stopped, Trusted: true}
	loc, err := devcontainer.Locate(ctx, id, "")
	if err != nil {
		return w, err
	}
	summary, err := d.store().Trust(ctx, loc, hash)
	w.Trust = &summary
	return w, err
}

func (d fakeWorkspaces) Revoke(ctx context.Context, id string) (workspace.Info, error) {
	w := workspace.Info{ID: "w1", Folder: id, State: workspace.Stopped}
	loc, err := devcontainer.Locate(ctx, id, "")
	if err != nil {
		return w, err
	}
	return w, d.store().Revoke(ctx, loc)
}

// Mounts maps the workspace to /workspaces/app.
func (fakeWorkspaces) Mounts(_ context.Context, folder, _ string) ([]dray.Mount, error) {
	return []dray.Mount{{Host: folder, Container: "/workspaces/app"}}, nil
}

// fakeRouteChecker accepts every call.
type fakeRouteChecker struct{}

func (fakeRouteChecker) Check(context.Context, dray.Route, dray.Invocation, bool) error {
	return nil
}

// fakeStatus is the status of a daemon without calls.
type fakeStatus struct{}

func (fakeStatus) Reload(context.Context, string) (api.Reload, error) { return api.Reload{}, nil }

func (fakeStatus) Prune(context.Context, audit.PruneOptions) (audit.PruneReport, error) {
	return audit.PruneReport{}, nil
}

func (fakeStatus) Status(context.Context) api.Status { return api.Status{PID: os.Getpid()} }
