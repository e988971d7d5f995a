package docker_test

import (
	"testing"

	"github.com/moby/moby/api/types/container"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
)

// In a container with a memory limit a KILL by the kernel is distinguished from any other, and the
// agent and its supervisors survive it (EX-12).
func TestOOM(t *testing.T) {
	for _, transport := range []docker.Transport{docker.TransportSocket, docker.TransportStdio} {
		t.Run(string(transport), func(t *testing.T) {
			e := newEngine(t, transport)
			c := runContainer(t, e, debian, func(_ *container.Config, h *container.HostConfig) {
				h.Memory, h.MemorySwap = 96<<20, 96<<20
			})
			env := environment(t, e, c, agent.Spec{User: "vscode", WorkspaceFolder: "/tmp"})
			for _, test := range []struct {
				script string
				want   dray.OOM
			}{
				{"kill -9 $$", dray.OOMNo},
				{"exec tail /dev/zero", dray.OOMCertain},
				{"tail /dev/zero; exit 3", dray.OOMNo},
				{"kill -9 $$", dray.OOMNo},
			} {
				got := run(t, env, dray.ProcessSpec{Argv: []string{"sh", "-c", test.script}}, "")
				if got.exit.OOM != test.want {
					t.Errorf("%q: got %+v, want %v", test.script, got, test.want)
				}
			}
		})
	}
}
