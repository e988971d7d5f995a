package features

import (
	"fmt"
	"testing"

	"github.com/dray-dev/dray/internal/python/assets/assetstest"
)

// TestPyodide runs calls of the runtime pyodide from a trusted workspace with a devcontainer, which
// any call of another tool would start. The daemon has no host.roots: no process may start on the
// host in a directory.
func TestPyodide(t *testing.T) {
	needsEngine(t)
	root := newDir(t)
	writeFiles(t, root, map[string]string{
		"app/.devcontainer/devcontainer.json": `{"image": "` + debian + `"}`,
		"app/sub/data.txt":                    "of the host",
	})
	t.Cleanup(func() { removeContainers(t, root+"/app") })
	runFeature(t, "pyodide.feature", &fixture{
		daemon: startDaemon(t, fmt.Sprintf(`
containers: {py: {id: %s, folder: /workspaces/app}}
trust: {workspaces: [%s/app]}
routing: {plans: {boxed: {override: py}}}
python: {pyodide: {assets: %s}}
`, pythonContainer(t, root+"/app"), root, assetstest.Dir(t))), root: root,
		names: map[string]string{"workspace": root + "/app"},
	})
}
