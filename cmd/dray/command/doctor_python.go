package command

import (
	"context"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/python"
	"github.com/dray-dev/dray/internal/python/assets"
)

// checkPyodide checks the files of the runtime pyodide. They may be missing unless it is the
// default runtime, but files that differ from their pins are reported in any case.
func (d *doctor) checkPyodide(ctx context.Context) {
	const check = "pyodide"
	if d.cfg.Python.Runtime == config.PythonDisabled {
		return
	}
	store := assetStore(d.cfg)
	found, err := store.Open(ctx)
	if err == nil {
		err = python.CheckPreload(d.cfg.Python.Pyodide.Preload, found.Packages)
	}
	known := dray.AsError(err)
	switch {
	case err == nil:
		d.ok(check, "Deno %s, Pyodide %s, Python %s, %d packages in %s", found.DenoVersion,
			found.PyodideVersion, found.PythonVersion, len(found.Packages), found.Dir)
	case d.cfg.Python.Runtime == config.PythonPyodide:
		d.fail(check, err, "")
	case assets.IsMissing(err):
		d.ok(check, "not installed: Python runs in containers only, until `dray python fetch`")
	default:
		d.warn(check, known.Hint, "%s", known.Message)
	}
}

// checkPython reports the limits of sessions. The python3 of a container is not checked: that would
// start containers.
func (d *doctor) checkPython() {
	p := d.cfg.Python
	if p.Runtime == config.PythonDisabled {
		d.ok("python", "disabled by python.runtime")
		return
	}
	d.ok("python", "runtime %s, up to %d sessions of %s each; python3 of a container is checked by "+
		"its first call", p.Runtime, p.Resident, formatBytes(p.Memory))
}
