package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/executor/agentbin"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/router"
	"github.com/dray-dev/dray/internal/tool"
	"github.com/dray-dev/dray/internal/workspace"
)

// supervisorLaunch writes the agent of this architecture to a sealed file in memory. Supervisors on
// the host are the same program as in a container, and no file on disk can replace it.
func supervisorLaunch() (process.SupervisorConfig, error) {
	agent, err := agentbin.For(runtime.GOARCH)
	if err != nil {
		return process.SupervisorConfig{}, err
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	// with vm.memfd_noexec the file is not executable by default
	fd, err := unix.MemfdCreate("dray-agent", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("dray-agent", flags) // before Linux 6.3
	}
	if err != nil {
		return process.SupervisorConfig{}, fmt.Errorf("create a file for the supervisor: %w", err)
	}
	f := os.NewFile(uintptr(fd), "dray-agent")
	if _, err := f.Write(agent.Data); err != nil {
		return process.SupervisorConfig{}, fmt.Errorf("write the supervisor: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return process.SupervisorConfig{}, fmt.Errorf("seal the supervisor: %w", err)
	}
	// the path names the fd, so the file stays open for the life of the daemon
	return process.SupervisorConfig{
		Path: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()),
		Args: []string{"dray-supervisor", "supervise"}, Env: []string{"GOMAXPROCS=2"}, KeepOpen: f,
	}, nil
}

// useSafePath removes unsafe elements from this process' PATH, by which it and its helper programs
// find programs, and returns them.
func useSafePath(cfg *config.Config) (unsafe []string, err error) {
	workspaces := slices.Clone(cfg.Trust.Workspaces)
	for _, c := range cfg.Containers {
		if c.Workspace != "" {
			workspaces = append(workspaces, c.Workspace)
		}
	}
	path, unsafe := workspace.SafePath(os.Getenv("PATH"), workspaces...)
	return unsafe, os.Setenv("PATH", path)
}

// devcontainerCLI returns the absolute path of the reference CLI, the configured one or that in
// PATH (EX-05). If it is missing, devcontainerCLI returns the configured name with the error.
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
			fmt.Errorf("the devcontainer CLI was not found, so no workspace can be started (install it "+
				"with `npm install --global @devcontainers/cli`, or set devcontainer.cli): %w", err)
	}
	return path, nil
}

func namedContainers(cfg *config.Config) map[string]workspace.Named {
	named := make(map[string]workspace.Named, len(cfg.Containers))
	for name, c := range cfg.Containers {
		n := workspace.Named{
			Workspace: c.Workspace, Config: c.Config, Service: c.Service, ID: c.ID,
			Label: c.Label, User: c.User, Folder: c.Folder,
		}
		for _, m := range c.Mappings {
			n.Mappings = append(n.Mappings, dray.Mount{
				Host: m.Host, Container: m.Container, Configured: true,
			})
		}
		named[name] = n
	}
	return named
}

// newToolRegistry returns the built-in tools and the configured ones. It fails with a
// [*config.InvalidError] that has all mistakes in all tools.
func newToolRegistry(cfg *config.Config, opts tool.Options) (*tool.Registry, error) {
	registry, err := tool.NewRegistry(opts)
	if err != nil {
		return nil, err
	}
	if found := addTools(registry, cfg); len(found) > 0 {
		return nil, &config.InvalidError{Diagnostics: found}
	}
	return registry, nil
}

// addTools adds the configured tools and returns all mistakes in them, except in tools without name
// or argv, which are reported already.
func addTools(registry *tool.Registry, cfg *config.Config) []config.Diagnostic {
	var found []config.Diagnostic
	for i, t := range cfg.Tools {
		if t.Name == "" || len(t.Argv) == 0 {
			continue
		}
		err := registry.AddCommand(commandTool(t))
		if invalid, ok := errors.AsType[*tool.InvalidError](err); ok {
			found = append(found, toolDiagnostics(cfg, i, invalid)...)
		}
	}
	return found
}

func commandTool(t config.Tool) (dray.Tool, tool.Command) {
	data := dray.Tool{
		Name: t.Name, Description: t.Description, InputSchema: t.InputSchema,
		OutputSchema: t.OutputSchema, Timeout: t.Timeout, Mapping: dray.MappingMode(t.Mapping),
		RewriteText: t.RewriteText, Results: t.Results, InWorkspace: t.Cwd == "workspace",
		Idempotent: t.Idempotent, Capabilities: dray.ToolCapabilities(t.Capabilities),
		Environment: dray.Requirement{
			Kind: dray.RequirementKind(t.Environment), Container: t.Container,
		},
	}
	return data, tool.Command{
		Argv: t.Argv, Stdin: t.Stdin, Env: t.Env, SuccessCodes: t.SuccessCodes,
		JSONOutput: t.Output == "json",
	}
}

// toolDiagnostics returns the mistakes in a tool with their origins in the configuration.
func toolDiagnostics(cfg *config.Config, i int, invalid *tool.InvalidError) []config.Diagnostic {
	var found []config.Diagnostic
	for _, v := range invalid.Violations {
		key := fmt.Sprintf("tools[%d].%s", i, v.Key)
		found = append(found, config.Diagnostic{
			Origin: cfg.Origin(key), Key: key, Problem: v.Problem, Suggestion: v.Fix,
		})
	}
	return found
}

func planBudgets(cfg *config.Config) map[string]dray.PlanUsage {
	budgets := map[string]dray.PlanUsage{}
	for id, p := range cfg.Routing.Plans {
		budgets[id] = dray.PlanUsage{
			Calls: int64(p.Budget.Calls), Wall: p.Budget.Wall, Bytes: p.Budget.Bytes,
		}
	}
	return budgets
}

func newRouter(cfg *config.Config,
	nearest func(ctx context.Context, dir, root string) (folder string, ok bool),
	isRegistered func(name string) bool,
) (*router.Router, error) {
	rules := router.Rules{
		Override: cfg.Routing.Override, Fallback: cfg.Routing.Fallback,
		Plans: map[string]router.PlanRules{}, Containers: map[string]string{},
		IsRegistered: isRegistered,
	}
	for id, p := range cfg.Routing.Plans {
		rules.Plans[id] = router.PlanRules{Override: p.Override, Fallback: p.Fallback}
	}
	for name, c := range cfg.Containers {
		rules.Containers[name] = c.Workspace
	}
	return router.New(rules, nearest)
}
