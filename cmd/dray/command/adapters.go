package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/executor/agentbin"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/api"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/router"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/workspace"
	"github.com/dray-dev/dray/pathmapper"
)

// supervisorLaunch puts this machine's agent into a sealed file in memory: supervisors on the host
// are the same program as in a container, and nothing on a disk could be swapped for it.
func supervisorLaunch() (process.SupervisorConfig, error) {
	agent, err := agentbin.For(runtime.GOARCH)
	if err != nil {
		return process.SupervisorConfig{}, err
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	// where vm.memfd_noexec is set, it has to be asked for
	fd, err := unix.MemfdCreate("dray-agent", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("dray-agent", flags) // before Linux 6.3
	}
	if err != nil {
		return process.SupervisorConfig{}, fmt.Errorf("making room for the supervisor: %w", err)
	}
	f := os.NewFile(uintptr(fd), "dray-agent")
	if _, err := f.Write(agent.Data); err != nil {
		return process.SupervisorConfig{}, fmt.Errorf("placing the supervisor: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return process.SupervisorConfig{}, fmt.Errorf("sealing the supervisor: %w", err)
	}
	// The file stays open for the daemon's life: the path leads through its descriptor.
	return process.SupervisorConfig{
		Path: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), Args: []string{
			"dray-supervisor",
			"supervise",
		}, Env: []string{"GOMAXPROCS=2"}, KeepOpen: f,
	}, nil
}

// devcontainerCLI finds the reference CLI: configured, else in PATH; absolute either way, so that
// nothing later decides which it is (EX-05). Of one that is not there it gives the configured name,
// for the error of the call that needs it.
func devcontainerCLI(cfg *config.Config) (string, error) {
	name := cfg.Devcontainer.CLI
	if name == "" {
		name = "devcontainer"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return cfg.Devcontainer.CLI,
			fmt.Errorf("the devcontainer CLI is not there, so workspaces cannot be brought up "+
				"(install it with `npm install --global @devcontainers/cli`, or name it in devcontainer.cli): %w", err)
	}
	return path, nil
}

func namedContainers(cfg *config.Config) map[string]workspace.Named {
	named := make(map[string]workspace.Named, len(cfg.Containers))
	for name, c := range cfg.Containers {
		n := workspace.Named{
			Workspace: c.Workspace, Config: c.Config, Service: c.Service, ID: c.ID,
			Label: c.Label,
		}
		for _, m := range c.Mappings {
			n.Mappings = append(n.Mappings, dray.Mount{
				Host: m.Host, Container: m.Container,
				Configured: true,
			})
		}
		named[name] = n
	}
	return named
}

// newToolRegistry returns the built-in tools and the configured ones.
func newToolRegistry(cfg *config.Config, opts tool.Options) (*tool.Registry, error) {
	registry, err := tool.NewRegistry(opts)
	if err != nil {
		return nil, err
	}
	for i, t := range cfg.Tools {
		if err := addTool(registry, t); err != nil {
			key := fmt.Sprintf("tools[%d]", i)
			return nil, dray.Errorf(dray.CodeInvalidRequest, "%s: %s: tool %q: %w",
				cfg.Origin(key+".name"), key, t.Name, err).
				WithHint("correct the tool in the configuration")
		}
	}
	return registry, nil
}

func addTool(registry *tool.Registry, t config.Tool) error {
	return registry.AddCommand(dray.Tool{
		Name: t.Name, Description: t.Description, InputSchema: t.InputSchema,
		OutputSchema: t.OutputSchema, Timeout: t.Timeout, Mapping: dray.MappingMode(t.Mapping),
		RewriteText: t.RewriteText, Results: t.Results, Environment: dray.Requirement{
			Kind: dray.RequirementKind(t.Environment), Container: t.Container,
		},
	}, t.Argv, t.Output == "json")
}

func newRouter(cfg *config.Config,
	nearest func(dir, root string) (folder string, ok bool),
) (*router.Router, error) {
	rules := router.Rules{
		Override: cfg.Routing.Override, Fallback: cfg.Routing.Fallback,
		Plans: map[string]router.PlanRules{}, Containers: map[string]string{},
	}
	for id, p := range cfg.Routing.Plans {
		rules.Plans[id] = router.PlanRules{Override: p.Override, Fallback: p.Fallback}
	}
	for name, c := range cfg.Containers {
		rules.Containers[name] = c.Workspace
	}
	return router.New(rules, nearest)
}

// environmentChecker adapts the workspace manager to the server.
type environmentChecker struct{ manager *workspace.Manager }

func (p environmentChecker) CheckRoute(ctx context.Context, route dray.Route,
	inv dray.Invocation, t *dray.Tool,
) error {
	return p.manager.Check(ctx, route, inv, t.StartsProcess)
}

// workspaceAdapter is the manager as the server uses it.
type workspaceAdapter struct{ manager *workspace.Manager }

func (w workspaceAdapter) List(ctx context.Context) ([]api.Workspace, error) {
	list, err := w.manager.List(ctx)
	all := make([]api.Workspace, len(list))
	for i, info := range list {
		all[i] = workspaceInfo(info)
	}
	return all, err
}

func workspaceInfo(i workspace.Info) api.Workspace {
	return api.Workspace{
		ID: i.ID, Folder: i.Folder, State: string(i.State), Trusted: i.Trusted,
		Container: i.Container,
	}
}

func (w workspaceAdapter) Run(ctx context.Context, verb api.WorkspaceAction, id string,
	progress func(phase, message string),
) (api.Workspace, error) {
	folder, err := w.manager.Folder(ctx, id)
	if err != nil {
		return api.Workspace{}, err
	}
	var trust json.RawMessage
	switch verb {
	case api.WorkspaceUp:
		err = w.manager.Up(ctx, folder, progress)
	case api.WorkspaceStop:
		err = w.manager.Stop(ctx, folder)
	case api.WorkspaceTrust:
		var summary devcontainer.Summary
		if summary, err = w.manager.Trust(ctx, folder); err == nil {
			trust, err = json.Marshal(summary)
		}
	}
	if err != nil {
		return api.Workspace{}, err
	}
	info, err := w.manager.Get(ctx, folder)
	if verb == api.WorkspaceTrust && dray.CodeOf(err) == dray.CodeEngineUnavailable {
		// The trust holds, and who gave it is told of it: of the container nothing is known.
		info, err = workspace.Info{
			ID: workspace.ID(folder), Folder: folder, State: workspace.Discovered,
			Trusted: true,
		}, nil
	}
	out := workspaceInfo(info)
	out.Trust = trust
	return out, err
}

// pathAdapter maps by the mounts of a container.
type pathAdapter struct{ manager *workspace.Manager }

func (p pathAdapter) Map(ctx context.Context, req api.PathsRequest) (api.PathsReply, error) {
	mounts, err := p.manager.Mounts(ctx, req.Workspace, req.Container)
	if err != nil {
		return api.PathsReply{}, err
	}
	mapper, _, err := pathmapper.FromMounts(mounts, nil)
	if err != nil {
		return api.PathsReply{}, err
	}
	direction := pathmapper.ToContainer
	if req.Direction == api.ToHost {
		direction = pathmapper.ToHost
	}
	out, unmapped, err := mapper.Paths(direction, req.Paths)
	return api.PathsReply{Paths: out, Unmapped: unmapped}, err
}
