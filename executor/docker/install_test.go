package docker_test

import (
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
)

var id = dray.ProcessSpec{Argv: []string{"id", "-u"}, Dir: "/"}

func readOnly(_ *container.Config, h *container.HostConfig) { h.ReadonlyRootfs = true }

// In a container with a read-only root file system the agent runs too (EX-15, EX-22).
func TestEnvironment_ReadOnlyRoot(t *testing.T) {
	for _, transport := range []docker.Transport{docker.TransportSocket, docker.TransportStdio} {
		t.Run(string(transport), func(t *testing.T) {
			e := newEngine(t, transport)
			env := environment(t, e, runContainer(t, e, debian, readOnly), agent.Spec{User: "vscode"})
			if got := env.Capabilities().Container; got.Transport != "agent" ||
				got.Channel != string(transport) {
				t.Errorf("by %s %s", got.Transport, got.Channel)
			}
			checkProgramIsSafe(t, env, "/dev/.dray-agent")
		})
	}
}

// A tool of another user cannot replace the agent's program, or add one beside it (EX-15).
func TestEnvironment_ProgramIsSafe(t *testing.T) {
	e := newEngine(t, docker.TransportAuto)
	env := environment(t, e, runContainer(t, e, debian, nil), agent.Spec{User: "vscode"})
	checkProgramIsSafe(t, env, "/.dray-agent")
}

func checkProgramIsSafe(t *testing.T, env dray.Environment, dir string) {
	t.Helper()
	got := run(t, env, dray.ProcessSpec{Argv: []string{
		"sh", "-c", `ls $0; touch $0/x; rm -f $0/*; mv $0 $0-2; ls $0; echo x >>$0/*`, dir,
	}, Dir: "/"}, "")
	if names := strings.Fields(got.stdout); len(names) != 2 || names[0] != names[1] ||
		strings.Count(strings.ToLower(got.stderr), "denied") != 4 {
		t.Errorf("got %+v", got)
	}
}

// An agent of another protocol is detected by its hello. The engine's exec is used, with a warning
// that says why (EX-15, EX-21).
func TestEnvironment_IncompatibleAgent(t *testing.T) {
	e := newEngine(t, docker.TransportAuto)
	hello := `\020\022\002v9` // protocols 8 to 9, packed, and the version with its length
	e.SetAgent([]byte("#!/bin/sh\nprintf 'DRAYWIRE\\005\\0\\0\\0\\0\\0\\0\\0\\1\\0" + hello +
		"'\ncat >/dev/null\n"))
	env := environment(t, e, runContainer(t, e, debian, nil), agent.Spec{})
	if got := run(t, env, id, ""); got.stdout != "0\n" {
		t.Errorf("got %+v", got)
	}
	caps := env.Capabilities()
	if caps.Container.Transport != "engine" || !strings.Contains(strings.Join(caps.Warnings, " "),
		`the peer (version "v9") speaks protocols 8 to 9`) {
		t.Errorf("by %s, warnings %q", caps.Container.Transport, caps.Warnings)
	}
}

// If the agent cannot be installed, the engine's exec is used, with a warning. A transport that
// needs the agent fails (EX-15).
func TestEnvironment_AgentNotInstallable(t *testing.T) {
	e := newEngine(t, docker.TransportAuto)
	c := runContainer(t, e, debian, all(readOnly, func(_ *container.Config, h *container.HostConfig) {
		h.Mounts = []mount.Mount{{Type: mount.TypeTmpfs, Target: "/dev/.dray-agent", ReadOnly: true}}
	}))
	for range 2 { // the second time from the cache
		env := environment(t, e, c, agent.Spec{})
		caps := env.Capabilities()
		if caps.Container.Transport != "engine" || caps.ExactSurvivors || len(caps.Warnings) != 1 ||
			!strings.Contains(caps.Warnings[0], "with its shell: \"mkdir") {
			t.Errorf("got %+v", caps)
		}
		if got := run(t, env, id, ""); got.stdout != "0\n" {
			t.Errorf("got %+v", got)
		}
	}
	strict := newEngine(t, docker.TransportStdio)
	_, err := strict.Environment(t.Context(), c, agent.Spec{})
	if dray.CodeOf(err) != dray.CodeContainerUnavailable ||
		!strings.Contains(dray.AsError(err).Hint, "agent.transport") {
		t.Errorf("got %v", err)
	}
}
