package command

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dray-dev/dray/internal/enginetest"
)

// wholeDaemon is the variable that selects the real daemon instead of the fake one.
const wholeDaemon = "DRAY_TEST_WHOLE_DAEMON"

// TestEngineScripts runs the program with its real daemon and a real engine.
func TestEngineScripts(t *testing.T) {
	image, cli := needEngine(t)
	engineScripts(t, image, cli)
}

// The same scripts run with Podman (RT-13).
func TestEngineScripts_Podman(t *testing.T) {
	image, cli := needEngine(t)
	own := enginetest.Start(t, enginetest.Options{Podman: true, Images: []string{image, debianImage()}})
	t.Setenv("DOCKER_HOST", own.Host())
	engineScripts(t, image, cli)
}

func engineScripts(t *testing.T, image, cli string) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/engine",
		Cmds: scriptCommands,
		Setup: func(env *testscript.Env) error {
			env.Setenv(wholeDaemon, "1")
			env.Setenv("DRAY_DEVCONTAINER_CLI", cli)
			env.Setenv("DOCKER_HOST", os.Getenv("DOCKER_HOST"))
			env.Defer(func() { removeContainers(filepath.Join(env.WorkDir, "app")) })
			config := filepath.Join(env.WorkDir, "app", ".devcontainer", "devcontainer.json")
			text, err := os.ReadFile(config)
			if err != nil {
				return err
			}
			filled := strings.NewReplacer("IMAGE", image, "DEBIAN", debianImage()).Replace(string(text))
			if err := os.WriteFile(config, []byte(filled), 0o600); err != nil {
				return err
			}
			return setUpScript(env) // its cleanup stops the daemon, before the containers are removed
		},
	})
}

func debianImage() string {
	return cmp.Or(os.Getenv("DRAY_TEST_DEBIAN"), "dray-test/debian:latest")
}

// needEngine returns the image and the path of the devcontainer CLI. It fails without them: a skip
// would hide that they are missing.
func needEngine(t *testing.T) (image, cli string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a container")
	}
	image = cmp.Or(os.Getenv("DRAY_TEST_BUSYBOX"), "dray-test/busybox:latest")
	if out, err := exec.Command("docker", "image", "inspect", image).CombinedOutput(); err != nil {
		t.Fatalf("no engine with the test images, run scripts/setup: %s", out)
	}
	cli, err := exec.LookPath(cmp.Or(os.Getenv("DRAY_DEVCONTAINER_CLI"), "devcontainer"))
	if err != nil {
		t.Fatalf("no devcontainer CLI, run scripts/setup: %v", err)
	}
	return image, cli
}

// removeContainers removes the containers of a workspace.
func removeContainers(folder string) {
	ids := dockerCLI("ps", "-aq", "--filter", "label=devcontainer.local_folder="+folder)
	for _, id := range ids {
		dockerCLI("rm", "-f", id)
	}
}

// dockerCLI returns the output of a docker command, split at white space.
func dockerCLI(args ...string) []string {
	out, _ := exec.Command("docker", args...).Output()
	return strings.Fields(string(out))
}
