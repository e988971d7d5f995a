package container_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	dc "github.com/dray-dev/dray/executor/container"
	"github.com/dray-dev/dray/executor/executortest"
)

// EX-15, and the contract: an environment with the agent and one with the engine's exec pass the same suite.
func TestContract(t *testing.T) {
	for _, transport := range []dc.Transport{dc.TransportStdio, dc.TransportEngine} {
		t.Run(string(transport), func(t *testing.T) {
			e := newEngine(t, transport)
			c := runContainer(t, e, debian, nil)
			const dir = "/tmp/work"
			env := environment(t, e, dc.Target{Container: c, User: "vscode", WorkspaceFolder: dir, RemoteEnv: map[string]string{"FROM_REMOTE": "yes"}})
			run(t, env, dray.Spec{Argv: []string{"mkdir", dir}, Dir: "/tmp"}, "")
			id := run(t, env, dray.Spec{Argv: []string{"sh", "-c", "echo $(id -u vscode) $(id -g vscode) $(id -G vscode)"}, Dir: "/tmp"}, "")
			ignored := ""
			if transport == dc.TransportEngine { // nothing of dray's stands between the engine and the tool
				ignored = engineIgnores(t, c)
			}
			executortest.Run(t, executortest.Harness{
				Ignored:     ignored,
				Environment: env, Dir: dir, ID: strings.TrimSpace(id.stdout),
				Set:   []string{"FROM_REMOTE=yes", "HOME=/home/vscode", "HOSTNAME=" + c.Hostname},
				Unset: []string{"PWD", "USER", "DRAY_DEVCONTAINER_CLI", "GOMAXPROCS"},
			})
		})
	}
}

// engineIgnores is the mask of the signals that the engine was started with as ignored, and so are all that it starts.
func engineIgnores(t *testing.T, c dc.Container) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", "exec", c.ID, "grep", "SigIgn", "/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(string(out), "SigIgn:"))
}
