package command

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/api"
	"github.com/dray-dev/dray/internal/devcontainer/trust"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/tool"
)

// projectTools are the tools that workspaces declare in .dray/tools.yaml (RT-15), for one
// configuration of the daemon. It is safe for concurrent use.
type projectTools struct {
	read       func(ctx context.Context, folder string) (*trust.ToolsFile, error)
	daemon     *tool.Registry
	maxTimeout time.Duration

	mu       sync.Mutex
	compiled map[string]compiledTools // by the workspace as calls name it
}

type compiledTools struct {
	file  *trust.ToolsFile
	tools *tool.Registry
}

// maxCompiled bounds the workspaces whose tools are in memory.
const maxCompiled = 256

// in returns the tools that a workspace declares, nil if it declares none. A directory without a
// devcontainer declares none, because they need its container. If the file is invalid, no tool of
// it can be called, and in fails with unknown_tool.
func (p *projectTools) in(ctx context.Context, folder string) (*tool.Registry, error) {
	file, err := p.read(ctx, folder)
	switch dray.CodeOf(err) {
	case dray.CodeNoDevcontainer, dray.CodeWorkspaceNotFound:
		return nil, nil
	}
	if err != nil || file.Text == nil {
		return nil, err
	}
	p.mu.Lock()
	known := p.compiled[folder]
	p.mu.Unlock()
	if known.file == file {
		return known.tools, nil
	}
	tools, err := p.compile(folder, file)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.compiled == nil || len(p.compiled) >= maxCompiled {
		p.compiled = map[string]compiledTools{}
	}
	p.compiled[folder] = compiledTools{file, tools}
	return tools, nil
}

func (p *projectTools) compile(folder string, file *trust.ToolsFile) (*tool.Registry, error) {
	tools := p.daemon.Project(file.Workspace, func(ctx context.Context) error {
		if file.Untrusted != nil {
			return file.Untrusted // after a trust the file is read again, and compiled anew
		}
		now, err := p.read(ctx, folder)
		switch {
		case err != nil:
			return err
		case now.Untrusted != nil:
			return now.Untrusted
		case !bytes.Equal(now.Text, file.Text):
			return dray.Errorf(dray.CodeWorkspaceUntrusted, "%s has changed since the call was accepted",
				file.Path).WithHint("repeat the call")
		}
		return nil
	})
	cfg, found := config.ReadProjectTools(file.Path, file.Text)
	found = append(found, addTools(tools, cfg)...)
	found = append(found, p.checkTimeouts(cfg)...)
	if len(found) > 0 {
		config.SortDiagnostics(found)
		return nil, dray.Errorf(dray.CodeUnknownTool, "no tool of %s can be called: %s",
			file.Workspace, found[0].Summary()).
			WithHint("run dray tools lint %s, and correct the file", lexical.ShellWord(file.Path))
	}
	return tools, nil
}

// checkTimeouts refuses the timeouts that would exceed the daemon's maximum.
func (p *projectTools) checkTimeouts(cfg *config.Config) []config.Diagnostic {
	var found []config.Diagnostic
	for i, t := range cfg.Tools {
		if t.Timeout > p.maxTimeout {
			found = append(found, toolDiagnostics(cfg, i, &tool.InvalidError{
				Tool: t.Name, Violations: []tool.Violation{{
					Key: "timeout", Problem: "exceeds limits.max_timeout of the daemon, which is " +
						p.maxTimeout.String(), Fix: "shorten it",
				}},
			})...)
		}
	}
	return found
}

// get returns a tool that a workspace declares, for a call.
func (p *projectTools) get(ctx context.Context, folder, name string) (*dray.Tool, error) {
	tools, err := p.in(ctx, folder)
	if err != nil {
		return nil, err
	}
	if tools == nil {
		return p.daemon.Get(ctx, name)
	}
	return tools.Get(ctx, name)
}

// list is in for the HTTP interface.
func (p *projectTools) list(ctx context.Context, folder string) (api.Tools, error) {
	tools, err := p.in(ctx, folder)
	if tools == nil {
		return nil, err
	}
	return tools, err
}

// activeProjectTools returns the tools that a workspace declares and that may run.
func (g *generation) activeProjectTools(ctx context.Context, folder string) ([]*dray.Tool, error) {
	tools, err := g.projectTools.in(ctx, folder)
	if tools == nil || err != nil {
		return nil, err
	}
	return tools.Active(ctx), nil
}
