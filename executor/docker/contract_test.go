package docker_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/executor/executortest"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/enginetest"
)

// Environments with the agent, by socket and by stdio, and one with the engine's exec pass the same
// suite (EX-15).
func TestContract(t *testing.T) {
	contracts(t, inFull)
}

// With Podman they pass it too (RT-13).
func TestContract_Podman(t *testing.T) {
	own := enginetest.Start(t, enginetest.Options{Podman: true, Images: []string{debian}})
	t.Setenv("DOCKER_HOST", own.Host())
	contracts(t, inBrief)
}

func contracts(t *testing.T, brief bool) {
	t.Helper()
	for _, transport := range []docker.Transport{
		docker.TransportSocket, docker.TransportStdio,
		docker.TransportEngine,
	} {
		t.Run(string(transport), func(t *testing.T) {
			contract(t, newEngine(t, transport), nil, brief)
		})
	}
}

// The two lengths of the suite.
const inFull, inBrief = false, true

// contract runs the suite in a new container, which change may configure, and returns its
// environment.
func contract(t *testing.T, e *docker.Engine, change containerChange, brief bool) dray.Environment {
	t.Helper()
	c := runContainer(t, e, debian, change)
	const dir = "/tmp/work"
	env := environment(t, e, c, agent.Spec{
		User: "vscode", WorkspaceFolder: dir,
		RemoteEnv: map[string]string{"FROM_REMOTE": "yes"},
	})
	run(t, env, dray.ProcessSpec{Argv: []string{"mkdir", dir}, Dir: "/tmp"}, "")
	id := run(t, env, dray.ProcessSpec{Argv: []string{
		"sh", "-c",
		"echo $(id -u vscode) $(id -g vscode) $(id -G vscode)",
	}, Dir: "/tmp"}, "")
	ignored := ""
	// no process of dray is between the engine and the tool
	if env.Capabilities().Container.Transport == "engine" {
		ignored = engineIgnores(t, c)
	}
	t.Logf("by %s %s", env.Capabilities().Container.Transport, env.Capabilities().Container.Channel)
	executortest.Run(t, executortest.Harness{
		Ignored: ignored, Brief: brief,
		Environment: env, Dir: dir, ID: strings.TrimSpace(id.stdout),
		Set:   []string{"FROM_REMOTE=yes", "HOME=/home/vscode", "HOSTNAME=" + c.Hostname},
		Unset: []string{"PWD", "USER", "DRAY_DEVCONTAINER_CLI", "GOMAXPROCS"},
	})
	return env
}

// containerChange changes the configuration of a container.
type containerChange = func(*container.Config, *container.HostConfig)

func all(changes ...containerChange) containerChange {
	return func(c *container.Config, h *container.HostConfig) {
		for _, change := range changes {
			if change != nil {
				change(c, h)
			}
		}
	}
}

// engineIgnores returns the mask of the signals that the engine inherited as ignored. Every process
// that it starts ignores them too.
func engineIgnores(t *testing.T, c devcontainer.ContainerInfo) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", "exec", c.ID, "grep", "SigIgn",
		"/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(string(out), "SigIgn:"))
}
