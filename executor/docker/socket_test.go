package docker_test

import (
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
)

// The handshake selects the channel, which the metadata shows (EX-15).
func TestEnvironment_Channel(t *testing.T) {
	for _, transport := range []docker.Transport{
		docker.TransportAuto, docker.TransportSocket, docker.TransportStdio,
	} {
		t.Run(string(transport), func(t *testing.T) {
			e := newEngine(t, transport)
			env := environment(t, e, runContainer(t, e, debian, nil), agent.Spec{User: "vscode"})
			want := map[bool]string{true: "stdio", false: "socket"}[transport == docker.TransportStdio]
			if got := env.Capabilities().Container; got.Transport != "agent" || got.Channel != want {
				t.Errorf("got %s by %s, want %s", got.Transport, got.Channel, want)
			}
			got := run(t, env, dray.ProcessSpec{Argv: []string{
				"sh", "-c",
				"cat; echo err >/dev/stderr; exit 3",
			}, Dir: "/"}, "in\n")
			if got.stdout != "in\n" || got.stderr != "err\n" || got.exit.Code != 3 {
				t.Errorf("got %+v", got)
			}
		})
	}
}
