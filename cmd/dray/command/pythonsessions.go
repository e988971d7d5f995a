package command

import (
	"go.uber.org/zap"

	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/executor/process"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/tool"
)

// openPython opens the sessions of the tool python, nil if it is disabled.
func openPython(cfg *config.Config, pool *process.Pool, log *zap.Logger) (*python.Sessions, error) {
	p := cfg.Python
	if p.Runtime == config.PythonDisabled {
		return nil, nil
	}
	return python.New(python.Options{
		Runtimes: []python.Runtime{
			&python.Container{Log: log},
			python.NewPyodide(python.PyodideConfig{
				Start: pool.Start, Assets: assetStore(cfg).Open, Dir: cfg.State.Pyodide(), Log: log,
				Preload: p.Pyodide.Preload,
			}),
		},
		Resident: map[string]int{
			python.RuntimeContainer: p.Resident, python.RuntimePyodide: p.Pyodide.Resident,
		},
		Idle: p.Idle, Queue: p.Queue, QueueWait: p.QueueWait,
		// config checks the sum of the budgets
		Memory: p.Memory, RetireAbove: p.Memory,
		Permissions: pythonPermissions(cfg),
		StateFile:   cfg.State.PythonSessions(), Log: log,
	})
}

func pythonPermissions(cfg *config.Config) python.Permissions {
	p := cfg.Python.Permissions
	return python.Permissions{FS: p.FS, Network: p.Network, Env: p.Env}
}

// pythonOptions are the parameters of the tool python.
func (d *daemon) pythonOptions(cfg *config.Config) tool.PythonOptions {
	p := cfg.Python
	return tool.PythonOptions{
		Disabled: p.Runtime == config.PythonDisabled, Sessions: d.python,
		Runtime: string(p.Runtime), Wall: p.Wall, CPU: p.CPU, CallTool: d.callTool,
		RecordFiles: d.audit.RecordSync, Permissions: pythonPermissions(cfg),
		Prepare: python.PreparePolicy{
			SourceBuilds: p.Prepare.SourceBuilds, Index: p.Prepare.Index,
		},
	}
}
