package reference

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Compose calls run with each version of docker compose that dray supports, as a variable that
// selects it: 1.x, the program docker-compose, and 2.x, a plugin of docker. scripts/setup installs
// both. On a machine that has 2.x only, 1.x skips.
func Compose(t *testing.T, run func(t *testing.T, dockerConfig string)) {
	t.Helper()
	t.Run("compose 1", func(t *testing.T) {
		plugins, _ := filepath.Glob("/usr/*/docker/cli-plugins/docker-compose")
		local, _ := filepath.Glob("/usr/local/*/docker/cli-plugins/docker-compose")
		if _, err := exec.LookPath("docker-compose"); err != nil || len(plugins)+len(local) > 0 {
			t.Skip("this machine has no docker-compose 1.x, or has the plugin for all users")
		}
		run(t, "DOCKER_CONFIG="+t.TempDir())
	})
	t.Run("compose 2", func(t *testing.T) { run(t, "DOCKER_CONFIG="+Compose2(t)) })
}

// Compose2 returns the DOCKER_CONFIG that has compose 2.x as a plugin.
func Compose2(tb testing.TB) string {
	tb.Helper()
	plugin, ok := tool(tb, "compose/cli-plugins/docker-compose")
	if !ok {
		tb.Fatal("compose 2 is not installed: run scripts/setup")
	}
	return filepath.Dir(filepath.Dir(plugin))
}
