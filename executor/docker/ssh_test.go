package docker_test

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/internal/enginetest"
)

// An engine on an ssh host runs calls, by DOCKER_HOST and by a context; the error of a host that
// does not answer has its address and the setting that selected it (RT-13).
func TestSSHHost(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a container engine")
	}
	box := runContainer(t, newEngine(t, docker.TransportAuto), busybox, nil)
	host := enginetest.SSHHost(t)
	for source, selectHost := range map[string]func(){
		"DOCKER_HOST":    func() { t.Setenv("DOCKER_HOST", host) },
		"currentContext": func() { dockerConfig(t, "remote", "remote="+host) },
	} {
		t.Run(source, func(t *testing.T) {
			selectHost()
			e := newEngine(t, docker.TransportAuto)
			if e.Host() != host || !strings.HasPrefix(e.Source(), source) {
				t.Errorf("the engine is %s by %s", e.Host(), e.Source())
			}
			info, err := e.Inspect(t.Context(), box.ID)
			if err != nil {
				t.Fatal(err)
			}
			env := environment(t, e, info, agent.Spec{})
			got := run(t, env, dray.ProcessSpec{Argv: []string{"sh", "-c", "cat; exit 3"}, Dir: "/"}, "by ssh")
			if got.stdout != "by ssh" || got.exit.Code != 3 {
				t.Errorf("got %+v", got)
			}
		})
	}
	const absent = "ssh://root@127.0.0.1:1"
	e, err := docker.NewEngine(docker.EndpointConfig{Host: absent}, docker.Options{Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	_, err = e.Inspect(t.Context(), box.ID)
	if dray.CodeOf(err) != dray.CodeEngineUnavailable || !strings.Contains(err.Error(), absent) ||
		!strings.Contains(dray.AsError(err).Hint, "selected by engine.host") {
		t.Errorf("got %v", err)
	}
}
