package container_test

import (
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
			executortest.Run(t, executortest.Harness{
				Environment: env, Dir: dir, ID: strings.TrimSpace(id.stdout),
				Set:   []string{"FROM_REMOTE=yes", "HOME=/home/vscode", "HOSTNAME=" + c.Hostname},
				Unset: []string{"PWD", "USER", "DRAY_DEVCONTAINER_CLI", "GOMAXPROCS"},
			})
		})
	}
}
