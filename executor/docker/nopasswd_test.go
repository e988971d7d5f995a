package docker_test

import (
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
)

// Without /etc/passwd the default user is uid 0, as with `docker exec`, by each transport (EX-07).
func TestDefaultUserWithoutPasswd(t *testing.T) {
	for _, transport := range []docker.Transport{
		docker.TransportSocket, docker.TransportStdio, docker.TransportEngine,
	} {
		t.Run(string(transport), func(t *testing.T) {
			e := newEngine(t, transport)
			env := environment(t, e, runContainer(t, e, busybox, nil), agent.Spec{})
			run(t, env, dray.ProcessSpec{Argv: []string{"rm", "/etc/passwd", "/etc/group"}, Dir: "/"}, "")
			for range 3 {
				if got := run(t, env, id, ""); got.stdout != "0\n" {
					t.Fatalf("got %+v", got)
				}
			}
		})
	}
}
