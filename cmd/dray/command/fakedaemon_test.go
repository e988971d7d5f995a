package command

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/dray-dev/dray/internal/router"
	"github.com/dray-dev/dray/internal/tool"
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
	})
	if err == nil {
		count := dray.Tool{Name: "count", Description: "Counts \x1b[31m."}
		err = registry.AddCommand(count, []string{
			"sh", "-c", `echo '{"bytes":'$(wc -c)',"title":"\u009b31m"}'`,
		}, true)
	}
	if err != nil {
		return nil, err
	}
	routes, err := router.New(router.Rules{}, func(string, string) (string, bool) { return "", false })
	if err != nil {
		return nil, err
	}
	pool := process.NewPool(process.SupervisorConfig{
		Path: "/proc/self/exe",
		Args: []string{supervisor},
	})
	hosts := host.New(host.Config{Roots: cfg.Host.Roots, Homes: cfg.State.Homes(), Env: cfg.Host.Env},
		pool)
	chain := executor.Deadline(onHost(hosts, dray.RunTool), cfg.Limits.Timeout)
	chain = store.Executor(call.MarkAccepted(fakeSync(routes.Executor(chain))))
	srv, err := api.New(api.Config{
		Executor: chain, Records: store, Tools: registry, Router: routes, Places: fakeRouteChecker{},
		Workspaces: fakeWorkspaces{string(cfg.State)}, Paths: fakePaths{}, Captures: captures,
		Log: log, MaxBody: cfg.Server.MaxBody, MaxTimeout: cfg.Limits.MaxTimeout,
	})
	if err != nil {
		return nil, err
	}
	return &fakeDaemon{Server: srv, store: store, pool: pool, captures: captures}, nil
}

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

func (fakeWorkspaces) List(context.Context) ([]api.Workspace, error) {
	return []api.Workspace{{ID: "w1", Folder: "/srv/a\x1b[2Jpp", State: "running", Trusted: true}},
		nil
}

func (d fakeWorkspaces) Run(ctx context.Context, verb api.WorkspaceAction, id string,
	progress func(phase, message string),
) (api.Workspace, error) {
	w := api.Workspace{ID: "w1", Folder: id, State: "stopped"}
	switch verb {
	case api.WorkspaceTrust:
		loc, err := devcontainer.Locate(id, "")
		if err != nil {
			return w, err
		}
		noGit := func(context.Context, string, ...string) (string,
			error,
		) {
			return "", errors.New("no git")
		}
		summary, err := devcontainer.NewTrustStore(d.state, nil, noGit).Trust(ctx, loc)
		if err != nil {
			return w, err
		}
		w.Trusted = true
		w.Trust, err = json.Marshal(summary)
		return w, err
	case api.WorkspaceUp:
		progress("build", "step 1/2 \x1b[2J")
		if strings.HasSuffix(id, "untrusted") {
			return w, dray.Errorf(dray.CodeWorkspaceUntrusted, "the workspace is not trusted").
				WithHint("dray workspace trust %s", id)
		}
		w.State, w.Container = "running", "c0ffee"
	}
	return w, nil
}

// fakePaths maps the workspace to /workspaces/app.
type fakePaths struct{}

func (fakePaths) Map(_ context.Context, req api.PathsRequest) (api.PathsReply, error) {
	from, to := req.Workspace, "/workspaces/app"
	if req.Direction == api.ToHost {
		from, to = to, from
	}
	reply := api.PathsReply{Paths: []string{}, Unmapped: []string{}}
	for _, p := range req.Paths {
		rest, under := strings.CutPrefix(p+"/", from+"/")
		if !under {
			reply.Paths, reply.Unmapped = append(reply.Paths, p), append(reply.Unmapped, p)
			continue
		}
		reply.Paths = append(reply.Paths, strings.TrimSuffix(to+"/"+rest, "/"))
	}
	return reply, nil
}

// fakeRouteChecker accepts every call.
type fakeRouteChecker struct{}

func (fakeRouteChecker) CheckRoute(context.Context, dray.Route, dray.Invocation, *dray.Tool) error {
	return nil
}
