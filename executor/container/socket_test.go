package container_test

import (
	"testing"

	"github.com/dray-dev/dray"
	dc "github.com/dray-dev/dray/executor/container"
)

// EX-15: which channel carries is decided by what succeeds, and shown.
func TestChannel(t *testing.T) {
	for _, transport := range []dc.Transport{dc.TransportAuto, dc.TransportSocket, dc.TransportStdio} {
		t.Run(string(transport), func(t *testing.T) {
			e := newEngine(t, transport)
			env := environment(t, e, dc.EnvironmentSpec{
				Container: runContainer(t, e, debian, placed(t, e)),
				User:      "vscode",
			})
			want := map[bool]string{true: "stdio", false: "socket"}[transport == dc.TransportStdio]
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
